#!/bin/sh
# Sweeps by several processes: a real SLURM of one node, mpirun, and Ray.
#   usage: scripts/cluster_test.sh BUILD      BUILD has the program and the Python package
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
"$root/scripts/slurm_test.sh" "$build"
venv=$("$root/scripts/venv.sh" ray "$root/tests/ray/requirements.txt")
echo "== Ray"
ROPEWALK_TEXT=$build/heldout.txt PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive \
  "$venv/bin/python" -m pytest -q --rootdir "$root" -p no:cacheprovider "$root/tests/ray"
