#!/bin/sh
# examples/sweep_ray.py on one machine, a worker of which is killed.
#   usage: scripts/ray_test.sh BUILD      BUILD has the Python package
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
venv=$("$root/scripts/venv.sh" ray "$root/tests/ray/requirements.txt")
ROPEWALK_TEXT=$build/heldout.txt PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive \
  "$venv/bin/python" -m pytest -q --rootdir "$root" -p no:cacheprovider "$root/tests/ray"
