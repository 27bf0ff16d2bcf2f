#!/usr/bin/env bash
# Opens the report and inspect's page in a headless Chromium, checks what a reader would see, and sets the
# explorer's formulas beside the program's.
#   scripts/check_report.sh [BUILD_DIR] [PAGE.html ...]     pictures: SHOTS=DIR
# Without a Chromium it says so and succeeds, as the rest of the tests do not need one.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shift || true

browser=
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && browser=$name && break
done
if [ -z "$browser" ]; then
  echo "check_report: skipped, no Chromium here (Debian: apt-get install chromium)"
  exit 0
fi
make_report=$(find "$build" -name make_report -type f -perm -u+x | head -n 1)
if [ -z "$make_report" ]; then
  echo "check_report: $build holds no make_report; build the tests first (make build)" >&2
  exit 1
fi
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
for kind in one two hostile; do "$make_report" "$pages/$kind.html" "$kind" >/dev/null; done
program=$(find "$build" -maxdepth 2 -name ropewalk -type f -perm -u+x | head -n 1)
if [ -n "$program" ]; then
  "$program" inspect models --length 4096 --html -o "$pages/inspect.html" >/dev/null 2>&1
  python3 -c 'print("In the beginning was the word, and the word was long. " * 200)' >"$pages/text.txt"
  "$program" inspect models --text "$pages/text.txt" --lengths 512,1500 --html -o "$pages/attention.html" >/dev/null 2>&1
  mkdir "$pages/mpt"  # nothing rotates
  cp tests/golden/hf_models/mpt/model.safetensors "$pages/mpt"
  cp tests/golden/hf_models/mpt/default.json "$pages/mpt/config.json"
  python3 -c 'print([7 * i % 59 + 3 for i in range(200)])' >"$pages/ids.json"
  "$program" inspect "$pages/mpt" --ids "$pages/ids.json" --lengths 200 --html -o "$pages/bias.html" >/dev/null 2>&1
  "$program" curves --base 1,10,10000,500000 --html -o "$pages/curves.html"
  python3 tests/report/check_explorer.py "$browser" "$program" models
fi
python3 tests/report/check_report.py "$browser" ${SHOTS:+--shots "$SHOTS"} "$pages"/*.html "$@"
