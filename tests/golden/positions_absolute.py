"""Absolute encodings, each typed from its paper. A function of a case: exits where a number is wrong, returns how many it compared."""

import cmath
import itertools
import math
import sys
from fractions import Fraction

from positions_support import Tensor, angle, close, dot, linear, patches, power, sigmoid


def sinusoid(spec, position):
    """Vaswani et al. 2017, section 3.5, and the variants of the frequencies and of the order."""
    dim, inter = spec["dim"], spec["layout"] == "interleaved"
    n = (dim + 1) // 2 if inter else dim // 2
    if spec["ladder"] == "to-base":
        frequencies = [power(spec["base"], -i, max(n - 1, 1)) for i in range(n)]
    else:
        frequencies = [power(spec["base"], -2 * i, dim if inter else 2 * n) for i in range(n)]
    turns = [angle(position, f) for f in frequencies]
    first, second = [math.sin(x) for x in turns], [math.cos(x) for x in turns]
    if spec["cosine_first"]:
        first, second = second, first
    if inter:
        return [x for pair in zip(first, second) for x in pair][:dim]
    return first + second + [0.0] * (dim % 2)


def sinusoidal(case):
    return close(case, case["out"], itertools.chain(*(sinusoid(case["parameters"], p) for p in case["positions"])), 1.2e-7)


def sinusoidal_grid(case):
    p, want = case["parameters"], []
    for place in patches(p["sizes"]):
        for block in p["blocks"]:
            want += sinusoid(block["spec"], place[block["axis"]])
    return close(case, case["out"], want, 1.2e-7)


def learned(case):
    p, table = case["parameters"], Tensor(case["parameters"]["table"])
    return close(case, case["out"], itertools.chain(*(table.row(n + p["offset"]) for n in case["positions"])), 0)


def triangle(x):
    return max(0.0, 1 - abs(x))


def keys_cubic(a):
    """Keys 1981, eq. 15 for any a."""
    def kernel(x):
        x = abs(x)
        if x <= 1:
            return (a + 2) * x ** 3 - (a + 3) * x ** 2 + 1
        return a * x ** 3 - 5 * a * x ** 2 + 8 * a * x - 4 * a if x < 2 else 0.0
    return kernel


def taps(old, new, kernel, antialias):
    """[(row, weight)] of each of `new` rows: the kernel about the row's middle, rows beyond the border being those of the border;
    with antialias the kernel is as wide as the step, cut at the border and divided by its sum."""
    step, reach = old / new, 1 if kernel == "linear" else 2
    shape = triangle if kernel == "linear" else keys_cubic(-0.5 if antialias else -0.75)
    for i in range(new):
        centre = (i + 0.5) * step - 0.5
        wide = max(step, 1.0) if antialias else 1.0
        found = [(r, shape((r - centre) / wide))
                 for r in range(math.floor(centre - reach * wide) - 1, math.ceil(centre + reach * wide) + 2)]
        if antialias:
            found = [(r, w) for r, w in found if 0 <= r < old]
            total = sum(w for _, w in found)
            found = [(r, w / total) for r, w in found]
        yield [(min(max(r, 0), old - 1), w) for r, w in found if w]


def resize(case):
    """torch.nn.functional.interpolate(align_corners=False), axis by axis at once: products of the axes' weights."""
    p, table = case["parameters"], Tensor(case["parameters"]["table"])
    dim, prefix = table.shape[1], p["prefix_rows"]
    axes = [list(taps(a, b, p["kernel"], p["antialias"])) for a, b in zip(p["from"], p["to"])]
    place = {coordinates: prefix + n for n, coordinates in enumerate(patches(p["from"]))}
    want = list(itertools.chain(*(table.row(r) for r in range(prefix))))
    for target in patches(p["to"]):
        row = [0.0] * dim
        for choice in itertools.product(*(axes[a][i] for a, i in enumerate(target))):
            weight = math.prod(w for _, w in choice)
            row = [x + weight * y for x, y in zip(row, table.row(place[tuple(r for r, _ in choice)]))]
        want += row
    return close(case, case["out"], want, 2e-7)


def hierarchical(case):
    """kexue.fm/archives/7947: alpha u_i + (1 - alpha) u_j with u_i = (p_i - alpha p_0) / (1 - alpha)."""
    table, a = Tensor(case["parameters"]["table"]), case["parameters"]["alpha"]
    n, want = table.shape[0], []
    for k in case["positions"]:
        u = [[(x - a * z) / (1 - a) for x, z in zip(table.row(i), table.row(0))] for i in divmod(k, n)]
        want += [a * x + (1 - a) * y for x, y in zip(*u)]
    return close(case, case["out"], want, 2e-7)


