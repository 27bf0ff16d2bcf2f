#!/usr/bin/env bash
# Proves that the project builds and passes its tests on Debian 13 (newer Highway, oneDNN 3.x,
# GCC 14) in a debootstrapped root, and prints the versions that it was proven with. Needs root and about 3 GB.
#   scripts/check_debian13.sh DIR [MIRROR]
# A DIR that is there already is used again. CMAKE_ARGS and ROPEWALK_TEST_DATA mean what they do for `make test`.
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
rm -rf "$dir/src/ropewalk" "$dir/src/data"
mkdir -p "$dir/src"
git clone -q --no-hardlinks "$source" "$dir/src/ropewalk"
if [ -n "${ROPEWALK_TEST_DATA:-}" ]; then
  cp -r "$ROPEWALK_TEST_DATA" "$dir/src/data"
  export ROPEWALK_TEST_DATA=/src/data
fi
mount -t proc proc "$dir/proc"
trap 'umount "$dir/proc"' EXIT
chroot "$dir" /bin/bash -ec 'apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make git >/dev/null
  cd /src/ropewalk
  make test CMAKE_ARGS="${CMAKE_ARGS:-}"
  . /etc/os-release && echo "proven on $PRETTY_NAME with"
  dpkg-query -W cmake g++ libhwy-dev libdnnl-dev libfmt-dev libcli11-dev nlohmann-json3-dev \
    libsentencepiece-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcpp-httplib-dev libgtest-dev libmpfr-dev python3'
