#!/usr/bin/env bash
# Installs the build into a fresh prefix, builds tests/consumer against it, runs it, and checks that its
# source is the snippet that README.md shows.
#   tests/consumer/run.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
output=$("$work/build/consumer")
echo "$output"
grep -q "norm kept: yes" <<<"$output"

python3 - "$source" <<'PY'
import pathlib, re, sys
source = pathlib.Path(sys.argv[1])
readme = (source.parent.parent / "README.md").read_text()
snippets = re.findall(r"```cpp\n(.*?)```", readme, re.S)
code = (source / "main.cc").read_text()
assert snippets and code in snippets, "README.md: the C++ snippet differs from tests/consumer/main.cc"
PY
