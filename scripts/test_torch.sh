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
tests=$root/tests/python/torch
# run FOLDER_OF_TRANSFORMERS FILES [arguments of pytest]: by itself all tests but FILES.
run() {
  PYTHONPATH=$build/python$1
  export PYTHONPATH
  others=$2
  shift 2
  if [ $# -eq 0 ]; then
    set -- "$tests"
    for name in $others; do
      set -- "$@" "--ignore-glob=$tests/$name"
    done
  fi
  "$venv/bin/python" -c \
    'import torch, transformers; print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")'
  "$venv/bin/python" -m pytest -q --rootdir "$root" "$@"
}
# Side by side, since most of a test is one thread's work. What asks nothing of transformers, or no more than the examples
# do, runs once, on the side that has less to do without.
set -f
once="test_zoo*.py test_ring.py test_gpu*.py test_evidence_twin.py test_examples.py"
(run ":$venv/transformers5" "$once" "$@") >"$build/test-torch-5.log" 2>&1 &
five=$!
status=0
(run "" "test_ops*.py" "$@") || status=$?
wait "$five" || status=$?
cat "$build/test-torch-5.log"
[ "$status" -eq 0 ] || exit "$status"
echo "the benchmark beside PyTorch, tiny"
PYTHONPATH=$build/python "$venv/bin/python" "$root/bench/python_peers.py" --smoke
