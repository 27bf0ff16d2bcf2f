#!/usr/bin/env python3
"""Tunes the embedded model at 4 times its trained length with each of METHODS (`python -m ropewalk.zoo tune` does one) and
writes the loss of held-out text against steps: JSON lines for docs/results/evidence-tuning/rows.jsonl, which scripts/evidence.py
draws. Needs the Python package, PyTorch, safetensors, tokenizers and Debian's bible-kjv-text.

usage: PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_tuning.py [-o DIR] [--steps N] [--further linear=N]
    Every method gets the same batches. A run that was ended goes on where it was, and more steps go on from fewer; OUT/rows.jsonl
    is written anew whenever all methods have come to the next step that is measured.
"""

import argparse
import csv
import hashlib
import json
import pathlib
import sys

import torch

from ropewalk.zoo import _tune

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ("none", "linear", "ntk", "yarn", "base:500000", "base:bound")
LENGTH, RATE = 4096, 1e-3


def rows_of(out, methods):
    """What has been measured, method by method."""
    for method in methods:
        folder = out / method.replace(":", "-")
        rotation = json.loads((folder / "config.json").read_text(encoding="utf-8"))["positions"]["rotation"]
        with open(folder / "tuning.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                step, training = int(row.pop("step")), float(row.pop("training_loss"))
                losses = {key: float(value) for key, value in row.items()}
                yield {
                    "what": "tuning",
                    "method": method,
                    "rotation": rotation,
                    "step": step,
                    **losses,
                    "training_loss": training if step else None,
                }


def write(out, options):
    """OUT/rows.jsonl, measured by the script with these options."""
    header = {
        "format": "ropewalk-evidence",
        "schema": 1,
        "command": f"PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_tuning.py {options}",
        "model_hash": hashlib.sha256((ROOT / "models" / "model.safetensors").read_bytes()).hexdigest(),
        "trained_length": 1024,
        "length": LENGTH,
        "windows": _tune.WINDOWS,
        "scored": _tune.SCORED,
        "rows": 1,
        "rate": RATE,
        "torch": torch.__version__,
    }
    lines = [json.dumps(line) for line in (header, *rows_of(out, METHODS))]
    (out / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=pathlib.Path, default=ROOT / "build" / "tuning", help="folder of the tuned models")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--further", default="", metavar="METHOD=STEPS,...", help="those that get more steps, behind the others")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same bits on any number of cores
    further = dict(part.split("=") for part in args.further.split(",") if part)
    if unknown := [method for method in further if method not in METHODS]:
        parser.error(f"--further: {', '.join(unknown)}: none of {', '.join(METHODS)}")
    # All methods come to a step before any goes beyond it: what there is can be compared at any time.
    parts = [(n, METHODS) for n in range(10, args.steps) if _tune.measured(n)] + [(args.steps, METHODS)]
    for until, methods in [*parts, *((int(steps), (method,)) for method, steps in further.items())]:
        for method in methods:
            print(f"{method}, to step {until}", file=sys.stderr, flush=True)
            _tune.tune(method, args.out / method.replace(":", "-"), tokens=LENGTH, steps=until, rate=RATE)
        write(args.out, f"--steps {args.steps}" + (f" --further {args.further}" if further else ""))


if __name__ == "__main__":
    main()
