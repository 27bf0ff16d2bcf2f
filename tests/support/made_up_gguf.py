#!/usr/bin/env python3
"""Writes a GGUF file of the shape of LLaMA with random Q4_K weights, a part at a time: any size in little memory. What
it predicts is noise; how much memory and time it takes is that of a real model. Python's standard library only.

usage: made_up_gguf.py OUT [--layers 16] [--hidden 2048] [--feed-forward 8192] [--heads 32] [--kv-heads 8] [--vocab 128256]
                       [--context 8192] [--untied] [--seed 1]

The defaults are Llama 3.2 1B; 8B is --layers 32 --hidden 4096 --feed-forward 14336 --untied.
"""

import argparse
import math
import random
import struct

BLOCK, BYTES = 256, 144  # elements and bytes of a block of Q4_K
F32, Q4_K = 0, 12  # numbers of ggml


def _text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _array(kind, items, pack):
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(pack(item) for item in items)


def _tokens(vocab):
    """A SentencePiece vocabulary: the bytes, and words that no text has. Pairs of (piece, type)."""
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3)] + [(f"<0x{byte:02X}>", 6) for byte in range(256)]
    return pieces + [(f"\u2581no{i}word", 1) for i in range(vocab - len(pieces))]


def _metadata(shape):
    tokens = _tokens(shape.vocab)
    integer = {
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.hidden,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": shape.feed_forward,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.vocab_size": shape.vocab,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    real = {"llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 500000.0}
    entries = [(key, struct.pack("<II", 4, value)) for key, value in integer.items()]
    entries += [(key, struct.pack("<If", 6, value)) for key, value in real.items()]
    entries += [
        ("general.architecture", struct.pack("<I", 8) + _text("llama")),
        ("tokenizer.ggml.model", struct.pack("<I", 8) + _text("llama")),
        ("tokenizer.ggml.tokens", _array(8, tokens, lambda token: _text(token[0]))),
        ("tokenizer.ggml.scores", _array(6, range(len(tokens)), lambda i: struct.pack("<f", -float(i)))),
        ("tokenizer.ggml.token_type", _array(5, tokens, lambda token: struct.pack("<i", token[1]))),
    ]
    return entries


def _tensors(shape):
    """(name, dimensions outer first, type)"""
    kv = shape.hidden // shape.heads * shape.kv_heads
    matrices = [
        ("attn_q", shape.hidden, shape.hidden),
        ("attn_k", kv, shape.hidden),
        ("attn_v", kv, shape.hidden),
        ("attn_output", shape.hidden, shape.hidden),
        ("ffn_gate", shape.feed_forward, shape.hidden),
        ("ffn_up", shape.feed_forward, shape.hidden),
        ("ffn_down", shape.hidden, shape.feed_forward),
    ]
    tensors = [("token_embd.weight", [shape.vocab, shape.hidden], Q4_K), ("output_norm.weight", [shape.hidden], F32)]
    if shape.untied:
        tensors.append(("output.weight", [shape.vocab, shape.hidden], Q4_K))
    for layer in range(shape.layers):
        tensors += [(f"blk.{layer}.{name}.weight", [out, inner], Q4_K) for name, out, inner in matrices]
        tensors += [(f"blk.{layer}.{name}.weight", [shape.hidden], F32) for name in ("attn_norm", "ffn_norm")]
    return tensors


def _bytes_of(dimensions, kind):
    count = math.prod(dimensions)
    return count * 4 if kind == F32 else count // BLOCK * BYTES


def _blocks(count, inner, rng):
    """Random blocks of Q4_K with a mean of 0 and a variance of 1 / inner: scale * (0 .. 63) * (0 .. 15) less min * (0 ..
    63)."""
    data = bytearray(rng.randbytes(count * BYTES))
    scale = 1 / (300 * math.sqrt(inner))
    head = struct.pack("<ee", scale, 7.5 * scale)
    for at, byte in enumerate(head):
        data[at::BYTES] = bytes([byte]) * count
    return bytes(data)


def _write_matrix(file, dimensions, rng):
    """The same random blocks from another place on for every part: drawing all would take minutes."""
    count = 4096
    pool = _blocks(count, dimensions[-1], rng) * 2
    left = math.prod(dimensions) // BLOCK
    while left > 0:
        part, first = min(left, count), rng.randrange(count)
        file.write(pool[first * BYTES : (first + part) * BYTES])
        left -= part


def write(path, shape):
    rng = random.Random(shape.seed)
    metadata, tensors = _metadata(shape), _tensors(shape)
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        for key, value in metadata:
            file.write(_text(key) + value)
        offset = 0
        for name, dimensions, kind in tensors:
            file.write(_text(name) + struct.pack("<I", len(dimensions)))
            file.write(b"".join(struct.pack("<Q", d) for d in reversed(dimensions)) + struct.pack("<IQ", kind, offset))
            offset += -(-_bytes_of(dimensions, kind) // 32) * 32
        for _, dimensions, kind in tensors:
            file.write(b"\0" * (-file.tell() % 32))
            if kind == F32:
                file.write(struct.pack("<f", 1.0) * math.prod(dimensions))
            else:
                _write_matrix(file, dimensions, rng)
        file.write(b"\0" * (-file.tell() % 32))


def parser():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    sizes = {"layers": 16, "hidden": 2048, "feed_forward": 8192, "heads": 32, "kv_heads": 8, "vocab": 128256}
    for name, size in {**sizes, "context": 8192, "seed": 1}.items():
        options.add_argument("--" + name.replace("_", "-"), type=int, default=size)
    options.add_argument("--untied", action="store_true", help="a head of its own")
    return options


if __name__ == "__main__":
    command = parser()
    command.add_argument("out")
    given = command.parse_args()
    write(given.out, given)
