#!/usr/bin/env bash
# Proves that the project builds and passes its tests on Debian 13 (newer Highway, oneDNN 3.x, GCC 14) in a
# debootstrapped root. Needs root and about 3 GB.
#   scripts/check_debian13.sh DIR [MIRROR]
set -euo pipefail
dir=${1:?usage: scripts/check_debian13.sh DIR [MIRROR]}
mirror=${2:-http://deb.debian.org/debian}
source=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "debootstrap needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap

if [ ! -e "$dir/ropewalk.ready" ]; then
  debootstrap --variant=minbase trixie "$dir" "$mirror"
  cp /etc/resolv.conf /etc/hosts "$dir/etc/"  # the host's way to the network
  touch "$dir/ropewalk.ready"
fi
rm -rf "$dir/src/ropewalk"
mkdir -p "$dir/src"
git clone -q --no-hardlinks "$source" "$dir/src/ropewalk"
mount --bind /proc "$dir/proc"
trap 'umount "$dir/proc"' EXIT
chroot "$dir" /bin/bash -ec 'apt-get update -qq && apt-get install -y -qq --no-install-recommends make git >/dev/null
  git config --global --add safe.directory /src/ropewalk
  cd /src/ropewalk && make test'
