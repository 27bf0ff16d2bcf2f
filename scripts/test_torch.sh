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
for transformers in "" ":$venv/transformers5"; do
  PYTHONPATH=$build/python$transformers "$venv/bin/python" -c \
    'import torch, transformers; print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")'
  PYTHONPATH=$build/python$transformers "$venv/bin/python" -m pytest -q --rootdir "$root" "$@"
done
