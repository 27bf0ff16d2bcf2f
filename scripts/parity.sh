#!/bin/sh
# Holds the logits of build/ropewalk's library against transformers 4.57 on random tiny models, in a
# virtual environment of its own (.venv-parity; torch's CPU build, about 1 GB once).
#   usage: scripts/parity.sh [BUILD FOLDER, default build]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
venv=$root/.venv-parity
dump=$build/tests/model/logits_dump
if [ ! -x "$dump" ]; then
  echo "parity.sh: $dump is missing; run make build first" >&2
  exit 1
fi
stamp=$venv/requirements.txt
if ! cmp -s "$root/tests/parity/requirements.txt" "$stamp"; then
  python3 -m venv "$venv" || {
    echo "parity.sh: cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  # PyTorch's own index has the build without CUDA; elsewhere torch may come with it, and works too.
  "$venv/bin/pip" install --quiet --disable-pip-version-check \
    -r "$root/tests/parity/requirements.txt"
  cp "$root/tests/parity/requirements.txt" "$stamp"
fi
exec "$venv/bin/python" "$root/tests/parity/compare.py" "$dump"
