#!/usr/bin/env python3
"""The two engines against each other on a real model: the loss of every scored token under every method, and sweeps.

    tests/parity/engine_parity.py losses MODEL TEXT -o ROWS.jsonl [--lengths 8k,32k] [--methods yarn,..] [--tokens 128]
    tests/parity/engine_parity.py sweep MODEL TEXT -o FOLDER [--lengths ..] [--anchors N] [--passkey-trials N]
    tests/parity/engine_parity.py exact MODEL TEXT [--lengths 8k,32k] [--methods none,..] [--tokens 128]
    tests/parity/engine_parity.py table ROWS.jsonl

MODEL is a folder of Hugging Face or a GGUF file, which transformers dequantises (it needs the package gguf) and the
library's decoder reads natively. Needs ropewalk, PyTorch and transformers.

losses: one window for each length, whose last --tokens tokens are scored. Methods have the factor that the longest
of the lengths asks for, at every length. The decoder computes angles as the torch engine does: in float32, under
position maps and log-n exactly. A cell that is in ROWS.jsonl already is not measured again.

sweep: the default sweep with both engines, into FOLDER/native and FOLDER/torch, which go on where they were ended;
prints how far rows are apart and both recommendations.

exact: how far each engine's losses in float32 are from those of PyTorch in float64, on the CPU; also PyTorch's with the
products of oneDNN. Models whose norms are those of Llama, methods of rotation alone.

Ends with 1 where a loss is further apart than --most nats, or recommendations differ.
"""

import argparse
import json
import pathlib
import re
import sys
import time
from unittest import mock

import numpy as np

import ropewalk as rw
from ropewalk import _core
from ropewalk.engine import ScoreRequest, TorchEngine, native_engine

MAPS = ["rerope", "leaky-rerope", "self-extend", "dual-chunk", "sinks", "string", "lampe", "dpe", "log-n", "rerope+log-n", "string+mscale"]


def tokens_of(length):
    return int(length[:-1]) * 1024 if length.endswith("k") else int(length)


def usual_methods(path, ids):
    """Those of a sweep that names none."""
    plan = rw.plan(path)
    core = _core.Sweep(plan, None, None, ids, [], [], [], [], 0, "aligned", None, 1, False, ["perplexity"], 1, None, False, True, "exact", ["f32"], False)
    return list(dict.fromkeys(task[0] for task in core.tasks))


def is_remapped(plan):
    return any(layer.map is not None or layer.temperature is not None for layer in plan.layers)


def timed(call):
    begin = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begin


def window(args, ids, length):
    """The last --tokens tokens of one window."""
    if len(ids) < args.offset + length:
        sys.exit(f"{args.text}: {len(ids)} tokens are too few for {length} from {args.offset} on")
    positions = np.arange(length - min(args.tokens, length - 1), length)
    return ScoreRequest(ids=ids[args.offset : args.offset + length], positions=positions)


def losses(args):
    ids = _core.ModelFiles(args.model).tokenizer.encode(pathlib.Path(args.text).read_text())
    model = rw.plan(args.model)
    lengths = sorted(map(tokens_of, args.lengths.split(",")))
    factor = max(1.0, lengths[-1] / model.trained_length)
    methods = re.split(r",(?![a-z]+=)", args.methods) if args.methods else [*usual_methods(args.model, ids), *MAPS]
    rows = read(args.output) if args.output.exists() else []
    there = {(row["method"], row["length"]) for row in rows}
    native, torch_engine = native_engine(args.model), TorchEngine(args.model, device=args.device)
    for length in lengths:
        request = window(args, ids, length)
        for method in dict.fromkeys(methods):
            if (method, length) in there:
                continue
            plan = model.with_method(method, None if method == "none" else factor).at(length)
            angles = "exact" if is_remapped(plan) else "float32"
            theirs, native_seconds = timed(lambda: native.score(plan, [request], angles=angles).tokens[0])  # noqa: B023
            ours, torch_seconds = timed(lambda: torch_engine.score(plan, [request]).tokens[0])  # noqa: B023
            apart = np.abs(ours[0].astype(np.float64) - theirs[0])
            row = {
                "model": pathlib.Path(args.model).name,
                "method": method,
                "factor": 1.0 if method == "none" else factor,
                "length": length,
                "scored": len(apart),
                "largest": float(apart.max()),
                "mean": float(apart.mean()),
                "loss": float(-theirs[0].mean(dtype=np.float64)),
                "same_top": float((ours[1] == theirs[1]).mean()),
                "angles": angles,
                "native_seconds": round(native_seconds, 1),
                "torch_seconds": round(torch_seconds, 1),
                "compute": torch_engine.facts().compute,
            }
            with args.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    rows = [row for row in read(args.output) if row["length"] in lengths]
    print(table(rows))
    return max(row["largest"] for row in rows) <= args.most


