"""Perplexity of a real GGUF against llama.cpp's on the same windows, and the ids of a text.

    llamacpp_real.py ROPEWALK MODEL.gguf TEXT [--length 512] [--windows 4]

Windows do not overlap and begin with BOS where the file says so; every other token is scored.
llama.cpp computes with quantised activations where weights are quantised, ropewalk in float32: exits
1 when the two perplexities differ by more than LIMIT, or when an id of the windows differs.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from llamacpp_engine import Engine

LIMIT = 0.005


def ours(args, folder):
    """Per window: ids behind BOS and their nll, as the program says them."""
    rows = pathlib.Path(folder) / "tokens.jsonl"
    subprocess.run([args.ropewalk, "perplexity", args.model, args.text, "--protocol", "windows", "--bos",
                    "--length", str(args.length), "--anchors", str(args.windows), "--per-token", rows],
                   check=True)
    windows = {}
    for row in map(json.loads, rows.read_text().splitlines()):
        windows.setdefault(row["window"], []).append((row["id"], row["nll"]))
    return [tuple(map(list, zip(*rows))) for rows in windows.values()]


def log_probabilities(logits, ids):
    """Of each id, from the row in front of it."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(1, keepdims=True)
    return rows[np.arange(len(ids)), ids] - np.log(np.exp(rows).sum(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ropewalk")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--windows", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        windows = ours(args, folder)
    failures, our_nats, their_nats, tokens = 0, 0.0, 0.0, 0
    with Engine(args.model) as engine:
        text = pathlib.Path(args.text).read_text(encoding="utf-8")
        expected = engine.tokenize(text)[:sum(len(ids) for ids, _ in windows)]
        if expected != [i for ids, _ in windows for i in ids]:
            print("the ids of the text differ  FAILED")
            failures += 1
        print(f"{'window':>6} {'ropewalk':>9} {'llama.cpp':>9} {'apart':>9}   nats a token")
        for w, (ids, nll) in enumerate(windows):
            logits = engine.logits([engine.bos(), *ids], context=args.length)
            theirs = -log_probabilities(logits, ids)
            print(f"{w:6} {np.mean(nll):9.5f} {theirs.mean():9.5f} {np.mean(nll) - theirs.mean():9.5f}"
                  f"   largest of a token {np.abs(np.array(nll) - theirs).max():.3f}")
            our_nats, their_nats, tokens = our_nats + sum(nll), their_nats + theirs.sum(), tokens + len(ids)
    a, b = math.exp(our_nats / tokens), math.exp(their_nats / tokens)
    good = abs(a / b - 1) <= LIMIT
    failures += not good
    print(f"perplexity of {tokens} tokens: ropewalk {a:.4f}, llama.cpp {b:.4f}, {100 * (a / b - 1):+.3f} %"
          f"{'' if good else '  FAILED'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
