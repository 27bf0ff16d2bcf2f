#!/usr/bin/env bash
# Unit tests under valgrind's memcheck, which sees what address sanitizers do not: values that were never set, also those
# that oneDNN writes. Kernels are those without vectors, whose every element is looked at.
#   scripts/valgrind.sh BUILD [TEST ...]      base, io ..: these alone
# A finding fails the script and is in BUILD/valgrind/TEST.log
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: scripts/valgrind.sh BUILD [TEST ...]}/valgrind
shift
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DROPEWALK_CUDA=OFF -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
  -DCMAKE_CXX_FLAGS="-DHWY_COMPILE_ONLY_SCALAR -g1" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }

# Left out is what looks at memory as the system counts it; kernels for GPUs, which tests emulate thread by thread; and a reference
# in long double, which valgrind computes with the precision of double.
filter() {
  case "$1" in
    base) echo '-AlignedBuffer.FreedMemoryGoesBackToTheSystem' ;;
    rotary) echo '-*OnDevice*:FrequencyGradient.MatchesFiniteDifferencesFromEitherSide' ;;
    io | linear) echo '*' ;;
    *) echo "valgrind: unknown test '$1'" >&2; return 1 ;;
  esac
}
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(base io rotary linear)
for test in "${tests[@]}"; do filter "$test" >/dev/null; done
cmake --build "$build" --target uninitialized "${tests[@]/%/_test}"

# What oneDNN compiles as it runs stays within SSE4.1. Threads of one program run one after the other here.
export ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
memcheck() {
  # Tests of io replace `operator new` to count what is asked for, of which memcheck knows one half.
  local mismatched=yes
  [[ $1 != */io_test ]] || mismatched=no
  valgrind --quiet --show-mismatched-frees=$mismatched --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --suppressions=tests/sanitizers/valgrind.supp "$@"
}

# Would it see a value that was never set?
code=0
memcheck "$build/tests/sanitizers/uninitialized" >"$build/uninitialized.log" 2>&1 || code=$?
[ "$code" = 99 ] && grep -q 'uninitialised' "$build/uninitialized.log" ||
  { cat "$build/uninitialized.log" >&2; echo "valgrind: a value that was never set is not seen (exit code $code)" >&2; exit 1; }

run_test() {
  local started=$SECONDS code=0 ran
  memcheck "$(find "$build/tests" -name "$1_test" -type f)" --gtest_filter="$(filter "$1")" >"$build/$1.log" 2>&1 || code=$?
  ran=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? from .* ran\..*/\1/p' "$build/$1.log")
  echo "valgrind: $1: ${ran:-0} tests, exit code $code, $((SECONDS - started)) s"
  [ "$code" = 0 ] && [ "${ran:-0}" -gt 0 ] && return
  grep -A 30 -m 3 -E '^==[0-9]+== [A-Z]|^\[  FAILED' "$build/$1.log" >&2 || tail -20 "$build/$1.log" >&2
  return 1
}
export -f run_test filter memcheck
export build
printf '%s\n' "${tests[@]}" | xargs -P 2 -I{} bash -c 'run_test "$@"' _ {} || { echo "valgrind: failed" >&2; exit 1; }
