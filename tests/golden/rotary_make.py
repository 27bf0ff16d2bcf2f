#!/usr/bin/env python3
"""Writes rotary_frequencies.json: inv_freq and attention factor as Hugging Face computes them.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 transformers==4.57.6
    ATEN_CPU_CAPABILITY=avx512 venv/bin/python tests/golden/rotary_make.py tests/golden/rotary_frequencies.json

Made on an x86-64 CPU with AVX-512 and glibc 2.36 (PyTorch's pow differs in the last bit between
vector widths, see src/rotary/torch_pow.h). inv_freq is written as the bits of its float32 values.
With --many N, N random cases instead: a search for differences, not committed.
"""

import argparse
import json
import random

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def case(kind, dim, base, trained, length, **scaling):
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        rope_theta=base,
        max_position_embeddings=trained,
    )
    config.rope_scaling = {"rope_type": kind, **scaling} if kind != "default" else None
    if kind in ("yarn", "llama3"):
        config.rope_scaling["original_max_position_embeddings"] = trained
    if kind == "longrope":
        # As Phi-3: the factor is the configured over the original length.
        config.original_max_position_embeddings = trained
        config.max_position_embeddings = int(scaling["factor"] * trained)
    # The forward pass hands over a tensor once the length passes the configured one.
    seq_len = torch.tensor(length) if length > trained else None
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=seq_len)
    return {
        "type": kind,
        "rotary_dim": dim,
        "base": base,
        "trained_length": trained,
        "length": length,
        "scaling": scaling,
        "attention_factor": float(factor),
        "inv_freq_bits": inv_freq.to(torch.float32).view(torch.int32).tolist(),
    }


def longrope(dim, rng):
    short = [round(1 + rng.random() * 0.2, 3) for _ in range(dim // 2)]
    return short, [round(1 + i * 0.7 + rng.random(), 3) for i in range(dim // 2)]


def fixed_cases():
    rng = random.Random(1)
    for dim, base in [(8, 10000.0), (32, 10000.0), (64, 100000.0), (64, 500000.0), (80, 10000.0), (96, 1e6), (128, 10000.0), (128, 500000.0), (128, 5e6)]:
        yield case("default", dim, base, 2048, 1)
    yield case("linear", 64, 10000.0, 2048, 1, factor=4.0)
    yield case("linear", 128, 500000.0, 4096, 1, factor=3.3)
    for length in (2048, 2049, 3000, 4096, 16384, 131072):
        yield case("dynamic", 64, 10000.0, 2048, length, factor=2.0)
    yield case("dynamic", 128, 10000.0, 4096, 100000, factor=4.5)
    yield case("dynamic", 4, 10000.0, 4096, 100000, factor=2.0)
    yield case("yarn", 128, 10000.0, 4096, 1, factor=16.0)
    yield case("yarn", 128, 1e6, 32768, 1, factor=4.0)
    yield case("yarn", 64, 150000.0, 4096, 1, factor=32.0, truncate=False)
    yield case("yarn", 64, 10000.0, 4096, 1, factor=40.0, mscale=0.707, mscale_all_dim=0.707)
    yield case("yarn", 64, 10000.0, 4096, 1, factor=40.0, mscale=1.0, mscale_all_dim=0.5)
    yield case("yarn", 64, 10000.0, 4096, 1, factor=40.0, mscale=0.707)
    yield case("yarn", 64, 10000.0, 2048, 1, factor=8.0, attention_factor=1.0, beta_fast=16.0, beta_slow=2.0)
    yield case("yarn", 32, 10000.0, 256, 1, factor=8.0)
    yield case("llama3", 128, 500000.0, 8192, 1, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    yield case("llama3", 64, 500000.0, 8192, 1, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0)
    yield case("llama3", 64, 10000.0, 2048, 1, factor=4.0, low_freq_factor=2.0, high_freq_factor=7.5)
    short, long = longrope(96, rng)
    for length in (4096, 4097):
        yield case("longrope", 96, 10000.0, 4096, length, short_factor=short, long_factor=long, factor=32.0)
    yield case("longrope", 96, 10000.0, 4096, 1, short_factor=short, long_factor=long, factor=32.0, attention_factor=1.25)


def random_cases(count):
    rng = random.Random(2)
    for _ in range(count):
        dim = rng.choice([4, 8, 16, 32, 48, 64, 80, 96, 128, 192, 256])
        base = rng.choice([10000.0, 500000.0, 1e6, 150000.0, 10 ** rng.uniform(2, 7)])
        trained = rng.choice([256, 512, 1000, 2048, 4096, 8192, 32768])
        factor = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0, 1 + rng.random() * 40])
        length = rng.choice([1, trained, trained + 1, 2 * trained, int(trained * (1 + rng.random() * 30))])
        kind = rng.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
        if kind == "default":
            yield case(kind, dim, base, trained, length)
        elif kind in ("linear", "dynamic"):
            yield case(kind, dim, base, trained, length, factor=factor)
        elif kind == "yarn":
            slow = rng.choice([1.0, 2.0, 0.5 + rng.random()])
            yield case(kind, dim, base, trained, 1, factor=factor, truncate=rng.random() < 0.5, beta_fast=slow * rng.choice([16.0, 32.0, 3.7]), beta_slow=slow)
        elif kind == "llama3":
            yield case(kind, dim, base, trained, 1, factor=factor, low_freq_factor=1 + rng.random(), high_freq_factor=3 + rng.random() * 5)
        else:
            short, long = longrope(dim, rng)
            yield case(kind, dim, base, trained, length, short_factor=short, long_factor=long, factor=factor)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("--many", type=int, default=0)
    args = parser.parse_args()
    cases = list(random_cases(args.many) if args.many else fixed_cases())
    with open(args.output, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
