"""What rotate does beside rotating: values, writes into a KV cache, norms in front; and moves of cached keys."""

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st

R = rw.rotation(16, layout="half", method="yarn", factor=4, trained_length=64)


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


Q, K, V = normal(2, 5, 4, 16), normal(2, 5, 2, 16, seed=1), normal(2, 5, 2, 16, seed=2)


def test_values_are_copied_or_rotated():
    q, k, v = rw.rotate(Q, K, R, 7, v=V)
    np.testing.assert_array_equal(v, V)
    assert v is not V
    plain = rw.rotate(Q, K, R, 7)
    np.testing.assert_array_equal(q, plain[0])
    np.testing.assert_array_equal(k, plain[1])
    _, _, v = rw.rotate(Q, K, R, 7, v=V, rotate_v=True)
    np.testing.assert_array_equal(v, rw.rotate(V, None, R, 7)[0])
    there = V.copy()
    assert rw.rotate(Q.copy(), K.copy(), R, 7, v=there, rotate_v=True, inplace=True)[2] is there
    np.testing.assert_array_equal(there, v)
    nothing, none, back = rw.rotate(None, None, R, 7, v=v, rotate_v=True, direction="inverse")
    assert nothing is None and none is None
    np.testing.assert_allclose(back, V, atol=1e-6)


