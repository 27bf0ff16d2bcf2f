"""Absolute encodings against formulas in float64 and long double, typed here; gradients against differences of them."""

import math

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st

FAR = np.array([0, 1, 255, 256, 257, 4095, 131071, 1048575, 2**31 - 1])


def uniform(*shape, low=-1.0, high=1.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def check_gradient(loss, gradients, parameters, rel=1e-4, step=1e-3):
    """Along a random direction of each parameter; loss(**parameters) is float64 of float32 outputs."""
    rng = np.random.default_rng(7)
    assert set(gradients) == set(parameters)
    for name, held in parameters.items():
        value = np.asarray(held, np.float64)
        direction = rng.standard_normal(value.shape)
        direction /= np.linalg.norm(direction)
        sides = [loss(**{**parameters, name: value + s * step * direction}) for s in (1, -1)]
        expected = (sides[0] - sides[1]) / (2 * step)
        assert np.shape(gradients[name]) == value.shape, name
        assert np.vdot(gradients[name], direction) == pytest.approx(expected, rel=rel, abs=30 * rel), name


# ---- sinusoidal ----


@pytest.mark.parametrize("ladder", ["paper", "to-base"])
@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("dim", [8, 9, 512])
@pytest.mark.parametrize("cosine_first", [False, True])
def test_sinusoidal(layout, dim, ladder, cosine_first):
    s = rw.Sinusoidal(dim, layout=layout, ladder=ladder, cosine_first=cosine_first)
    n = dim // 2 + (dim % 2 if layout == "interleaved" else 0)
    i = np.arange(n, dtype=np.longdouble)
    power = i / (n - 1) if ladder == "to-base" else 2 * i / dim if layout == "interleaved" else i / n
    f = np.longdouble(10000) ** -power
    np.testing.assert_allclose(s.frequencies, f.astype(float), rtol=1e-15)
    angle = FAR[:, None] * f
    a, b = (np.cos(angle), np.sin(angle)) if cosine_first else (np.sin(angle), np.cos(angle))
    if layout == "interleaved":
        expected = np.stack([a, b], -1).reshape(len(FAR), -1)[:, :dim]
    else:
        expected = np.concatenate([a, b, np.zeros((len(FAR), dim % 2))], -1)
    rows = s.rows(FAR)
    assert rows.dtype == np.float32
    # 2.5e-10: of the reference, whose 64 bits lose 31 to the position
    assert np.all(np.abs(rows - expected) <= 0.5001 * np.spacing(np.abs(rows)) + 2.5e-10)
    assert s.rows(FAR.reshape(3, 3)).shape == (3, 3, dim)
    np.testing.assert_allclose(s.rows([-5]), s.rows([5]) * np.where(expected[0] == 1, 1, -1), atol=1e-7)


def test_adding_sinusoids():
    s = rw.Sinusoidal(6)
    x = uniform(2, 5, 6)
    kept = x.copy()
    np.testing.assert_allclose(s.add(x, start=7, scale=0.5), x + 0.5 * s.rows(np.arange(7, 12)), atol=1e-7)
    np.testing.assert_array_equal(x, kept)
    d = uniform(2, 5, 6, seed=1).astype(np.float64)
    rows = s.rows(np.arange(7, 12)).astype(float)
    assert s.scale_gradient(d, 7) == pytest.approx(np.vdot(d, np.broadcast_to(rows, d.shape)), rel=1e-6)
    p, f = np.arange(7, 12), s.frequencies
    turned = np.stack([np.cos(p[:, None] * f), -np.sin(p[:, None] * f)], -1) * p[:, None, None]
    expected = 0.5 * (d.sum(0).reshape(5, 3, 2) * turned).sum((0, 2))
    np.testing.assert_allclose(s.frequency_gradient(d, 7, 0.5), expected, rtol=1e-5)


def test_grid_of_masked_autoencoders():
    half = rw.Sinusoidal(6, layout="concatenated")
    rows = rw.sinusoidal_grid([(1, half), (0, half)], (3, 4))
    assert rows.shape == (12, 12)
    for p in range(12):
        np.testing.assert_array_equal(rows[p], np.concatenate([half.rows([p % 4])[0], half.rows([p // 4])[0]]))


# ---- tables ----


def test_learned_rows():
    table, p = uniform(9, 4), np.array([[0, 6, 6], [1, 2, 0]])
    np.testing.assert_array_equal(rw.learned_rows(table, p, offset=2), table[p + 2])
    d = uniform(2, 3, 4, seed=1)
    expected = np.zeros((9, 4))
    np.add.at(expected, p + 2, d.astype(float))
    np.testing.assert_allclose(rw.learned_rows_backward(d, 9, p, offset=2), expected, rtol=1e-15)


def test_hierarchical_rows():
    table, alpha = uniform(5, 3), 0.4
    k = np.arange(25)
    t = table.astype(float)
    expected = t[k % 5] + alpha / (1 - alpha) * (t[k // 5] - t[0])
    got = rw.hierarchical_rows(table, k)
    np.testing.assert_allclose(got, expected, atol=2e-7)
    np.testing.assert_array_equal(got[:5], table)
    d = uniform(25, 3, seed=1)
    d_table, d_alpha = rw.hierarchical_rows_backward(d, table, k)

    def loss(table, alpha):
        return np.vdot(rw.hierarchical_rows(table, k, float(alpha)).astype(float), d)

    check_gradient(loss, {"table": d_table, "alpha": np.float64(d_alpha)}, {"table": table, "alpha": alpha})


@pytest.mark.parametrize(
    ("sizes", "to", "kernel", "antialias"),
    [
        ((16,), (37,), "linear", False),
        ((9, 7), (4, 5), "cubic", False),
        ((9, 7), (4, 5), "cubic", True),
        ((2, 3, 4), (3, 2, 7), "linear", False),
    ],
)
def test_resizing_is_separable_and_keeps_what_it_must(sizes, to, kernel, antialias):
    """One axis at a time by the kernel's definition (Keys 1981), and its adjoint."""

    def weights(n, m):
        scale = n / m
        wide = max(scale, 1.0) if antialias else 1.0
        a = -0.5 if antialias else -0.75

        def at(x):
            x = abs(x)
            if kernel == "linear":
                return max(0.0, 1 - x)
            if x < 1:
                return (a + 2) * x**3 - (a + 3) * x**2 + 1
            return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0

        w = np.zeros((m, n))
        for o in range(m):
            center = (o + 0.5) * scale - 0.5
            if kernel == "linear" and not antialias:
                center = max(center, 0.0)
            for i in range(math.floor(center) - 12, math.floor(center) + 13):
                value = at((i - center) / wide)
                if antialias:
                    if 0 <= i < n:
                        w[o, i] += value
                else:
                    w[o, min(max(i, 0), n - 1)] += value
            w[o] /= w[o].sum()
        return w

    table = uniform(1 + math.prod(sizes), 2)
    expected = table[1:].astype(float).reshape(*sizes, 2)
    for axis, (n, m) in enumerate(zip(sizes, to, strict=True)):
        expected = np.moveaxis(np.tensordot(weights(n, m), expected, (1, axis)), 0, axis)
    got = rw.resize_table(table, sizes, to, prefix_rows=1, kernel=kernel, antialias=antialias)
    np.testing.assert_array_equal(got[0], table[0])
    np.testing.assert_allclose(got[1:], expected.reshape(-1, 2), atol=3e-7)
    d = uniform(*got.shape, seed=1)
    back = rw.resize_table_backward(d, sizes, to, prefix_rows=1, kernel=kernel, antialias=antialias)
    assert np.vdot(back, table) == pytest.approx(np.vdot(got.astype(float), d), rel=1e-5)


# ---- digits ----


@settings(max_examples=80, deadline=None)
@given(base=st.integers(2, 40), digits=st.integers(1, 6), data=st.data())
def test_digits(base, digits, data):
    d = rw.Digits(base, digits)
    assert d.capacity == base**digits
    p = data.draw(st.integers(0, d.capacity - 1))
    row = d.rows([p])[0]
    assert row.tolist() == [p // base ** (digits - 1 - i) % base for i in range(digits)]
    w = uniform(3, digits, seed=p % 100)
    np.testing.assert_allclose(d.project(w, [p])[0], w.astype(float) @ row, rtol=2e-6, atol=1e-5)


def test_extensions_of_digits():
    """kexue.fm/archives/9675: position 1749 of three decimal digits at a length of 2000."""
    d = rw.Digits(10, 3)
    expected = {"extrapolate": [1, 7, 4, 9], "interpolate": [8, 7, 4.5], "change-base": [10, 4, 7]}
    for how, row in expected.items():
        np.testing.assert_allclose(d.extend(2000, how).rows([1749])[0], row, rtol=1e-6)
    assert d.extend(2000, "change-base").base == 13 and d.extend(1000, "extrapolate").digits == 3
    got = d.project_backward(uniform(2, 5), [749, 1])
    np.testing.assert_allclose(got, uniform(2, 5).astype(float).T @ d.rows([749, 1]), rtol=1e-6)


# ---- complex order ----


@pytest.mark.parametrize("shared", ["none", "words", "dims"])
def test_complex_order(shared):
    a = uniform(4, 6, low=0.1)
    f, theta = (uniform(*{"none": (4, 6), "words": (6,), "dims": (4,)}[shared], low=0, high=3, seed=s) for s in (1, 2))
    words, at = np.array([0, 3, 1, 2, 2, 3, 0, 1, 2]), FAR
    sharing = {"frequency_shared": shared, "phase_shared": shared}

    def of(x):
        x = np.asarray(x, np.longdouble)
        return x[words] if shared == "none" else x[None] if shared == "words" else x[words][:, None]

    def formula(amplitude, frequency, phase, places):
        return np.asarray(amplitude, np.longdouble)[words] * np.exp(1j * (of(frequency) * places[:, None] + of(phase)))

    z = rw.complex_order(words, at, a, f, theta, **sharing)
    assert z.dtype == np.complex64 and z.shape == (9, 6)
    assert np.abs(z - formula(a, f, theta, at)).max() < 1.3e-7
    near = np.arange(9)
    d = (uniform(9, 6, seed=4) + 1j * uniform(9, 6, seed=5)).astype(np.complex64)
    got = rw.complex_order_backward(d, words, near, a, f, theta, **sharing)

    def loss(amplitude, frequency, phase):
        out = formula(amplitude, frequency, phase, near)
        return float((out.real * d.real + out.imag * d.imag).sum())

    check_gradient(loss, got, {"amplitude": a, "frequency": f, "phase": theta}, step=1e-6)
    np.testing.assert_allclose(rw.complex_order(words, at, a, f, **sharing), formula(a, f, 0 * theta, at), atol=1.3e-7)


@pytest.mark.parametrize("hermitian", [False, True])
def test_complex_attention(hermitian):
    q, k, v = (
        (uniform(n, 2, 4, seed=s) + 1j * uniform(n, 2, 4, seed=s + 9)).astype(np.complex64) for n, s in ((5, 1), (7, 2), (7, 3))
    )
    score = np.abs(np.einsum("qhd,khd->hqk", q, k.conj() if hermitian else k)) / 2
    score = np.where(np.arange(2, 7)[:, None] >= np.arange(7), score, -np.inf)
    w = np.exp(score - score.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    out = rw.complex_attention(q, k, v, causal=True, hermitian=hermitian)
    np.testing.assert_allclose(out, np.einsum("hqk,khd->qhd", w, v), atol=1e-6)


def complex_normal(*shape, seed=0):
    return (uniform(*shape, seed=seed) + 1j * uniform(*shape, seed=seed + 50)).astype(np.complex64)


def check_complex_gradient(function, gradients, parameters, d):
    """loss = sum of re d.re + im d.im; a gradient is d(loss) / d(re) + i d(loss) / d(im)."""

    def loss(**parts):
        out = function(**{n: parts[n + ".re"] + 1j * parts[n + ".im"] for n in parameters})
        return float((out.real * d.real + out.imag * d.imag).sum())

    parts = {f"{n}.{p}": getattr(z, part) for n, z in parameters.items() for p, part in (("re", "real"), ("im", "imag"))}
    got = {f"{n}.{p}": getattr(z, part) for n, z in gradients.items() for p, part in (("re", "real"), ("im", "imag"))}
    check_gradient(loss, got, parts, step=1e-6)


@pytest.mark.parametrize("hermitian", [False, True])
def test_gradient_of_complex_attention(hermitian):
    held = {"q": complex_normal(5, 2, 4), "k": complex_normal(7, 2, 4, seed=1), "v": complex_normal(7, 2, 4, seed=2)}
    d = complex_normal(5, 2, 4, seed=3)

    def formula(q, k, v):
        score = np.abs(np.einsum("qhd,khd->hqk", q, k.conj() if hermitian else k)) / 2
        score = np.where(np.arange(2, 7)[:, None] >= np.arange(7), score, -np.inf)
        w = np.exp(score - score.max(-1, keepdims=True))
        return np.einsum("hqk,khd->qhd", w / w.sum(-1, keepdims=True), v)

    got = rw.complex_attention_backward(d, **held, causal=True, hermitian=hermitian)
    assert all(got[n].dtype == np.complex128 for n in held)
    check_complex_gradient(formula, got, held, d)


def test_complex_linear():
    held = {"x": complex_normal(2, 3, 5), "weight": complex_normal(4, 5, seed=1), "bias": complex_normal(4, seed=2)}
    out = rw.complex_linear(**held)
    assert out.dtype == np.complex64 and out.shape == (2, 3, 4)
    np.testing.assert_allclose(out, held["x"] @ held["weight"].T + held["bias"], atol=1e-6)
    np.testing.assert_allclose(rw.complex_linear(held["x"], held["weight"]), held["x"] @ held["weight"].T, atol=1e-6)
    d = complex_normal(2, 3, 4, seed=3)
    got = rw.complex_linear_backward(d, **held)
    check_complex_gradient(lambda x, weight, bias: x @ weight.T + bias, got, held, d)
    assert "bias" not in rw.complex_linear_backward(d, held["x"], held["weight"])
    assert rw.complex_linear(np.zeros((0, 5)), held["weight"]).shape == (0, 4)


# ---- paths ----


def test_floater_with_a_field_of_sinusoids_is_the_sinusoidal_encoding():
    s = rw.Sinusoidal(6)
    rows, error = rw.floater_rows([0, 1] * 3, 300, frequencies=s.frequencies, spacing=1.0, substeps=20)
    difference = np.abs(rows - s.rows(np.arange(300))).max()
    assert difference < 5e-5 and 0.3 * difference < error < 1e-4  # the estimate is of that size


def test_floater():
    dim, hidden = 4, 5
    p = {
        "start": uniform(dim),
        "w": uniform(hidden, dim, seed=1),
        "u": uniform(hidden, seed=2),
        "b": uniform(hidden, seed=3),
        "v": uniform(dim, hidden, seed=4),
        "c": uniform(dim, seed=5),
    }

    def path(start, w, u, b, v, c, count=6, spacing=0.1, substeps=10):
        """Runge-Kutta of order 4 in float64."""
        w, u, b, v, c, x = (np.asarray(a, np.float64) for a in (w, u, b, v, c, start))
        h, rows, t = spacing / substeps, [x], 0.0

        def field(t, x):
            return v @ np.tanh(w @ x + u * t + b) + c

        for i in range(1, count):
            for j in range(substeps):
                t = (i - 1) * spacing + j * h
                k1 = field(t, x)
                k2 = field(t + h / 2, x + h / 2 * k1)
                k3 = field(t + h / 2, x + h / 2 * k2)
                k4 = field(t + h, x + h * k3)
                x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            rows.append(x)
        return np.array(rows)

    rest = {n: x for n, x in p.items() if n != "start"}
    rows, error = rw.floater_rows(p["start"], 6, **rest)
    np.testing.assert_allclose(rows, path(**p), atol=3e-7)
    assert 0 <= error < 1e-8
    d = uniform(6, dim, seed=6)
    got = rw.floater_rows_backward(d, p["start"], **rest)
    check_gradient(lambda **q: np.vdot(path(**q), d), got, p, step=1e-6)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_recurrent(cell):
    dim, gates = 4, 3 if cell == "gru" else 1
    p = {
        "start": uniform(dim),
        "weight": uniform(gates * dim, dim, seed=1),
        "input_bias": uniform(gates * dim, seed=2),
        "hidden_bias": uniform(gates * dim, seed=3),
    }

    def rows(start, weight, input_bias, hidden_bias, count=6):
        """PyTorch's RNNCell and GRUCell at an input of 0."""
        x, w, b, c = (np.asarray(a, np.float64) for a in (start, weight, input_bias, hidden_bias))
        out = [x]
        for _ in range(count - 1):
            h = w @ x + c
            if cell == "tanh":
                x = np.tanh(b + h)
            else:
                r, z = (1 / (1 + np.exp(-(b[g * dim : (g + 1) * dim] + h[g * dim : (g + 1) * dim]))) for g in (0, 1))
                n = np.tanh(b[2 * dim :] + r * h[2 * dim :])
                x = (1 - z) * n + z * x
            out.append(x)
        return np.array(out)

    rest = {n: x for n, x in p.items() if n != "start"}
    np.testing.assert_allclose(rw.recurrent_rows(p["start"], 6, cell=cell, **rest), rows(**p), atol=2e-7)
    d = uniform(6, dim, seed=6)
    got = rw.recurrent_rows_backward(d, p["start"], cell=cell, **rest)
    check_gradient(lambda **q: np.vdot(rows(**q), d), got, p, step=1e-6)


# ---- convolution and combination ----


@pytest.mark.parametrize("border", ["zero", "circular"])
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize(("sizes", "kernel", "groups"), [((7,), (4,), 2), ((3, 4), (3, 3), 4), ((2, 3, 2), (1, 3, 3), 1)])
def test_convolution(sizes, kernel, groups, border, gelu):
    """Tap by tap, as its definition says."""
    channels, tokens = 4, math.prod(sizes)
    p = {
        "x": uniform(2, 1 + tokens, channels),
        "weight": uniform(channels, channels // groups, *kernel, seed=1),
        "bias": uniform(channels, seed=2),
    }

    def formula(x, weight, bias):
        x, w = np.asarray(x, np.float64), np.asarray(weight, np.float64)
        grid = x[:, 1:].reshape(2, *sizes, channels)
        out = np.zeros_like(grid) + np.asarray(bias, np.float64)
        per = channels // groups
        for tap in np.ndindex(*kernel):
            offset = [t - k // 2 for t, k in zip(tap, kernel, strict=True)]
            moved = np.roll(grid, [-o for o in offset], tuple(range(1, 1 + len(sizes))))
            if border == "zero":
                for axis, (o, n) in enumerate(zip(offset, sizes, strict=True)):
                    inside = (np.arange(n) + o >= 0) & (np.arange(n) + o < n)
                    moved = moved * inside.reshape([-1 if a == axis + 1 else 1 for a in range(moved.ndim)])
            for c in range(channels):
                g = c // per
                out[..., c] += moved[..., g * per : (g + 1) * per] @ w[(c, slice(None), *tap)]
        out = out.reshape(2, tokens, channels)
        if gelu:
            out = out * (1 + np.vectorize(math.erf)(out / math.sqrt(2))) / 2
        return np.concatenate([x[:, :1], x[:, 1:] + out], 1)

    options = {"sizes": sizes, "prefix_rows": 1, "border": border, "gelu": gelu}
    got = rw.position_convolution(p["x"], p["weight"], p["bias"], **options)
    np.testing.assert_allclose(got, formula(**p), atol=2e-6)
    d = uniform(*got.shape, seed=3)
    back = rw.position_convolution_backward(d, p["x"], p["weight"], p["bias"], **options)
    check_gradient(lambda **q: np.vdot(formula(**q), d), back, p, step=1e-5)


def test_weight_norm():
    v, g = uniform(4, 2, 5), uniform(5, low=0.5, seed=1)
    expected = g * v.astype(float) / np.linalg.norm(v.astype(float), axis=(0, 1))
    np.testing.assert_allclose(rw.merge_weight_norm(v, g), expected, rtol=3e-7)
    np.testing.assert_array_equal(rw.merge_weight_norm(v, g[None, None]), rw.merge_weight_norm(v, g))


def test_gradient_of_weight_norm():
    v, g = uniform(4, 2, 3), uniform(3, low=0.5, high=2, seed=1)
    d = np.random.default_rng(2).standard_normal((4, 2, 3))

    def loss(v, g):
        return float((g * v / np.sqrt((v * v).sum((0, 1))) * d).sum())

    check_gradient(loss, rw.merge_weight_norm_backward(d, v, g), {"v": v, "g": g}, step=1e-6)
    assert rw.merge_weight_norm_backward(d, v, g.reshape(1, 1, 3))["g"].shape == (1, 1, 3)


def test_combining():
    x, rows, d = uniform(3, 5, 4), uniform(5, 4, seed=1), uniform(3, 5, 4, seed=2)
    np.testing.assert_allclose(rw.add_rows(x, rows, 0.5), x + np.float32(0.5) * rows, atol=1e-7)
    np.testing.assert_array_equal(rw.multiply_rows(x, rows), x * rows)
    np.testing.assert_array_equal(rw.multiply_rows(x[0], rows), x[0] * rows)
    np.testing.assert_allclose(rw.add_rows_backward(d, 0.5), 0.5 * d.astype(float).sum(0), rtol=1e-6)
    dx, d_rows = rw.multiply_rows_backward(d, x, rows)
    np.testing.assert_array_equal(dx, d * rows)
    np.testing.assert_allclose(d_rows, (d.astype(float) * x).sum(0), rtol=1e-12)


# ---- bad input ----

Z = np.zeros
BAD = {
    "a dim of 0": (lambda: rw.Sinusoidal(0), "dim"),
    "a base of 0": (lambda: rw.Sinusoidal(4, base=0), "base"),
    "an unknown layout": (lambda: rw.Sinusoidal(4, layout="half"), 'layout: expected "interleaved" or "concatenated"'),
    "positions in float": (lambda: rw.Sinusoidal(4).rows([0.5]), "positions: expected whole numbers, got float64"),
    "positions beyond 2^31": (lambda: rw.Sinusoidal(4).rows([2**31]), "2147483648"),
    "x of another dim": (lambda: rw.Sinusoidal(4).add(Z((2, 5))), "dim|multiple|x"),
    "a vector": (lambda: rw.Sinusoidal(4).add(Z(4)), r"x: expected \[tokens, dim\]"),
    "an axis outside": (lambda: rw.sinusoidal_grid([(2, rw.Sinusoidal(4))], (3, 3)), "axis"),
    "an axis below 0": (lambda: rw.sinusoidal_grid([(-1, rw.Sinusoidal(4))], (3, 3)), "axes 0 to 2"),
    "blocks that are none": (lambda: rw.sinusoidal_grid([4], (3, 3)), "blocks: expected pairs"),
    "a huge grid": (lambda: rw.sinusoidal_grid([(0, rw.Sinusoidal(4))], (2**40, 2**40)), "sizes"),
    "a row that is not there": (lambda: rw.learned_rows(Z((4, 2)), [4]), "4"),
    "a row below 0": (lambda: rw.learned_rows(Z((4, 2)), [-1]), "-1"),
    "no table": (lambda: rw.learned_rows(None, [0]), "table: expected an array, got None"),
    "a table of one axis": (lambda: rw.learned_rows(Z(4), [0]), r"table: expected shape \[any, any\], got \[4\]"),
    "an alpha of 1/2": (lambda: rw.hierarchical_rows(Z((3, 2)), [0], 0.5), "alpha"),
    "beyond n^2": (lambda: rw.hierarchical_rows(Z((3, 2)), [9]), "9"),
    "sizes of another table": (lambda: rw.resize_table(Z((5, 2)), (4,), (8,)), "table|rows"),
    "axes that differ": (lambda: rw.resize_table(Z((4, 2)), (4,), (2, 2)), "to"),
    "an unknown kernel": (lambda: rw.resize_table(Z((4, 2)), (4,), (8,), kernel="lanczos"), "kernel"),
    "base 1": (lambda: rw.Digits(1, 3), "base"),
    "too many digits": (lambda: rw.Digits(10, 10**12), "digits"),
    "a position that does not fit": (lambda: rw.Digits(10, 3).rows([1000]), "1000"),
    "an unknown extension": (lambda: rw.Digits().extend(2000, "more"), "how: expected"),
    "a word that is not there": (lambda: rw.complex_order([3], [0], Z((3, 2)), Z((3, 2))), "3"),
    "a frequency of another shape": (lambda: rw.complex_order([0], [0], Z((3, 2)), Z(3)), "frequency"),
    "words and positions": (lambda: rw.complex_order([0, 1], [0], Z((3, 2)), Z((3, 2))), "positions: expected the shape"),
    "a path without a field": (lambda: rw.floater_rows([0, 1], 3), "w: expected an array"),
    "odd substeps": (lambda: rw.floater_rows([0, 1], 3, frequencies=[1.0], substeps=3), "substeps"),
    "a negative count": (lambda: rw.floater_rows([0, 1], -3, frequencies=[1.0]), "count"),
    "an unknown cell": (
        lambda: rw.recurrent_rows(Z(2), 3, cell="lstm", weight=Z((2, 2)), input_bias=Z(2), hidden_bias=Z(2)),
        'cell: expected "tanh" or "gru"',
    ),
    "one gate of three": (
        lambda: rw.recurrent_rows(Z(2), 3, cell="gru", weight=Z((2, 2)), input_bias=Z(2), hidden_bias=Z(2)),
        r"weight: expected shape \[6, 2\]",
    ),
    "channels that differ": (lambda: rw.position_convolution(Z((5, 4)), Z((3, 1, 3))), "weight: expected"),
    "tokens that do not fit": (lambda: rw.position_convolution(Z((5, 4)), Z((4, 1, 3)), sizes=(6,)), "x|sizes|tokens"),
    "an unknown border": (lambda: rw.position_convolution(Z((5, 4)), Z((4, 1, 3)), border="reflect"), "border"),
    "rows of other tokens": (lambda: rw.add_rows(Z((5, 4)), Z((4, 4))), r"rows: expected shape \[5, 4\]"),
    "a complex weight of other inputs": (lambda: rw.complex_linear(Z((5, 4)), Z((3, 2))), r"x: expected \[..., 2\]"),
    "a bias of other outputs": (lambda: rw.complex_linear(Z((5, 2)), Z((3, 2)), Z(4)), r"bias: expected shape \[3\]"),
    "a gradient of another shape": (
        lambda: rw.complex_linear_backward(Z((5, 2)), Z((5, 2)), Z((3, 2))),
        r"d_out: expected shape \[5, 3\]",
    ),
    "values of other keys": (
        lambda: rw.complex_attention_backward(Z((2, 1, 4)), Z((2, 1, 4)), Z((3, 1, 4)), Z((2, 1, 4))),
        "v: expected the shape of k",
    ),
    "more queries than keys": (
        lambda: rw.complex_attention(Z((4, 1, 4)), Z((3, 1, 4)), Z((3, 1, 4)), causal=True),
        "at most as many queries as keys",
    ),
    "a gradient of other taps": (lambda: rw.merge_weight_norm_backward(Z((4, 3)), Z((4, 2)), Z(2)), "d_weight: expected shape"),
    "text": (lambda: rw.multiply_rows("x", Z((4, 4))), "x: expected numbers"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message):
        call()
