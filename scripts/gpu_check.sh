#!/usr/bin/env bash
# Everything about CUDA that takes a GPU, in one call within eight minutes: build, correctness, benchmarks, peers,
# compute-sanitizer. Needs nvcc 12.8 or newer, CMake, g++; PyTorch for the peers.
#   scripts/gpu_check.sh [BUILD_DIR]        build-gpu
# Numbers go to $OUT if that is set, else to bench/results/, one file with the GPU's name; what was printed goes
# beside them, or into the build. Each step has its time; one that fails does not stop the next.
#   PYTHON           which python3
#   SECONDS_IN_ALL   480
# Exit code 0: all is right; 1: a result was wrong; 2: it does not build; 77: it builds, and there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-gpu}
python=${PYTHON:-python3}
deadline=$(($(date +%s) + ${SECONDS_IN_ALL:-480}))
logs=${OUT:-$build}
mkdir -p "$build" "$logs" "${OUT:-bench/results}"
exec > >(tee "$logs/gpu-check.txt") 2>&1
tee=$!
steps=()
wrong=0

# step NAME SECONDS COMMAND...: within what is left of the time; its exit code, 124 if it took too long.
step() {
  local name=$1 limit=$2 left start code result
  shift 2
  start=$(date +%s)
  left=$((deadline - start))
  echo "== $name"
  if [ "$left" -lt 5 ]; then
    code=124 result="no time left"
  else
    timeout -k 5 "$((limit < left ? limit : left))" "$@"
    code=$?
    case $code in
      0) result="ok" ;;
      77) result="skipped" ;;
      124 | 137) code=124 result="not finished in its time" ;;
      *) result="FAILED ($code)" ;;
    esac
  fi
  local took=$(($(date +%s) - start))
  echo "== $name: $result, $took s"
  steps+=("{\"step\": \"$name\", \"result\": \"$result\", \"seconds\": $took}")
  return $code
}

# Of what a wrong result would be a failure of the library; a limit of time is none.
must() {
  step "$@"
  case $? in 0 | 77 | 124) ;; *) wrong=1 ;; esac
}

finish() {
  {
    echo "{\"gpu\": \"$gpu\", \"exit\": $1, \"steps\": ["
    local i
    for i in "${!steps[@]}"; do
      echo "  ${steps[i]}$([ "$i" -lt $((${#steps[@]} - 1)) ] && echo ,)"
    done
    echo "]}"
  } >"$logs/gpu-check.json"
  cat "$logs/gpu-check.json"
  exec >&- 2>&-
  wait "$tee"
  exit "$1"
}

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | head -1; }

gpu=$(smi name)
capability=$(smi compute_cap | tr -d .)
echo "GPU: ${gpu:-none}"
if [ -n "$gpu" ]; then
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem \
    --format=csv
fi
# Only what this machine runs: a build for all targets takes several times as long.
architecture=${capability:-90}-real
jobs=$(nproc)

launcher=$(command -v ccache)
step configure 60 cmake -S tests/cuda -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CUDA_ARCHITECTURES="$architecture" ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} \
  ${launcher:+-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher} || finish 2
step build "${BUILD_SECONDS:-300}" cmake --build "$build" -j "$jobs" || finish 2

if [ -z "$gpu" ]; then
  echo "There is no GPU: what follows checks the programs, not the kernels."
  deadline=$((deadline + 120))
  must correctness 120 "$build/cuda_check"
  must "correctness, the host in the place of the GPU" 120 "$build/cuda_check_on_host" --seconds 0
  must benchmark 20 "$build/rotate_cuda_bench"
  if "$python" -c "import torch" 2>/dev/null; then
    must peers 60 "$python" bench/cuda/rotate_peers.py --library "$build/libropewalk_c.so" --dry-run
  else
    echo "peers: $python has no PyTorch"
  fi
  [ "$wrong" = 0 ] && finish 77
  finish 1
fi

results=${OUT:-bench/results}/$(echo "$gpu" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9.-').jsonl
rm -f "$results"
must correctness 120 "$build/cuda_check" --seconds 40 --json "$logs/gpu-check-correctness.json"
must benchmark 120 "$build/rotate_cuda_bench" --json "$results"
if "$python" -c "import torch" 2>/dev/null; then
  step peers 100 "$python" bench/cuda/rotate_peers.py --library "$build/libropewalk_c.so" --json "$results"
else
  echo "peers: $python has no PyTorch"
fi
if command -v compute-sanitizer >/dev/null; then
  # racecheck watches shared memory alone, which only these use.
  must memcheck 60 compute-sanitizer --tool memcheck --error-exitcode 99 "$build/cuda_check" --quick
  must racecheck 40 compute-sanitizer --tool racecheck --error-exitcode 99 "$build/cuda_check" --quick \
    --only gradients --only rerotate
  must initcheck 40 compute-sanitizer --tool initcheck --error-exitcode 99 "$build/cuda_check" --quick
else
  echo "compute-sanitizer is not there: memcheck, racecheck and initcheck are left out"
fi
echo "numbers: $results"
finish "$wrong"
