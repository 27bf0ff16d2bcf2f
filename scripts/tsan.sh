#!/usr/bin/env bash
# The parallel parts of the library under clang's thread sanitizer, with LLVM's OpenMP, whose Archer tells the sanitizer what
# parallel regions order.
#   scripts/tsan.sh BUILD [TEST ...]      ranks, rotary ..: these alone
# A race fails the script and is in BUILD/tsan/TEST.log
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: scripts/tsan.sh BUILD [TEST ...]}/tsan
shift
cxx=${TSAN_CXX:-clang++}
mkdir -p "$build"

# oneDNN is linked with GCC's OpenMP; LLVM's has its functions too and stands first, so that Archer sees oneDNN's regions as well.
archer=$(dirname "$("$cxx" -print-file-name=libomp.so)")/libarcher.so
[ -e "$archer" ] || archer=$(realpath "$("$cxx" -print-resource-dir)/../../libarcher.so")
[ -e "$archer" ] || { echo "tsan: no libarcher.so beside the OpenMP of $cxx (Debian: libomp-dev)" >&2; exit 1; }

# One SIMD target is enough: what threads share does not depend on it.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" -DROPEWALK_CUDA=OFF \
  -DCMAKE_CXX_FLAGS="-DHWY_COMPILE_ONLY_STATIC -gline-tables-only" -DROPEWALK_SANITIZE=thread >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 1; }

# Of attention, model and eval those tests that are about threads: the rest are references in double, which take many minutes here.
# What counts the threads of the process is none of them, since the sanitizer has one of its own.
filter() {
  case "$1" in
    attention) echo "Attention.SameBitsForAnyThreads:AttentionBackward.SameBitsForAnyThreads:AttentionBackward.EveryFormAtSmallSizes:\
AttentionThreads.TheNumberOfAnotherThreadHolds:AttentionParts.W*:AttentionParts.Fused*:KvTypes.DecodingInSpans" ;;
    model) echo "AtOnce.*:Decoder.EqualThreadsEqualBits:Ranked.ParallelBlocksOfOneNorm:Ranked.TypesOfTheCache:Ranked.ShortSequences*:\
Ranked.TicksAllTokensAndMayEnd-AtOnce.SequencesOfOneDecoder" ;;
    eval) echo 'EvalAtOnce.*:RunSweep.TwoAtOnceDoNotMix:RunLanesTest.*:*/Lanes.AreAs*:PseudoPerplexity.Threads*' ;;
    base | ranks | ranked_engine | capi_at_once | rotary | absolute | relative | linear) echo '*' ;;
    *) echo "tsan: unknown test '$1'" >&2; return 1 ;;
  esac
}
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(base ranks rotary absolute relative attention linear model eval ranked_engine capi_at_once)
for test in "${tests[@]}"; do filter "$test" >/dev/null; done
cmake --build "$build" --target race "${tests[@]/%/_test}"

export OMP_TOOL_LIBRARIES=$archer ARCHER_OPTIONS=verbose=1 OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive
# What is not instrumented (LLVM's OpenMP, oneDNN, the standard library) is not looked into.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66 history_size=4"

# Would it see a race, between threads of each kind and in the library's own code, and none where there is none?
race() {
  local code=0
  "$build/tests/sanitizers/race" "$1" >"$build/race-$1.log" 2>&1 || code=$?
  [[ $1 != o* ]] || grep -q "^Archer detected OpenMP application with TSan" "$build/race-$1.log" ||
    { cat "$build/race-$1.log" >&2; echo "tsan: Archer is not at work" >&2; exit 1; }
  [ "$code" = "$2" ] || { cat "$build/race-$1.log" >&2; echo "tsan: race $1: exit code $code, expected $2" >&2; exit 1; }
}
race ordered 0
for kind in omp threads rotate; do race "$kind" 66; done

failed=0
for test in "${tests[@]}"; do
  started=$SECONDS code=0
  program=$(find "$build/tests" -name "${test}_test" -type f)
  "$program" --gtest_filter="$(filter "$test")" >"$build/$test.log" 2>&1 || code=$?
  races=$(grep -c '^WARNING: ThreadSanitizer' "$build/$test.log" || true)
  ran=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? from .* ran\..*/\1 tests/p' "$build/$test.log")
  [ "$test" = capi_at_once ] && ran="$(grep -c '^ropewalk_' "$build/$test.log") functions"
  echo "tsan: $test: ${ran:-nothing}, $races findings, exit code $code, $((SECONDS - started)) s"
  [ "$code" = 0 ] && [ "$races" = 0 ] && [ -n "$ran" ] && [ "${ran%% *}" != 0 ] && continue
  grep -A 40 -m 3 -E '^WARNING: ThreadSanitizer|^\[  FAILED' "$build/$test.log" >&2 || tail -20 "$build/$test.log" >&2
  failed=1
done
[ "$failed" = 0 ] || { echo "tsan: failed" >&2; exit 1; }
