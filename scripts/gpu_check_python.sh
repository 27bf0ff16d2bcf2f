#!/usr/bin/env bash
# The Python package on a machine with an NVIDIA GPU, in one call: ops, models, memory, speed, and a sweep to 64k. Needs
# python3 with PyTorch (2.11 with CUDA 13 is what it was written for) and transformers 5; no network.
#   scripts/gpu_check_python.sh [--dry-run] PACKAGE [MODEL [TEXT]]
# PACKAGE: a folder of wheels, ropewalk's and those of what is missing there (nanobind-backend; for a GGUF file gguf and
# accelerate), which are installed into a temporary folder; or a folder that has the package itself, as build/python.
# MODEL: what is swept, a folder or a GGUF file; without it a model of SmolLM2-135M's shape with random weights.
# TEXT: what it reads; without it the documents and sources here.
# JSON lines go to $OUT (build/gpu-check-python without it), with what was printed. Each step has its time; one that
# fails does not stop the next. bench/cuda/python_check.py has the steps.
#   PYTHON           which python3
#   SECONDS_IN_ALL   540
# Exit code 0: all is right; 1: a result was wrong, or a step did not end; 2: the package cannot be used; 77: no GPU.
# --dry-run: every step in small on the CPU.
set -uo pipefail
cd "$(dirname "$0")/.."
dry=()
if [ "${1:-}" = --dry-run ]; then
  dry=(--dry-run)
  shift
fi
[ $# -ge 1 ] && [ $# -le 3 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
python=${PYTHON:-python3}
deadline=$(($(date +%s) + ${SECONDS_IN_ALL:-540}))
out=${OUT:-build/gpu-check-python}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mkdir -p "$out"
results=$out/gpu-check-python.jsonl
rm -f "$results"
exec > >(tee "$out/gpu-check-python.txt") 2>&1
tee=$!
wrong=0

finish() {
  echo "results: $results"
  exec >&- 2>&-
  wait "$tee"
  exit "$1"
}

# step SECONDS NAME ARGUMENTS...: within what is left of the time.
step() {
  local limit=$1 name=$2 start left code=124 result
  shift 2
  start=$(date +%s)
  left=$((deadline - start))
  echo "== $name"
  if [ "$left" -ge 5 ]; then
    timeout -k 5 "$((limit < left ? limit : left))" \
      "$python" bench/cuda/python_check.py "$name" --json "$results" "${dry[@]}" "$@"
    code=$?
  fi
  case $code in
    0) result=ok ;;
    124 | 137) result="not finished in its time" wrong=1 ;;
    *) result="FAILED ($code)" wrong=1 ;;
  esac
  local took=$(($(date +%s) - start))
  echo "== $name: $result, $took s"
  echo "{\"step\": \"$name\", \"result\": \"$result\", \"seconds\": $took}" >>"$results"
}

package=$1
if [ ! -e "$package/ropewalk/__init__.py" ]; then
  "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --target "$site" \
    "$package"/*.whl || finish 2
  package=$site
fi
export PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=passive
"$python" -c "import ropewalk, torch, transformers" || finish 2
if [ ${#dry[@]} -eq 0 ] && ! "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
  echo "There is no GPU that PyTorch sees: --dry-run checks the steps on the CPU."
  finish 77
fi

step 60 facts
step 60 rotation
step 150 attention
step 60 model
step 40 memory
step 90 speed
step 300 sweep ${2:+--model "$2"} ${3:+--text "$3"}
finish "$wrong"
