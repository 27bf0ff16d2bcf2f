#!/usr/bin/env python3
"""Measures what articles say of position encodings as functions, without training: JSON lines for docs/results/evidence/functions.jsonl.
Weights of projections are those of the embedded model (models/), all else is drawn with seed 1. Needs numpy and the Python package.

usage: PYTHONPATH=build/python .venv-python/bin/python scripts/evidence_functions.py
"""

import hashlib
import json
import math
import pathlib
import struct

import numpy as np

import ropewalk as rw

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, HEADS, DIM, LAYERS = 192, 6, 32, 4  # of the embedded model
RNG = np.random.default_rng(1)


def weights():
    """The tensors of the embedded model as float64, and the hash of their file."""
    data = (ROOT / "models" / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, at in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            first, last = (8 + size + x for x in at["data_offsets"])
            bits = np.frombuffer(data[first:last], "<u2").astype(np.uint32) << 16
            tensors[name] = bits.view(np.float32).reshape(at["shape"])
    return tensors, hashlib.sha256(data).hexdigest()


def projections(tensors, layer):
    """W_q and W_k of a layer, [heads, head_dim, width]."""
    names = (f"model.layers.{layer}.self_attn.{x}_proj.weight" for x in "qk")
    return tuple(tensors[name].reshape(HEADS, DIM, WIDTH).astype(np.float64) for name in names)


# ---- Zero padding -------------------------------------------------------------------------------


def convolve(x, kernels, border):
    for kernel in kernels:
        x = rw.position_convolution(x, kernel, border=border)
    return x


def told_apart(x):
    """Tokens whose output differs from that of the token in the middle."""
    return int((np.abs(x - x[len(x) // 2]).max(axis=1) > 1e-5 * np.abs(x).max()).sum())


def readout(kernels, border, tokens=64, channels=8, sequences=512):
    """R^2 of the position, read by ridge regression from the output of random inputs; half of the sequences are held out."""
    x = RNG.standard_normal((sequences, tokens, channels)).astype(np.float32)
    for kernel in kernels:  # the nonlinearity lets variance at the ends become a mean
        x = rw.position_convolution(x, kernel, border=border, gelu=True)
    features = np.concatenate([x, np.ones((sequences, tokens, 1))], axis=2).astype(np.float64)
    centre = np.abs(np.arange(tokens) - (tokens - 1) / 2)  # distance from the middle
    a, b = features[::2].reshape(-1, channels + 1), features[1::2].reshape(-1, channels + 1)
    y = np.tile(centre, sequences // 2)
    fitted = b @ np.linalg.solve(a.T @ a + 1e-6 * np.eye(channels + 1), a.T @ y)
    return 1 - ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum()


def padding():
    kernels = [RNG.standard_normal((8, 8, 5)).astype(np.float32) * 0.3 for _ in range(8)]
    even = [(k + k[:, :, ::-1]) / 2 for k in kernels]
    for layers in (1, 2, 4, 8):
        for border in ("zero", "circular"):
            same = convolve(np.ones((64, 8), np.float32), kernels[:layers], border)
            mirrored = convolve(np.ones((64, 8), np.float32), even[:layers], border)
            yield {
                "what": "padding",
                "border": border,
                "layers": layers,
                "tokens": 64,
                "kernel": 5,
                "told_apart": told_apart(same),
                "ends_alike": float(np.abs(same - same[::-1]).max() / np.abs(same).max()) < 1e-5,
                "ends_alike_even_kernel": float(np.abs(mirrored - mirrored[::-1]).max() / np.abs(mirrored).max()) < 1e-5,
                "readout_r2": round(float(readout(kernels[:layers], border)), 4),
            }


# ---- Order through the mask ---------------------------------------------------------------------


def norm(x, weight):
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + 1e-5).astype(np.float32) * weight


def run(tensors, ids, layers, causal, rotation):
    """The embedded model's layers over ids, with or without its mask and its rotation: states of all tokens."""
    x = tensors["model.embed_tokens.weight"][ids]
    for layer in range(layers):
        w = {name.split(".", 3)[3]: t for name, t in tensors.items() if name.startswith(f"model.layers.{layer}.")}
        h = norm(x, w["input_layernorm.weight"])
        q, k, v = ((h @ w[f"self_attn.{n}_proj.weight"].T).reshape(-1, HEADS, DIM) for n in "qkv")
        if rotation is not None:
            q, k = rw.rotate(q, k, rotation)[:2]
        x = x + rw.attention(q, k, v, causal=causal).reshape(-1, WIDTH) @ w["self_attn.o_proj.weight"].T
        h = norm(x, w["post_attention_layernorm.weight"])
        gate = h @ w["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return x


def order(tensors):
    rope = rw.rotation(DIM, layout="half", base=10000.0)
    for alike in (False, True):
        ids = np.full(128, 40) if alike else RNG.integers(4, 1024, 128)
        for causal in (False, True):
            for positions in (None, rope):
                for layers in range(1, LAYERS + 1):
                    whole = run(tensors, ids, layers, causal, positions)
                    row = {
                        "what": "order",
                        "mask": "causal" if causal else "none",
                        "rotation": positions is not None,
                        "layers": layers,
                        "tokens": "all alike" if alike else "drawn",
                    }
                    if alike:  # do equal tokens get different states?
                        change = np.linalg.norm(whole - whole[-1], axis=1).max()
                    else:  # does the last token's state change when those before it are shuffled?
                        shuffled = np.concatenate([RNG.permutation(ids[:-1]), ids[-1:]])
                        change = np.linalg.norm(run(tensors, shuffled, layers, causal, positions)[-1] - whole[-1])
                    yield {**row, "change": float(change / np.linalg.norm(whole[-1]))}


# ---- Relative before and after the projections --------------------------------------------------


def explained(scores):
    """The share of the variance of scores [m, n] that their distance m - n explains."""
    total, within, count = ((scores - scores.mean()) ** 2).mean(), 0.0, scores.size
    for d in range(-len(scores) + 1, len(scores)):
        line = np.diagonal(scores, d)
        within += ((line - line.mean()) ** 2).sum()
    return float(1 - within / count / total)


def turned(x, positions, dim):
    """One vector at every position, rotated: [positions, dim]."""
    rows = np.broadcast_to(x.astype(np.float32), (len(positions), 1, dim))
    return rw.rotate(rows, None, rw.rotation(dim, layout="interleaved"), positions)[0][:, 0].astype(np.float64)


def complex_linear_map(dim):
    """A real matrix that is a complex one of dim / 2: it commutes with every rotation of pairs by one angle; diagonal, by any."""
    a, b = RNG.standard_normal((2, dim // 2))
    matrix = np.zeros((dim, dim))
    for i in range(dim // 2):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[a[i], -b[i]], [b[i], a[i]]]
    return matrix


def relative(tensors):
    at = np.arange(256)
    rows = rw.Sinusoidal(WIDTH).rows(at).astype(np.float64)
    yield {"what": "relative", "positions": "sinusoids", "projected": "no", "explained": explained(rows @ rows.T)}
    for layer in range(LAYERS):
        w_q, w_k = projections(tensors, layer)
        x, y = RNG.standard_normal((2, WIDTH))
        x_rows, y_rows = turned(x, at, WIDTH), turned(y, at, WIDTH)
        for head in range(HEADS):
            q, k = w_q[head], w_k[head]
            made = {
                "sinusoids": (rows @ q.T) @ (rows @ k.T).T,
                "rotated before": (x_rows @ q.T) @ (y_rows @ k.T).T,
                "rotated after": turned(q @ x, at, DIM) @ turned(k @ y, at, DIM).T,
            }
            for positions, scores in made.items():
                yield {
                    "what": "relative",
                    "positions": positions,
                    "projected": "yes",
                    "layer": layer,
                    "head": head,
                    "explained": explained(scores),
                }
    x, y = RNG.standard_normal((2, DIM))
    q, k = complex_linear_map(DIM), complex_linear_map(DIM)
    scores = (turned(x, at, DIM) @ q.T) @ (turned(y, at, DIM) @ k.T).T
    yield {"what": "relative", "positions": "rotated before", "projected": "complex diagonal", "explained": explained(scores)}


# ---- Complex order ------------------------------------------------------------------------------


def complex_order():
    words, pairs, at = 16, 16, np.arange(2048)
    plain = RNG.standard_normal((words, 2 * pairs)).astype(np.float32)
    z = plain[:, 0::2] + 1j * plain[:, 1::2]
    frequency = (10000.0 ** (-2.0 * np.arange(pairs) / (2 * pairs))).astype(np.float32)
    drawn = RNG.uniform(0, math.pi, pairs).astype(np.float32)
    ids = RNG.integers(0, words, len(at))
    amplitude, phase = np.abs(z).astype(np.float32), np.angle(z).astype(np.float32)
    made = rw.complex_order(ids, at, amplitude, frequency, phase, frequency_shared="words")
    rope = rw.rotate(plain[ids][:, None], None, rw.rotation(2 * pairs, layout="interleaved"), at)[0][:, 0]
    same = np.abs(made - (rope[:, 0::2] + 1j * rope[:, 1::2])).max() / np.abs(z).max()
    yield {
        "what": "complex order",
        "quantity": "shared frequencies, largest difference to RoPE's embedding",
        "value": float(same),
    }
    own = RNG.uniform(0, math.pi, (words, pairs)).astype(np.float32)
    for name, f, shared in (
        ("10000^(-2i/d)", frequency, "words"),
        ("drawn, shared", drawn, "words"),
        ("drawn, own", own, "none"),
    ):
        e = rw.complex_order(np.zeros(len(at), int), at, np.ones_like(amplitude), f, frequency_shared=shared).astype(
            np.complex128
        )
        score = (e * e[0].conj()).real.mean(axis=1)
        for low, high in ((1, 4), (4, 16), (16, 64), (64, 256), (256, 1024)):
            yield {
                "what": "complex order",
                "quantity": "score of equal words",
                "frequencies": name,
                "from": low,
                "to": high,
                "value": round(float(score[low:high].mean()), 5),
            }
    for name, f, shared in (("10000^(-2i/d)", frequency, "words"), ("drawn, own", own, "none")):
        a = rw.complex_order(np.zeros(256, int), at[:256], amplitude, f, phase, frequency_shared=shared)
        b = rw.complex_order(np.ones(256, int), at[:256], amplitude, f, phase, frequency_shared=shared)
        yield {
            "what": "complex order",
            "quantity": "share of the score of two words that distance explains",
            "frequencies": name,
            "value": explained((a.astype(np.complex128) @ b.conj().T.astype(np.complex128)).real),
        }


def main():
    tensors, digest = weights()
    print(
        json.dumps(
            {
                "format": "ropewalk-evidence",
                "schema": 1,
                "version": rw.__version__,
                "weights_sha256": digest,
                "seed": 1,
                "command": "PYTHONPATH=build/python .venv-python/bin/python scripts/evidence_functions.py",
            }
        )
    )
    for row in (*padding(), *order(tensors), *relative(tensors), *complex_order()):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
