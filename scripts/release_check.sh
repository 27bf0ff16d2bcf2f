#!/usr/bin/env bash
# What is said of a release, tried out: a second run elsewhere gives the same bytes, and the Debian package works in a clean
# Debian of this machine's version. Needs root, for debootstrap, and network.
#   usage: scripts/release_check.sh RELEASE      a folder that scripts/release.sh wrote
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
release=$(cd "$1" && pwd)
[ "$(id -u)" = 0 ] || { echo "release_check.sh: needs root, for debootstrap" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "==== a second run: another folder, time zone and order of files in it, no compiler cache"
(cd "$release" && sha256sum --quiet --check SHA256SUMS)
PYTHONS='' TZ=Asia/Kathmandu CCACHE_DISABLE=1 "$root/scripts/release.sh" "$work/again"
diff "$release/SHA256SUMS" "$work/again/SHA256SUMS" || {
  echo "release_check.sh: files differ; compare $release with what release.sh makes elsewhere" >&2
  exit 1
}

echo "==== the Debian package in a clean system"
. /etc/os-release
mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
  awk -v suite="$VERSION_CODENAME" '$1 == suite && $2 == "main" { print $3; exit }')
clean=$work/clean
debootstrap --variant=minbase "$VERSION_CODENAME" "$clean" "$mirror" >"$work/log" || { tail -20 "$work/log" >&2; exit 1; }
echo "deb $mirror $VERSION_CODENAME main" >"$clean/etc/apt/sources.list"
cp "$release"/ropewalk_*.deb "$clean/root/ropewalk.deb"
"$root/scripts/heldout_text.sh" >"$clean/root/text"
in_clean() { chroot "$clean" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
in_clean apt-get update -qq
in_clean apt-get install -y -qq --no-install-recommends /root/ropewalk.deb >"$work/log" || { tail -20 "$work/log" >&2; exit 1; }
in_clean ropewalk --version
in_clean ropewalk sweep /usr/share/ropewalk/models --text /root/text --methods none,yarn --lengths 1024,2048 \
  --tasks perplexity --anchors 2 -o /root/sweep
[ "$(wc -l <"$clean/root/sweep/results.jsonl")" -ge 5 ]
[ -s "$clean/root/sweep/report.html" ]
[ -z "$(in_clean dpkg --verify ropewalk)" ]
in_clean ldconfig -p | grep -F libropewalk.so.0
in_clean dpkg --purge ropewalk >/dev/null
left=$(find "$clean/usr" -ipath '*ropewalk*')
[ -z "$left" ] || { echo "release_check.sh: left behind: $left" >&2; exit 1; }
echo "release_check.sh: the same bytes twice, and a package that installs, measures and leaves"
