#!/bin/sh
# Prints verses of the King James Bible as plain ASCII text, one verse a line, without verse numbers.
# Without an argument: Judges, Ruth and 1 Samuel, which the embedded model (models/) has never seen,
# neither its weights nor its tokenizer. With a RANGE such as gen1:1-exo40:38: that range; the
# training script reads its text this way, so both see the text cut in the same way.
# Needs the Debian packages bible-kjv and bible-kjv-text.
set -eu
range=${1:-jdgs1:1-1sam31:13}
if ! command -v bible >/dev/null 2>&1; then
  echo "heldout_text.sh: the program 'bible' is missing; install bible-kjv and bible-kjv-text" >&2
  exit 1
fi
text=$(bible -f "$range" </dev/null)
# Each line is "Book<chapter>:<verse> text"; anything else means that the range was not understood.
printf '%s\n' "$text" | awk -v range="$range" '
  /^[1-3]?[A-Za-z]+[0-9]+:[0-9]+ / { sub(/^[^ ]* /, ""); print; next }
  { print "heldout_text.sh: unexpected line for range " range ": " $0 > "/dev/stderr"; exit 1 }'
