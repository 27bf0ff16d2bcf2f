"""Biases and distance maps, each typed from its paper. A function of a case: exits where a number is wrong, returns how many it
compared."""

import functools
import math
import sys
from fractions import Fraction

from positions_support import Tensor, angle, attention, close, dot, each_key, linear, power, sigmoid


def by_distance(case, bias, slack=3e-7):
    """bias(head, d), d the position of the query less that of the key: the table and attention with it."""
    checks = 0
    for d, *values in case["bias"]:
        checks += close(case, values, [bias(h, d) for h in range(len(values))], slack)
    return checks + attention(case, each_key(lambda h, i, j, q, k: bias(h, i - j)))


def by_pair(case, bias, slack=1e-6):
    checks = 0
    for i, j, *values in case["bias"]:
        checks += close(case, values, [bias(h, i, j) for h in range(len(values))], slack)
    return checks + attention(case, each_key(lambda h, i, j, q, k: bias(h, i, j)), slack=2e-6)


def alibi_slopes(n, top, rule):
    """Press et al. 2021, section 3, and their code for other counts: every second slope of twice as many."""
    if rule == "geometric" or n & (n - 1) == 0:
        return [2 ** (-top * (h + 1) / n) for h in range(n)]
    below = 1 << (n.bit_length() - 1)
    return alibi_slopes(below, top, rule) + alibi_slopes(2 * below, top, rule)[0::2][:n - below]


def alibi(case):
    p = case["parameters"]
    slopes = p.get("slopes") or alibi_slopes(p["heads"], p["max_bias"], p["rule"])
    ahead = {"causal": -1, "symmetric": -1, "signed": 1, "zero": 0}[p["ahead"]]
    return by_distance(case, lambda h, d: p["scale"] * slopes[h] * (-d if d >= 0 else ahead * -d))


def t5_bucket(d, bidirectional, count, last):
    """Raffel et al. 2019: a bucket begins where (d / exact)^wide >= (last / exact)^k, in whole numbers."""
    first = 0
    if bidirectional:
        count //= 2
        first = count if d < 0 else 0
        d = abs(d)
    d = max(d, 0)
    exact = count // 2
    if d < exact:
        return first + d
    wide = count - exact
    k = 0
    while k + 1 < wide and d ** wide * exact ** (k + 1) >= last ** (k + 1) * exact ** wide:
        k += 1
    return first + exact + k


def t5(case):
    p = case["parameters"]
    table = Tensor(p["embedding"])

    def bucket(d):
        return t5_bucket(d, p["bidirectional"], p["buckets"], p["last_distance"])

    checks = close(case, [b for _, b in case["bucket"]], [bucket(d) for d, _ in case["bucket"]], 0)
    return checks + by_distance(case, lambda h, d: table.at(bucket(d), h))


def kerple(case):
    """Chi et al. 2022, section 4."""
    p = case["parameters"]
    if p["kernel"] == "power":
        return by_distance(case, lambda h, d: -p["r1"][h] * abs(d) ** p["r2"][h])
    return by_distance(case, lambda h, d: -p["r1"][h] * math.log(1 + p["r2"][h] * abs(d)))


