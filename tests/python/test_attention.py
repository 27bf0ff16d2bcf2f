"""Attention against softmax in float64, written out here with every pair of query and key; gradients against differences."""

import math
import threading

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st

T, S, H, KV, D = 13, 21, 4, 2, 8


def uniform(*shape, low=-1.0, high=1.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


Q, K, V = uniform(T, H, D, low=-2, high=2), uniform(S, KV, D, low=-2, high=2, seed=1), uniform(S, KV, D, seed=2)


def reference(
    q,
    k,
    v,
    *,
    bias=None,
    scores=None,
    values=None,
    scale=None,
    causal=True,
    window=0,
    soft_cap=0.0,
    sinks=None,
    temperatures=None,
    q_at=None,
    k_at=None,
    documents=None,
    mask=None,
):
    """out, log-sum-exp and entropy in float64. bias: [heads, queries, keys]. scores(q, k, scale): added to them, where the bias
    depends on content; values(weight): added to the output. documents: of each query and key."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    tokens, heads, dim = q.shape
    keys = k.shape[0]
    k, v = (np.repeat(x, heads // x.shape[1], 1) for x in (k, v))
    k_at = np.arange(keys) if k_at is None else k_at
    q_at = k_at[keys - tokens :] if q_at is None else q_at
    d = q_at[:, None] - k_at[None]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    each = np.full(tokens, scale) if temperatures is None else scale * np.asarray(temperatures, np.float64)
    s = np.einsum("qhd,khd->hqk", q, k) * each[None, :, None]
    if bias is not None:
        s = s + bias
    if scores is not None:
        s = s + scores(q, k, each)
    if soft_cap:
        s = soft_cap * np.tanh(s / soft_cap)
    seen = np.ones_like(d, bool) if mask is None else mask.copy()
    if causal:
        seen &= d >= 0
    if window:
        seen &= np.abs(d) < window
    if documents is not None:
        seen &= documents[0][:, None] == documents[1][None]
    s = np.where(seen, s, -np.inf)
    sink = np.full((heads, tokens, 1), -np.inf)
    if sinks is not None:
        sink = np.broadcast_to(np.asarray(sinks, np.float64)[:, None, None], sink.shape)
    full = np.concatenate([s, sink], -1)
    top = np.maximum(full.max(-1, keepdims=True), -1e300)
    e = np.exp(full - top)
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.where(total > 0, e / total, 0)
        lse = np.log(total) + top
        entropy = -np.where(w > 0, w * np.log(w), 0).sum(-1)
    out = np.einsum("hqk,khd->qhd", w[..., :-1], v)
    if values is not None:
        out = out + values(w[..., :-1], d)
    return out, lse[..., 0].T, entropy.T


def check(options, formula, q=Q, k=K, v=V, atol=3e-6):
    got = rw.attention(q, k, v, **options, return_lse=True, return_entropy=True)
    expected = reference(q, k, v, **formula)
    for name, a, b in zip(("out", "log-sum-exp", "entropy"), got, expected, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, atol=atol, rtol=2e-6, err_msg=name)
    return got[0]


# ---- masks and options ----

GAPS = np.array([0, 2, 3, 3, 9, 10, 40, 41, 42, 70, 71, 72, 73, 90, 91, 92, 93, 94, 95, 96, 99])
STARTS = np.array([0, 5, 12])
OF_KEYS = np.searchsorted(STARTS, np.arange(S), side="right")
OPTIONS = {
    "causal": ({}, {}),
    "bidirectional": ({"causal": False}, {"causal": False}),
    "window": ({"window": 5}, {"window": 5}),
    "window both ways": ({"window": 5, "causal": False}, {"window": 5, "causal": False}),
    "scale": ({"scale": 1.5}, {"scale": 1.5}),
    "soft cap": ({"soft_cap": 2.0}, {"soft_cap": 2.0}),
    "sinks": ({"sinks": uniform(H, seed=3)}, {"sinks": uniform(H, seed=3)}),
    "temperatures": ({"temperatures": uniform(T, low=1, high=2)}, {"temperatures": uniform(T, low=1, high=2)}),
    "key positions": ({"key_positions": GAPS, "window": 30}, {"k_at": GAPS, "window": 30}),
    "query positions": (
        {"query_positions": np.arange(T) * 2 + 3},
        {"q_at": np.arange(T) * 2 + 3},
    ),
    "before every key": (
        {"query_positions": np.arange(T), "key_positions": np.arange(S) + 5},
        {"q_at": np.arange(T), "k_at": np.arange(S) + 5},
    ),
    "documents": ({"document_starts": STARTS}, {"documents": (OF_KEYS[S - T :], OF_KEYS)}),
    "all at once": (
        {"window": 9, "soft_cap": 3.0, "sinks": uniform(H), "temperatures": uniform(T, low=1, high=2), "scale": 0.7},
        {"window": 9, "soft_cap": 3.0, "sinks": uniform(H), "temperatures": uniform(T, low=1, high=2), "scale": 0.7},
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options(case):
    check(*OPTIONS[case])


@pytest.mark.parametrize("case", OPTIONS)
def test_gradient_of_options(case):
    options, formula = OPTIONS[case]
    check_gradient(options, formula, {} if "sinks" not in options else {"sinks": options["sinks"]})


def check_gradient(options, formula, learned, grown=None, tolerance=2e-4):
    """Along random directions of each input. grown(name, value): the options of the formula with that parameter."""
    d_out = uniform(T, H, D, seed=9).astype(np.float64)
    got = rw.attention_backward(d_out.astype(np.float32), Q, K, V, **options)
    inputs = {"q": Q, "k": K, "v": V}
    gradients = {"q": got.q, "k": got.k, "v": got.v, **got.bias}
    if got.sinks is not None:
        gradients["sinks"] = got.sinks
    rng = np.random.default_rng(30)
    for name, held in {**inputs, **learned}.items():
        value = np.asarray(held, np.float64)
        direction = rng.standard_normal(value.shape)
        direction /= np.linalg.norm(direction)
        losses = []
        for step in (1e-5, -1e-5):
            moved = value + step * direction
            more = formula if name in inputs else {**formula, **(grown(name, moved) if grown else {name: moved})}
            x = {n: (moved if n == name else a) for n, a in inputs.items()}
            losses.append(np.vdot(reference(x["q"], x["k"], x["v"], **more)[0], d_out))
        expected = (losses[0] - losses[1]) / 2e-5
        assert np.shape(gradients[name]) == value.shape, name
        assert np.vdot(gradients[name], direction) == pytest.approx(expected, rel=tolerance, abs=tolerance), name
    assert set(gradients) == {*inputs, *learned}


# ---- biases ----

DISTANCE = np.arange(S - T, S)[:, None] - np.arange(S)[None]


def fire(p):
    d, i = np.maximum(DISTANCE, 0), np.arange(S - T, S)[:, None]
    x = np.log1p(float(p["c"]) * d) / np.log1p(float(p["c"]) * np.maximum(float(p["threshold"]), i))
    hidden = np.maximum(x[..., None] * p["w1"] + p["b1"], 0)
    return {"bias": np.moveaxis(hidden @ np.asarray(p["w2"], np.float64).T + p["b2"], -1, 0)}


def swin(p):
    q, k = np.arange(S - T, S), np.arange(S)

    def scaled(n, size):
        n = n * 8.0 / (size - 1)
        return np.sign(n) * np.log2(np.abs(n) + 1) / 3

    y, x = scaled((q // 7)[:, None] - k // 7, 3), scaled((q % 7)[:, None] - k % 7, 7)
    hidden = np.maximum(np.stack([y, x], -1) @ np.asarray(p["w1"], np.float64).T + p["b1"], 0)
    return {"bias": np.moveaxis(16 / (1 + np.exp(-hidden @ np.asarray(p["w2"], np.float64).T)), -1, 0)}


def tupe(p):
    table = np.asarray(p["embedding"], np.float64)
    queries = np.einsum("tm,hdm->htd", table[S - T : S], p["query_projection"])
    keys = np.einsum("tm,hdm->htd", table, p["key_projection"])
    bias = np.einsum("hqd,hkd->hqk", queries, keys) / math.sqrt(2 * D)
    bias[:, :, 0] = np.asarray(p["to_cls"])[:, None]
    return {"bias": bias, "scale": 1 / math.sqrt(2 * D)}


def shaw(p):
    row = np.clip(-DISTANCE, -4, 2) + 4
    key, value = (np.asarray(p[n], np.float64)[row] for n in ("key_rows", "value_rows"))  # [queries, keys, dim]
    return {
        "scores": lambda q, k, each: np.einsum("qhd,qkd->hqk", q, key) * each[None, :, None],
        "values": lambda w, d: np.einsum("hqk,qkd->qhd", w, value),
    }


def transformer_xl(p):
    m = 6
    f = 10000 ** (-2 * np.arange(m // 2) / m)
    angle = DISTANCE[..., None] * f
    r = np.concatenate([np.sin(angle), np.cos(angle)], -1)
    projected = np.einsum("qkm,hdm->hqkd", r, np.asarray(p["projection"], np.float64))

    def scores(q, k, each):
        total = np.einsum("qhd,hqkd->hqk", q + p["position_bias"], projected)
        total = total + np.einsum("hd,khd->hk", p["content_bias"], k)[:, None]
        return total * each[None, :, None]

    return {"scores": scores}


def deberta(p):
    """A row a distance, clipped to 8 on each side."""
    row = np.clip(DISTANCE + 8, 0, 15)
    table = np.asarray(p["embedding"], np.float64)
    keys = np.einsum("rm,hdm->hrd", table, p["key_projection"]) + np.asarray(p["key_projection_bias"])[:, None]
    queries = np.einsum("rm,hdm->hrd", table, p["query_projection"])

    def scores(q, k, each):
        to_position = np.einsum("qhd,hqkd->hqk", q, keys[:, row])
        from_position = np.einsum("khd,hqkd->hqk", k, queries[:, row])
        return (to_position + from_position) * each[None, :, None]

    return {"scores": scores, "scale": 1 / math.sqrt(3 * D)}


def gate(p):
    logit = np.asarray(p["x"], np.float64) @ np.asarray(p["weight"], np.float64).T + p["bias"]
    total = np.cumsum(-np.logaddexp(0, -logit), 0).T  # [heads, tokens]
    return {"bias": total[:, S - T :, None] - total[:, None, :]}


def cope(p):
    rows = np.asarray(p["position_rows"], np.float64)

    def scores(q, k, each):
        gates = 1 / (1 + np.exp(-np.einsum("qhd,khd->hqk", q, k) * each[None, :, None]))
        gates = np.where(DISTANCE >= 0, gates, 0)
        place = np.minimum(np.cumsum(gates[..., ::-1], -1)[..., ::-1], len(rows) - 1)
        low = np.minimum(np.floor(place).astype(int), len(rows) - 2)
        each_row = np.einsum("qhd,rd->hqr", q, rows)
        at = np.take_along_axis(each_row, low, -1), np.take_along_axis(each_row, low + 1, -1)
        return at[0] + (place - low) * (at[1] - at[0])

    return {"scores": scores}


SLOPES = uniform(H, low=0.05, high=0.5)
# name: (parameters, the bias, what it adds to the reference)
BIASES = {
    "alibi": (
        {"slopes": SLOPES},
        lambda p: rw.Alibi(H, **p),
        lambda p: {"bias": -np.asarray(p["slopes"])[:, None, None] * DISTANCE},
    ),
    "fire": (
        {
            "w1": uniform(6, low=0.2),
            "b1": uniform(6, low=-0.3, high=0.5, seed=4),
            "w2": uniform(H, 6, seed=5),
            "b2": uniform(H, seed=6),
            "c": 0.4,
            "threshold": 3.25,
        },
        lambda p: rw.Fire(H, **p),
        fire,
    ),
    "swin": (
        {"w1": uniform(6, 2), "b1": uniform(6, seed=4), "w2": uniform(H, 6, seed=5)},
        lambda p: rw.SwinBias(H, height=3, width=7, **p),
        swin,
    ),
    "tupe": (
        {
            "embedding": uniform(S, 6),
            "query_projection": uniform(H, D, 6, seed=4),
            "key_projection": uniform(H, D, 6, seed=5),
            "from_cls": uniform(H, seed=6),
            "to_cls": uniform(H, seed=7),
        },
        lambda p: rw.Tupe(H, **p),
        tupe,
    ),
    "shaw": ({"key_rows": uniform(7, D), "value_rows": uniform(7, D, seed=4)}, lambda p: rw.Shaw(H, left=4, right=2, **p), shaw),
    "transformer-xl": (
        {"projection": uniform(H, D, 6), "content_bias": uniform(H, D, seed=4), "position_bias": uniform(H, D, seed=5)},
        lambda p: rw.TransformerXL(H, **p),
        transformer_xl,
    ),
    "deberta": (
        {
            "embedding": uniform(16, 6),
            "key_projection": uniform(H, D, 6, seed=4),
            "key_projection_bias": uniform(H, D, seed=5),
            "query_projection": uniform(H, D, 6, seed=6),
        },
        lambda p: rw.DebertaBias(H, max_position=8, **p),
        deberta,
    ),
    "forgetting gate": (
        {"weight": uniform(H, 5), "bias": uniform(H, seed=4), "x": uniform(S, 5, seed=5)},
        lambda p: rw.ForgettingGate(H, weight=p["weight"], bias=p["bias"]).of(p["x"]),
        gate,
    ),
    "cope": ({"position_rows": uniform(6, D)}, lambda p: rw.CoPE(H, **p), cope),
}


@pytest.mark.parametrize("case", BIASES)
def test_biases(case):
    p, make, formula = BIASES[case]
    check({"bias": make(p)}, formula(p), atol=6e-6)
    check({"bias": make(p), "window": 6, "soft_cap": 4.0}, {**formula(p), "window": 6, "soft_cap": 4.0}, atol=6e-6)


@pytest.mark.parametrize("case", BIASES)
def test_gradients_of_biases(case):
    p, make, formula = BIASES[case]
    learned = {n: x for n, x in p.items() if n != "from_cls"}  # no query is the first token
    check_gradient(
        {"bias": make(p)},
        formula(p),
        learned | ({"from_cls": p["from_cls"]} if "from_cls" in p else {}),
        lambda name, value: formula({**p, name: value}),
    )


def test_a_form_is_lowered_once():
    bias = rw.Alibi(H)
    form = bias.lower(S)
    np.testing.assert_array_equal(rw.attention(Q, K, V, bias=form), rw.attention(Q, K, V, bias=bias))
    got = rw.attention_backward(np.ones_like(Q), Q, K, V, bias=form)
    assert set(got.bias) == {"behind"} and got.bias["behind"].shape == (H,)


# ---- rotation on load and maps ----


def turned(x, positions, dim=D):
    """Half layout, base 10000, in float64."""
    angle = np.asarray(positions, np.float64)[..., None] * 10000 ** (-2 * np.arange(dim // 2) / dim)
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    c, s = np.cos(angle), np.sin(angle)
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


MAPS = [
    rw.ReRoPE(5),
    rw.LeakyReRoPE(5, 3),
    rw.SelfExtend(6, 4),
    rw.DualChunk(6, 9),
    rw.AttentionSinks(2, 5),
    rw.STRING(6, 2),
    rw.LaMPE(4, 7, 3, 20),
]


@pytest.mark.parametrize("m", [None, *MAPS], ids=repr)
def test_maps(m):
    """Each pair scored by its own relative position."""
    relative, seen = DISTANCE.astype(float), DISTANCE >= 0
    if m is not None:
        seen = m.view_of(np.arange(S - T, S), np.arange(S)) >= 0
        pairs = [[m.relative_position(i, j) if seen[i - S + T, j] else 0 for j in range(S)] for i in range(S - T, S)]
        relative = np.array(pairs, float)

    def scores(q, k, each):
        pairs = turned(q[:, None].repeat(S, 1), relative[..., None])  # q turned by the relative position, key not
        return (np.einsum("qkhd,khd->hqk", pairs, k) - np.einsum("qhd,khd->hqk", q, k)) * each[None, :, None]

    r = rw.rotation(D, layout="half")
    formula = {"scores": scores, "mask": seen}
    check({"rotation": r, "remap": m}, formula)
    check(
        {"rotation": r, "remap": m, "bias": rw.Alibi(H, slopes=SLOPES)},
        {**formula, "bias": -SLOPES.astype(float)[:, None, None] * DISTANCE},
    )
    check_gradient({"rotation": r, "remap": m}, formula, {})


@pytest.mark.parametrize("first", [64, 128, 1024])
@pytest.mark.parametrize("m", [None, *MAPS], ids=repr)
def test_rotation_of_keys_that_begin_later(m, first):
    """Keys at first, first + 1, ..: each pair scored by its relative position there."""
    k_at = np.arange(first, first + S)
    q_at = k_at[S - T :]
    relative, seen = DISTANCE.astype(float), DISTANCE >= 0
    if m is not None:
        seen = m.view_of(q_at, k_at) >= 0
        pairs = [[m.relative_position(int(i), int(j)) if s else 0 for j, s in zip(k_at, row)] for i, row in zip(q_at, seen)]
        relative = np.array(pairs, float)

    def scores(q, k, each):
        pairs = turned(q[:, None].repeat(S, 1), relative[..., None])
        return (np.einsum("qkhd,khd->hqk", pairs, k) - np.einsum("qhd,khd->hqk", q, k)) * each[None, :, None]

    options = {"rotation": rw.rotation(D, layout="half"), "remap": m, "key_positions": k_at}
    check(options, {"scores": scores, "mask": seen, "k_at": k_at})
    check({**options, "query_positions": q_at}, {"scores": scores, "mask": seen, "k_at": k_at})


def test_pairs_with_positions_of_their_own():
    """DPE: pair p of D / 2 rotates by the distance of Self-Extend with the group of share 8 p // (D / 2)."""
    m, pairs = rw.DPE(4, 2, 3, 5, 4, 2, 6, 3, 4), D // 2
    at = [
        [[m.relative_position(i, j, 8 * p // pairs) if j <= i else 0 for p in range(pairs)] for j in range(S)] for i in range(S)
    ]
    angle = np.array(at, float)[S - T :] * 10000 ** (-2 * np.arange(pairs) / D)  # [T, S, pairs]

    def scores(q, k, each):
        a, b = q[:, None, :, :pairs], q[:, None, :, pairs:]
        c, s = np.cos(angle)[:, :, None], np.sin(angle)[:, :, None]
        turned_q = np.concatenate([a * c - b * s, b * c + a * s], -1)
        return (np.einsum("qkhd,khd->hqk", turned_q, k) - np.einsum("qhd,khd->hqk", q, k)) * each[None, :, None]

    check({"rotation": rw.rotation(D, layout="half"), "remap": m}, {"scores": scores, "mask": DISTANCE >= 0})


def test_rotation_on_load_is_rotation_before():
    r = rw.rotation(D, layout="interleaved", method="yarn", factor=4, trained_length=64)
    q, k = rw.rotate(Q, None, r, S - T)[0], rw.rotate(K, None, r)[0]
    np.testing.assert_allclose(rw.attention(Q, K, V, rotation=r), rw.attention(q, k, V), atol=2e-6)


def test_a_plan_and_its_temperature():
    plan = rw.plan(
        {
            "model_type": "llama",
            "hidden_size": H * D,
            "num_attention_heads": H,
            "num_hidden_layers": 1,
            "vocab_size": 9,
            "num_key_value_heads": KV,
            "intermediate_size": 8,
            "max_position_embeddings": 8,
            "rms_norm_eps": 1e-5,
        },
        "rerope:window=4+log-n",
        4,
    )
    layer = plan.layers[0]
    times = np.maximum(1, np.log(np.arange(S - T, S) + 1) / np.log(8))
    out = rw.attention(Q, K, V, rotation=layer.rotation, remap=layer.map, temperatures=layer.temperature)
    same = rw.attention(Q, K, V, rotation=rw.rotation(D, layout="half"), remap=rw.ReRoPE(4), temperatures=times)
    np.testing.assert_array_equal(out, same)


# ---- batches, types, properties ----


def test_batches_are_sequences():
    q, k, v = (uniform(3, *x.shape, seed=5) for x in (Q, K, V))
    at = np.stack([np.arange(S), np.arange(S) * 2, np.arange(S) + 7])
    out, lse = rw.attention(q, k, v, key_positions=at, bias=rw.Alibi(H), return_lse=True)
    assert out.shape == q.shape and lse.shape == (3, T, H)
    got = rw.attention_backward(np.ones_like(q), q, k, v, key_positions=at, bias=rw.Alibi(H, slopes=SLOPES))
    total = 0
    for b in range(3):
        np.testing.assert_array_equal(out[b], rw.attention(q[b], k[b], v[b], key_positions=at[b], bias=rw.Alibi(H)))
        one = rw.attention_backward(np.ones_like(q[b]), q[b], k[b], v[b], key_positions=at[b], bias=rw.Alibi(H, slopes=SLOPES))
        np.testing.assert_array_equal(got.k[b], one.k)
        total = total + one.bias["slopes"]
    np.testing.assert_allclose(got.bias["slopes"], total, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_smaller_types_are_widened(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    out = rw.attention(q, k, v)
    assert out.dtype == q.dtype
    np.testing.assert_array_equal(out, rw.attention(*(x.astype(np.float32) for x in (q, k, v))).astype(dtype))


def test_strides_are_free():
    q, k, v = (x.transpose(1, 0, 2).copy().transpose(1, 0, 2) for x in (Q, K, V))
    assert not q.flags.c_contiguous
    np.testing.assert_array_equal(rw.attention(q, k, v), rw.attention(Q, K, V))
    wide = np.repeat(Q, 2, -1)[..., ::2]  # elements of a head with gaps are copied
    np.testing.assert_array_equal(rw.attention(wide, K, V), rw.attention(Q, K, V))


def test_no_queries():
    assert rw.attention(Q[:0], K, V).shape == (0, H, D)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 100), shift=st.integers(0, 2**31 - 200), cut=st.integers(1, T - 1))
def test_properties(seed, shift, cut):
    q, k, v = uniform(T, H, D, seed=seed), uniform(T, KV, D, seed=seed + 1), uniform(T, KV, D, seed=seed + 2)
    r = rw.rotation(D, layout="half")
    whole = rw.attention(*(rw.rotate(x, None, r)[0] for x in (q, k)), v)
    # Scores depend on relative positions: moving all of them changes nothing.
    moved = rw.attention(*(rw.rotate(x, None, r, shift)[0] for x in (q, k)), v)
    np.testing.assert_allclose(moved, whole, atol=3e-6)
    # In parts: earlier queries do not see later keys.
    first = rw.attention(*(rw.rotate(x[:cut], None, r)[0] for x in (q, k)), v[:cut])
    np.testing.assert_allclose(first, whole[:cut], atol=3e-6)
    # Weights sum to 1.
    np.testing.assert_allclose(rw.attention(q, k, np.ones_like(v)), 1, atol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 20])
def test_values_of_another_width(width):
    v, d = uniform(S, KV, width, seed=5), uniform(T, H, width, seed=6)
    settings = dict(window=9, soft_cap=3.0, sinks=uniform(H, seed=7))
    out, entropy = rw.attention(Q, K, v, return_entropy=True, **settings)
    want = reference(Q, K, v, **settings)
    assert out.shape == (T, H, width)
    np.testing.assert_allclose(out, want[0], atol=3e-6)
    np.testing.assert_allclose(entropy, want[2], atol=3e-6)
    gradient = rw.attention_backward(d, Q, K, v, **settings)
    assert gradient.q.shape == Q.shape and gradient.v.shape == v.shape
    direction = {"q": uniform(*Q.shape, seed=8), "k": uniform(*K.shape, seed=9), "v": uniform(*v.shape, seed=10)}

    def loss(step):
        moved = (np.asarray(x, np.float64) + step * direction[n] for n, x in (("q", Q), ("k", K), ("v", v)))
        return float((reference(*moved, **settings)[0] * d).sum())

    along = sum(float((getattr(gradient, n).astype(np.float64) * x).sum()) for n, x in direction.items())
    assert along == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, abs=1e-3)
    with pytest.raises(rw.Error, match="d_out: expected the shape of what attention gives"):
        rw.attention_backward(uniform(T, H, width + 1), Q, K, v)


# ---- bad input ----

R = rw.rotation(D, layout="half")
BAD = {
    "float64": (lambda: rw.attention(Q.astype(np.float64), K, V), "q: expected float32, float16 or bfloat16, got float64"),
    "integers": (lambda: rw.attention(Q, K.astype(int), V), "k: expected float32"),
    "a list": (lambda: rw.attention(Q, K, [1.0]), "v: expected a numpy array"),
    "two axes": (lambda: rw.attention(Q[0], K, V), r"q: expected \[tokens"),
    "a batch of q alone": (lambda: rw.attention(Q[None], K, V), r"k: expected \[batch"),
    "batches that differ": (lambda: rw.attention(Q[None], np.stack([K, K]), np.stack([V, V])), "k: expected a batch of 1"),
    "k and v that differ": (lambda: rw.attention(Q, K, V[:5]), "v: expected the batch, keys and heads of k"),
    "v without elements": (lambda: rw.attention(Q, K, V[..., :0]), "v: expected elements in a head"),
    "heads that do not divide": (lambda: rw.attention(Q[:, :3], K, V), "multiple of the cache's 2 key heads"),
    "dims that differ": (lambda: rw.attention(Q[..., :4], K, V), "k: expected heads of 4"),
    "no key heads": (lambda: rw.attention(Q, K[:, :0], V[:, :0]), "k: expected a head or more"),
    "more queries than keys": (lambda: rw.attention(Q, K[:5], V[:5]), "q: has 13 tokens but the cache holds 5"),
    "a scale of 0": (lambda: rw.attention(Q, K, V, scale=0), "scale"),
    "a scale of NaN": (lambda: rw.attention(Q, K, V, scale=math.nan), "scale"),
    "a negative window": (lambda: rw.attention(Q, K, V, window=-1), "window"),
    "a negative soft cap": (lambda: rw.attention(Q, K, V, soft_cap=-1), "soft_cap"),
    "sinks of another number": (lambda: rw.attention(Q, K, V, sinks=np.zeros(3)), r"sinks: expected shape \[4\]"),
    "sinks of NaN": (lambda: rw.attention(Q, K, V, sinks=np.full(H, np.nan)), "sinks: expected finite"),
    "few temperatures": (lambda: rw.attention(Q, K, V, temperatures=np.ones(3)), "temperatures: expected"),
    "few positions": (lambda: rw.attention(Q, K, V, key_positions=np.arange(3)), "key_positions: expected"),
    "positions in float": (lambda: rw.attention(Q, K, V, key_positions=np.zeros(S)), "key_positions: expected whole"),
    "positions that fall": (lambda: rw.attention(Q, K, V, key_positions=np.arange(S)[::-1]), "positions"),
    "documents that begin late": (lambda: rw.attention(Q, K, V, document_starts=[3]), "document"),
    "a bias of other heads": (lambda: rw.attention(Q, K, V, bias=rw.Alibi(3)), "bias: expected 4 heads as q, got 3"),
    "a bias that is none": (lambda: rw.attention(Q, K, V, bias=np.zeros(4)), "bias: expected a bias such as Alibi"),
    "a bias without its values": (lambda: rw.attention(Q, K, V, bias=rw.T5Bias(H)), "embedding"),
    "rows of another head": (lambda: rw.attention(Q, K, V, bias=rw.CoPE(H, position_rows=np.zeros((3, 6)))), "head_dim"),
    "a gate of fewer tokens": (
        lambda: rw.attention(Q, K, V, bias=rw.ForgettingGate(H, weight=np.zeros((H, 2)), bias=np.zeros(H)).of(np.zeros((3, 2)))),
        "log_gates",
    ),
    "CoPE in both directions": (
        lambda: rw.attention(Q, K, V, causal=False, bias=rw.CoPE(H, position_rows=np.zeros((3, D)))),
        "causal",
    ),
    "a causal bias in both directions": (lambda: rw.attention(Q, K, V, causal=False, bias=rw.Sandwich(H)), "distance"),
    "a map without a rotation": (lambda: rw.attention(Q, K, V, remap=rw.ReRoPE(4)), "remap: expected unrotated"),
    "causal as a word": (lambda: rw.attention(Q, K, V, causal="no"), "causal: expected True or False, got 'no'"),
    "documents in two dimensions": (lambda: rw.attention(Q, K, V, document_starts=[[0, 3]]), "document_starts: expected .documents."),
    "positions that are no array": (lambda: rw.attention(Q, K, V, key_positions=[[0], [1, 2]]), "key_positions: expected numbers"),
    "a map in both directions": (lambda: rw.attention(Q, K, V, remap=rw.ReRoPE(4), rotation=R, causal=False), "causal"),
    "a map that is none": (lambda: rw.attention(Q, K, V, remap="rerope", rotation=R), "remap: expected a position map"),
    "a rotation that is none": (lambda: rw.attention(Q, K, V, rotation=R.table(9)), "rotation: expected a Rotation"),
    "a rotation of other heads": (lambda: rw.attention(Q, K, V, rotation=rw.rotation(16, layout="half")), "heads of 8"),
    "xPos on load": (
        lambda: rw.attention(Q, K, V, rotation=rw.rotation(D, layout="half", xpos_scale_base=512)),
        "xPos",
    ),
    "a content bias on load": (
        lambda: rw.attention(Q, K, V, rotation=R, bias=rw.Shaw(H, left=1, right=1, key_rows=np.zeros((3, D)))),
        "rotation|ContentForm",
    ),
    "d_out of another shape": (
        lambda: rw.attention_backward(Q[:5], Q, K, V),
        "d_out: expected the shape of what attention gives",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message):
        call()


def test_two_threads():
    expected = rw.attention(Q, K, V, bias=rw.Alibi(H), rotation=R, remap=rw.ReRoPE(5))
    wrong = []

    def work():
        for _ in range(30):
            if not np.array_equal(rw.attention(Q, K, V, bias=rw.Alibi(H), rotation=R, remap=rw.ReRoPE(5)), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
