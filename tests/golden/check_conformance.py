#!/usr/bin/env python3
"""Checks the conformance suite by formulas typed again from the papers and the engines' sources, in
50-digit decimal arithmetic; nothing but Python's standard library.

usage: check_conformance.py FILE [PROGRAM]     PROGRAM rotary must print what FILE says; cases of methods that FILE does
                                               not have yet are checked by their formulas alone
"""

import decimal
import json
import math
import subprocess
import sys
from decimal import Decimal as D

decimal.getcontext().prec = 50
PI = D("3.14159265358979323846264338327950288419716939937510582097494459")
REFUSED_BY = {  # method -> dialects without a formula
    "ntk": {"hf", "megatron"},
    "ntk-fixed": {"hf", "llamacpp", "megatron", "yarn_repo"},
    "ntk-mixed": {"hf", "llamacpp", "megatron", "yarn_repo"},
    "dynamic": {"llamacpp", "megatron"},
    "dynamic-linear": {"paper", "hf", "vllm", "llamacpp"},
    "qwen": {"paper", "hf", "vllm", "llamacpp", "megatron", "yarn_repo"},
    "by-parts": {"hf", "vllm", "llamacpp", "megatron", "yarn_repo"},
    "by-parts-repo": {"paper", "hf", "vllm", "llamacpp", "megatron"},
    "dynamic-yarn": {"paper", "hf", "vllm", "llamacpp", "megatron"},
    "llama3": {"paper", "yarn_repo"},
    "longrope": {"megatron", "yarn_repo"},
    "proportional": {"megatron", "yarn_repo"},
    "hope": {"hf", "vllm", "llamacpp", "megatron", "yarn_repo"},
    "explicit": {"paper", "hf", "vllm", "megatron", "yarn_repo"},
}


