"""Tiny random GGUF files of every scaling that llama.cpp has, and formulas typed again.

Two bases. With 2^16 and 32 dimensions ggml's running product of float32 angles is exact (every
ratio is 1/2), so nothing but the scaling itself is left between the two sides, however far away the
tokens stand. With 10000 and 64 dimensions it is as in real models.
"""

import math

import gguf
import numpy as np

ORIGINAL = 256  # tokens "trained"; llama.cpp rounds contexts to multiples of it
LAYERS, HEADS, KV_HEADS, FEED_FORWARD, VOCAB = 2, 4, 2, 96, 64
EPS = 1e-5


class Shape:
    """Head size and base."""

    def __init__(self, head_dim, base):
        self.head_dim, self.base = head_dim, base
        self.hidden = HEADS * head_dim
        self.pairs = head_dim // 2
        self.plain = base ** (-2 * np.arange(self.pairs) / head_dim)


EXACT, USUAL = Shape(32, 65536.0), Shape(64, 10000.0)


# ---- formulas: frequencies and amplitude -----------------------------------------------------

def yarn(shape, s, length=ORIGINAL, fast=32.0, slow=1.0, truncate=True, attn=1.0):
    def pair(turns):
        return shape.head_dim * math.log(length / (2 * math.pi * turns)) / (2 * math.log(shape.base))
    low, high = pair(fast), pair(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, shape.head_dim - 1)
    ramp = np.clip((np.arange(shape.pairs) - low) / max(0.001, high - low), 0, 1)
    return shape.plain * (1 - ramp) + shape.plain / s * ramp, (0.1 * math.log(s) + 1) * attn


def by_rotations(shape, s, low, high, length=ORIGINAL, smooth=True):
    """The YaRN paper's ramp, and llama3's."""
    turns = length * shape.plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    if not smooth:
        kept = (turns >= high).astype(float)
    return shape.plain * (kept + (1 - kept) / s)


def divisors_of(shape, frequencies):
    return (shape.plain / frequencies).astype(np.float32)


# ---- files -----------------------------------------------------------------------------------

def weights(architecture, shape, biases=True):
    """llama.cpp's names. Attention is far from uniform: a wrong rope moves every logit."""
    rng = np.random.default_rng(7)
    hidden, width = shape.hidden, shape.head_dim
    # Scores of the same spread for every head size.
    spread = 0.3 * (32 / hidden) ** 0.5 * (16 / width) ** 0.25

    def normal(*size, scale, mean=0.0):
        return (mean + scale * rng.standard_normal(size)).astype(np.float32)

    out = {"token_embd.weight": normal(VOCAB, hidden, scale=0.5),
           "output_norm.weight": normal(hidden, scale=0.3, mean=1.2),
           "output.weight": normal(VOCAB, hidden, scale=1.2 / hidden ** 0.5)}
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        sizes = {"attn_q": (HEADS * width, hidden, spread), "attn_k": (KV_HEADS * width, hidden, spread),
                 "attn_v": (KV_HEADS * width, hidden, 1.2 / hidden ** 0.5),
                 "attn_output": (hidden, HEADS * width, 1.2 / hidden ** 0.5),
                 "ffn_gate": (FEED_FORWARD, hidden, 1.2 / hidden ** 0.5),
                 "ffn_up": (FEED_FORWARD, hidden, 1.2 / hidden ** 0.5),
                 "ffn_down": (hidden, FEED_FORWARD, 0.8 / FEED_FORWARD ** 0.5)}
        for name, (rows, cols, scale) in sizes.items():
            out[p + name + ".weight"] = normal(rows, cols, scale=scale)
        for name in ("attn_norm", "ffn_norm"):
            out[p + name + ".weight"] = normal(hidden, scale=0.3, mean=1.2)
        if architecture == "qwen3":
            for name in ("attn_q_norm", "attn_k_norm"):
                out[p + name + ".weight"] = normal(width, scale=0.3, mean=1.2)
        biased = {"llama": sizes, "qwen2": ("attn_q", "attn_k", "attn_v")}.get(architecture, ())
        for name in biased if biases else ():
            out[p + name + ".bias"] = normal(sizes[name][0], scale=0.3)
    return out


