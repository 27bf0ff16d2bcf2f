#!/usr/bin/env bash
# Runs every benchmark of a build; JSON lines go to BUILD/bench/results.jsonl, tables to the terminal.
#   bench/run.sh BUILD_DIR [--smoke]
# Prefill against transformers and llama.cpp, single tokens against llama.cpp, and one rotation
# against PyTorch and ggml, need their packages: bench/prefill_peers.py, bench/decode_peers.py and
# bench/rotary_peers.py say how.
#   --smoke: every program and script once with small sizes; no number means anything. Scripts that
# compare with PyTorch run with the environment of scripts/parity.sh where it is there.
set -euo pipefail
build=${1:?usage: bench/run.sh BUILD_DIR [--smoke]}
here=$(cd "$(dirname "$0")" && pwd)
run() { echo "== ${1##*/}" >&2; "$@"; }

if [ "${2:-}" = --smoke ]; then
  out=$build/bench/smoke.jsonl
  : >"$out"
  run "$build/bench/rotary_bench" --rounds 1 --kib 64 --json "$out"
  run "$build/bench/rotary_ops_bench" --rounds 1 --json "$out"
  run "$build/bench/absolute_bench" --rounds 1 --json "$out"
  run "$build/bench/attention_bench" --rounds 1 --tokens 1024 --json "$out"
  run "$build/bench/attention_forms_bench" --rounds 1 --tokens 256 --json "$out"
  run "$build/bench/packed_bench" --rounds 1 --hidden 1024 --feed-forward 256 --json "$out"
  run "$build/bench/prefill_bench" "$here/../models" --rounds 1 --tokens 64 --threads 1
  run "$build/bench/lanes_bench" "$here/../models" --rounds 1 --length 128 --windows 2
  echo | run "$build/bench/decode_bench" "$here/../models" --tokens 2 --threads 1
  python=$here/../.venv-parity/bin/python
  if [ ! -x "$python" ]; then
    echo "left out: comparisons with PyTorch; scripts/parity.sh makes their environment" >&2
    exit 0
  fi
  gguf=$build/bench/smoke.gguf
  rm -f "$gguf"
  "$build/ropewalk" convert "$here/../models" -o "$gguf" >/dev/null
  run "$python" "$here/rotary_peers.py" --smoke --library "$build/bench/libropewalk_c.so"
  run "$python" "$here/attention_peers.py" --smoke --library "$build/bench/libropewalk_attention_c.so"
  run "$python" "$here/convolution_peers.py" --rounds 1 --bench "$build/bench/absolute_bench"
  run "$python" "$here/prefill_peers.py" --smoke --threads 1 --bench "$build/bench/prefill_bench" --gguf "$gguf"
  exit 0
fi

out=$build/bench/results.jsonl
: >"$out"
for bench in rotary_bench rotary_ops_bench absolute_bench attention_bench attention_forms_bench packed_bench; do
  run "$build/bench/$bench" --json "$out"
done
gguf=$("$here/../scripts/get_smollm2.sh" "$build/models" | awk '/gguf/ {print $1; exit}')
run "$build/bench/prefill_bench" "$gguf" | tee -a "$out"
run "$build/bench/lanes_bench" "$here/../models" | tee -a "$out"