def plain(base, d):
    return [D(base) ** (D(-2 * i) / D(d)) for i in range(d // 2)]


def g(s, m):
    return 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1.0


def clamp(x):
    return max(D(0), min(D(1), x))


def pair_at(rotations, d, base, length):
    return D(d) * (D(length) / (D(rotations) * 2 * PI)).ln() / (2 * D(base).ln())


def ends(fast, slow, d, base, length, truncate):
    low, high = pair_at(fast, d, base, length), pair_at(slow, d, base, length)
    if truncate:
        low = D(math.floor(low))
        high = D(math.ceil(high))
    return max(low, D(0)), min(high, D(d - 1))


def ntk(base, d, s):
    return plain(D(base) * D(s) ** (D(d) / D(d - 2)), d)


def by_rotations(f, s, low, high, length):
    out = []
    for x in f:
        kept = clamp((D(length) * x / (2 * PI) - D(low)) / (D(high) - D(low)))
        out.append((1 - kept) * x / D(s) + kept * x)
    return out


def yarn(p, dialect, d, base, length, axes):
    s, f = p["factor"], plain(base, d)
    mscale, every = p.get("mscale") or 0, p.get("mscale_all_dim") or 0
    attn = p.get("attn_factor", 1)
    deepseek = mscale != 0 or every != 0
    both = g(s, mscale) / g(s, every) if mscale and every else g(s, 1)
    if dialect == "paper":
        amplitude = p.get("attention_factor", g(s, 1))
    elif dialect == "yarn_repo":
        amplitude = g(s, 1) * attn
    elif dialect == "vllm":
        amplitude = (g(s, mscale or 1) / g(s, every) if deepseek else g(s, 1)) * attn
    elif dialect == "megatron":
        amplitude = g(s, mscale or 1) / g(s, every)
    elif dialect == "llamacpp":
        amplitude = (g(s, 1) if not every else 1 if p["softmax_mscale"] else g(s, 1) / g(s, every)) * attn
    elif dialect == "hf":
        amplitude = p.get("attention_factor", both)
    else:
        amplitude = p.get("attention_factor", both * attn)
    softmax = g(s, every) ** 2 if p["softmax_mscale"] else 1.0
    if dialect == "paper":
        return by_rotations(f, s, p["beta_slow"], p["beta_fast"], length), amplitude, softmax
    if dialect == "vllm" and axes:
        length *= 4
    truncate = p["truncate"] or dialect in ("yarn_repo", "llamacpp") or (dialect == "vllm" and deepseek)
    low, high = ends(p["beta_fast"], p["beta_slow"], d, base, length, truncate)
    width = high - low
    if dialect == "llamacpp":
        width = max(D("0.001"), width)
    elif width == 0:
        width = D("0.001")
    out = []
    for i, x in enumerate(f):
        kept = (1 - clamp((D(i) - low) / width)) * D(p["extrapolation_factor"])
        out.append(x / D(s) * (1 - kept) + x * kept)
    return out, amplitude, softmax


def by_parts_repo(p, d, base, length):
    s, f = p["factor"], plain(base, d)
    up = ntk(base, d, s)

    def kept(two, weight, i):
        low, high = ends(two[0], two[1], d, base, length, True)
        if low == high:
            high += D("0.001")
        return (1 - clamp((D(i) - low) / (high - low))) * D(weight)

    out = []
    for i, x in enumerate(f):
        a = kept(p["beta"], p["ntk_factor"], i)
        b = kept(p["gamma"], p["extrapolation_factor"], i)
        out.append((x / D(s) * (1 - a) + up[i] * a) * (1 - b) + x * b)
    return out


def frequencies(p, dialect, d, head_dim, base, length, final, axes):
    """[pairs], amplitude, softmax multiplier."""
    method, s, f, h = p["method"], p.get("factor", 1), plain(base, d), d // 2
    growth = D(max(final, length)) / D(length) if length else D(1)
    if method == "none":
        return f, 1, 1
    if method == "linear":
        return [x / D(s) for x in f], 1, 1
    if method == "ntk":
        return ntk(base, d, s), 1, 1
    if method == "ntk-fixed":
        return [(D(base) * D(s)) ** (D(-2 * i) / D(d)) / D(s) ** (D(2) / D(d)) for i in range(h)], 1, 1
    if method == "ntk-mixed":
        a = D(s).ln() / D(h) ** D(p["exponent"])
        return [x * (-a * D(i + 1) ** D(p["exponent"])).exp() for i, x in enumerate(f)], 1, 1
    if method == "dynamic":
        n = D(s) * D(length) if dialect == "vllm" else D(final)
        return (f if n <= length else ntk(base, d, D(s) * n / D(length) - (D(s) - 1))), 1, 1
    if method == "dynamic-linear":
        divisor = max(growth, D(s)) if dialect == "megatron" else growth
        return [x / divisor for x in f], 1, 1
    if method == "qwen":
        alpha = 2 ** math.ceil(math.log2(final / length) + 1) - 1
        return ntk(base, d, max(alpha, 1)), 1, 1
    if method == "by-parts":
        return by_rotations(f, s, p["alpha"], p["beta"], length), 1, 1
    if method == "by-parts-repo":
        return by_parts_repo(p, d, base, length), 1, 1
    if method == "yarn":
        return yarn(p, dialect, d, base, length, axes)
    if method == "dynamic-yarn":
        if final <= length:
            return f, 1, 1
        grown = dict(p, factor=final / length, softmax_mscale=False, extrapolation_factor=1)
        return yarn(grown, dialect, d, base, length, axes)
    if method == "llama3":
        if dialect == "megatron":
            return by_rotations(f, s, 1, 4, 8192), 1, 1
        return by_rotations(f, s, p["low_freq_factor"], p["high_freq_factor"], length), 1, 1
    if method == "longrope":
        divisors = p["long_factor"] if final > length else p["short_factor"]
        amplitude = math.sqrt(1 + math.log(s) / math.log(length))
        return [x / D(v) for x, v in zip(f, divisors)], amplitude, 1
    if method == "proportional":
        turning = int(p["fraction"] * head_dim // 2)
        return [x / D(s) if i < turning else D(0) for i, x in enumerate(f)], 1, 1
    if method == "hope":
        return [x if x * length >= 2 * PI else D(0) for x in f], 1, 1
    if method == "base":
        return plain(p["base"], d), 1, 1
    if method == "explicit":
        return [x / D(v) for x, v in zip(f, p["divisors"])], 1, 1
    raise ValueError(method)


def axis_of(spec):
    n, pairs = spec["sections"], spec["rotary_dim"] // 2
    if spec["order"] == "chunked":
        return [a for a, size in enumerate(n) for _ in range(size)]
    if spec["order"] == "ernie":
        return [1 + i % 2 if i < n[1] + n[2] else 0 for i in range(pairs)]
    axis = [0] * pairs
    for a in (1, 2):  # transformers: freqs[a][..., a : 3 * section : 3]
        for i in range(a, min(3 * n[a], pairs), 3):
            axis[i] = a
    if spec["dialect"] == "llamacpp":  # ggml asks the same of time; what is left is a fourth axis
        for i in range(pairs):
            if axis[i] == 0 and (i % 3 != 0 or i >= 3 * n[0]):
                axis[i] = 3
    return axis


def cos_sin(x):
    """Decimal cos and sin by their series; |x| <= pi."""
    cos = sin = D(0)
    term = D(1)
    for n in range(60):
        if n % 2 == 0:
            cos += term if n % 4 == 0 else -term
        else:
            sin += term if n % 4 == 1 else -term
        term = term * x / (n + 1)
    return cos, sin


def near(got, want, tolerance, what):
    if abs(D(got) - D(want)) > D(tolerance):
        sys.exit(f"{what}: {got} in the file, {want} by the formula")


def check(case, values):
    spec, name = case["spec"], case["id"]
    p, d = spec["scaling"], spec["rotary_dim"]
    refused = spec["dialect"] in REFUSED_BY.get(p["method"], ())
    swapped = p["method"] == "yarn" and p["beta_fast"] < p["beta_slow"] and spec["dialect"] == "native"
    if ("refused" in case) != (refused or swapped):
        sys.exit(f"{name}: refused is {case.get('refused')}")
    if "refused" in case:
        return 1
    if spec.get("own_ladders"):
        f, amplitude, softmax = [], 1, 1
        for a, size in enumerate(spec["sections"]):
            own = spec.get("ladders", [{"base": spec["base"], "scaling": p}] * 4)[a]
            f += frequencies(own["scaling"], spec["dialect"], 2 * size, 2 * size, own["base"], 0, 1, None)[0]
    else:
        f, amplitude, softmax = frequencies(p, spec["dialect"], d, spec["head_dim"], spec["base"],
                                            spec["trained_length"], spec["length"], spec.get("sections"))
    axis = axis_of(spec) if "sections" in spec else [0] * (d // 2)
    if case.get("axis", axis) != axis:
        sys.exit(f"{name}: axis {case['axis']}, expected {axis}")
    stored = p["method"] == "llama3" and spec["dialect"] == "llamacpp"  # divisors in float32
    checks = 0
    for got, want, single in zip(case["inv_freq"], f, case["inv_freq_float32"], strict=True):
        near(got, want, abs(want) * D("6e-8" if stored else "2.3e-16"), f"{name}: inv_freq")
        near(single, want, abs(want) * D("4e-7"), f"{name}: inv_freq_float32")
        checks += 2
    near(case["amplitude"], amplitude, 4e-16, f"{name}: amplitude")
    near(case["softmax_multiplier"], softmax, 8e-16, f"{name}: softmax_multiplier")
    for at in case["at"]:
        position = at["position"] if isinstance(at["position"], list) else [at["position"]]
        x = [D(v) for v in values]
        for i, angle in enumerate(at["angle"]):
            exact = D(case["inv_freq"][i]) if stored else f[i]
            want = (exact * position[axis[i]]) % (2 * PI)
            error = abs(want - D(angle)) % (2 * PI)
            slack = D(position[axis[i]]) * D("6e-17") + D("1e-15") if stored else D("1e-15")
            near(0, min(error, 2 * PI - error), slack, f"{name}: angle at {position}")
            cos, sin = cos_sin(D(angle))
            scale = D(amplitude)
            if "xpos" in spec:
                zeta = (D(2 * i) / D(d) + D(spec["xpos"]["gamma"])) / (1 + D(spec["xpos"]["gamma"]))
                scale *= zeta ** (D(position[0]) / D(spec["xpos"]["scale_base"]))
            half = spec["layout"] == "half"
            a = spec["first_dim"] + (i if half else 2 * i)
            b = spec["first_dim"] + (i + d // 2 if half else 2 * i + 1)
            x[a], x[b] = scale * (x[a] * cos - x[b] * sin), scale * (x[a] * sin + x[b] * cos)
        checks += d // 2
        for got, want in zip(at.get("query", ()), x, strict="query" in at):
            near(got, want, abs(want) * D("4e-15") + D("2e-15"), f"{name}: query at {position}")
            checks += 1
    return checks


def same(a, b, where, slack=1e-14):
    """Equal but for the last bits that a C library's cos, sin, exp and log, or another CPU's float32 sums, may differ in."""
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        for key in a:
            same(a[key], b[key], f"{where} {a.get('id', '')} {key}", slack)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for x, y in zip(a, b):
            same(x, y, where, slack)
    elif isinstance(a, float) and isinstance(b, float) and abs(a - b) <= slack * max(1, abs(b)):
        pass
    elif a != b:
        sys.exit(f"{where}: the program prints {a!r}, the file says {b!r}")


def with_new(printed, published, slack=1e-14):
    """The published cases, which the program must still print, and after them those of methods that came later."""
    known = {case["id"] for case in published}
    same([case for case in printed if case["id"] in known], published, "cases", slack)
    return published + [case for case in printed if case["id"] not in known]


def main():
    with open(sys.argv[1]) as file:
        suite = json.load(file)
    if len(sys.argv) > 2:
        printed = subprocess.run([sys.argv[2], "rotary"], check=True, capture_output=True).stdout
        suite["cases"] = with_new(json.loads(printed)["cases"], suite["cases"])
    if (suite["format"], suite["version"]) != ("rotary-conformance", 1):
        sys.exit("not a conformance suite of version 1")
    checks = sum(check(case, suite["input"]) for case in suite["cases"])
    if len(suite["cases"]) < 150 or checks < 10000:
        sys.exit(f"only {len(suite['cases'])} cases and {checks} checks")
    print(f"{len(suite['cases'])} cases, {checks} checks, all right")


if __name__ == "__main__":
    main()
