#!/bin/sh
# Builds the documentation as static pages, in a virtual environment of its own (.venv-docs, 160 MB once).
#   usage: scripts/docs_site.sh [BUILD FOLDER, default build]      writes BUILD/site
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/.venv-docs
if ! cmp -s "$root/docs/requirements.txt" "$venv/requirements.txt"; then
  python3 -m venv "$venv" || {
    echo "docs_site.sh: cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$root/docs/requirements.txt"
  cp "$root/docs/requirements.txt" "$venv/requirements.txt"
fi
exec "$venv/bin/python" "$root/scripts/docs_site.py" "${1:-$root/build}"
