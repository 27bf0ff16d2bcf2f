#!/bin/sh
# Builds the documentation as static pages, in a virtual environment of its own (.venv-docs, 160 MB once).
#   usage: scripts/docs_site.sh [BUILD FOLDER, default build]      writes BUILD/site
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$("$root/scripts/venv.sh" docs "$root/docs/requirements.txt")
exec "$venv/bin/python" "$root/scripts/docs_site.py" "${1:-$root/build}"
