"""What the formulas of check_positions.py share: the document's tensors, comparison, exact angles, attention."""

import itertools
import math
import sys
from decimal import Decimal as D

from check_conformance import PI


class Tensor:
    """A tensor of the document: {"shape", "seed", "scale"}, or a list of numbers."""

    def __init__(self, spec):
        if isinstance(spec, list):
            self.shape, self.values = [len(spec)], spec
            return
        self.shape = spec["shape"]
        n = math.prod(self.shape)
        self.values = [spec["scale"] * ((7 * k * k + 13 * k + 17 * spec["seed"]) % 61 - 30) / 32 for k in range(n)]

    def row(self, *index):
        """The innermost numbers at the first indices."""
        at = 0
        for size, i in zip(self.shape, index):
            at = at * size + i
        size = math.prod(self.shape[len(index):])
        return self.values[at * size:(at + 1) * size]

    def at(self, *index):
        return self.row(*index)[0]


def close(case, got, want, slack):
    """Lists of numbers within `slack`, relative above 1 and absolute below; returns their count."""
    want = list(want)
    if len(got) != len(want):
        sys.exit(f"{case['id']}: {len(got)} numbers in the file, {len(want)} by the formula")
    for n, (a, b) in enumerate(zip(got, want)):
        if not abs(a - b) <= slack * max(1.0, abs(b)):
            sys.exit(f"{case['id']}: number {n} is {a} in the file, {b} by the formula")
    return len(want)


def angle(position, frequency):
    """position * frequency in (-pi, pi], the product exact before it is reduced."""
    x = (D(position) * D(frequency)) % (2 * PI)
    return float(x - 2 * PI if x > PI else x)


def power(base, numerator, denominator):
    return D(base) ** (D(numerator) / D(denominator))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def linear(weight, bias, x):
    """Rows of `weight`, a flat matrix, times x."""
    n = len(x)
    return [dot(weight[o * n:(o + 1) * n], x) + (bias[o] if bias else 0) for o in range(len(weight) // n)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def attention(case, biases, values=None, slack=1e-6):
    """softmax(scale q.k + bias) v, key by key. biases(head, i, q, keys) gives one number for each key of a list of rows, which are
    those at positions 0, 1 ..; values(head, i, j) a vector that is added to v."""
    a = case["attention"]
    q, k, v = Tensor(a["q"]), Tensor(a["k"]), Tensor(a["v"])
    out = []
    for t, i in enumerate(a["queries"]):
        for h in range(a["heads"]):
            query, seen = q.row(t, h), min(a["keys"], i + 1) if a["causal"] else a["keys"]
            keys = [k.row(j, h) for j in range(seen)]
            scores = [a["scale"] * dot(query, key) + b for key, b in zip(keys, biases(h, i, query, keys), strict=True)]
            top = max(scores)
            weights = [math.exp(s - top) for s in scores]
            total = math.fsum(weights)
            rows = [v.row(j, h) for j in range(seen)]
            if values is not None:
                rows = [[x + y for x, y in zip(row, values(h, i, j))] for j, row in enumerate(rows)]
            out += [math.fsum(w * row[e] for w, row in zip(weights, rows)) / total for e in range(a["head_dim"])]
    return close(case, a["out"], out, slack)


def each_key(bias):
    """A bias of head, positions, query and key as `attention` asks for it."""
    return lambda h, i, q, keys: [bias(h, i, j, q, key) for j, key in enumerate(keys)]


def patches(sizes):
    """Coordinates of a grid in row-major order."""
    return list(itertools.product(*(range(n) for n in sizes)))
