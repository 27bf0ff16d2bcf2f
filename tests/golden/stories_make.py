#!/usr/bin/env python3
"""Writes stories260K.json: losses of llama2.c's stories260K, computed in double by the program below.

    pip install numpy tokenizers==0.23.3 sentencepiece==0.1.99
    python tests/golden/stories_make.py ROPEWALK_TEST_DATA [--full]

BOS before each story, windows that do not overlap, every token of a window but the first is scored.
The file holds the mean loss, in nats per token, of each row's first windows. --full prints instead the perplexities of
65536 tokens at 512 and of 32768 beyond. A scalar program that was written apart from this one gave
for them: 512 5.97; 2048 none 6.99, ntk 7.02, yarn 8.23, linear 46.2; 4096 41.1, 14.7, 29.8, 83.6.
"""
import argparse
import json
import math
import pathlib

import numpy as np
from tokenizer_make import Llama2c

TRAINED = 512
# Method, length, windows in the golden.
ROWS = [("none", 512, 8), ("none", 2048, 2), ("yarn", 2048, 2), ("linear", 2048, 2),
        ("ntk", 4096, 1)]
FULL = [("none", 512)] + [(m, n) for n in (2048, 4096) for m in ("none", "ntk", "yarn", "linear")]


class Model:
    """Llama 2 as llama2.c runs it, all layers in float64."""

    def __init__(self, path):
        raw = path.read_bytes()
        self.dim, hidden, self.layers, self.heads, self.kv_heads, vocab, length = np.frombuffer(
            raw, "<i4", 7).tolist()
        assert vocab > 0 and length == TRAINED  # tied head
        self.head_dim = self.dim // self.heads
        rest = np.frombuffer(raw, "<f4", offset=28).astype(np.float64)

        def take(*shape):
            nonlocal rest
            part, rest = rest[:math.prod(shape)].reshape(shape), rest[math.prod(shape):]
            return part
        n, d, kv = self.layers, self.dim, self.kv_heads * self.head_dim
        self.embedding = take(vocab, d)
        self.attention_norm = take(n, d)
        self.wq, self.wk, self.wv, self.wo = take(n, d, d), take(n, kv, d), take(n, kv, d), take(n, d, d)
        self.ffn_norm = take(n, d)
        self.w1, self.w2, self.w3 = take(n, hidden, d), take(n, d, hidden), take(n, hidden, d)
        self.final_norm = take(d)
        assert rest.size == length * self.head_dim  # its own cos and sin

    def frequencies(self, method, factor):
        """inv_freq [head_dim / 2] and the amplitude of cos and sin."""
        d, base = self.head_dim, 10000.0
        if method == "ntk":
            base *= factor ** (d / (d - 2))
        inv = base ** (-np.arange(0, d, 2) / d)
        if method == "linear":
            return inv / factor, 1.0
        if method == "yarn":
            def pair(rotations):  # the pair that turns so often within the trained length
                return d * math.log(TRAINED / (2 * math.pi * rotations)) / (2 * math.log(base))
            low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), d - 1)
            ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
            return inv / factor * ramp + inv * (1 - ramp), 0.1 * math.log(factor) + 1
        return inv, 1.0

    def losses(self, ids, inv, amplitude):
        """-log p of ids[1:], each given all before it."""
        n, hd = len(ids), self.head_dim
        turn = amplitude * np.exp(1j * np.outer(np.arange(n), inv))[:, None, :]
        causal = np.triu(np.full((n, n), -np.inf), 1)

        def norm(x, weight):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

        def rotate(x, heads):  # neighbours are a pair: a complex number
            z = x.reshape(n, heads, hd // 2, 2)
            z = (z[..., 0] + 1j * z[..., 1]) * turn
            return np.stack([z.real, z.imag], -1).reshape(n, heads, hd)
        x = self.embedding[ids]
        for i in range(self.layers):
            h = norm(x, self.attention_norm[i])
            q, k = rotate(h @ self.wq[i].T, self.heads), rotate(h @ self.wk[i].T, self.kv_heads)
            v = (h @ self.wv[i].T).reshape(n, self.kv_heads, hd)
            out = np.empty((n, self.heads, hd))
            for head in range(self.heads):
                shared = head // (self.heads // self.kv_heads)
                scores = q[:, head] @ k[:, shared].T / math.sqrt(hd) + causal
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                out[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, shared]
            x = x + out.reshape(n, -1) @ self.wo[i].T
            h = norm(x, self.ffn_norm[i])
            gate = h @ self.w1[i].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ self.w3[i].T)) @ self.w2[i].T
        logits = norm(x, self.final_norm) @ self.embedding.T
        top = logits.max(-1, keepdims=True)
        logits = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        return -logits[np.arange(n - 1), ids[1:]]


def story_ids(data, tokens):
    tokenizer = Llama2c.read((data / "stories260K" / "tokenizer.bin").read_bytes(), 512)
    ids = []
    for story in (data / "text" / "tinystories_1000.txt").read_text("utf-8").split("<|endoftext|>"):
        if story.strip(" \n") and len(ids) < tokens:
            ids += [1] + tokenizer.encode(story.strip(" \n"))
    return np.array(ids[:tokens])


def mean_losses(model, ids, method, length, windows):
    inv, amplitude = model.frequencies(method, length / TRAINED)
    return [float(model.losses(ids[w * length:(w + 1) * length], inv, amplitude).mean())
            for w in range(windows)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    model = Model(args.data / "stories260K" / "checkpoint_legacy.bin")
    ids = story_ids(args.data, 65536 if args.full else 4096)
    if args.full:
        for method, length in FULL:
            windows = (65536 if length == TRAINED else 32768) // length
            loss = np.mean(mean_losses(model, ids, method, length, windows))
            print(f"{length:5} {method:6} {math.exp(loss):.3f}", flush=True)
        return
    rows = [{"method": method, "length": length,
             "window_nll": mean_losses(model, ids, method, length, windows)}
            for method, length, windows in ROWS]
    golden = {"tokens": len(ids), "first_ids": ids[:16].tolist(), "rows": rows}
    out = pathlib.Path(__file__).parent / "stories260K.json"
    out.write_text(json.dumps(golden, indent=1) + "\n")


main()
