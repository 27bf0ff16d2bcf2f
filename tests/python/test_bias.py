"""Biases against formulas in float64, typed here from the papers; their gradients against differences of these formulas.
Biases that depend on content are in test_attention.py."""

import json
import math
import pathlib

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAR = np.array([0, 1, 2, 7, 63, 127, 128, 129, 255, 256, 257, 511, 1023, 4095, 131071, 1048575])


def uniform(*shape, low=-1.0, high=1.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def distances(q, k):
    return q[:, None] - k[None]


# ---- formulas: float64 [heads, queries, keys] ----


def alibi_slopes(n, top=8.0):
    """The authors' code."""
    if n & (n - 1) == 0:
        return [2 ** (-top * (h + 1) / n) for h in range(n)]
    below = 1 << (n.bit_length() - 1)
    return alibi_slopes(below, top) + alibi_slopes(2 * below, top)[0::2][: n - below]


def t5_bucket(d, bidirectional, buckets, last):
    """A bucket begins where (d / exact)^wide >= (last / exact)^k, in whole numbers."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if d < 0 else 0
        d = abs(d)
    d = max(d, 0)
    exact = buckets // 2
    if d < exact:
        return first + d
    wide = buckets - exact
    k = 0
    while k + 1 < wide and d**wide * exact ** (k + 1) >= last ** (k + 1) * exact**wide:
        k += 1
    return first + exact + k


def t5(p, q, k, bidirectional):
    row = np.vectorize(lambda d: t5_bucket(int(d), bidirectional, *T5_SIZES))(distances(q, k))
    return np.moveaxis(p["embedding"].astype(np.float64)[row], -1, 0)


def kerple(p, q, k, kernel):
    d = np.abs(distances(q, k)).astype(np.float64)
    r1, r2 = (p[n].astype(np.float64)[:, None, None] for n in ("r1", "r2"))
    return -r1 * d**r2 if kernel == "power" else -r1 * np.log1p(r2 * d)


def sandwich(heads, dim, q, k):
    d = np.abs(distances(q, k)).astype(np.longdouble)
    f = np.longdouble(10000) ** (-2 * np.arange(dim // 2, dtype=np.longdouble) / dim)
    total = np.cos(d[..., None] * f).sum(-1)
    return np.stack([heads / (8 * (h + 1)) * total for h in range(heads)]).astype(np.float64)


def fire(p, q, k):
    c, threshold = float(p["c"]), float(p["threshold"])
    d = np.abs(distances(q, k)).astype(np.float64)
    x = np.log1p(c * d) / np.log1p(c * np.maximum(threshold, q.astype(np.float64)))[:, None]
    w1, b1, w2, b2 = (p[n].astype(np.float64) for n in ("w1", "b1", "w2", "b2"))
    hidden = np.maximum(w1 * x[..., None] + b1, 0)
    return np.moveaxis(hidden @ w2.T + b2, -1, 0)


def swin(p, q, k, height, width):
    w1, b1, w2 = (p[n].astype(np.float64) for n in ("w1", "b1", "w2"))

    def scaled(n, size):
        n = n * 8.0 / (size - 1)
        return np.sign(n) * np.log2(np.abs(n) + 1) / 3

    y = scaled(distances(q // width, k // width), height)
    x = scaled(distances(q % width, k % width), width)
    hidden = np.maximum(np.stack([y, x], -1) @ w1.T + b1, 0)
    return np.moveaxis(16 / (1 + np.exp(-hidden @ w2.T)), -1, 0)


def tupe(p, q, k, head_dim):
    table, u_q, b_q, u_k, b_k, relative, from_cls, to_cls = (
        p[n].astype(np.float64)
        for n in (
            "embedding",
            "query_projection",
            "query_projection_bias",
            "key_projection",
            "key_projection_bias",
            "relative",
            "from_cls",
            "to_cls",
        )
    )
    queries = np.einsum("tm,hdm->htd", table[q], u_q) + b_q[:, None]
    keys = np.einsum("tm,hdm->htd", table[k], u_k) + b_k[:, None]
    out = np.einsum("hqd,hkd->hqk", queries, keys) / math.sqrt(2 * head_dim)
    out = out + t5({"embedding": relative}, q, k, True)
    out[:, :, k == 0] = to_cls[:, None, None]
    out[:, q == 0] = from_cls[:, None, None]
    return out


T5_SIZES = (32, 128)
H = 6
POWER = {"r1": uniform(H, low=0.1, high=0.5), "r2": uniform(H, low=0.2, high=1.5, seed=1)}
LOG = {"r1": uniform(H, low=0.1, high=2.0), "r2": uniform(H, low=0.1, high=2.0, seed=1)}
FIRE = {
    "w1": uniform(8, seed=2),
    "b1": uniform(8, seed=3),
    "w2": uniform(H, 8, seed=4),
    "b2": uniform(H, seed=5),
    "c": 0.3,
    "threshold": 9.5,
}
SWIN = {"w1": uniform(10, 2, seed=6), "b1": uniform(10, seed=7), "w2": uniform(H, 10, seed=8)}
TUPE = {
    "embedding": uniform(40, 12, seed=9),
    "query_projection": uniform(H, 4, 12, seed=10),
    "query_projection_bias": uniform(H, 4, seed=11),
    "key_projection": uniform(H, 4, 12, seed=12),
    "key_projection_bias": uniform(H, 4, seed=13),
    "relative": uniform(32, H, seed=14),
    "from_cls": uniform(H, seed=15),
    "to_cls": uniform(H, seed=16),
}


def make_tupe(p):
    rest = {n: x for n, x in p.items() if n != "relative"}
    return rw.Tupe(H, **rest, relative=rw.T5Bias(H, embedding=p["relative"]))


# name: (parameters, the bias, the formula)
CASES = {
    "alibi": (
        {"slopes": uniform(H, low=0)},
        lambda p: rw.Alibi(H, **p),
        lambda p, q, k: -p["slopes"].astype(np.float64)[:, None, None] * distances(q, k),
    ),
    "t5 decoder": (
        {"embedding": uniform(32, H)},
        lambda p: rw.T5Bias(H, bidirectional=False, **p),
        lambda p, q, k: t5(p, q, k, False),
    ),
    "t5 encoder": ({"embedding": uniform(32, H)}, lambda p: rw.T5Bias(H, **p), lambda p, q, k: t5(p, q, k, True)),
    "kerple power": (POWER, lambda p: rw.Kerple(H, kernel="power", **p), lambda p, q, k: kerple(p, q, k, "power")),
    "kerple log": (LOG, lambda p: rw.Kerple(H, **p), lambda p, q, k: kerple(p, q, k, "log")),
    "sandwich": ({}, lambda p: rw.Sandwich(H, dim=16), lambda p, q, k: sandwich(H, 16, q, k)),
    "fire": (FIRE, lambda p: rw.Fire(H, **p), fire),
    "swin": (SWIN, lambda p: rw.SwinBias(H, height=5, width=8, **p), lambda p, q, k: swin(p, q, k, 5, 8)),
    "tupe": (TUPE, make_tupe, lambda p, q, k: tupe(p, q, k, 4)),
}
BOUNDED = ("swin", "tupe")  # defined for 40 positions


@pytest.mark.parametrize("case", CASES)
def test_formula(case):
    p, make, formula = CASES[case]
    bias = make(p)
    q, k = (np.arange(40), np.arange(40)) if case in BOUNDED else (FAR, np.array([0]))
    expected = formula(p, q, k)
    if case not in ("swin", "tupe", "t5 encoder"):
        causal = distances(q, k) >= 0
        assert causal.all() or case in BOUNDED
    got = bias(q, k)
    assert got.dtype == np.float32 and got.shape == (H, len(q), len(k))
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=3e-6 if case in BOUNDED else 1e-6)


@pytest.mark.parametrize("case", ["alibi", "t5 decoder", "t5 encoder", "kerple power", "kerple log"])
def test_gradient(case):
    """A random gradient of the bias of each pair, summed by distance, against differences of the formula. Attention sums the
    gradient of biases that depend on both positions: test_attention.py."""
    p, make, formula = CASES[case]
    bias = make(p)
    q = k = np.arange(1, 25)
    weight = np.random.default_rng(20).standard_normal((H, 24, 24))
    weight *= distances(q, k) >= 0
    form = bias.lower(24)
    got = bias.backward(form, form_gradient(form, weight, q, k))
    assert set(got) >= set(p)
    rng = np.random.default_rng(21)
    for name in p:
        value = np.asarray(p[name], np.float64)
        direction = rng.standard_normal(value.shape)
        step = 1e-6
        losses = [np.vdot(formula({**p, name: value + s * direction}, q, k), weight) for s in (step, -step)]
        expected = (losses[0] - losses[1]) / (2 * step)
        assert got[name].dtype == np.float64 and got[name].shape == value.shape
        assert np.vdot(got[name], direction) == pytest.approx(expected, rel=2e-5, abs=2e-5), name


def form_gradient(form, weight, q, k):
    """d(loss) / d(numbers of the form), where d(loss) / d(bias) is `weight`."""
    d, fields = distances(q, k), form.fields
    if form.kind == "slope":
        return {"behind": -(weight * np.maximum(d, 0)).sum((1, 2))}
    out = np.zeros((H, fields["columns"]))
    column = np.clip(d - fields["first"], 0, fields["columns"] - 1)
    for h in range(H):
        np.add.at(out[h], column, weight[h])
    return {"values": out}


def test_published_numbers():
    golden = json.loads((ROOT / "tests/golden/relative.json").read_text())
    for case in golden["alibi"]:  # transformers
        got = rw.Alibi(case["heads"], max_bias=case["max_bias"]).lower(0).fields["behind"]
        np.testing.assert_allclose(got, case["slopes"], rtol=case["heads"] * 2.0**-24)  # theirs: powers in float32
    for case in golden["t5"]:
        bias = rw.T5Bias(1, buckets=case["buckets"], last_distance=case["last"], bidirectional=case["bidirectional"])
        assert bias.bucket(case["distances"]).tolist() == case["bucket"]
    for case in golden["deberta_buckets"]:
        bias = rw.DebertaBias(1, buckets=case["buckets"], max_position=case["max_position"])
        rows = np.clip(np.array(case["bucket"]) + case["buckets"], 0, 2 * case["buckets"] - 1)
        assert bias.row(case["distances"]).tolist() == rows.tolist()


def test_twelve_heads():
    """Where implementations differ: peers' slopes for 12 heads."""
    own = rw.Alibi(12).lower(0).fields["behind"]
    np.testing.assert_allclose(own, alibi_slopes(12), rtol=1e-7)
    np.testing.assert_allclose(own[8:], [0.707107, 0.353553, 0.176777, 0.088388], rtol=1e-5)
    geometric = rw.Alibi(12, rule="geometric").lower(0).fields["behind"]
    np.testing.assert_allclose(geometric[:3], [0.629961, 0.39685, 0.25], rtol=1e-5)


@pytest.mark.parametrize(("ahead", "sign"), [("symmetric", -1), ("signed", 1), ("zero", 0)])
def test_alibi_ahead(ahead, sign):
    got = rw.Alibi(2, slopes=[0.5, 0.25], ahead=ahead)([3], [1, 3, 7])
    np.testing.assert_allclose(got, [[[-1.0, 0, sign * 2.0]], [[-0.5, 0, sign * 1.0]]], atol=0)
    with pytest.raises(rw.Error, match="after their query"):
        rw.Alibi(2)([3], [7])


@settings(max_examples=100, deadline=None)
@given(
    bidirectional=st.booleans(),
    buckets=st.integers(2, 40).map(lambda n: 4 * n),
    last=st.integers(100, 2000),
    d=st.integers(-(2**31), 2**31),
)
def test_buckets_are_exact(bidirectional, buckets, last, d):
    bias = rw.T5Bias(1, buckets=buckets, last_distance=last, bidirectional=bidirectional)
    assert bias.bucket([d]).tolist() == [t5_bucket(d, bidirectional, buckets, last)]


def test_deberta_rows():
    """make_log_bucket_position of transformers, in integers: bucket b begins where d^(mid - 1) reaches its power."""
    bias = rw.DebertaBias(1, buckets=8, max_position=32)
    d = np.arange(-40, 41)
    rows = bias.row(d)
    assert rows[40] == 8 and np.all(np.diff(rows) >= 0) and rows.min() == 0 and rows.max() == 15
    assert [int(x) for x in rows[40:45]] == [8, 9, 10, 11, 12]  # up to half of the buckets: one each
    assert rw.DebertaBias(1, max_position=16).row([-20, -16, 0, 15, 20]).tolist() == [0, 0, 16, 31, 31]


def test_shaw_sinusoidal_rows():
    rows = rw.Shaw.sinusoidal_rows(3, 2, 8)
    for r, d in enumerate(range(-3, 3)):
        for i in range(4):
            angle = d * 10000 ** (-2 * i / 8)
            assert rows[r, 2 * i : 2 * i + 2] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-7)