def sandwich(case):
    """Chi et al. 2022 (arXiv 2212.10356): the position's part of the product of two sinusoidal embeddings, over 8 h / H."""
    p = case["parameters"]
    frequencies = [power(p["base"], -2 * i, p["dim"]) for i in range(p["dim"] // 2)]

    @functools.cache
    def product(d):
        return sum(math.cos(angle(d, f)) for f in frequencies)

    return by_distance(case, lambda h, d: product(abs(d)) / (8 * (h + 1) / p["heads"]))


def shaw(case):
    """Shaw et al. 2018, eq. 3 to 5."""
    p = case["parameters"]
    keys, values, scale = Tensor(p["key_rows"]), Tensor(p["value_rows"]), case["attention"]["scale"]

    def row(table, h, i, j):
        return table.row(h if table.shape[0] > 1 else 0, max(-p["left"], min(p["right"], j - i)) + p["left"])

    return attention(case, each_key(lambda h, i, j, q, k: scale * dot(q, row(keys, h, i, j))),
                     lambda h, i, j: row(values, h, i, j))


def shaw_sinusoidal(case):
    """Wei et al. 2019 (NEZHA): sin and cos of j - i in turn."""
    p = case["parameters"]
    want = []
    for d in range(-p["left"], p["right"] + 1):
        for e in range(0, p["head_dim"], 2):
            x = d / 10000 ** (e / p["head_dim"])
            want += [math.sin(x), math.cos(x)]
    return close(case, case["rows"], want, 1.2e-7)


def transformer_xl(case):
    """Dai et al. 2019, section 3.3: terms b, c and d."""
    p, dim = case["parameters"], case["parameters"]["model_dim"]
    w, u, v, scale = (Tensor(p["projection"]), Tensor(p["content_bias"]), Tensor(p["position_bias"]),
                      case["attention"]["scale"])

    @functools.cache
    def row(h, d):
        if p["clamp_distance"]:
            d = max(-p["clamp_distance"], min(p["clamp_distance"], d))
        angles = [angle(d, power(10000, -2 * i, dim)) for i in range(dim // 2)]
        return linear(w.row(h), None, [math.sin(x) for x in angles] + [math.cos(x) for x in angles])

    def bias(h, i, j, q, k):
        r = row(h, i - j)
        return scale * (dot(q, r) + dot(u.row(h), k) + dot(v.row(h), r))

    return attention(case, each_key(bias), slack=2e-6)


def deberta_bucket(d, buckets, most):
    """Version 2's: the middle half as they are, then ceil of a logarithm that reaches the last at most - 1."""
    middle, n = buckets // 2, abs(d)
    if n <= middle:
        return d
    steps = math.log(n / middle) / math.log((most - 1) / middle) * (middle - 1)
    near = round(steps)
    return int(math.copysign(middle + (near if abs(steps - near) < 1e-12 else math.ceil(steps)), d))


def deberta_buckets(case):
    p = case["parameters"]
    return close(case, [b for _, b in case["bucket"]],
                 [deberta_bucket(d, p["buckets"], p["max_position"]) for d, _ in case["bucket"]], 0)


def deberta(case):
    """He et al. 2020, eq. 4, with the row of i - j in both terms, as trained."""
    p, scale = case["parameters"], case["attention"]["scale"]
    span = p["buckets"] or p["max_position"]
    embedding = Tensor(p["embedding"])

    def row_of(d):
        return max(0, min(2 * span - 1, (deberta_bucket(d, p["buckets"], p["max_position"]) if p["buckets"] else d) + span))

    def projected(kind):
        w, b = Tensor(p[f"{kind}_projection"]), Tensor(p[f"{kind}_projection_bias"])
        return [[linear(w.row(h), b.row(h), embedding.row(r)) for r in range(2 * span)] for h in range(w.shape[0])]

    keys, queries = projected("key"), projected("query")
    checks = close(case, [r for _, r in case["row"]], [row_of(d) for d, _ in case["row"]], 0)
    checks += close(case, [scale], [1 / math.sqrt(3 * case["attention"]["head_dim"])], 1e-7)
    return checks + attention(case, each_key(
        lambda h, i, j, q, k: scale * (dot(q, keys[h][row_of(i - j)]) + dot(k, queries[h][row_of(i - j)]))), slack=2e-6)


def fire(case):
    """Li et al. 2023, section 3."""
    p = case["parameters"]
    w1, b1, w2, b2 = (Tensor(p[name]) for name in ("w1", "b1", "w2", "b2"))

    def psi(x):
        return math.log(p["c"] * x + 1)

    def bias(h, i, j):
        x = psi(abs(i - j)) / psi(max(p["threshold"], i))
        hidden = [max(0, a * x + b) for a, b in zip(w1.values, b1.values)]
        return b2.values[h] + dot(w2.row(h), hidden)

    return by_pair(case, bias)


def swin(case):
    """Liu et al. 2021, section 3.3, with the scaling of the authors' code."""
    p = case["parameters"]
    w1, b1, w2 = Tensor(p["w1"]), Tensor(p["b1"]), Tensor(p["w2"])

    def coordinate(n, side):
        x = 8 * n / ((p["pretrained"] or side) - 1)
        return math.copysign(math.log2(1 + abs(x)) / 3, x)

    def bias(h, i, j):
        (y, x), (v, u) = divmod(i, p["width"]), divmod(j, p["width"])
        at = (coordinate(y - v, p["height"]), coordinate(x - u, p["width"]))
        return 16 * sigmoid(dot(w2.row(h), [max(0, s) for s in linear(w1.values, b1.values, at)]))

    return by_pair(case, bias)


def tupe(case):
    """Ke et al. 2020, section 3."""
    p, scale = case["parameters"], case["attention"]["scale"]
    table = Tensor(p["embedding"])
    q, k = [(Tensor(p[f"{kind}_projection"]), Tensor(p[f"{kind}_projection_bias"])) for kind in ("query", "key")]

    def bias(h, i, j):
        if "from_cls" in p and (i == 0 or j == 0):
            return p["from_cls"][h] if i == 0 else p["to_cls"][h]
        value = dot(linear(q[0].row(h), q[1].row(h), table.row(i)),
                    linear(k[0].row(h), k[1].row(h), table.row(j))) / math.sqrt(2 * case["attention"]["head_dim"])
        if "relative" in p:
            r = p["relative"]
            value += Tensor(r["embedding"]).at(t5_bucket(i - j, True, r["buckets"], r["last_distance"]), h)
        return value

    return by_pair(case, bias) + close(case, [scale], [1 / math.sqrt(2 * case["attention"]["head_dim"])], 1e-7)


def forgetting_gate(case):
    """Lin et al. 2025, section 3: the logarithm of the product of the gates after the key."""
    p = case["parameters"]
    w, x = Tensor(p["weight"]), Tensor(p["x"])

    def biases(h, i, q, keys):
        sums = [0.0]
        for j in range(i, 0, -1):
            sums.append(sums[-1] - math.log1p(math.exp(-dot(w.row(h), x.row(j)) - p["bias"][h])))
        return sums[::-1]

    return attention(case, biases, slack=2e-6)


def cope(case):
    """Golovneva et al. 2024, section 4."""
    table, scale = Tensor(case["parameters"]["position_rows"]), case["attention"]["scale"]

    def biases(h, i, q, keys):
        at = [dot(q, table.row(h if table.shape[0] > 1 else 0, r)) for r in range(table.shape[1])]
        out, count = [], 0.0
        for k in reversed(keys):
            count += sigmoid(scale * dot(q, k))
            p = min(count, len(at) - 1)
            low = math.floor(p)
            out.append((p - low) * at[math.ceil(p)] + (1 - (p - low)) * at[low])
        return out[::-1]

    return attention(case, biases, slack=5e-6)


def pope(case):
    """Gopalakrishnan et al. 2025: length softplus(x), angle position f_e, and the phase of keys."""
    p, x = case["parameters"], Tensor(case["x"])
    tokens, heads, dim = x.shape
    phases, want = Tensor(p["phase"]) if "phase" in p else None, []
    for t in range(tokens):
        for h in range(heads):
            length = [math.log1p(math.exp(v)) for v in x.row(t, h)]
            turns = [angle(case["positions"][t], power(p["base"], -e, dim)) for e in range(dim)]
            if phases:
                turns = [a + max(-2 * math.pi, min(0.0, b)) for a, b in zip(turns, phases.row(h))]
            want += [r * math.cos(a) for r, a in zip(length, turns)] + [r * math.sin(a) for r, a in zip(length, turns)]
    return close(case, case["out"], want, 5e-7)


def fope(case):
    """Hua et al. 2024: mixtures of the frequencies that complete a turn within the trained length."""
    p, x = case["parameters"], Tensor(case["x"])
    tokens, heads, dim = x.shape
    frequencies = [f for f in (power(p["base"], -2 * w, dim) for w in range(dim // 2))
                   if f > 2 * math.pi / p["trained_length"]]
    kept, want = len(frequencies), []
    cosines, sines = Tensor(p["cosines"]), Tensor(p["sines"])
    for t in range(tokens):
        turns = [angle(case["positions"][t], f) for f in frequencies]
        for h in range(heads):
            y, g = x.row(t, h), h * cosines.shape[0] // heads
            for d in range(kept):
                c = sum(cosines.at(g, w, d) * math.cos(a) for w, a in enumerate(turns))
                s = sum(sines.at(g, w, d) * math.sin(a) for w, a in enumerate(turns))
                y[d], y[d + dim // 2] = y[d] * c - y[d + dim // 2] * s, y[d + dim // 2] * c + y[d] * s
            want += y
    return close(case, case["out"], want, 1e-6)


def mapped(relative):
    """relative(parameters, i, j), None where j is not seen, for every pair and the largest of 4096 tokens."""
    def check(case):
        p = case["parameters"]
        for i, j, got in case["relative"]:
            if got != relative(p, i, j):
                sys.exit(f"{case['id']}: query {i}, key {j}: {got} in the file, {relative(p, i, j)} by the formula")
        seen = (relative(p, i, j) for i in range(0, 4096, 5) for j in range(0, i + 1, 15))
        last = (relative(p, i, j) for i in range(4064, 4096) for j in range(64))
        if max(max(r) if isinstance(r, list) else r for r in (*seen, *last) if r is not None) != case["largest_of_4096_tokens"]:
            sys.exit(f"{case['id']}: the largest is {case['largest_of_4096_tokens']} in the file")
        return len(case["relative"]) + 1
    return check


def leaky(p, i, j):
    """kexue.fm/archives/9708."""
    d = i - j
    return d if d < p["window"] else p["window"] + (d - p["window"]) / p["factor"]


def self_extend(p, i, j):
    """Jin et al. 2024, section 3 and their listing: grouped positions, queries shifted by w - w // G."""
    if i - j < p["window"]:
        return i - j
    return i // p["group"] + p["window"] - p["window"] // p["group"] - j // p["group"]


def dual_chunk(p, i, j):
    """An et al. 2024, section 3.1 to 3.3."""
    s, c = p["chunk"], p["limit"]
    query, key, apart = i % s, j % s, i // s - j // s
    return (query if apart == 0 else min(query + s, c) if apart == 1 else c) - key


def sinks(p, i, j):
    """Xiao et al. 2023, section 3.2: positions are places in the cache, once it is full."""
    cache = p["sinks"] + p["window"]
    if i < cache:
        return i - j if i - j < p["window"] or j < p["sinks"] else None
    held = list(range(p["sinks"])) + list(range(i - p["window"] + 1, i + 1))
    return cache - 1 - held.index(j) if j in held else None


def string(p, i, j):
    """An et al. 2024 (STRING), section 4: the diagonals from shift on take the values window, window + 1, .."""
    d = i - j
    return d if d < p["shift"] else d - p["shift"] + p["window"]


def lampe(p, i, j):
    """scar-on/LaMPE: near tokens, squeezed ones, and the farthest, which follow on from them."""
    head, scale, last = p["head"], Fraction(p["mapped"], p["length"] - 1), p["length"] - p["tail"] - 1
    shift = head - (math.floor(scale * head) + 1)
    if i - j < head:
        return i - j
    if i - j > last:
        return i - j - last + math.floor(scale * last) + shift
    return math.floor(scale * i) + shift - math.floor(scale * j)


def dpe(p, i, j):
    """Lu et al. 2025, section 3: each eighth of the pairs has the group of its own."""
    groups = [p[f"group{share}"] for share in range(1, 9)]
    return [self_extend({"window": p["window"], "group": group}, i, j) for group in groups]


RELATIVE = {
    "alibi": alibi, "t5": t5, "kerple": kerple, "sandwich": sandwich, "shaw": shaw, "shaw-sinusoidal": shaw_sinusoidal,
    "transformer-xl": transformer_xl, "deberta": deberta, "deberta-buckets": deberta_buckets, "fire": fire, "swin": swin,
    "tupe": tupe, "forgetting-gate": forgetting_gate, "cope": cope, "pope": pope, "fope": fope,
    "rerope": mapped(lambda p, i, j: min(i - j, p["window"])), "leaky-rerope": mapped(leaky),
    "self-extend": mapped(self_extend), "dual-chunk": mapped(dual_chunk), "sinks": mapped(sinks),
    "string": mapped(string), "lampe": mapped(lampe), "dpe": mapped(dpe),
}
