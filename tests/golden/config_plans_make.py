#!/usr/bin/env python3
"""Writes config_plans.json: what the layers of published configurations do with positions.

    python3 tests/golden/config_plans_make.py $ROPEWALK_TEST_DATA > tests/golden/config_plans.json

Independent of the library: the rule of each model family is typed here again, one function a family,
from that family's own modelling code (transformers 4.57; llama.cpp for GGUF), and frequencies are
computed in double from the formulas of the methods' papers. Nothing but the standard library is used.
"""

import json
import math
import pathlib
import struct
import sys

PI2 = 2 * math.pi


# Methods: frequencies and (amplitude, softmax multiplier).


def plain(dim, base):
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


def g(m, s):
    return 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1


def frequencies(rotation, length):
    d, base, s = rotation["rotary_dim"], rotation["base"], rotation["scaling"]
    trained = rotation["trained_length"]
    f = plain(d, base)
    kind = s["method"]
    if kind == "none":
        return f, 1.0, 1.0
    if kind == "linear":
        return [x / s["factor"] for x in f], 1.0, 1.0
    if kind == "dynamic":
        if length > trained:
            grown = base * (s["factor"] * length / trained - (s["factor"] - 1)) ** (d / (d - 2))
            f = plain(d, grown)
        return f, 1.0, 1.0
    if kind == "llama3":
        out = []
        for x in f:
            wave = PI2 / x
            if wave < trained / s["high"]:
                out.append(x)
            elif wave > trained / s["low"]:
                out.append(x / s["factor"])
            else:
                t = (trained / wave - s["low"]) / (s["high"] - s["low"])
                out.append((1 - t) * x / s["factor"] + t * x)
        return out, 1.0, 1.0
    if kind == "yarn":
        def edge(turns):
            return d * math.log(trained / (turns * PI2)) / (2 * math.log(base))

        low, high = edge(s["beta_fast"]), edge(s["beta_slow"])
        if s["truncate"]:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        if low == high:
            high += 0.001
        out = []
        for i, x in enumerate(f):
            ramp = min(max((i - low) / (high - low), 0), 1)
            out.append(x / s["factor"] * ramp + x * (1 - ramp))
        both = s["mscale"] and s["mscale_all_dim"]
        amplitude = g(s["mscale"], s["factor"]) / g(s["mscale_all_dim"], s["factor"]) if both else g(1, s["factor"])
        softmax = g(s["mscale_all_dim"], s["factor"]) ** 2 if s["softmax"] else 1.0
        return out, amplitude, softmax
    if kind == "longrope":
        divisors = s["long"] if length > trained else s["short"]
        amplitude = math.sqrt(1 + math.log(s["factor"]) / math.log(trained))
        return [x / e for x, e in zip(f, divisors)], amplitude, 1.0
    raise ValueError(kind)


NONE = {"method": "none"}


def rotation(layout, head, base, trained, rotary=None, first=0, scaling=NONE, axes=None):
    return {"layout": layout, "head_dim": head, "rotary_dim": head if rotary is None else rotary, "first_dim": first,
            "base": float(base), "trained_length": trained, "scaling": scaling, "axes": axes}


def layer(rot, window=0, chunk=0, temperature=None):
    return {"rotation": rot, "window": window, "chunk": chunk, "temperature": temperature}