def digit_row(position, base, digits, factor):
    """kexue.fm/archives/9675, with fractions; what remains below one stays on the last digit."""
    scaled = Fraction(position) / Fraction(factor)
    row = [math.floor(scaled / base ** i) % base for i in range(digits)]
    row[0] += scaled - math.floor(scaled)
    return [float(x) for x in reversed(row)]


def digits(case):
    p, e = case["parameters"], case["extended"]
    base, count, length = p["trained"]["base"], p["trained"]["digits"], p["length"]
    want = {"base": base, "digits": count, "factor": 1}
    if p["extension"] == "extrapolated":
        want["digits"] = next(n for n in itertools.count(count) if base ** n >= length)
    elif p["extension"] == "interpolated":
        want["factor"] = length / base ** count
    else:
        want["base"] = next(b for b in itertools.count(base) if b ** count >= length)
    if e != want:
        sys.exit(f"{case['id']}: extended to {e}, expected {want}")
    rows = [digit_row(n, e["base"], e["digits"], e["factor"]) for n in case["positions"]]
    weight = Tensor(case["projection"]["weight"])
    projected = [linear(weight.values, None, row) for row in rows]
    return (close(case, case["out"], itertools.chain(*rows), 1.2e-7)
            + close(case, case["projection"]["out"], itertools.chain(*projected), 3e-7))


def complex_order(case):
    """Wang et al. 2020, section 2."""
    p = case["parameters"]
    amplitude, frequency, phase = Tensor(p["amplitude"]), Tensor(p["frequency"]), Tensor(p["phase"])

    def of(table, shared, word, e):
        return table.values[{"no": word * amplitude.shape[1] + e, "by words": e, "by dimensions": word}[shared]]

    want = []
    for word, k in zip(case["words"], case["positions"]):
        for e, r in enumerate(amplitude.row(word)):
            turn = angle(k, of(frequency, p["frequency_shared"], word, e)) + of(phase, p["phase_shared"], word, e)
            want.append(r * cmath.exp(1j * turn))
    return close(case, case["re"], [z.real for z in want], 1.5e-7) + close(case, case["im"], [z.imag for z in want], 1.5e-7)


class Complex:
    def __init__(self, spec):
        self.re, self.im = Tensor(spec["re"]), Tensor(spec["im"])

    def row(self, *index):
        return [complex(a, b) for a, b in zip(self.re.row(*index), self.im.row(*index))]


def parts(case, want, slack):
    return close(case, case["re"], [z.real for z in want], slack) + close(case, case["im"], [z.imag for z in want], slack)


def complex_linear(case):
    p, x = case["parameters"], Complex(case["x"])
    weight, bias = Complex(p["weight"]).row(), Complex(p["bias"]).row()
    return parts(case, [y for r in range(x.re.shape[0]) for y in linear(weight, bias, x.row(r))], 5e-7)


def complex_attention(case):
    """Wang et al. 2020's program: softmax over keys of |q . k| / sqrt(d)."""
    p, q, k, v = case["parameters"], Complex(case["q"]), Complex(case["k"]), Complex(case["v"])
    queries, heads, dim = q.re.shape
    keys, want = k.re.shape[0], []
    for i in range(queries):
        for h in range(heads):
            seen = range(keys - queries + i + 1 if p["causal"] else keys)
            rows = [[z.conjugate() for z in k.row(j, h)] if p["hermitian"] else k.row(j, h) for j in seen]
            weights = [math.exp(abs(dot(q.row(i, h), row)) / math.sqrt(dim)) for row in rows]
            want += [sum(w * v.row(j, h)[e] for w, j in zip(weights, seen)) / sum(weights) for e in range(dim)]
    return parts(case, want, 1e-6)


def recurrent(case):
    """PyTorch's RNNCell and GRUCell without input."""
    p = case["parameters"]
    w, b, c = Tensor(p["weight"]).values, Tensor(p["input_bias"]).values, Tensor(p["hidden_bias"]).values
    state, want = Tensor(p["start"]).values, []
    dim = len(state)
    for k in range(max(case["positions"]) + 1):
        if k in case["positions"]:
            want += state
        hidden = linear(w, c, state)
        if p["cell"] == "tanh":
            state = [math.tanh(x + y) for x, y in zip(b, hidden)]
        else:
            r, z = [[sigmoid(b[g * dim + e] + hidden[g * dim + e]) for e in range(dim)] for g in (0, 1)]
            n = [math.tanh(b[2 * dim + e] + r[e] * hidden[2 * dim + e]) for e in range(dim)]
            state = [(1 - z[e]) * n[e] + z[e] * state[e] for e in range(dim)]
    return close(case, case["out"], want, 1.5e-7)


