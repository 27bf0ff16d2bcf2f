#!/bin/sh
# Holds the library against llama.cpp: logits of tiny GGUF files of every scaling that it has, and of
# what `ropewalk convert` and `ropewalk extend` write, in a virtual environment of its own
# (.venv-llamacpp; llama.cpp is built from PyPI's source once: 10 to 20 minutes on two cores).
#   usage: scripts/parity_llamacpp.sh [BUILD FOLDER, default build]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
venv=$root/.venv-llamacpp
for program in ropewalk tests/model/logits_dump tests/model/rotary_dump; do
  [ -x "$build/$program" ] && continue
  echo "parity_llamacpp.sh: $build/$program is missing; run make parity-llamacpp" >&2
  exit 1
done
stamp=$venv/requirements.txt
if ! cmp -s "$root/tests/parity/requirements-llamacpp.txt" "$stamp"; then
  python3 -m venv "$venv" || {
    echo "parity_llamacpp.sh: cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  # The library for this CPU and nothing around it.
  options="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF"
  for part in TESTS EXAMPLES TOOLS SERVER APP; do
    options="$options -DLLAMA_BUILD_$part=OFF"
  done
  CMAKE_ARGS=$options CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
    --no-binary llama-cpp-python -r "$root/tests/parity/requirements-llamacpp.txt"
  cp "$root/tests/parity/requirements-llamacpp.txt" "$stamp"
fi
"$venv/bin/python" "$root/tests/parity/ggml_rope.py" "$build/tests/model/rotary_dump"
exec "$venv/bin/python" "$root/tests/parity/llamacpp.py" "$build"