def write(path, architecture, shape, keys, tensors, drop=()):
    """`keys`: after "ARCHITECTURE.", or whole names with a dot in front."""
    writer = gguf.GGUFWriter(str(path), architecture)
    everything = {
        ".tokenizer.ggml.model": "no_vocab", "vocab_size": VOCAB, "context_length": 4 * ORIGINAL,
        "block_count": LAYERS, "embedding_length": shape.hidden, "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": EPS, "rope.dimension_count": shape.head_dim,
        "rope.freq_base": shape.base, "rope.scaling.type": "none",
        "rope.scaling.original_context_length": ORIGINAL, **keys}
    for key, value in everything.items():
        if key in drop:
            continue
        name = key[1:] if key.startswith(".") else f"{architecture}.{key}"
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(name, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def explicit(shape, frequencies, amplitude):
    """Any frequencies and amplitude, in the form of LongRoPE: a control, for ropewalk alone."""
    divisors = divisors_of(shape, frequencies)
    return ({"rope.scaling.type": "longrope", "rope.scaling.attn_factor": float(amplitude)},
            {"rope_factors_long.weight": divisors, "rope_factors_short.weight": divisors})


class Case:
    """One setting: keys and tensors of the file, what it means, and wrong readings of it."""

    def __init__(self, name, shape, keys=None, tensors=None, architectures=("llama",), frequencies=None,
                 amplitude=1.0, wrong=None, short=False):
        self.name, self.shape, self.keys, self.tensors = name, shape, keys or {}, tensors or {}
        self.architectures, self.short = architectures, short
        self.frequencies = shape.plain if frequencies is None else frequencies
        self.amplitude = amplitude
        # name -> (frequencies, amplitude)
        self.wrong = wrong or {}

    def wrong_frequencies(self, name):
        return not np.array_equal(self.wrong[name][0], self.frequencies)


ALL = ("llama", "qwen2", "qwen3", "smollm3")


def _yarn_case(name, shape, s, attn=1.0, extra=None, architectures=("llama",)):
    frequencies, amplitude = yarn(shape, s, attn=attn)
    wrong = {"no scaling": (shape.plain, 1.0),
             "ramp not truncated": (yarn(shape, s, truncate=False)[0], amplitude),
             "the paper's ramp": (by_rotations(shape, s, 1, 32), amplitude),
             "no amplitude": (frequencies, 1.0)}
    if attn != 1:
        wrong["attn_factor ignored"] = (frequencies, amplitude / attn)
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": float(s), **(extra or {})}
    return Case(name, shape, keys, None, architectures, frequencies, amplitude, wrong)


def cases():
    for shape, tag in ((EXACT, "2^16"), (USUAL, "1e4")):
        plain, pairs = shape.plain, shape.pairs
        yield Case(f"none, base {tag}", shape, architectures=ALL,
                   wrong={"base 10 % off": ((shape.base * 1.1) ** (-2 * np.arange(pairs) / shape.head_dim), 1.0)})
        yield Case(f"linear 4, base {tag}", shape,
                   {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, architectures=ALL,
                   frequencies=plain / 4, wrong={"no scaling": (plain, 1.0)})
        yield _yarn_case(f"yarn 8, base {tag}", shape, 8, architectures=ALL)
        yield _yarn_case(f"yarn 8, attn_factor, base {tag}", shape, 8, attn=0.75,
                         extra={"rope.scaling.attn_factor": 0.75})
        llama3 = by_rotations(shape, 8, 1, 4)
        yield Case(f"llama3 8, base {tag}", shape, tensors={"rope_freqs.weight": divisors_of(shape, llama3)},
                   frequencies=llama3,
                   wrong={"no scaling": (plain, 1.0),
                          "not smoothed": (by_rotations(shape, 8, 1, 4, smooth=False), 1.0)})
        still = np.where(np.arange(pairs) < pairs // 2, plain, plain / 1e30)
        yield Case(f"half stand still, base {tag}", shape,
                   tensors={"rope_freqs.weight": divisors_of(shape, still)}, frequencies=still,
                   wrong={"no scaling": (plain, 1.0)})
        sides = {"rope_factors_long.weight": (1 + 0.9 * np.arange(pairs)).astype(np.float32),
                 "rope_factors_short.weight": (1 + 0.03 * np.arange(pairs)).astype(np.float32)}
        long, short = (plain / sides[f"rope_factors_{side}.weight"] for side in ("long", "short"))
        # 1.125 and 0.75 are exact in float32.
        keys = {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.125}
        for is_short, (mine, other) in ((False, (long, short)), (True, (short, long))):
            yield Case(f"longrope {'short' if is_short else 'long'}, base {tag}", shape, keys, sides,
                       frequencies=mine, amplitude=1.125, short=is_short,
                       wrong={"no scaling": (plain, 1.125), "the other side": (other, 1.125),
                              "no amplitude": (mine, 1.0)})