def floater(case):
    """Liu et al. 2020, section 3, by the classical Runge-Kutta method; the stated error is a fifteenth of the difference to steps twice
    as wide."""
    p, dim = case["parameters"], len(case["parameters"]["start"])

    def tanh_field(t, x):
        n, values = p["hidden"], Tensor(p["values"]).values
        w, u, b = values[:n * dim], values[n * dim:n * dim + n], values[n * dim + n:n * dim + 2 * n]
        v, c = values[n * dim + 2 * n:2 * n * dim + 2 * n], values[2 * n * dim + 2 * n:]
        return linear(v, c, [math.tanh(y + a * t) for y, a in zip(linear(w, b, x), u)])

    def turning(t, x):
        return [y for i, f in enumerate(p["frequencies"]) for y in (f * x[2 * i + 1], -f * x[2 * i])]

    field = tanh_field if p["field"] == "tanh" else turning

    def path(substeps):
        x, step, rows = list(p["start"]), p["spacing"] / substeps, []
        for k in range(max(case["positions"]) + 1):
            rows.append(x)
            for s in range(substeps):
                t = k * p["spacing"] + s * step
                k1 = field(t, x)
                k2 = field(t + step / 2, [a + step / 2 * b for a, b in zip(x, k1)])
                k3 = field(t + step / 2, [a + step / 2 * b for a, b in zip(x, k2)])
                k4 = field(t + step, [a + step * b for a, b in zip(x, k3)])
                x = [a + step / 6 * (m + 2 * n + 2 * o + q) for a, m, n, o, q in zip(x, k1, k2, k3, k4)]
        return rows

    fine, wide = path(p["substeps"]), path(p["substeps"] // 2)
    stated = max(abs(a - b) for x, y in zip(fine, wide) for a, b in zip(x, y)) / 15
    checks = close(case, case["out"], itertools.chain(*(fine[k] for k in case["positions"])), 1.5e-7)
    return checks + close(case, [case["stated_error"] / stated], [1.0], 1e-3)


def combine(case):
    p, x, rows = case["parameters"], Tensor(case["x"]), Tensor(case["parameters"]["rows"])
    y = rows.values * x.shape[0]
    if case["method"] == "multiply-rows":
        return close(case, case["out"], [a * b for a, b in zip(x.values, y)], 1.2e-7)
    return close(case, case["out"], [a + p["scale"] * b for a, b in zip(x.values, y)], 1.2e-7)


def convolution(case):
    """y = x + f(conv(x) + b), tap t reading t - taps / 2 further on."""
    p, x, weight, bias = case["parameters"], Tensor(case["x"]), Tensor(case["parameters"]["weight"]), Tensor(case["parameters"]["bias"])
    batch, _, channels = x.shape
    group, prefix, kernel, sizes = channels // p["groups"], p["prefix_rows"], p["kernel"], p["sizes"]
    place = {at: n for n, at in enumerate(patches(sizes))}
    want = []
    for b in range(batch):
        for r in range(prefix):
            want += x.row(b, r)
        for at in place:
            for c in range(channels):
                total = bias.values[c]
                for tap in patches(kernel):
                    source = tuple(a + t - k // 2 for a, t, k in zip(at, tap, kernel))
                    if p["border"] == "circular":
                        source = tuple(s % n for s, n in zip(source, sizes))
                    if source in place:
                        inputs = x.row(b, prefix + place[source])[c // group * group:c // group * group + group]
                        total += sum(weight.at(c, i, *tap) * v for i, v in enumerate(inputs))
                if p["gelu"]:
                    total *= 0.5 * (1 + math.erf(total / math.sqrt(2)))
                want.append(total + (x.at(b, prefix + place[at], c) if p["residual"] else 0))
    return close(case, case["out"], want, 1e-6)


def weight_norm(case):
    p, v = case["parameters"], Tensor(case["parameters"]["v"])
    rows, count = v.shape
    norms = [math.sqrt(sum(v.at(r, t) ** 2 for r in range(rows))) for t in range(count)]
    g = Tensor(p["g"]).values
    return close(case, case["out"], [g[t] * v.at(r, t) / norms[t] for r in range(rows) for t in range(count)], 3e-7)


ABSOLUTE = {
    "sinusoidal": sinusoidal, "sinusoidal-grid": sinusoidal_grid, "learned": learned, "resize": resize,
    "hierarchical": hierarchical, "digits": digits, "complex-order": complex_order, "complex-linear": complex_linear,
    "complex-attention": complex_attention, "recurrent": recurrent, "floater": floater, "add-rows": combine,
    "multiply-rows": combine, "convolution": convolution, "weight-norm": weight_norm,
}
