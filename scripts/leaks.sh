#!/usr/bin/env bash
# Every command of the program under the leak sanitizer: the tests of tests/cli, whose program is one with the sanitizer
# preloaded. A build of its own is not needed.
#   scripts/leaks.sh BUILD [TEST ...]      sweep_cli ..: these alone, without the check that every command was run
# A leak fails the script and is in BUILD/leaks/found.*
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:?usage: scripts/leaks.sh BUILD [TEST ...]}")
shift
program=$build/ropewalk
work=$build/leaks
rm -rf "$work"
mkdir -p "$work"
sanitizer=$(gcc -print-file-name=liblsan.so)
[ -e "$sanitizer" ] || { echo "leaks: gcc has no liblsan.so" >&2; exit 1; }
ROPEWALK_HAVE_CUDA=$("$program" info --json | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["cuda"]["toolkit"] is not None))')
export PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive ROPEWALK_HAVE_CUDA

# The program as the tests call it. Reports go to files, so that what the program says is as it was; a leak is exit code 23.
# usage: wrap NAME LIBRARIES
wrap() {
  cat >"$work/$1" <<END
#!/bin/sh
echo "\$1" >>"$work/commands"
LD_PRELOAD="$2" LSAN_OPTIONS="log_path=$work/$1.found:exitcode=23" exec "$program" "\$@"
END
  chmod +x "$work/$1"
}

# Would it see a leak, in a command that ends at once and in one with threads and matrix products?
gcc -shared -fPIC -O0 -o "$work/leak.so" tests/sanitizers/leak.c
wrap leaky "$sanitizer:$work/leak.so"
python3 - >"$work/text.txt" <<'END'
print(" ".join(f"And the king of house {i} went out unto the river, and spake." for i in range(300)))
END
for command in "--version" "perplexity models --text $work/text.txt --length 256"; do
  code=0
  # shellcheck disable=SC2086
  "$work/leaky" $command >"$work/leaky.out" 2>&1 || code=$?
  [ "$code" = 23 ] || { cat "$work/leaky.out" >&2; echo "leaks: a leak in '$command' was not seen (exit code $code)" >&2; exit 1; }
done
cat "$work"/leaky.found.* | grep -q '1234 byte(s) leaked in 1 allocation' ||
  { cat "$work"/leaky.found.* >&2; echo "leaks: more leaked than the leak that was made" >&2; exit 1; }

wrap ropewalk "$sanitizer"
: >"$work/commands"
tests=("$@")
if [ ${#tests[@]} -eq 0 ]; then
  # new_command builds a program of its own; ranks_cli needs MPI.
  mapfile -t tests < <(basename -s _test.py tests/cli/*_test.py | grep -vxE 'new_command|ranks_cli')
fi
run_test() {
  started=$SECONDS
  if python3 "tests/cli/$1_test.py" "$2/ropewalk" "$PWD" >"$2/$1.log" 2>&1; then
    echo "leaks: $1: $(sed -n 's/^Ran \([0-9]* tests\?\).*/\1/p' "$2/$1.log") in $((SECONDS - started)) s"
  else
    tail -40 "$2/$1.log" >&2
    echo "leaks: $1 failed" >&2
    return 1
  fi
}
export -f run_test
failed=0
printf '%s\n' "${tests[@]}" | xargs -P 2 -I{} bash -c 'run_test "$@"' _ {} "$work" || failed=1
if compgen -G "$work/ropewalk.found.*" >/dev/null; then
  head -n 60 "$work"/ropewalk.found.* >&2
  failed=1
fi
"$program" --help | sed -n 's/^  \([a-z-]*\)  *[A-Z].*/\1/p' | sort -u >"$work/all"
sort -u "$work/commands" | comm -12 - "$work/all" >"$work/run"
if [ $# -eq 0 ]; then
  [ "$(wc -l <"$work/all")" -gt 15 ] || { echo "leaks: --help lists no commands" >&2; failed=1; }
  cmp -s "$work/run" "$work/all" || { echo "leaks: never run: $(comm -13 "$work/run" "$work/all" | paste -sd' ')" >&2; failed=1; }
fi
[ "$failed" = 0 ] || { echo "leaks: failed" >&2; exit 1; }
echo "leaks: $(wc -l <"$work/commands") runs of the program, $(wc -l <"$work/run") commands, no leak"
