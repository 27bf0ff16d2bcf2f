#!/bin/sh
# docs/atlas/README.md: the atlas of the committed results, as the program writes it.
#   usage: scripts/atlas.sh BUILD      prints it; make atlas replaces the page, and a test compares it
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../docs/results"
exec "$build/ropewalk" atlas list embedded embedded-maps embedded-kv smollm2-135m \
  gemma3-270m zoo