def exact(args):
    import torch
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    def norm(self, x):  # transformers' own rounds to float32 on the way
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x

    def onednn(self, x):
        return torch.ops.aten.mkldnn_linear(x.contiguous().to_mkldnn(), self.weight, self.bias).to_dense()

    ids = _core.ModelFiles(args.model).tokenizer.encode(pathlib.Path(args.text).read_text())
    model = rw.plan(args.model)
    native, narrow, wide = native_engine(args.model), *(TorchEngine(args.model, dtype=d) for d in ("float32", "float64"))
    norms = {type(m) for m in wide.model.modules() if type(m).__name__.endswith("Norm")}
    if norms != {LlamaRMSNorm}:
        sys.exit(f"{args.model}: expected the norms of Llama alone, got {sorted(n.__name__ for n in norms)}")
    lengths = sorted(map(tokens_of, args.lengths.split(",")))
    factor = max(1.0, lengths[-1] / model.trained_length)
    for length in lengths:
        request = window(args, ids, length)
        for method in (args.methods or "none").split(","):
            plan = model.with_method(method, None if method == "none" else factor).at(length)
            if is_remapped(plan):
                sys.exit(f"{method}: expected a method of rotation alone")
            found = {
                "native": native.score(plan, [request], angles="float32"),
                "torch": narrow.score(plan, [request]),
            }
            with mock.patch.object(torch.nn.Linear, "forward", onednn):
                found["torch, products of oneDNN"] = narrow.score(plan, [request])
            with mock.patch.object(LlamaRMSNorm, "forward", norm):
                truth = wide.score(plan, [request]).tokens[0][0].astype(np.float64)
            for engine, scored in found.items():
                apart = np.abs(scored.tokens[0][0] - truth)
                row = {"method": method, "length": length, "engine": engine, "largest": float(apart.max()), "mean": float(apart.mean())}
                print(json.dumps(row), flush=True)
    return True


def table(rows):
    """Largest difference of a token's loss, in nats, by method and length."""
    lengths = sorted({row["length"] for row in rows})
    lines = ["| method | " + " | ".join(map(str, lengths)) + " |", "|---|" + "---:|" * len(lengths)]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["length"]: row for row in rows if row["method"] == method}
        cells = [f"{mine[n]['largest']:.1e} ({mine[n]['loss']:.3f})" if n in mine else "" for n in lengths]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sweep(args):
    options = {"text": pathlib.Path(args.text), "passkey_trials": args.passkey_trials, "anchors": args.anchors}
    if args.lengths:
        options["lengths"] = args.lengths
    if args.methods:
        options["methods"] = args.methods
    theirs, native_seconds = timed(
        lambda: rw.sweep(args.model, angles="float32", output=args.output / "native", **options)
    )
    ours, torch_seconds = timed(
        lambda: rw.sweep(args.model, engine="torch", device=args.device, output=args.output / "torch", **options)
    )
    print(theirs, ours, sep="\n")
    apart = []
    for a, b in zip(ours.rows, theirs.rows, strict=True):
        same = {key: a[key] for key in ("method", "factor", "length", "plan_hash")}
        if same != {key: b[key] for key in same}:
            sys.exit(f"other cells: {same} of torch, {b['method']} at {b['length']} of the native engine")
        row = {
            **same,
            "mean_nll": abs(a["mean_nll"] - b["mean_nll"]),
            "window_nll": float(np.abs(np.subtract(a["window_nll"], b["window_nll"])).max()),
            "perplexity": b["perplexity"],
            "passkey": [[t["exact"] for t in row["tasks"]] for row in (a, b)],
        }
        apart.append(row)
        print(json.dumps(row))
    settings = [
        [(r.length, r.method, r.factor, r.longest_usable, [m["standing"] for m in r.methods]) for r in s.recommendations]
        for s in (ours, theirs)
    ]
    print(f"{len(apart)} cells: native {native_seconds:.0f} s, torch {torch_seconds:.0f} s")
    print(f"mean losses at most {max(row['mean_nll'] for row in apart):.1e} nats apart")
    print(f"mean losses of a window at most {max(row['window_nll'] for row in apart):.1e} nats apart")
    print(f"passkey accuracies that differ: {sum(row['passkey'][0] != row['passkey'][1] for row in apart)}")
    print("recommended by both:" if settings[0] == settings[1] else "DIFFERENT RECOMMENDATIONS:", *settings, sep="\n")
    return settings[0] == settings[1]


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("losses", "exact", "sweep"):
        command = commands.add_parser(name)
        command.add_argument("model")
        command.add_argument("text")
        if name != "exact":
            command.add_argument("-o", "--output", type=pathlib.Path, required=True)
        command.add_argument("--lengths", default=None if name == "sweep" else "256,1k")
        command.add_argument("--methods")
        if name != "exact":
            command.add_argument("--device", default=None)
    window_options = {"--tokens": 128, "--offset": 0}
    for command, options in (("losses", window_options), ("exact", window_options), ("sweep", {"--passkey-trials": 25})):
        for option, default in options.items():
            commands.choices[command].add_argument(option, type=int, default=default)
    commands.choices["losses"].add_argument("--most", type=float, default=1e-4)
    commands.choices["sweep"].add_argument("--anchors", type=int)
    commands.add_parser("table").add_argument("rows")
    args = parser.parse_args()
    if args.command == "table":
        print(table(read(args.rows)))
        return 0
    if args.command != "exact":
        args.output.parent.mkdir(parents=True, exist_ok=True)
    return 0 if {"losses": losses, "exact": exact, "sweep": sweep}[args.command](args) else 1


if __name__ == "__main__":
    sys.exit(main())
