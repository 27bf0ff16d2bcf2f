"""Positions of text, images and videos as their models count them, typed here; rotations by any generators against
exponentials of matrices."""

import numpy as np
import pytest
import ropewalk as rw

# (rule, settings, calls, rows of positions, denominator): sequences of the rules' descriptions.
RULES = {
    "flat": ("flat", {}, lambda b: b.text(2).image(4, 4).text(1), [[0, 1, 2, 3, 4, 5, 6]], 1),
    "qwen2-vl": (
        "qwen2-vl",
        {},
        lambda b: b.text(3).image(4, 4).text(2),
        [[0, 1, 2, 3, 3, 3, 3, 5, 6], [0, 1, 2, 3, 3, 4, 4, 5, 6], [0, 1, 2, 3, 4, 3, 4, 5, 6]],
        1,
    ),
    "qwen2.5-vl": (
        "qwen2.5-vl",
        {},
        lambda b: b.text(2).video(3, 2, 4).text(1),
        [[0, 1, 2, 2, 4, 4, 6, 6, 7], [0, 1, 2, 2, 2, 2, 2, 2, 7], [0, 1, 2, 3, 2, 3, 2, 3, 7]],
        1,
    ),
    "qwen3-vl": (
        "qwen3-vl",
        {},
        lambda b: b.timestamped_video([2, 2], 2, 4).text(1),
        [[0, 1, 2, 2, 4, 5, 6, 6, 8], [0, 1, 2, 2, 4, 5, 6, 6, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]],
        1,
    ),
    "ernie": (
        "ernie",
        {"temporal_merge": 2},
        lambda b: b.text(1).video(4, 2, 4).text(1),
        [[0, 1, 1, 2, 2, 3], [0, 1, 1, 1, 1, 3], [0, 1, 2, 1, 2, 3]],
        1,
    ),
    "xd-rope": (
        "xd-rope",
        {},
        lambda b: b.text(2).image(2, 4).text(1),
        [[0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 2, 5], [0, 1, 0, 0, 0, 5], [0, 1, 0, 0, 0, 5]],
        1,
    ),
    "rope-tie": (
        "rope-tie",
        {"spatial_merge": 1},
        lambda b: b.text(2).image(1, 2).text(1),
        [[0, 2, 5, 5, 8], [0, 2, 4, 6, 8]],
        2,
    ),
    "rope-tv": (
        "rope-tv",
        {"spatial_merge": 1},
        lambda b: b.text(1).image(2, 3).text(1),
        [[0, 6, 6, 6, 8, 8, 8, 14], [0, 5, 7, 9, 5, 7, 9, 14]],
        2,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_positions_of_models(name):
    rule, more, calls, rows, denominator = RULES[name]
    builder = rw.PositionBuilder(rule, **more)
    built = calls(builder).build()
    assert builder.axes == len(rows)
    np.testing.assert_array_equal(built.positions, rows)
    assert built.denominator == denominator and built.next == rows[0][-1] + denominator
    assert built.positions.dtype == np.int64


def test_a_sequence_goes_on_where_another_ended():
    whole = rw.PositionBuilder("qwen2-vl").text(3).image(4, 6).text(4).build()
    first = rw.PositionBuilder("qwen2-vl").text(3).image(4, 6).build()
    rest = rw.PositionBuilder("qwen2-vl", start=first.next).text(4).build()
    np.testing.assert_array_equal(np.hstack([first.positions, rest.positions]), whole.positions)


def test_rotating_by_them():
    r = rw.rotation(32, layout="half", sections=(8, 4, 4))
    p = rw.PositionBuilder("qwen2-vl").text(2).image(4, 4).text(1).build().positions
    q = np.random.default_rng(0).standard_normal((7, 2, 32))
    got, _ = rw.rotate(q, None, r, p)
    angle = p[r.axis].T[:, None] * r.inv_freq
    z = (q[..., :16] + 1j * q[..., 16:]) * np.exp(1j * angle)
    np.testing.assert_allclose(got, np.concatenate([z.real, z.imag], -1), atol=2e-6)


def test_fractions_are_units_of_frequencies():
    r = rw.rotation(16, layout="half")
    q = np.random.default_rng(0).standard_normal((4, 1, 16))
    np.testing.assert_allclose(r.per_unit(3).inv_freq, r.inv_freq / 3, rtol=4e-16)
    np.testing.assert_array_equal(rw.rotate(q, None, r.per_unit(4), np.arange(4) * 4)[0], rw.rotate(q, None, r)[0])


def test_patches_of_a_vision_tower():
    np.testing.assert_array_equal(rw.vision_positions(1, 2, 4, 2), [[0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 2, 3, 2, 3]])
    assert rw.vision_positions(3, 4, 4).shape == (2, 48)


# ---- generators ----


def skew(*shape, seed=0):
    a = np.random.default_rng(seed).standard_normal(shape)
    return a - np.swapaxes(a, -1, -2)


def exponential(a):
    """Through the eigenvectors of the Hermitian i a."""
    values, vectors = np.linalg.eigh(1j * a)
    return ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real


@pytest.mark.parametrize("block", [2, 3, 8])
def test_a_rotation_is_an_exponential(block):
    g = rw.Generators(skew(2, 3, block, block))
    at = np.array([0.7, -2.5])
    expected = [exponential(0.7 * g.values[0, b] - 2.5 * g.values[1, b]) for b in range(3)]
    np.testing.assert_allclose(g.matrix(at), expected, atol=1e-12)
    x = np.random.default_rng(1).standard_normal((4, 2, 3 * block))
    p = np.random.default_rng(2).standard_normal((2, 4))
    got = g.rotate(x, p)
    for t in range(4):
        m = g.matrix(p[:, t])
        for b in range(3):
            part = slice(b * block, (b + 1) * block)
            np.testing.assert_allclose(got[t, :, part], x[t, :, part] @ m[b].T, atol=1e-12)
    np.testing.assert_allclose(g.rotate(got, p, transpose=True), x, atol=1e-12)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_embeddings_are_a_special_case(layout):
    r = rw.rotation(12, layout=layout)
    g = rw.Generators.of(r)
    assert g.values.shape == ((1, 1, 12, 12) if layout == "half" else (1, 6, 2, 2))
    x = np.random.default_rng(0).standard_normal((5, 2, 12))
    np.testing.assert_allclose(g.rotate(x, np.arange(5)), rw.rotate(x, None, r)[0], atol=1e-6)
    assert g.largest_commutator() == 0


def test_scores_are_relative_where_generators_commute():
    free, tied = rw.Generators(skew(2, 1, 4, 4)), rw.Generators.of(rw.rotation(12, layout="half", sections=(2, 2, 2)))
    a, b = free.values[:, 0]
    assert free.largest_commutator() == pytest.approx(np.abs(a @ b - b @ a).max(), rel=1e-14)
    assert tied.values.shape[0] == 3 and tied.largest_commutator() == 0


# ---- bad input ----

G = rw.Generators(skew(1, 1, 4, 4))
X = np.zeros((3, 1, 4))
BUILDER = rw.PositionBuilder("qwen2-vl")
BAD = {
    "an unknown rule": (lambda: rw.PositionBuilder("qwen"), 'rule: expected "flat"'),
    "a merge of 0": (lambda: rw.PositionBuilder("flat", spatial_merge=0), "spatial_merge"),
    "a start below 0": (lambda: rw.PositionBuilder("flat", start=-1), "start must be 0"),
    "a start of absurd size": (lambda: rw.PositionBuilder("flat", start=2**62), "start must be 0"),
    "NaN tokens a second": (lambda: rw.PositionBuilder("qwen2.5-vl", tokens_per_second=float("nan")), "tokens_per_second"),
    "a text of absurd size": (lambda: BUILDER.text(2**62), "text must have 0"),
    "a text below 0": (lambda: BUILDER.text(-1), "text must have 0"),
    "a fraction of a token": (lambda: BUILDER.text(1.5), "tokens: expected a whole number"),
    "an image that does not merge": (lambda: BUILDER.image(3, 4), "spatial_merge 2"),
    "an image of absurd size": (lambda: BUILDER.image(2**40, 2**40), "a grid must have"),
    "an image of nothing": (lambda: BUILDER.image(0, 4), "a grid must have"),
    "seconds that are none": (lambda: rw.PositionBuilder("qwen2.5-vl").video(1, 2, 2, float("inf")), "seconds_per_grid"),
    "a video without timestamps": (lambda: rw.PositionBuilder("qwen3-vl").video(1, 2, 2), "TimestampedVideo"),
    "timestamps of another rule": (lambda: BUILDER.timestamped_video([1], 2, 2), "kQwen3Vl"),
    "a video of images alone": (lambda: rw.PositionBuilder("rope-tv").video(1, 2, 2), "no axis of time"),
    "a tower that does not merge": (lambda: rw.vision_positions(1, 3, 4), "merge"),
    "a tower of absurd size": (lambda: rw.vision_positions(2**31, 2**31, 2**31), "a grid must have"),
    "a denominator of 0": (lambda: rw.rotation(16, layout="half").per_unit(0), "denominator"),
    "generators of two axes": (lambda: rw.Generators(np.zeros((2, 2))), r"values: expected shape \[any, any, any, any\]"),
    "generators that are not square": (lambda: rw.Generators(np.zeros((1, 1, 2, 3))), r"block, block\], got"),
    "generators that are not skew": (lambda: rw.Generators(np.ones((1, 1, 2, 2))), "not skew-symmetric"),
    "generators of NaN": (lambda: rw.Generators(np.full((1, 1, 2, 2), np.nan)), "not skew-symmetric"),
    "a position of two axes": (lambda: G.matrix([1, 2]), "one number per axis"),
    "a position of NaN": (lambda: G.matrix(np.nan), "finite"),
    "a position that overflows": (lambda: G.matrix(1e308), "overflow"),
    "positions of other tokens": (lambda: G.rotate(X, np.zeros(2)), "1 x 3"),
    "heads of another size": (lambda: G.rotate(X[..., :2], np.zeros(3)), r"x: expected \[tokens, heads, 4\]"),
    "whole numbers": (lambda: G.rotate(X.astype(int), np.zeros(3)), "x: expected float64"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message) as caught:
        call()
    assert caught.value.code == "invalid_argument"
