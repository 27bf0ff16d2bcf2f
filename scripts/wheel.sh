#!/usr/bin/env bash
# Builds the wheel of the Python package from its own source distribution, in a virtual environment of its own, bundles the
# libraries that it links, and proves it: its size, its stable ABI, and that it works on every Python from 3.10 on that is
# here, installed with nothing but its dependencies.
#   usage: scripts/wheel.sh [BUILD FOLDER, default build]      writes BUILD/wheel/ropewalk-*.whl and .tar.gz
# PYTHONS="python3.12 /path/to/python3.13": these in place of those in PATH and of pyenv; PYTHONS= : none.
# CUDA=1: with the kernels for NVIDIA GPUs, for those of CUDAARCHS alone if that is set.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$root/build}/wheel"
out=$(cd "${1:-$root/build}/wheel" && pwd)
most_bytes=25000000
install() { "$1/bin/pip" --quiet --disable-pip-version-check install "${@:2}"; }

rm -rf "$out"/{ropewalk-*,source,built,repaired,unpacked}
mkdir "$out"/{source,built,repaired,unpacked}
PATH=$("$root/scripts/venv.sh" release "$root/scripts/release-requirements.txt")/bin:$PATH

# Times in archives, so that the same sources give the same bytes.
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
export SOURCE_DATE_EPOCH
python -m build --no-isolation --sdist --outdir "$out" "$root" >/dev/null
tar -xzf "$out"/ropewalk-*.tar.gz -C "$out/source" --strip-components 1
python -m build --no-isolation --wheel --outdir "$out/built" -C build-dir="$out/source/build" \
  ${CUDA:+-C cmake.define.ROPEWALK_CUDA=ON} "$out/source" >"$out/log" ||
  { tail -50 "$out/log" >&2; exit 1; }
auditwheel repair --wheel-dir "$out/repaired" "$out"/built/*.whl >>"$out/log" 2>&1 || { tail -20 "$out/log" >&2; exit 1; }

# auditwheel gives every library that it bundles a name of its own. With OpenMP's that would be a second runtime beside the
# libgomp.so.1 that PyTorch brings: two pools of threads, each spinning while the other one works (docs/python.md). Under
# its plain name whichever is loaded first serves both.
wheel unpack --dest "$out/unpacked" "$out"/repaired/*.whl >/dev/null
package=$(echo "$out"/unpacked/*)
gomp=$(basename "$package"/ropewalk.libs/libgomp-*.so*)
mv "$package/ropewalk.libs/$gomp" "$package/ropewalk.libs/libgomp.so.1"
patchelf --set-soname libgomp.so.1 "$package/ropewalk.libs/libgomp.so.1"
for library in "$package"/ropewalk/*.so "$package"/ropewalk.libs/*; do
  patchelf --replace-needed "$gomp" libgomp.so.1 "$library"
  # Where it stands beside what needs it, auditwheel's search path is not always there.
  [[ $(patchelf --print-rpath "$library") == *ORIGIN* ]] || patchelf --set-rpath '$ORIGIN' "$library"
done

# The licences of what is in it, those of libraries that are headers alone too, as Debian's packages have them.
if command -v dpkg-query >/dev/null; then
  licences=$(echo "$package"/ropewalk-*.dist-info/licenses)
  packages="nlohmann-json3-dev libcli11-dev"
  while read -r name _ path _; do
    bundled=$(compgen -G "$package/ropewalk.libs/${name%%.so*}[-.]*" || true)
    [ -z "$bundled" ] || packages+=" $(dpkg-query -S "$(realpath "$path")" | cut -d: -f1)"
  done < <(ldd "$out/source/build/python/ropewalk/_core.abi3.so" | grep '=> /')
  for name in $packages; do cp "/usr/share/doc/$name/copyright" "$licences/$name"; done
  [ "$(ls "$package/ropewalk.libs" | wc -l)" -eq "$(($(wc -w <<<"$packages") - 2))" ] ||
    { echo "wheel.sh: licences of $packages, but the wheel has $(ls "$package/ropewalk.libs")" >&2; exit 1; }
fi
wheel pack --dest-dir "$out" "$package" >/dev/null
wheel=$(echo "$out"/ropewalk-*.whl)

bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $((bytes / 1000)) kB, $(basename "$out"/*.tar.gz): $(($(stat -c %s "$out"/*.tar.gz) / 1000)) kB"
[ -n "${CUDA:-}" ] || [ "$bytes" -le "$most_bytes" ] || { echo "wheel.sh: the wheel has more than $most_bytes bytes" >&2; exit 1; }
abi3audit --strict --summary "$wheel"
[[ $(auditwheel show "$wheel" | tr '\n' ' ') == *'platform tag: "manylinux'* ]] ||
  { auditwheel show "$wheel" >&2; echo "wheel.sh: not everything that is linked is in the wheel" >&2; exit 1; }

if [ -z "${PYTHONS+given}" ]; then
  PYTHONS=$(for python in python3.1{0,1,2,3,4} python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[0-9].*/bin/python3; do
    "$python" -c 'import sys; sys.version_info >= (3, 10) and print("%d.%d" % sys.version_info[:2], sys.executable)' \
      2>/dev/null || true
  done | sort -t. -k2n -s -u | cut -d' ' -f2)
fi
for python in $PYTHONS; do
  rm -rf "$out/venv-try"
  "$python" -m venv "$out/venv-try"
  install "$out/venv-try" "$wheel"
  (cd "$out" && "$out/venv-try/bin/python" "$root/scripts/wheel_check.py" "$root/models")
done
rm -rf "$out"/{source,built,repaired,unpacked,venv-try}
