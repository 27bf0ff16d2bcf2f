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

echo "==== a second run: another folder and time zone, no compiler cache"
(cd "$release" && sha256sum --quiet --check SHA256SUMS)
COMMIT=$(cat "$release/COMMIT") PYTHONS='' TZ=Asia/Kathmandu CCACHE_DISABLE=1 "$root/scripts/release.sh" "$work/again"
diff "$release/SHA256SUMS" "$work/again/SHA256SUMS" || {
  echo "release_check.sh: files differ; compare $release with what release.sh makes elsewhere" >&2
  exit 1
}

echo "release_check.sh: the same bytes twice"
"$root/scripts/deb_check.sh" "$release"/ropewalk_*.deb
