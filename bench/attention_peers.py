#!/usr/bin/env python3
"""Attention against PyTorch's scaled_dot_product_attention, in turns, in one process, on the same tensors.

    bench/attention_peers.py --library build/bench/libropewalk_attention_c.so [--json FILE] [--rounds 9] [--smoke]

Needs a virtual environment with torch (CPU). float32, causal, 8 heads of 128.

  ropewalk         packs keys and values, then attends
  torch            is_causal=True
  ropewalk_alibi   the same with ALiBi's slopes
  torch_alibi      attn_mask: the bias of all pairs, heads x tokens x tokens, ready before the clock starts

PyTorch's tensors are [1, heads, tokens, 128] without gaps, as it likes them. Results are compared before
anything is timed. Times are medians of rounds in which each takes its turn. Prints a table and writes one
JSON line a size. --smoke: 64 tokens, one round, to see that it runs.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time

import numpy as np
import torch

HEADS, DIM = 8, 128
TOKENS = (2048, 4096)
THREADS = (1, 2)


class Call(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in ("tokens", "heads", "kv_heads", "head_dim")),
                *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "slopes")),
                ("causal", ctypes.c_int32), ("threads", ctypes.c_int32)]


def calls_of(library, tokens, threads):
    """name -> call, results compared."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((tokens, HEADS, DIM), np.float32) for _ in range(3))
    slopes = (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32)
    outs = [np.empty_like(q) for _ in range(2)]
    calls, kept = {}, [q, k, v, slopes, outs]
    for name, out, with_slopes in (("ropewalk", outs[0], False), ("ropewalk_alibi", outs[1], True)):
        args = Call(tokens, HEADS, HEADS, DIM, q.ctypes.data, k.ctypes.data, v.ctypes.data, out.ctypes.data,
                    slopes.ctypes.data if with_slopes else None, 1, threads)

        def call(args=args, _kept=kept):
            if library.ropewalk_bench_attention(ctypes.byref(args)) != 0:
                raise RuntimeError("ropewalk_bench_attention failed")
        calls[name] = call
    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(x).transpose(0, 1).unsqueeze(0).contiguous() for x in (q, k, v)]
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    bias = -torch.from_numpy(slopes)[:, None, None] * distance
    bias = bias.masked_fill(distance < 0, float("-inf"))[None]
    attend = torch.nn.functional.scaled_dot_product_attention

    def plain():
        with torch.inference_mode():
            return attend(*tensors, is_causal=True)

    def alibi():
        with torch.inference_mode():
            return attend(*tensors, attn_mask=bias)
    calls["torch"], calls["torch_alibi"] = plain, alibi
    for mine, peer, out in (("ropewalk", plain, outs[0]), ("ropewalk_alibi", alibi, outs[1])):
        calls[mine]()
        worst = float(np.abs(peer()[0].transpose(0, 1).numpy() - out).max())
        if not worst <= 1e-5:
            sys.exit(f"attention_peers: {mine} differs from torch by {worst}")
    return calls


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, help="libropewalk_attention_c.so")
    parser.add_argument("--json", help="append lines here")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.rounds = 1
    library = ctypes.CDLL(args.library)
    print(f"{'tokens':>6} {'threads':>7}  {'':16} {'ms':>9} {'GFLOP/s':>8} {'times ropewalk':>15}")
    for tokens in (64,) if args.smoke else TOKENS:
        for threads in THREADS[:1] if args.smoke else THREADS:
            calls = calls_of(library, tokens, threads)
            samples = {name: [] for name in calls}
            for _ in range(args.rounds):
                for name, call in calls.items():
                    samples[name].append(seconds(call))
            flop = 4.0 * HEADS * DIM * tokens * (tokens + 1) / 2
            medians = {name: statistics.median(s) for name, s in samples.items()}
            ratios = {name: statistics.median(a / b for a, b in zip(samples[name], samples[mine], strict=True))
                      for name, mine in (("torch", "ropewalk"), ("torch_alibi", "ropewalk_alibi"))}
            for name, s in medians.items():
                print(f"{tokens:6} {threads:7}  {name:16} {s * 1e3:9.1f} {flop / s / 1e9:8.1f} "
                      f"{ratios.get(name, 1.0):15.2f}")
            line = {"bench": "attention_peers", "tokens": tokens, "threads": threads, "rounds": args.rounds,
                    "torch": torch.__version__, "ms": {n: round(s * 1e3, 2) for n, s in medians.items()},
                    "times_ropewalk": {n: round(r, 3) for n, r in ratios.items()}}
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
