#!/bin/sh
# The virtual environment with PyTorch and transformers 4.57 (.venv-parity; torch's CPU build, about 1.5 GB once), and
# transformers 5 in its folder transformers5: both majors do not fit in one environment, the second shares torch.
#   usage: scripts/parity_env.sh      prints its folder
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
# PyTorch's own index has the build without CUDA; elsewhere torch may come with it, and works too.
venv=$("$root/scripts/venv.sh" parity "$root/tests/parity/requirements.txt")
if [ ! -d "$venv/transformers5/transformers-5.23.0.dist-info" ]; then
  rm -rf "$venv/transformers5"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --target "$venv/transformers5" \
    transformers==5.23.0 >&2
fi
echo "$venv"
