#!/usr/bin/env python3
"""Writes xtransformers.json: attention with the biases of x-transformers, and its polar vectors.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 x-transformers==2.31.10
    venv/bin/python tests/golden/xtransformers_make.py tests/golden/xtransformers.json

In double. Weights and inputs are no part of the file: number k of a tensor is scale sin(12.9898 (k + 1) + seed), rounded to float32,
in Python and in the test.
"""

import json
import math
import sys

import torch
from x_transformers.x_transformers import (AlibiPositionalBias, CoPE, DataDependentAlibi, PolarEmbedding,
                                           RelativePositionBias, apply_polar_pos_emb)

torch.set_default_dtype(torch.float64)
HEADS, DIM, TOKENS = 3, 4, 40


def det(shape, seed, scale=1.0):
    n = math.prod(shape)
    values = torch.tensor([scale * math.sin(12.9898 * (k + 1) + seed) for k in range(n)])
    return values.float().double().reshape(shape)


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def attention(bias, causal, scale):
    """[tokens, heads, dim] of softmax(scale q k + bias(q, scores)) v, all given as [tokens, heads, dim]."""
    q, k, v = (det((TOKENS, HEADS, DIM), seed).permute(1, 0, 2)[None] for seed in (1, 2, 3))
    scores = scale * q @ k.transpose(-1, -2)
    if causal:
        ahead = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -torch.finfo(scores.dtype).max)  # as their Attend, before CoPE sees them
    out = (scores + bias(q, scores)).softmax(-1) @ v
    return numbers(out[0].permute(1, 0, 2))


def main():
    alibi = AlibiPositionalBias(HEADS)
    golden = {"alibi": attention(lambda q, s: alibi(TOKENS, TOKENS).double(), False, 0.5)}
    golden["alibi_slopes"] = {str(n): AlibiPositionalBias._get_slopes(n) for n in (1, 2, 3, 6, 8, 12, 25, 71)}
    for causal in (False, True):
        # They multiply the bias by sqrt(dim), T5 itself does not scale q k: the same scores, all times 1 / sqrt(dim).
        t5 = RelativePositionBias(scale=1.0, causal=causal, num_buckets=16, max_distance=32, heads=HEADS)
        t5.relative_attention_bias.weight.data = det((16, HEADS), 4)
        golden["t5_causal" if causal else "t5"] = attention(lambda q, s, t=t5: t(TOKENS, TOKENS), causal, 1.0)
    distances = torch.arange(-300, 301)
    far = torch.tensor([4095, 4096, 4097, 16384, 131071, 1048575])
    distances = torch.cat([distances, far, -far])
    golden["t5_buckets"] = {"distance": distances.tolist()}
    for causal in (False, True):
        golden["t5_buckets"]["causal" if causal else "both"] = RelativePositionBias._relative_position_bucket(
            -distances, causal=causal).tolist()
    gate = DataDependentAlibi(5, HEADS)
    gate.to_forget_gates[0].weight.data, gate.to_forget_gates[0].bias.data = det((HEADS, 5), 5), det((HEADS,), 6)
    golden["forgetting_gate"] = attention(lambda q, s: gate(det((TOKENS, 5), 7)[None]), True, 0.5)
    cope = CoPE(DIM, HEADS, 16)
    cope.pos_emb.data = det((16, DIM), 8)
    golden["cope"] = attention(cope, True, 0.5)
    polar = PolarEmbedding(DIM, HEADS)
    polar.learned_bias.data = det((HEADS, 1, DIM), 9, 4.0)
    turns, phase = polar(torch.arange(TOKENS).double())
    x = det((TOKENS, HEADS, DIM), 1).permute(1, 0, 2)
    golden["pope_queries"] = numbers(apply_polar_pos_emb(x, turns).permute(1, 0, 2))
    golden["pope_keys"] = numbers(apply_polar_pos_emb(x, turns + phase).permute(1, 0, 2))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
