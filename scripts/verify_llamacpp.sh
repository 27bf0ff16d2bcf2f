#!/bin/sh
# Holds `ropewalk verify` against a real llama-server with right and wrong flags, and with the profiles that a ladder prints. The server is built from PyPI's source of
# llama-cpp-python, of the version that `make parity-llamacpp` uses, into .venv-llamacpp/server once, which
# takes longer than the library alone.
#   usage: scripts/verify_llamacpp.sh [BUILD FOLDER, default build]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
folder=$root/.venv-llamacpp/server
if [ ! -x "$build/ropewalk" ]; then
  echo "verify_llamacpp.sh: $build/ropewalk is missing; run make" >&2
  exit 1
fi
package=$(grep '^llama-cpp-python==' "$root/tests/parity/requirements-llamacpp.txt")
if [ "$package" != "$(cat "$folder/built" 2>/dev/null)" ]; then
  rm -rf "$folder"
  mkdir -p "$folder/source"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$folder" "$package"
  tar -xzf "$folder"/llama_cpp_python-*.tar.gz -C "$folder/source" --strip-components 1
  options="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF"
  for part in TESTS EXAMPLES APP; do
    options="$options -DLLAMA_BUILD_$part=OFF"
  done
  # shellcheck disable=SC2086
  cmake -S "$folder/source/vendor/llama.cpp" -B "$folder/build" -G Ninja $options >"$folder/log"
  cmake --build "$folder/build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target llama-server >>"$folder/log" || {
    tail -20 "$folder/log" >&2
    exit 1
  }
  echo "$package" >"$folder/built"
fi
for check in verify_llamacpp llamacpp_ladder; do
  python3 "$root/tests/parity/$check.py" "$build" "$folder/build/bin/llama-server"
done
