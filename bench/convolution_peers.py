#!/usr/bin/env python3
"""Convolutional position encodings against PyTorch, in turns: the shapes of absolute_bench on one thread.

    bench/convolution_peers.py --bench build/bench/absolute_bench [--json FILE] [--rounds 5]

Needs a virtual environment with torch (CPU). 4096 tokens of 768 channels, float32: wav2vec 2.0 (128 taps, 16
groups, GELU) and CPE (64 x 64, 3 x 3, depthwise), y = x + f(conv(x)). PyTorch's tensors are [1, channels,
tokens] or channels-last images, whichever is faster; its backward keeps what forward computed, ours computes the
argument of GELU again. Times are medians of rounds in which each takes its turn.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time

import torch
from torch.nn.functional import conv1d, conv2d, gelu

NAMES = {"wave": "convolutional, wav2vec 2.0", "grid": "convolutional, CPE", "grid_last": "convolutional, CPE"}


def torch_calls():
    """name -> (forward, gradients of x and of the weight given y)."""
    torch.manual_seed(3)
    x = torch.randn(1, 768, 4096)
    image = x.reshape(1, 768, 64, 64)
    wave = (torch.randn(768, 48, 128) * 0.01).requires_grad_()
    grid = torch.randn(768, 1, 3, 3).requires_grad_()
    cases = {
        "wave": (x.clone(), wave, lambda a, w: a + gelu(conv1d(a, w, padding=64, groups=16)[..., :-1])),
        "grid": (image.clone(), grid, lambda a, w: a + conv2d(a, w, padding=1, groups=768)),
        "grid_last": (image.to(memory_format=torch.channels_last), grid,
                      lambda a, w: a + conv2d(a, w, padding=1, groups=768)),
    }
    calls = {}
    for name, (a, w, f) in cases.items():
        a = a.detach().requires_grad_()
        dy = torch.randn_like(a)
        calls[name] = (lambda a=a, w=w, f=f: f(a, w),
                       lambda y, a=a, w=w, dy=dy: torch.autograd.grad(y, (a, w), dy))
    return calls


def ropewalk_round(bench):
    """name of the encoding -> (forward, backward) in ms."""
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run([bench, "--rounds", "1", "--only", "convolutional", "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in file]
    return {line["encoding"]: (line["forward_ms"], line["backward_ms"]) for line in lines}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True, help="absolute_bench")
    parser.add_argument("--json", help="append a line here")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    calls = torch_calls()
    samples = {}
    for round_ in range(-1, args.rounds):  # the first warms
        times = ropewalk_round(args.bench)
        for name, (forward, backward) in calls.items():
            start = time.perf_counter()
            y = forward()
            middle = time.perf_counter()
            backward(y)
            times[name] = ((middle - start) * 1e3, (time.perf_counter() - middle) * 1e3)
        for name, pair in times.items():
            if round_ >= 0:
                samples.setdefault(name, []).append(pair)
    print(f"{'':28} {'forward ms':>11} {'backward ms':>12}")
    ms = {name: [statistics.median(p[i] for p in pairs) for i in range(2)] for name, pairs in samples.items()}
    for name, (forward, backward) in ms.items():
        print(f"{name if name not in NAMES else 'torch, ' + name:28} {forward:11.1f} {backward:12.1f}")
    ratios = {}
    for name, mine in NAMES.items():
        pairs = list(zip(samples[name], samples[mine], strict=True))
        ratios[name] = {"forward": statistics.median(t[0] / r[0] for t, r in pairs),
                        "both": statistics.median(sum(t) / sum(r) for t, r in pairs)}
        print(f"{name}: torch takes {ratios[name]['forward']:.2f} times ropewalk forward, "
              f"{ratios[name]['both']:.2f} forward and backward")
    if args.json:
        line = {"bench": "convolution_peers", "rounds": args.rounds, "threads": 1, "torch": torch.__version__,
                "forward_backward_ms": {n: [round(v, 2) for v in p] for n, p in ms.items()},
                "times_ropewalk": {n: {k: round(v, 3) for k, v in r.items()} for n, r in ratios.items()}}
        with open(args.json, "a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