def test_a_bias_shows_its_settings():
    bias = rw.T5Bias(4, embedding=np.zeros((32, 4)))
    assert (bias.heads, bias.buckets, bias.bidirectional) == (4, 32, True)
    assert bias.embedding.dtype == np.float32 and bias.parameters["embedding"] is bias.embedding
    assert "T5Bias(heads=4" in repr(bias) and "embedding=..." in repr(bias)
    with pytest.raises(AttributeError, match="slope"):
        _ = bias.slope


# ---- PoPE and FoPE ----


def test_pope():
    x, phase = uniform(9, 2, 6, low=-3, high=3), uniform(2, 6, low=-6, high=0, seed=1)
    positions = np.array([0, 1, 255, 256, 257, 4095, 131071, 1048575, 2**31 - 1])
    f = np.longdouble(10000) ** (-np.arange(6, dtype=np.longdouble) / 6)
    angle = positions[:, None, None] * f + phase
    soft = np.log1p(np.exp(x.astype(np.longdouble)))
    key = rw.PoPE(2, 6, phase=phase)
    np.testing.assert_allclose(key(x, positions), np.concatenate([soft * np.cos(angle), soft * np.sin(angle)], -1), atol=1e-6)
    plain = rw.PoPE(2, 6)(x, positions)
    np.testing.assert_allclose(np.hypot(plain[..., :6], plain[..., 6:]), soft.astype(float), rtol=3e-7)
    d = uniform(9, 2, 12, seed=2)
    got = key.backward(d, x, positions)
    slope = d[..., :6] * np.cos(angle) + d[..., 6:] * np.sin(angle)
    np.testing.assert_allclose(got["x"], slope / (1 + np.exp(-x.astype(np.longdouble))), atol=1e-6)
    turned = (soft * (d[..., 6:] * np.cos(angle) - d[..., :6] * np.sin(angle))).sum(0)
    np.testing.assert_allclose(got["phase"], turned, atol=3e-6)