def test_outputs():
    to = np.zeros((2, 5, 2, 16), np.float16)
    q, k, v = rw.rotate(Q, K, R, 7, v=V, out=(None, None, to))
    assert v is to and q.dtype == k.dtype == np.float32
    np.testing.assert_array_equal(to, V.astype(np.float16))
    q, k = rw.rotate(Q, K, R, 7, out=(None, to))
    np.testing.assert_array_equal(k, rw.rotate(K, None, R, 7)[0].astype(np.float16))
    np.testing.assert_array_equal(q, rw.rotate(Q, None, R, 7)[0])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_paged_cache_holds_each_token_where_its_block_says(data):
    block, first = data.draw(st.integers(1, 4)), data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=2))
    blocks = (max(first) + 5 + block - 1) // block
    table = np.asarray(data.draw(st.permutations(range(2 * blocks)))).reshape(2, blocks)
    slots = rw.block_table_slots(table, block, first, 5)
    assert slots.shape == (2, 5)
    keys = np.full((2 * blocks, block, 2, 16), 77, np.float32)
    values = np.full((2 * blocks, block, 2, 16), 77, np.float32)
    positions = np.array(first)[:, None] + np.arange(5)
    rw.rotate(Q, K, R, positions, v=V, slots=slots, out=(None, keys, values))
    k = rw.rotate(K, None, R, positions)[0]
    written = 0
    for b in range(2):
        for t in range(5):
            n = first[b] + t
            at = table[b, n // block], n % block
            np.testing.assert_array_equal(keys[at], k[b, t])
            np.testing.assert_array_equal(values[at], V[b, t])
            written += 1
    assert (keys[..., 0, 0] != 77).sum() == written


def test_a_ring_keeps_the_last_tokens():
    slots = rw.ring_slots(4, [0, 7], 6)
    np.testing.assert_array_equal(slots, [[-1, -1, 2, 3, 0, 1], [-1, -1, 5, 6, 7, 4]])
    cache = np.zeros((8, 2, 16), np.float32)
    rw.rotate(Q[:, :4], K[:, :4], R, slots=rw.ring_slots(4, [0, 7], 4), out=(None, cache))
    np.testing.assert_array_equal(cache[0], rw.rotate(K, None, R)[0][0, 0])
    np.testing.assert_array_equal(cache[7], rw.rotate(K, None, R)[0][1, 0])


def test_a_cache_of_8_bits():
    f8 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    keys, values = np.zeros((10, 2, 16), f8), np.zeros((10, 2, 16), f8)
    rw.rotate(Q, K, R, v=V, slots=np.arange(10), out=(None, keys, values), k_scale=0.5, v_scale=2.0)
    np.testing.assert_allclose(keys.astype(np.float32) * 0.5, rw.rotate(K, None, R)[0].reshape(10, 2, 16), rtol=0.07, atol=2e-3)
    np.testing.assert_allclose(values.astype(np.float32) * 2, V.reshape(10, 2, 16), rtol=0.07, atol=8e-3)


def test_norms_in_front():
    w, u = np.linspace(0.5, 1.5, 16), np.linspace(2, 1, 16)
    q, k = rw.rotate(Q, K, R, 3, q_norm=w, k_norm=u, norm_eps=1e-5)

    def norm(x, weight):
        x = x.astype(np.float64)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight.astype(np.float32)

    for got, x, weight in ((q, Q, w), (k, K, u)):
        np.testing.assert_allclose(got, rw.rotate(norm(x, weight), None, R, 3)[0], atol=2e-6)


def test_float32_angles_are_those_of_a_float32_table():
    far = 1 << 20
    exact, rounded = (rw.rotate(Q, None, R, far, precision=p)[0] for p in ("exact", "float32"))
    np.testing.assert_array_equal(rounded, rw.rotate(Q, None, R.table(8, far, "float32"), far)[0])
    assert np.abs(exact - rounded).max() > 1e-3


# ---- moving keys ----


def test_moves_of_tokens_and_of_sequences():
    at = rw.rotate(K, None, R, 100)[0]
    by = np.array([[1], [-40]])
    moved = rw.rotate(K, None, R, 100 + by + np.arange(5))[0]
    np.testing.assert_allclose(rw.rerotate(at.copy(), R, by), moved, atol=3e-6)
    each = np.array([[0, 9, -9, 2**20, 1], [3, 3, 3, 3, 3]])
    moved = rw.rotate(K, None, R, 100 + each + np.arange(5))[0]
    np.testing.assert_allclose(rw.rerotate(at.copy(), R, each), moved, atol=3e-6)
    np.testing.assert_allclose(rw.rerotate(at[0].copy(), R, each[0]), moved[0], atol=3e-6)


def test_keys_keep_their_amplitude_if_asked():
    other, places = rw.rotation(16, layout="half"), np.arange(5)
    at = rw.rotate(K[0], None, R, places)[0]
    kept = rw.rerotate(at.copy(), other, old_positions=places, new_positions=places, old_rotation=R, keep_amplitude=True)
    np.testing.assert_allclose(kept, R.amplitude * rw.rotate(K[0], None, other, places)[0], atol=3e-6)


def q8(x):
    """ggml's Q8_0: a float16 scale and 32 bytes."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float16)
    whole = np.round(blocks / scale).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), whole.view(np.uint8)], -1).reshape(*x.shape[:-1], -1)


def of_q8(x):
    blocks = x.reshape(*x.shape[:-1], -1, 34)
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float64)
    return (np.ascontiguousarray(blocks[..., 2:]).view(np.int8) * scale).reshape(*x.shape[:-1], -1)


def test_keys_in_q8():
    r, x = rw.rotation(64, layout="half"), normal(2, 7, 3, 64)
    stored = q8(rw.rotate(x, None, r, 10)[0])
    assert stored.shape == (2, 7, 3, 68)
    expected = rw.rotate(of_q8(stored), None, r, np.full(7, 90))[0]
    rw.rerotate(stored, r, 90)
    np.testing.assert_allclose(of_q8(stored), expected, atol=0.04)
    with pytest.raises(rw.Error, match="keys: expected Q8_0"):
        rw.rerotate(np.zeros((2, 7, 60), np.uint8), r, 1)


# ---- bad input ----

CACHE = np.zeros((9, 2, 16), np.float32)


def unwritable():
    x = np.zeros((10, 2, 16), np.float32)
    x.flags.writeable = False
    return x


SLOTS = np.arange(10)
BAD = {
    "v of other tokens": (lambda: rw.rotate(Q, K, R, v=V[:, :4]), "v: shape"),
    "v of another type": (lambda: rw.rotate(Q, K, R, v=V.astype(np.float16)), "v: expected f32"),
    "v copied in place": (lambda: rw.rotate(Q.copy(), K.copy(), R, v=V.copy(), inplace=True), "v: expected rotate_v"),
    "out of two for three": (lambda: rw.rotate(Q, K, R, v=V, out=(None, None)), "out: expected .q_out, k_out"),
    "out of v without v": (lambda: rw.rotate(Q, K, R, out=(None, None, V.copy())), "out: expected"),
    "slots without a cache": (lambda: rw.rotate(Q, K, R, slots=SLOTS), "slots: expected out="),
    "a slot beyond the cache": (lambda: rw.rotate(Q, K, R, slots=SLOTS, out=(None, CACHE)), "slot 9 of a cache of 9"),
    "a slot twice": (lambda: rw.rotate(Q, K, R, slots=[0] * 10, out=(None, CACHE)), "slot 0 is given to two tokens"),
    "a slot below -1": (lambda: rw.rotate(Q, K, R, slots=SLOTS - 2, out=(None, CACHE)), "slot -2"),
    "too few slots": (lambda: rw.rotate(Q, K, R, slots=SLOTS[:9], out=(None, CACHE)), "one per token, 10, got 9"),
    "slots in float": (lambda: rw.rotate(Q, K, R, slots=SLOTS / 1, out=(None, CACHE)), "slots: expected whole numbers"),
    "slots of absurd size": (lambda: rw.rotate(Q, K, R, slots=SLOTS + 2**62, out=(None, CACHE)), f"slot {2**62}"),
    "a cache of other heads": (lambda: rw.rotate(Q, K, R, slots=SLOTS, out=(None, CACHE[:, :1])), "does not hold heads"),
    "a read-only cache": (lambda: rw.rotate(Q, K, R, slots=SLOTS, out=(None, unwritable())), "out of k: .*read-only"),
    "a norm of other heads": (lambda: rw.rotate(Q, K, R, q_norm=np.ones(8)), "q_norm: expected a weight of head_dim 16"),
    "a norm backwards": (lambda: rw.rotate(Q, K, R, q_norm=np.ones(16), direction="adjoint"), "no adjoint"),
    "a norm without k": (lambda: rw.rotate(Q, None, R, k_norm=np.ones(16)), "k_norm is given without k"),
    "an eps of NaN": (lambda: rw.rotate(Q, K, R, q_norm=np.ones(16), norm_eps=float("nan")), "eps"),
    "precision of a table": (lambda: rw.rotate(Q, K, R.table(9), precision="float32"), "precision: expected None"),
    "a scale of 0": (lambda: rw.rotate(Q, K, R, slots=SLOTS, out=(None, f8_cache()), k_scale=0.0), "k_scale: expected"),
    "blocks of no slots": (lambda: rw.block_table_slots([[0]], 0, [0], 1), "slots"),
    "a token beyond its blocks": (lambda: rw.block_table_slots([[0, 1]], 2, [3], 2), "block"),
    "starts of another batch": (lambda: rw.block_table_slots([[0, 1]], 2, [3, 4], 2), "block_table: expected"),
    "blocks of 64 bits": (lambda: rw.block_table_slots([[2**40]], 2, [0], 1), "32 bits"),
    "a negative start": (lambda: rw.block_table_slots([[0, 1]], 2, [-1], 1), "first|-1"),
    "a ring of no slots": (lambda: rw.ring_slots(0, [0], 1), "a ring capacity of 1 to"),
    "tokens of absurd size": (lambda: rw.ring_slots(4, [0], 2**62), "0 to 2147483648 tokens"),
    "a ring of absurd size": (lambda: rw.ring_slots(2**62, [0, 1, 2], 1), "a ring capacity of 1 to"),
    "tokens below 0": (lambda: rw.ring_slots(4, [0], -1), "tokens: expected 0 or more"),
    "moves in float": (lambda: rw.rerotate(K.copy(), R, np.zeros(5)), "delta: expected whole numbers"),
    "moves of other tokens": (lambda: rw.rerotate(K.copy(), R, np.zeros(3, int)), "moves: expected"),
}


def f8_cache():
    return np.zeros((10, 2, 16), pytest.importorskip("ml_dtypes").float8_e4m3fn)


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    refused, message = BAD[what]
    before = CACHE.copy()
    with pytest.raises(rw.Error, match=message) as caught:
        refused()
    assert caught.value.code == "invalid_argument"
    np.testing.assert_array_equal(CACHE, before)
