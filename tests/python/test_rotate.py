"""Rotations, tables and rotate against formulas in long double and float64, typed here."""

import json
import math
import pathlib
import threading

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAR = [0, 1, 2, 255, 256, 257, 4095, 4096, 131071, 1048575, 2**31 - 1]


def frequencies(dim, base=10000.0):
    return np.longdouble(base) ** (-2 * np.arange(dim // 2, dtype=np.longdouble) / dim)


def rotated(x, positions, inv_freq, layout="half", amplitude=1.0, sign=1):
    """The whole last axis of x [tokens, heads, dim] in float64."""
    angle = (np.asarray(positions, np.longdouble)[:, None] * np.asarray(inv_freq, np.longdouble)).astype(np.longdouble)
    turn = (amplitude * (np.cos(angle) + 1j * sign * np.sin(angle))).astype(complex)[:, None]
    x = x.astype(np.float64)
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:] if layout == "half" else x[..., 0::2] + 1j * x[..., 1::2]
    z = z * turn
    out = np.empty_like(x)
    if layout == "half":
        out[..., :half], out[..., half:] = z.real, z.imag
    else:
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
    return out


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ---- frequencies ----

# d 128, base 1e4, L 4096, factor 4, in double: peers' formulas, typed by hand from their sources.
GOLDEN = {
    "linear": ({}, {1: 2.164910808e-01, 24: 7.905694150e-03, 63: 2.886954962e-05}),
    "ntk": ({}, {1: 8.471171852e-01, 24: 1.864849605e-02, 40: 1.311413615e-03, 63: 2.886954962e-05}),
    "ntk-fixed": ({}, {1: 8.292502770e-01, 24: 1.840010562e-02, 40: 1.301083946e-03}),
    "ntk-mixed": ({}, {1: 7.811809130e-01, 24: 1.594111209e-02, 40: 1.171886228e-03}),
    "by-parts": ({}, {20: 5.623413252e-02, 24: 2.291236843e-02, 32: 3.835238662e-03, 45: 3.851260376e-04}),
    "yarn": ({}, {20: 5.623413252e-02, 21: 4.729203850e-02, 32: 6.538461538e-03, 45: 4.294025890e-04}),
    "yarn, ends not rounded": ({"truncate": False}, {21: 4.861255519e-02, 32: 6.556971521e-03, 45: 3.862708049e-04}),
    "llama3": ({}, {32: 1.000000000e-02, 40: 1.629746617e-03, 45: 3.864738275e-04, 63: 2.886954962e-05}),
}


@pytest.mark.parametrize("method", GOLDEN)
def test_frequencies_of_methods(method):
    settings, expected = GOLDEN[method]
    r = rw.rotation(128, layout="half", method=method.split(",")[0], factor=4, trained_length=4096, **settings)
    for pair, value in expected.items():
        assert r.inv_freq[pair] == pytest.approx(value, rel=6e-10), pair
    if method.startswith("yarn"):
        assert r.amplitude == pytest.approx(0.1 * math.log(4) + 1, rel=1e-15)


def test_dynamic_ntk_at_lengths():
    for length, base in {4096: 10000.0, 4097: 10004.960337, 8192: 30527.736749, 16384: 72195.860087}.items():
        r = rw.rotation(128, layout="half", method="dynamic", factor=2, trained_length=4096, length=length)
        assert r.length_dependent
        np.testing.assert_allclose(r.inv_freq, frequencies(128, base).astype(float), rtol=3e-10)


def test_float32_frequencies_are_those_of_transformers_bit_for_bit():
    cases = json.loads((ROOT / "tests/golden/rotary_frequencies.json").read_text())
    compared = 0
    for case in cases:
        scaling = dict(case["scaling"])
        r = rw.rotation(
            case["rotary_dim"],
            layout="half",
            base=case["base"],
            method={"default": "none"}.get(case["type"], case["type"]),
            trained_length=case["trained_length"],
            length=case["length"],
            dialect="hf",
            **scaling,
        )
        bits = r.inv_freq_f32.view(np.uint32)
        assert bits.tolist() == case["inv_freq_bits"], case["type"]
        assert r.amplitude == pytest.approx(case["attention_factor"], rel=1e-12)
        compared += bits.size
    assert compared > 1000


def test_description_names_the_method():
    r = rw.rotation(64, layout="half", method="yarn", factor=4, trained_length=2048)
    assert r.method == "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)"
    assert r == rw.rotation(64, layout="half", method="yarn", factor=4, trained_length=2048)
    assert r != rw.rotation(64, layout="interleaved", method="yarn", factor=4, trained_length=2048)


# ---- tables ----


def test_cos_and_sin_are_correct_to_the_last_bit_far_away():
    r = rw.rotation(128, layout="half", base=500000.0)
    rows = r.cos_sin(FAR)
    assert rows.shape == (len(FAR), 2, 64) and rows.dtype == np.float32
    angle = np.array(FAR, np.longdouble)[:, None] * frequencies(128, 500000.0)
    for got, exact in ((rows[:, 0], np.cos(angle)), (rows[:, 1], np.sin(angle))):
        # 2.5e-10: of the reference, whose 64 bits lose 31 to the position
        assert np.all(np.abs(got - exact) <= 0.5001 * np.spacing(np.abs(got)) + 2.5e-10)
    plain = (np.float32(131071) * r.inv_freq_f32).astype(np.float64)  # what a float32 product does there
    assert np.abs(np.cos(plain) - np.cos(angle[FAR.index(131071)])).max() > 1e-4


def test_float32_tables_are_a_float32_product():
    r = rw.rotation(64, layout="half")
    angle = np.arange(5000, dtype=np.float32)[:, None] * r.inv_freq_f32
    rows = r.table(5000, precision="float32").rows
    np.testing.assert_allclose(rows[:, 0], np.cos(angle.astype(np.float64)), atol=1.2e-7)
    np.testing.assert_allclose(rows[:, 1], np.sin(angle.astype(np.float64)), atol=1.2e-7)


def test_a_table_holds_the_amplitude_and_begins_anywhere():
    r = rw.rotation(32, layout="half", method="yarn", factor=8, trained_length=256)
    table = r.table(10, first=1000000)
    assert (table.first, table.count, table.pairs, table.precision) == (1000000, 10, 16, "exact")
    np.testing.assert_array_equal(table.rows, r.cos_sin(np.arange(1000000, 1000010)))
    np.testing.assert_allclose(np.hypot(table.rows[:, 0], table.rows[:, 1]), r.amplitude, rtol=2e-7)


def test_growing_keeps_rows_and_views():
    table = rw.rotation(64, layout="half").table(100)
    before = table.rows
    copy = before.copy()
    table.grow(50)
    assert table.count == 100
    table.grow(100000)
    assert table.count == 100000
    np.testing.assert_array_equal(table.rows[:100], copy)
    del table
    np.testing.assert_array_equal(before, copy)  # still there
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 1


def test_given_rows():
    r = rw.rotation(16, layout="half")
    table = rw.Table.from_rows(r.cos_sin(np.arange(7)))
    q = normal(7, 2, 16)
    np.testing.assert_array_equal(rw.rotate(q, None, table, layout="half")[0], rw.rotate(q, None, r)[0])
    with pytest.raises(rw.Error, match="layout"):
        rw.rotate(q, None, table)
    with pytest.raises(rw.Error, match="cannot grow"):
        table.grow(8)


# ---- rotate ----


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "rotary_dim", "first"), [(64, 64, 0), (80, 32, 0), (96, 64, 32), (6, 2, 4)])
def test_formula(layout, head_dim, rotary_dim, first):
    r = rw.rotation(head_dim, layout=layout, rotary_dim=rotary_dim, first_dim=first)
    q, k = normal(9, 4, head_dim), normal(9, 2, head_dim, seed=1)
    positions = np.array([0, 1, 255, 256, 257, 4095, 131071, 1048575, 2**31 - 1])
    out = rw.rotate(q, k, r, positions)
    for x, got in zip((q, k), out, strict=True):
        expected = x.astype(np.float64)
        part = slice(first, first + rotary_dim)
        expected[..., part] = rotated(x[..., part], positions, frequencies(rotary_dim), layout)
        np.testing.assert_allclose(got, expected, atol=8e-7)
        untouched = [i for i in range(head_dim) if not first <= i < first + rotary_dim]
        np.testing.assert_array_equal(got[..., untouched], x[..., untouched])


