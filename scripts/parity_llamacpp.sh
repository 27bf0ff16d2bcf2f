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
# The library for this CPU and nothing around it. With BLAS it computes prompts in float32 from quantised
# weights; its own kernels round activations to 8 bits.
options="-DGGML_NATIVE=ON -DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF"
for part in TESTS EXAMPLES TOOLS SERVER APP; do
  options="$options -DLLAMA_BUILD_$part=OFF"
done
stamp=$venv/built
wanted=$(cat "$root/tests/parity/requirements-llamacpp.txt"; echo "$options")
if [ "$wanted" != "$(cat "$stamp" 2>/dev/null)" ]; then
  python3 -m venv "$venv" || {
    echo "parity_llamacpp.sh: cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  CMAKE_ARGS=$options CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
    --force-reinstall --no-binary llama-cpp-python -r "$root/tests/parity/requirements-llamacpp.txt"
  echo "$wanted" >"$stamp"
fi
"$venv/bin/python" "$root/tests/parity/ggml_rope.py" "$build/tests/model/rotary_dump"
exec "$venv/bin/python" "$root/tests/parity/llamacpp.py" "$build"
