#!/bin/sh
# Tests of the Python package with PyTorch (tests/python/torch), under transformers 4.57 and 5, in the environment of
# scripts/parity_env.sh.
#   usage: scripts/test_torch.sh BUILD [arguments of pytest]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
venv=$("$root/scripts/parity_env.sh")
export OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 ROPEWALK_PROGRAM="$build/ropewalk"
[ $# -gt 0 ] || set -- "$root/tests/python/torch"
run() {
  PYTHONPATH=$build/python$1
  export PYTHONPATH
  shift
  "$venv/bin/python" -c \
    'import torch, transformers; print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")'
  "$venv/bin/python" -m pytest -q --rootdir "$root" "$@"
}
# Side by side, since most of a test is one thread's work.
(run ":$venv/transformers5" "$@") >"$build/test-torch-5.log" 2>&1 &
five=$!
status=0
(run "" "$@") || status=$?
wait "$five" || status=$?
cat "$build/test-torch-5.log"
[ "$status" -eq 0 ] || exit "$status"
echo "the benchmark beside PyTorch, tiny"
PYTHONPATH=$build/python "$venv/bin/python" "$root/bench/python_peers.py" --smoke