def test_fope():
    kept = rw.FoPE.kept(16, trained_length=128)
    f = 10000 ** (-2 * np.arange(8) / 16)
    assert kept == int((f > 2 * np.pi / 128).sum())
    eye = np.eye(kept)
    x = uniform(5, 4, 16)
    positions = np.array([0, 3, 77, 127, 1000])
    plain = rw.FoPE(4, 16, cosines=eye, sines=eye, trained_length=128)
    r = rw.rotation(16, layout="half", method="hope", trained_length=128)  # the same frequencies are 0
    np.testing.assert_allclose(plain(x, positions), rw.rotate(x, None, r, positions)[0], atol=1e-6)
    cosines, sines = uniform(2, kept, kept, seed=1), uniform(2, kept, kept, seed=2)
    fope = rw.FoPE(4, 16, cosines=cosines, sines=sines, trained_length=128)
    angle = positions[:, None] * f[:kept]
    cos = np.ones((5, 4, 8))
    sin = np.zeros((5, 4, 8))
    for h in range(4):
        cos[:, h, :kept] = np.cos(angle) @ cosines[h // 2].astype(float)
        sin[:, h, :kept] = np.sin(angle) @ sines[h // 2].astype(float)
    a, b = x[..., :8].astype(float), x[..., 8:].astype(float)
    np.testing.assert_allclose(fope(x, positions), np.concatenate([a * cos - b * sin, b * cos + a * sin], -1), atol=2e-6)
    d = uniform(5, 4, 16, seed=3)
    got = fope.backward(d, x, positions)
    np.testing.assert_allclose(got["x"][..., :8], d[..., :8] * cos + d[..., 8:] * sin, atol=2e-6)
    d_cos = (d[..., :8] * a + d[..., 8:] * b)[..., :kept]
    expected = [np.cos(angle).T @ (d_cos[:, 2 * t] + d_cos[:, 2 * t + 1]) for t in range(2)]
    np.testing.assert_allclose(got["cosines"], expected, atol=2e-5)


# ---- bad input ----

Z = np.zeros
BAD = {
    "no heads": (lambda: rw.Alibi(0), "heads: expected 1"),
    "many heads": (lambda: rw.Alibi(2**20).lower(1), "heads"),
    "slopes of another number": (lambda: rw.Alibi(4, slopes=Z(3)), r"slopes: expected shape \[4\], got \[3\]"),
    "slopes that are none": (lambda: rw.Alibi(4, slopes="x"), "slopes: expected numbers"),
    "slopes with NaN": (lambda: rw.Alibi(1, slopes=[np.nan]).lower(1), "slopes"),
    "unknown rule": (lambda: rw.Alibi(4, rule="half"), "rule: expected .*geometric"),
    "unknown ahead": (lambda: rw.Alibi(4, ahead="no"), "ahead: expected .*symmetric"),
    "unknown kernel": (lambda: rw.Kerple(4, kernel="exp"), "kernel: expected 'power' or 'log'"),
    "r1 below 0": (lambda: rw.Kerple(1, r1=[-1], r2=[1]).lower(3), "r1"),
    "an odd dim": (lambda: rw.Sandwich(2, dim=7).lower(3), "dim"),
    "no embedding": (lambda: rw.T5Bias(4).lower(3), "embedding: expected 128"),
    "buckets of another table": (lambda: rw.T5Bias(4, embedding=Z((31, 4))), r"embedding: expected shape \[32, 4\]"),
    "one bucket": (lambda: rw.T5Bias(1, buckets=1, embedding=Z((1, 1))).lower(3), "buckets"),
    "no rows": (lambda: rw.Shaw(2, left=1, right=1), "key_rows and value_rows"),
    "rows of other distances": (lambda: rw.Shaw(2, left=1, right=1, key_rows=Z((4, 8))), r"key_rows: .*\[3, any\]"),
    "values of another head": (
        lambda: rw.Shaw(2, left=1, right=0, key_rows=Z((2, 8)), value_rows=Z((2, 4))),
        "value_rows: expected the shape",
    ),
    "a negative left": (lambda: rw.Shaw(2, left=-1, right=0, key_rows=Z((1, 8))), "left"),
    "widths that differ": (lambda: rw.Fire(1, w1=Z(2), b1=Z(3), w2=Z((1, 2)), b2=Z(1)).lower(3), "b1"),
    "c of 0": (lambda: rw.Fire(1, w1=Z(2), b1=Z(2), w2=Z((1, 2)), b2=Z(1), c=0).lower(3), "c"),
    "a gate without its input": (lambda: rw.ForgettingGate(1, weight=Z((1, 4)), bias=Z(1)).lower(3), r"gate\.of\(x\)"),
    "a distance below 0": (lambda: rw.Alibi(4).lower(-1), "max_distance: expected 0 or more"),
    "a huge distance": (lambda: rw.Sandwich(4).lower(2**40), "distance"),
    "positions that fall": (lambda: rw.Alibi(4)([3, 1], [0]), "ascending"),
    "positions of two axes": (lambda: rw.Alibi(4)([[3]], [0]), r"positions: expected \[queries\]"),
    "beyond the table": (lambda: rw.Sandwich(4).lower(10).bias([11], [0]), "distance 11 is outside"),
    "content": (
        lambda: rw.CoPE(2, position_rows=Z((4, 8)))([1], [0]),
        "depends on the content",
    ),
    "a gradient of another size": (
        lambda: (b := rw.Alibi(2, slopes=Z(2))).backward(b.lower(1), {"behind": Z(3)}),
        "gradient.behind: expected 2 numbers, got 3",
    ),
    "positions outside a window": (
        lambda: rw.SwinBias(1, height=2, width=2, w1=Z((3, 2)), b1=Z(3), w2=Z((1, 3)))([4], [0]),
        "4",
    ),
    "x of another width": (lambda: rw.PoPE(2, 4)(Z((3, 2, 5)), [0, 1, 2]), r"x: expected shape \[any, any, 4\]"),
    "x of other heads": (lambda: rw.PoPE(2, 4)(Z((3, 1, 4)), [0, 1, 2]), r"x: expected shape \[3, 2, 4\]"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message):
        call()
