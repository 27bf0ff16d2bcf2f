#!/usr/bin/env bash
# Makes the files of a release from the last commit: wheel and source distribution of the Python package, Debian package,
# tarball, what they are made of (CycloneDX), checksums. From the same commit on the same system come the same bytes
# (scripts/release_check.sh holds that against a second run).
#   usage: scripts/release.sh OUT      what is built stands in OUT/source and OUT/wheel meanwhile
# COMMIT: another one than the last; OUT/COMMIT says which it was. PYTHONS: see scripts/wheel.sh.
set -euo pipefail
umask 022
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
commit=$(git -C "$root" rev-parse --verify "${COMMIT:-HEAD}^{commit}")
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH
[ -z "$(git -C "$root" status --porcelain)" ] || echo "release.sh: what is not committed is not in the release" >&2

rm -rf "$out"/{source,wheel,ropewalk*,SHA256SUMS,COMMIT}
mkdir "$out/source"
echo "$commit" >"$out/COMMIT"
git -C "$root" archive "$commit" | tar -x -C "$out/source"
cd "$out/source"
# Neither git nor what else stands around the sources has a say.
export GIT_CEILING_DIRECTORIES=$out
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DROPEWALK_CUDA=OFF -DROPEWALK_BUILD_TESTS=OFF \
  ${CMAKE_ARGS:-} >/dev/null
cmake --build build >build/log || { tail -50 build/log >&2; exit 1; }
scripts/package.sh build "$out"
scripts/wheel.sh "$out"
cp "$out"/wheel/ropewalk-*.{whl,tar.gz} "$out"
version=$(build/ropewalk --version | cut -d' ' -f2)
"$(scripts/venv.sh release scripts/release-requirements.txt)/bin/python" scripts/sbom.py "$out/ropewalk-$version.cdx.json"
cd "$out"
! zgrep -laF "$out/source" ropewalk-*.tar.gz || { echo "release.sh: a path of this machine is in a file" >&2; exit 1; }
rm -rf source wheel
sha256sum ropewalk* >SHA256SUMS
du -b ropewalk* | awk '{printf "%9.0f kB  %s\n", $1 / 1000, $2}'