def plan(layers, trained, configured, **more):
    """Equal neighbours together; frequencies of each rotation at three lengths."""
    runs = []
    for entry in layers:
        if runs and runs[-1]["layer"] == entry:
            runs[-1]["count"] += 1
        else:
            runs.append({"count": 1, "layer": entry})
    for run in runs:
        rot = run["layer"]["rotation"]
        if rot is None:
            continue
        run["at"] = []
        for length in (trained, configured, 2 * configured):
            f, amplitude, softmax = frequencies(rot, length)
            picked = sorted({0, 1, len(f) // 3, len(f) // 2, 2 * len(f) // 3, len(f) - 1})
            run["at"].append({"length": length, "inv_freq": {str(i): f[i] for i in picked},
                              "amplitude": amplitude, "softmax_multiplier": softmax})
    return {"trained_length": trained, "configured_length": configured, "runs": runs, **more}


def head_of(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


# Families of config.json.


def llama_like(c):
    max_length, base = c["max_position_embeddings"], c.get("rope_theta", 10000.0)
    scaling, trained, configured = NONE, max_length, max_length
    r = c.get("rope_scaling")
    if r and r.get("rope_type") == "llama3":
        trained = r["original_max_position_embeddings"]
        configured = max(configured, int(trained * r["factor"]))
        scaling = {"method": "llama3", "factor": r["factor"], "low": r["low_freq_factor"], "high": r["high_freq_factor"]}
    elif r:
        assert r["type"] == "dynamic", r
        scaling = {"method": "dynamic", "factor": r["factor"]}
    rot = rotation("half", head_of(c), base, trained, scaling=scaling)
    return plan([layer(rot)] * c["num_hidden_layers"], trained, configured)


def all_slide(c):
    length = c["max_position_embeddings"]
    rot = rotation("half", head_of(c), c["rope_theta"], length)
    return plan([layer(rot, window=c["sliding_window"] or 0)] * c["num_hidden_layers"], length, length)


def qwen(c):
    assert not c["use_sliding_window"]
    return llama_like({**c, "rope_scaling": None})


def gemma2(c):
    length = c["max_position_embeddings"]
    rot = rotation("half", c["head_dim"], c["rope_theta"], length)
    return plan([layer(rot, window=0 if i % 2 else c["sliding_window"]) for i in range(c["num_hidden_layers"])],
                length, length)


def gemma3(c):
    length, n = c["max_position_embeddings"], c["sliding_window_pattern"]
    local = rotation("half", c["head_dim"], c["rope_local_base_freq"], length)
    full = rotation("half", c["head_dim"], c["rope_theta"], length)
    return plan([layer(full) if i % n == n - 1 else layer(local, window=c["sliding_window"])
                 for i in range(c["num_hidden_layers"])], length, length)


def gpt_oss(c):
    r = c["rope_scaling"]
    trained = r["original_max_position_embeddings"]
    assert r["rope_type"] == "yarn"
    scaling = {"method": "yarn", "factor": r["factor"], "beta_fast": r["beta_fast"], "beta_slow": r["beta_slow"],
               "truncate": r["truncate"], "mscale": None, "mscale_all_dim": None, "softmax": False}
    rot = rotation("half", c["head_dim"], c["rope_theta"], trained, scaling=scaling)
    return plan([layer(rot, window=c["sliding_window"] if kind == "sliding_attention" else 0)
                 for kind in c["layer_types"]], trained, max(c["max_position_embeddings"], int(trained * r["factor"])))


def qwen35(c):
    c = c["text_config"]
    r, length = c["rope_parameters"], c["max_position_embeddings"]
    rotary = int(c["head_dim"] * r["partial_rotary_factor"])
    assert r["mrope_interleaved"] and sum(r["mrope_section"]) == rotary // 2
    rot = rotation("half", c["head_dim"], r["rope_theta"], length, rotary=rotary,
                   axes={"order": "interleaved", "sections": r["mrope_section"]})
    return plan([layer(rot if kind == "full_attention" else None) for kind in c["layer_types"]], length, length)


def ministral3(c):
    c = c["text_config"]
    r = c["rope_parameters"]
    trained = r["original_max_position_embeddings"]
    scaling = {"method": "yarn", "factor": r["factor"], "beta_fast": r["beta_fast"], "beta_slow": r["beta_slow"],
               "truncate": True, "mscale": r["mscale"], "mscale_all_dim": r["mscale_all_dim"], "softmax": False}
    rot = rotation("half", c["head_dim"], r["rope_theta"], trained, scaling=scaling)
    warm = {"kind": "step_log", "beta": r["llama_4_scaling_beta"], "period": trained, "offset": 0}
    return plan([layer(rot, temperature=warm)] * c["num_hidden_layers"], trained,
                max(c["max_position_embeddings"], int(trained * r["factor"])))


def deepseek_v2(c):
    r = c["rope_scaling"]
    trained = r["original_max_position_embeddings"]
    scaling = {"method": "yarn", "factor": r["factor"], "beta_fast": r["beta_fast"], "beta_slow": r["beta_slow"],
               "truncate": True, "mscale": r["mscale"], "mscale_all_dim": r["mscale_all_dim"], "softmax": True}
    nope, rope = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    rot = rotation("interleaved", nope + rope, c["rope_theta"], trained, rotary=rope, first=nope, scaling=scaling)
    return plan([layer(rot)] * c["num_hidden_layers"], trained,
                max(c["max_position_embeddings"], int(trained * r["factor"])))


def phi3(c):
    r, trained, served = c["rope_scaling"], c["original_max_position_embeddings"], c["max_position_embeddings"]
    assert r["type"] in ("su", "longrope")
    scaling = {"method": "longrope", "short": r["short_factor"], "long": r["long_factor"], "factor": served / trained}
    rot = rotation("half", head_of(c), c["rope_theta"], trained, scaling=scaling)
    return plan([layer(rot, window=c["sliding_window"])] * c["num_hidden_layers"], trained, served)


def gptj(c):
    rot = rotation("interleaved", c["n_embd"] // c["n_head"], 10000, c["n_positions"], rotary=c["rotary_dim"])
    return plan([layer(rot)] * c["n_layer"], c["n_positions"], c["n_positions"])


def phi_msft(c):
    rot = rotation("half", c["n_embd"] // c["n_head"], 10000, c["n_positions"], rotary=c["rotary_dim"])
    return plan([layer(rot)] * c["n_layer"], c["n_positions"], c["n_positions"])


def gpt_neox(c):
    head, length = head_of(c), c["max_position_embeddings"]
    rot = rotation("half", head, c["rotary_emb_base"], length, rotary=int(head * c["rotary_pct"]))
    return plan([layer(rot)] * c["num_hidden_layers"], length, length)


def stablelm(c):
    head, length = head_of(c), c["max_position_embeddings"]
    rot = rotation("half", head, c["rope_theta"], length, rotary=int(head * c["partial_rotary_factor"]))
    return plan([layer(rot)] * c["num_hidden_layers"], length, length)


def no_rotation(layers, length, words):
    def read(c):
        n = c.get(length, 0)
        return plan([layer(None)] * c[layers], n, n, note=words)
    return read


def mpt(c):
    assert c["attn_config"]["alibi"]
    return no_rotation("n_layers", "max_seq_len", "ALiBi")(c)


HF = {
    "llama": llama_like, "internlm2": llama_like, "mistral": all_slide, "starcoder2": all_slide, "qwen2": qwen,
    "qwen3": qwen, "gemma2": gemma2, "gemma3_text": gemma3, "gpt_oss": gpt_oss, "qwen3_5": qwen35,
    "ministral3": ministral3, "deepseek_v2": deepseek_v2, "phi3": phi3, "phi3_v": phi3, "gptj": gptj,
    "phi-msft": phi_msft, "gpt_neox": gpt_neox, "stablelm": stablelm, "mpt": mpt,
    "gpt2": no_rotation("n_layer", "n_positions", "learned"),
    "t5": no_rotation("num_layers", "n_positions", "buckets"),
    "deberta-v2": no_rotation("num_hidden_layers", "max_position_embeddings", "DeBERTa"),
}

# GGUF.

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def gguf_metadata(data):
    at = 4
    _, _, count = struct.unpack_from("<IQQ", data, at)
    at += 20

    def take(code):
        nonlocal at
        value, = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(SCALARS[kind])

    return {key: value(kind) for key, kind in ((text(), take("I")) for _ in range(count))}


# llama_model_rope_type of llama.cpp, for the architectures at hand. The decoder of this project reads a
# llama's permuted rows back into halves, so its layout is the half one.
GGUF_LAYOUT = {"llama": "half", "phi3": "half", "gptneox": "half"}
GGUF_OTHER = {"mpt": "ALiBi", "bert": "learned"}


def gguf(meta):
    arch = meta["general.architecture"]
    get = lambda key, default=None: meta.get(arch + "." + key, default)
    layers, length = get("block_count"), get("context_length")
    if arch in GGUF_OTHER:
        return plan([layer(None)] * layers, length, length, note=GGUF_OTHER[arch])
    head = get("attention.key_length", get("embedding_length") // get("attention.head_count"))
    scaling = NONE
    if get("rope.scaling.type") == "linear":
        scaling = {"method": "linear", "factor": get("rope.scaling.factor")}
    trained = get("rope.scaling.original_context_length", length)
    rot = rotation(GGUF_LAYOUT[arch], head, get("rope.freq_base", 10000.0), trained,
                   rotary=get("rope.dimension_count", head), scaling=scaling)
    return plan([layer(rot)] * layers, trained, length)


def main():
    root = pathlib.Path(sys.argv[1])
    out = {}
    for path in sorted((root / "configs").glob("*/*.json")):
        config = json.loads(path.read_text())
        out[str(path.relative_to(root))] = HF[config["model_type"]](config)
    for path in sorted((root / "gguf_vocab").glob("*.gguf")):
        out[str(path.relative_to(root))] = gguf(gguf_metadata(path.read_bytes()))
    print("{")
    names = list(out)
    for name in names:
        print(f"{json.dumps(name)}: {json.dumps(out[name])}" + ("," if name != names[-1] else ""))
    print("}")


if __name__ == "__main__":
    main()