@pytest.mark.parametrize(("dtype", "unit"), [("float64", 4e-7), ("float32", 4e-7), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_types(dtype, unit):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    r = rw.rotation(64, layout="half")
    q = normal(33, 3, 64).astype(dtype)
    out, nothing = rw.rotate(q, None, r.table(200), 100)
    assert nothing is None and out.dtype == q.dtype
    expected = rotated(q.astype(np.float64), np.arange(100, 133), frequencies(64))
    error = np.abs(out.astype(np.float64) - expected)
    assert np.all(error <= unit * np.maximum(np.abs(expected), 1))
    assert np.any(error > 0)  # cos and sin are float32


@pytest.mark.parametrize("kind", ["start", "tokens", "batch", "shared", "int32", "list"])
def test_positions(kind):
    q = normal(3, 5, 2, 16)
    each = {
        "start": 7,
        "tokens": np.array([9, 0, 3, 3, 8]),
        "batch": np.arange(15).reshape(3, 5)[::-1],
        "shared": np.array([[4, 3, 2, 1, 0]]),
        "int32": np.arange(15, dtype=np.int32).reshape(3, 5),
        "list": [0, 5, 5, 1, 2],
    }[kind]
    out, _ = rw.rotate(q, None, rw.rotation(16, layout="half"), each)
    full = np.broadcast_to(np.arange(7, 12) if kind == "start" else each, (3, 5))
    for b in range(3):
        np.testing.assert_allclose(out[b], rotated(q[b], full[b], frequencies(16)), atol=5e-7)


@pytest.mark.parametrize("order", ["chunked", "interleaved"])
def test_axes(order):
    """M-RoPE: each pair has the position of its axis, and the frequency that it has in 1-D."""
    sections = (4, 2, 2)
    r = rw.rotation(16, layout="half", sections=sections, axis_order=order)
    axis = [0, 0, 0, 0, 1, 1, 2, 2] if order == "chunked" else [0, 1, 2, 0, 1, 2, 0, 0]
    assert r.axes == 3 and r.axis.tolist() == axis
    q = normal(2, 4, 3, 16)
    positions = np.random.default_rng(5).integers(0, 100, (3, 2, 4))
    table = r.table(100)
    out, _ = rw.rotate(q, None, table, positions)
    for b in range(2):
        for pair, a in enumerate(axis):
            at = [pair, pair + 8]
            expected = rotated(q[b][..., at], positions[a, b], frequencies(16)[[pair]])
            np.testing.assert_allclose(out[b][..., at], expected, atol=5e-7)
    np.testing.assert_array_equal(rw.rotate(q[0], None, table, positions[:, 0])[0], out[0])
    text = np.arange(4)  # the same on every axis
    plain = rw.rotate(q, None, rw.rotation(16, layout="half"), text)[0]
    for same in (text, np.broadcast_to(text, (2, 4)), np.broadcast_to(text, (3, 1, 4))):
        np.testing.assert_array_equal(rw.rotate(q, None, table, same)[0], plain)


def test_strides_are_free_but_for_the_last():
    r = rw.rotation(32, layout="half")
    x = normal(2, 8, 11, 32)  # [batch, heads, tokens, head_dim], as transformers has it
    q = x.transpose(0, 2, 1, 3)
    assert not q.flags.c_contiguous
    expected = rw.rotate(np.ascontiguousarray(q), None, r)[0]
    np.testing.assert_array_equal(rw.rotate(q, None, r)[0], expected)
    fused = normal(11, 3, 8, 32)  # q, k and v in one array, rotated where they lie
    q, k, v = (fused[:, i] for i in range(3))
    want, kept = [rw.rotate(x.copy(), None, r)[0] for x in (q, k)], v.copy()
    back = rw.rotate(q, k, r, inplace=True)
    assert back[0] is q and back[1] is k
    for i in range(2):
        np.testing.assert_array_equal(fused[:, i], want[i])
    np.testing.assert_array_equal(v, kept)
    backwards = normal(11, 2, 32)[::-1]
    np.testing.assert_array_equal(rw.rotate(backwards, None, r)[0], rw.rotate(backwards.copy(), None, r)[0])


def test_outputs():
    r = rw.rotation(16, layout="half")
    q, k = normal(5, 2, 16), normal(5, 1, 16, seed=2)
    expected = rw.rotate(q, k, r)
    q_out, k_out = np.full_like(q, np.nan), np.empty((5, 1, 16), np.float16)
    back = rw.rotate(q, k, r, out=(q_out, k_out))
    assert back[0] is q_out and back[1] is k_out
    np.testing.assert_array_equal(q_out, expected[0])
    np.testing.assert_array_equal(k_out, expected[1].astype(np.float16))
    assert rw.rotate(q, None, r, out=q_out)[0] is q_out


def test_only_some_heads():
    r = rw.rotation(16, layout="half", rotated_heads=1)
    q = normal(5, 3, 16)
    out, _ = rw.rotate(q, None, r, 3)
    np.testing.assert_array_equal(out[:, 1:], q[:, 1:])
    np.testing.assert_allclose(out[:, :1], rotated(q[:, :1], np.arange(3, 8), frequencies(16)), atol=5e-7)


def test_empty_arrays():
    r = rw.rotation(16, layout="half")
    for shape in [(0, 2, 16), (3, 0, 16), (0, 4, 2, 16), (2, 0, 2, 16)]:
        assert rw.rotate(np.zeros(shape, np.float32), None, r)[0].shape == shape


class OnlyDlpack:
    """An array of another library."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.device, 0


def test_arrays_of_other_libraries():
    r = rw.rotation(16, layout="half")
    q = normal(5, 2, 16)
    expected = rw.rotate(q, q, r, 3)[0]
    out = rw.rotate(OnlyDlpack(q), OnlyDlpack(q), r, 3)
    np.testing.assert_array_equal(out[0], expected)
    there = OnlyDlpack(q.copy())
    rw.rotate(there, None, r, 3, inplace=True)
    np.testing.assert_array_equal(there.array, expected)  # in its own memory
    with pytest.raises(rw.Error, match=r"q: expected memory of the CPU.*ropewalk\.torch"):
        rw.rotate(OnlyDlpack(q, device=2), None, r)


# ---- properties ----

layouts = st.sampled_from(["half", "interleaved"])


@settings(max_examples=60, deadline=None)
@given(
    layout=layouts,
    dim=st.sampled_from([2, 4, 16, 34, 128]),
    n=st.integers(0, 2**30),
    d=st.integers(-1000, 1000),
    seed=st.integers(0, 1000),
)
def test_scores_depend_on_the_relative_position_alone(layout, dim, n, d, seed):
    r = rw.rotation(dim, layout=layout)
    q, k = normal(1, 1, dim, dtype=np.float64, seed=seed), normal(1, 1, dim, dtype=np.float64, seed=seed + 1)
    m = max(n + d, 0)
    score = np.vdot(rw.rotate(q, None, r, n)[0], rw.rotate(k, None, r, m)[0])
    near, other = (n - m, 0) if n >= m else (0, m - n)
    expected = np.vdot(rw.rotate(q, None, r, near)[0], rw.rotate(k, None, r, other)[0])
    assert abs(score - expected) <= 3e-7 * np.linalg.norm(q) * np.linalg.norm(k)


@settings(max_examples=60, deadline=None)
@given(layout=layouts, start=st.integers(0, 2**31 - 9), seed=st.integers(0, 1000), factor=st.floats(1, 64))
def test_inverse_and_adjoint(layout, start, seed, factor):
    r = rw.rotation(16, layout=layout, method="yarn", factor=factor, trained_length=1024)
    x, y = normal(8, 2, 16, seed=seed), normal(8, 2, 16, seed=seed + 1)
    there, _ = rw.rotate(x, None, r, start)
    np.testing.assert_allclose(np.linalg.norm(there), r.amplitude * np.linalg.norm(x), rtol=1e-6)
    np.testing.assert_allclose(rw.rotate(there, None, r, start, direction="inverse")[0], x, atol=2e-6)
    left = np.vdot(there.astype(np.float64), y)
    right = np.vdot(x.astype(np.float64), rw.rotate(y, None, r, start, direction="adjoint")[0])
    assert abs(left - right) <= 1e-5 * r.amplitude * np.linalg.norm(x) * np.linalg.norm(y)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_view_is_right_or_refused(data):
    """Slices with steps of either sign, axes in any order, of any type; in place and not."""
    kinds = ["float64", "float32", "float16", "int32", "bool", "complex64"]
    base = normal(*(data.draw(st.integers(0, 6)) for _ in range(3)), 24).astype(data.draw(st.sampled_from(kinds)))
    order = data.draw(st.permutations(range(4)))
    steps = [slice(None, None, data.draw(st.sampled_from([1, 1, 1, 2, -1, -2]))) for _ in range(3)]
    view = base[(*steps, slice(None, None, data.draw(st.sampled_from([1, 1, 1, -1, 2]))))].transpose(order)
    view = view[data.draw(st.integers(0, 1)) :] if data.draw(st.booleans()) else view
    r = rw.rotation(12, layout=data.draw(layouts))
    start = data.draw(st.sampled_from([0, 1, 1000000]))
    try:
        got, _ = rw.rotate(view, None, r, start)
    except rw.Error as e:
        fits = view.shape[3] >= 12 and view.dtype.name.startswith("float")
        dense = view.strides[3] == view.itemsize or view.size == 0
        assert not (fits and dense), e
        return
    assert got.shape == view.shape and got.dtype == view.dtype
    np.testing.assert_array_equal(got, rw.rotate(np.ascontiguousarray(view), None, r, start)[0])
    untouched = base.copy()
    rw.rotate(view, None, r, start, inplace=True)
    np.testing.assert_array_equal(view, got)
    changed = np.zeros(base.shape, bool)
    changed[(*steps, ...)] = True
    np.testing.assert_array_equal(base[~changed], untouched[~changed])


def test_gradient_of_frequencies():
    r = rw.rotation(12, layout="interleaved")
    q, d = normal(6, 2, 12, dtype=np.float64), normal(6, 2, 12, dtype=np.float64, seed=3)
    positions = np.arange(10, 16)
    out = rw.rotate(q, None, r, positions)[0]
    got = rw.frequency_gradient(r, out, d, positions)
    same = rw.frequency_gradient(r, q, rw.rotate(d, None, r, positions, direction="adjoint")[0], positions)
    np.testing.assert_allclose(same["inv_freq"], got["inv_freq"], rtol=1e-4, atol=1e-5)
    f = frequencies(12).astype(float)
    for pair in range(6):
        step = np.zeros(6)
        step[pair] = 1e-6
        loss = [np.vdot(rotated(q, positions, f + s, "interleaved"), d) for s in (step, -step)]
        assert got["inv_freq"][pair] == pytest.approx((loss[0] - loss[1]) / 2e-6, rel=1e-5, abs=1e-4)
    assert got["amplitude"] == pytest.approx(np.vdot(rotated(q, positions, f, "interleaved"), d), rel=1e-6)


# ---- moving keys ----


def test_rerotate():
    r = rw.rotation(32, layout="half", method="yarn", factor=4, trained_length=512)
    keys = normal(7, 2, 32)
    old, new = np.arange(7) + 900, np.array([0, 5, 2, 2**30, 9, 1, 3])
    at = {n: rw.rotate(keys, None, r, p)[0] for n, p in (("old", old), ("new", new), ("by 40", old + 40))}
    moved = rw.rerotate(at["old"].copy(), r, old_positions=old, new_positions=new)
    np.testing.assert_allclose(moved, at["new"], atol=3e-6)
    np.testing.assert_allclose(rw.rerotate(at["old"].copy(), r, 40), at["by 40"], atol=3e-6)
    other = rw.rotation(32, layout="half", method="linear", factor=4)
    changed = rw.rerotate(at["old"].copy(), other, old_positions=old, new_positions=old, old_rotation=r)
    np.testing.assert_allclose(changed, rw.rotate(keys, None, other, old)[0], atol=3e-6)
    with pytest.raises(rw.Error, match="delta"):
        rw.rerotate(keys, r)


# ---- bad input ----

R = rw.rotation(16, layout="half")
TABLE = R.table(100)
Q = normal(5, 2, 16)


def aliased():
    x = normal(5, 2, 16)
    return rw.rotate(x, x, TABLE, inplace=True)


def overlapping():
    x = normal(6, 2, 16)
    return rw.rotate(x[:5], None, TABLE, out=x[1:])


def read_only():
    x = Q.copy()
    x.flags.writeable = False
    return rw.rotate(x, None, TABLE, inplace=True)


BAD = {
    "an integer type": (lambda: rw.rotate(Q.astype(int), None, TABLE), "q: .*int64"),
    "complex numbers": (lambda: rw.rotate(Q.astype(complex), None, TABLE), "q: .*complex128"),
    "objects": (lambda: rw.rotate(Q.astype(object), None, TABLE), "q: .*object"),
    "foreign byte order": (lambda: rw.rotate(Q.astype(">f4"), None, TABLE), "q: .*byte order"),
    "a list": (lambda: rw.rotate([[[1.0, 2.0]]], None, TABLE), "q: expected a numpy array.*list"),
    "nothing": (lambda: rw.rotate(None, None, TABLE), "q: expected a numpy array.*NoneType"),
    "heads with gaps": (lambda: rw.rotate(normal(5, 2, 32)[..., ::2], None, TABLE), "q: .*contiguous.*stride 2"),
    "strides of parts": (
        lambda: rw.rotate(np.zeros((5, 2, 17), "u1,f4")["f1"][..., :16], None, TABLE),
        "q: .*strides of whole elements",
    ),
    "two axes": (lambda: rw.rotate(Q[0], None, TABLE), r"q: expected \[tokens.*\[2, 16\]"),
    "five axes": (lambda: rw.rotate(Q[None, None], None, TABLE), r"q: expected \[tokens"),
    "small heads": (lambda: rw.rotate(Q[..., :8], None, TABLE), "head_dim 8"),
    "k of other tokens": (lambda: rw.rotate(Q, Q[:4], TABLE), r"k: shape \[1, 4, 2, 16\]"),
    "k of another type": (lambda: rw.rotate(Q, Q.astype(np.float64), TABLE), "k: expected f32 as q, got f64"),
    "beyond the table": (lambda: rw.rotate(Q, None, TABLE, 96), "position 100 .*0 to 99"),
    "before the table": (lambda: rw.rotate(Q, None, TABLE, -1), "position -1 "),
    "far beyond it": (lambda: rw.rotate(Q, None, TABLE, 2**62), f"position {2**62}"),
    "one beyond it": (lambda: rw.rotate(Q, None, TABLE, np.array([0, 1, 100, 3, 4])), "position 100 .of token 2"),
    "over 64 bits": (lambda: rw.rotate(Q, None, TABLE, 2**70), "64 bits"),
    "positions in float": (lambda: rw.rotate(Q, None, TABLE, np.arange(5.0)), "positions: expected whole .*float64"),
    "a fraction": (lambda: rw.rotate(Q, None, TABLE, 1.5), "positions: expected a whole number, got 1.5"),
    "too few positions": (lambda: rw.rotate(Q, None, TABLE, np.arange(4)), r"positions: .*5 tokens.*\[4\]"),
    "positions of a batch": (lambda: rw.rotate(Q, None, TABLE, np.zeros((2, 5), int)), r"positions: .*\[2, 5\]"),
    "unknown layout": (lambda: rw.rotate(Q, None, TABLE, layout="neox"), 'layout: expected "half" or "interleaved"'),
    "unknown direction": (lambda: rw.rotate(Q, None, TABLE, direction="back"), "direction: .*adjoint"),
    "no table": (lambda: rw.rotate(Q, None, None), "table: expected a Table or a Rotation, got NoneType"),
    "first_dim outside": (lambda: rw.rotate(Q, None, TABLE, first_dim=2), "first_dim 2"),
    "more heads than there are": (lambda: rw.rotate(Q, None, TABLE, rotated_heads=3), "rotated_heads 3"),
    "q and k in the same memory": (aliased, "overlapping memory"),
    "an output over the input": (overlapping, "overlap"),
    "in place in read-only memory": (read_only, "q: .*read-only"),
    "out without k": (lambda: rw.rotate(Q, Q, TABLE, out=Q), "out: expected"),
    "out in place": (lambda: rw.rotate(Q, None, TABLE, out=Q, inplace=True), "out: expected None"),
    "out of another shape": (lambda: rw.rotate(Q, None, TABLE, out=np.empty((5, 2, 18), np.float32)), "out.*shape"),
    "an odd dim": (lambda: rw.rotation(15, layout="half"), "rotary_dim must be even"),
    "no head": (lambda: rw.rotation(0, layout="half"), "rotary"),
    "a rotated part outside": (lambda: rw.rotation(16, layout="half", rotary_dim=18), "18"),
    "unknown method": (lambda: rw.rotation(16, layout="half", method="yarm"), 'method: .*"yarm"'),
    "unknown setting": (lambda: rw.rotation(16, layout="half", method="linear", factor=2, beta=1), "has no beta"),
    "no factor": (lambda: rw.rotation(16, layout="half", method="linear"), "factor is required"),
    "a small factor": (lambda: rw.rotation(16, layout="half", method="linear", factor=0.5), "factor"),
    "a factor that is none": (lambda: rw.rotation(16, layout="half", method="linear", factor="x"), "factor"),
    "no trained length": (lambda: rw.rotation(16, layout="half", method="yarn", factor=2), "trained_length"),
    "wrong divisors": (
        lambda: rw.rotation(16, layout="half", method="longrope", trained_length=9, factor=2, short_factor=[1], long_factor=[1]),
        "divisors|8",
    ),
    "a list that is none": (
        lambda: rw.rotation(16, layout="half", method="longrope", trained_length=9, short_factor="x"),
        "short_factor: expected a list",
    ),
    "unknown dialect": (lambda: rw.rotation(16, layout="half", dialect="mlx"), "dialect"),
    "a base below 0": (lambda: rw.rotation(16, layout="half", base=-1.0), "base"),
    "a huge table": (lambda: R.table(2**40), "table"),
    "a table beyond the positions": (lambda: R.table(10, first=2**31 - 5), "table"),
    "a negative count": (lambda: R.table(-1), "count"),
    "unknown precision": (lambda: R.table(1, precision="double"), "precision"),
    "rows of another shape": (lambda: rw.Table.from_rows(np.zeros((3, 16), np.float32)), r"rows: .*\[3, 16\]"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message) as caught:
        call()
    assert caught.value.code in ("invalid_argument", "unsupported")


def test_nothing_is_written_where_a_call_is_refused():
    x = Q.copy()
    with pytest.raises(rw.Error):
        rw.rotate(x, None, TABLE, np.array([0, 1, 2, 3, 100]), inplace=True)
    np.testing.assert_array_equal(x, Q)


def test_threads_share_a_table_that_grows():
    r = rw.rotation(64, layout="half")
    table = r.table(64)
    q = normal(64, 4, 64)
    expected = rw.rotate(q, None, r)[0]
    wrong, stop = [], threading.Event()

    def rotate():
        while not stop.is_set():
            if not np.array_equal(rw.rotate(q, None, table)[0], expected):
                wrong.append("rows changed")
                return

    threads = [threading.Thread(target=rotate) for _ in range(2)]
    for t in threads:
        t.start()
    for count in range(100, 4000, 100):
        table.grow(count)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and table.count == 3900
