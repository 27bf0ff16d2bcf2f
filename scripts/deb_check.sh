#!/usr/bin/env bash
# Installs the Debian package in a clean Debian of this machine's version (debootstrap, from this machine's mirror), measures
# the model that it brings, and removes it. Needs root and network.
#   usage: scripts/deb_check.sh ropewalk_VERSION_ARCH.deb
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
deb=$1
[ "$(id -u)" = 0 ] || { echo "deb_check.sh: needs root, for debootstrap" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "==== the Debian package in a clean system"
. /etc/os-release
mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
  awk -v suite="$VERSION_CODENAME" '$1 == suite && $2 == "main" { print $3; exit }')
clean=$work/clean
debootstrap --variant=minbase "$VERSION_CODENAME" "$clean" "$mirror" >"$work/log" || { tail -20 "$work/log" >&2; exit 1; }
echo "deb $mirror $VERSION_CODENAME main" >"$clean/etc/apt/sources.list"
cp "$deb" "$clean/srv/ropewalk.deb"
"$root/scripts/heldout_text.sh" >"$clean/srv/text"
in_clean() { chroot "$clean" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv DEBIAN_FRONTEND=noninteractive "$@"; }
in_clean apt-get update -qq
in_clean apt-get install -y -qq --no-install-recommends /srv/ropewalk.deb >"$work/log" || { tail -20 "$work/log" >&2; exit 1; }
in_clean ropewalk --version
in_clean ropewalk sweep /usr/share/ropewalk/models --text /srv/text --methods none,yarn --lengths 1024,2048 \
  --tasks perplexity --anchors 2 -o /srv/sweep
[ "$(wc -l <"$clean/srv/sweep/results.jsonl")" -ge 5 ]
[ -s "$clean/srv/sweep/report.html" ]
[ -z "$(in_clean dpkg --verify ropewalk)" ]
in_clean ldconfig -p | grep -F libropewalk.so.0
in_clean dpkg --purge ropewalk >/dev/null
left=$(find "$clean/usr" -ipath '*ropewalk*')
[ -z "$left" ] || { echo "deb_check.sh: left behind: $left" >&2; exit 1; }
echo "deb_check.sh: installs, measures and leaves nothing behind"
