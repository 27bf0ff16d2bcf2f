#!/usr/bin/env bash
# Builds the libFuzzer targets with clang and runs each for some seconds over its corpus.
#   scripts/fuzz.sh [SECONDS | --minimise] [TARGET ...]      default: 12, all of them
# A finding fails the script and stays in build/fuzz/findings/; add it to fuzz/corpus/<target>/ with its fix.
# --minimise, after a long run: fuzz/corpus/<target>.tar.gz becomes the smallest inputs that reach what all known ones reach.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-12}
[[ $seconds =~ ^([0-9]+|--minimise)$ ]] || { echo "usage: scripts/fuzz.sh [SECONDS | --minimise] [TARGET ...]" >&2; exit 2; }
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(safetensors gguf config_json tokenizer_json writers config_writers rope_dictionary eval_files server_answer)
build=${BUILD:-build}/fuzz

mkdir -p "$build/findings"
# Parsers call no kernel: one SIMD target of each is enough to link. Line numbers are all that
# a finding needs; full debugging data take longer to build.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="${FUZZ_CXX:-clang++}" \
  -DCMAKE_CXX_FLAGS="-DHWY_COMPILE_ONLY_STATIC -gline-tables-only" -DROPEWALK_BUILD_FUZZ=ON -DROPEWALK_BUILD_CLI=OFF -DROPEWALK_BUILD_TESTS=OFF \
  -DROPEWALK_LARGE_GROUPS=ON -DROPEWALK_SANITIZE=fuzzer-no-link,address,undefined >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 1; }
cmake --build "$build" --target "${targets[@]/#/fuzz_}"

for target in "${targets[@]}"; do
  # New inputs go to a folder of the build; the committed corpus is only read: seeds, and what long runs found.
  found=$build/found/$target
  rm -rf "$found"
  mkdir -p "$build/corpus/$target" "$found"
  [ ! -e "fuzz/corpus/$target.tar.gz" ] || tar -C "$found" -xzf "fuzz/corpus/$target.tar.gz"
  log="$build/$target.log"
  if [ "$seconds" = --minimise ]; then
    rm -rf "$build/least"
    mkdir "$build/least"
    "$build/fuzz/fuzz_$target" -merge=1 -max_len=65536 -timeout=10 -malloc_limit_mb=256 \
      "$build/least" "fuzz/corpus/$target" "$found" "$build/corpus/$target" >"$log" 2>&1 || { tail -60 "$log" >&2; exit 1; }
    tar -C "$build/least" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | gzip -9n >"fuzz/corpus/$target.tar.gz"
    echo "fuzz: $target: $(find "$build/least" -type f | wc -l) inputs of $(find "$found" "$build/corpus/$target" -type f | wc -l)"
    continue
  fi
  # malloc_limit_mb: inputs are at most 64 KiB, so a larger allocation followed a claimed size.
  if ! "$build/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 \
    -malloc_limit_mb=256 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$build/findings/$target-" \
    "$build/corpus/$target" "$found" "fuzz/corpus/$target" >"$log" 2>&1; then
    tail -60 "$log" >&2
    echo "fuzz: $target failed; its input is $build/findings/$target-*" >&2
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  [ "${runs:-0}" -gt 0 ] || { cat "$log" >&2; echo "fuzz: $target ran nothing" >&2; exit 1; }
  echo "fuzz: $target: $runs inputs in $seconds s, $(find -L "fuzz/corpus/$target" "$found" -type f | wc -l) known ones first, no finding"
done
