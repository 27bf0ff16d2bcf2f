#!/usr/bin/env bash
# Runs every benchmark of a build; JSON lines go to BUILD/bench/results.jsonl, tables to the terminal.
#   bench/run.sh BUILD_DIR
# Prefill against transformers and llama.cpp, and one rotation against PyTorch and ggml, need their
# packages: bench/prefill_peers.py and bench/rotary_peers.py say how.
set -euo pipefail
build=${1:?usage: bench/run.sh BUILD_DIR}
here=$(cd "$(dirname "$0")" && pwd)
out=$build/bench/results.jsonl
: >"$out"
for bench in rotary_bench rotary_ops_bench absolute_bench attention_bench attention_forms_bench; do
  echo "== $bench" >&2
  "$build/bench/$bench" --json "$out"
done
gguf=$("$here/../scripts/get_smollm2.sh" "$build/models" | awk '/gguf/ {print $1; exit}')
echo "== prefill_bench" >&2
"$build/bench/prefill_bench" "$gguf" | tee -a "$out"
