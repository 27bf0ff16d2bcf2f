"""Perplexity of a real GGUF against llama.cpp's on the same windows, and the ids of a text.

    llamacpp_real.py ROPEWALK MODEL.gguf TEXT [--length 512] [--windows 4]

Windows do not overlap and begin with BOS; every other token is scored. llama.cpp's own kernels round
activations to 8 bits in front of quantised weights, which is worth 0.8 percent on Gemma 3 270M; with
BLAS (scripts/parity_llamacpp.sh builds it so) prompts are computed in float32. It is also given the same
numbers as float32 weights. Exits 1 when a perplexity differs by more than LIMIT, or when an id of the
windows differs.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

from llamacpp_engine import Engine

LIMIT = 0.005


def ours(args, folder):
    """Per window: ids behind BOS and their nll, as the program says them."""
    rows = pathlib.Path(folder) / "tokens.jsonl"
    subprocess.run([args.ropewalk, "perplexity", args.model, "--text", args.text, "--protocol", "windows",
                    "--bos", "--length", str(args.length), "--anchors", str(args.windows), "--per-token",
                    rows], check=True)
    windows = {}
    for row in map(json.loads, rows.read_text().splitlines()):
        windows.setdefault(row["window"], []).append((row["id"], row["nll"]))
    return [tuple(map(list, zip(*rows))) for rows in windows.values()]


def decode(source, target):
    """The same file with float32 weights."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), field.types[0],
                                 sub_type=field.types[-1] if array else None)
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, data.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def nll(logits, ids):
    """Of each id, from the row in front of it."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(1, keepdims=True)
    return np.log(np.exp(rows).sum(1)) - rows[np.arange(len(ids)), ids]


def theirs(path, windows, length):
    """nll of all tokens of all windows."""
    with Engine(path) as engine:
        return np.concatenate([nll(engine.logits([engine.bos(), *ids], context=length), ids)
                               for ids, _ in windows])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ropewalk")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--windows", type=int, default=4)
    args = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        windows = ours(args, folder)
        ids = [i for window, _ in windows for i in window]
        with Engine(args.model) as engine:
            text = pathlib.Path(args.text).read_text(encoding="utf-8")
            same = engine.tokenize(text)[:len(ids)] == ids
        print(f"{len(ids)} ids: {'equal' if same else 'differ  FAILED'}")
        failures += not same
        mine = np.array([n for _, window in windows for n in window])
        print(f"perplexity in {len(windows)} windows of {args.length}: ropewalk {math.exp(mine.mean()):.4f}")
        decode(args.model, f"{folder}/f32.gguf")
        for name, path in (("float32 weights", f"{folder}/f32.gguf"), ("as the file is", args.model)):
            other = theirs(path, windows, args.length)
            apart = math.exp(mine.mean() - other.mean()) - 1
            good = abs(apart) <= LIMIT
            failures += not good
            print(f"  llama.cpp, {name}: {math.exp(other.mean()):.4f}, ropewalk is {100 * apart:+.3f} % off,"
                  f" a token at most {np.abs(mine - other).max():.3f} nats{'' if good else '  FAILED'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
