#!/bin/sh
# A virtual environment beside the sources, .venv-NAME: made once, and again when its list of packages changes.
#   usage: scripts/venv.sh NAME REQUIREMENTS      prints its folder
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.venv-$1
if ! cmp -s "$2" "$venv/requirements.txt"; then
  python3 -m venv "$venv" >&2 || {
    echo "venv.sh: cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$2" >&2
  cp "$2" "$venv/requirements.txt"
fi
echo "$venv"
