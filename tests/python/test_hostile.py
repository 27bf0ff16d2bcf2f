"""Arguments as a program with mistakes would give them: every call returns or raises ropewalk.Error, and writes nothing that it
does not return."""

import math

import numpy as np
import ropewalk as rw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
ABSURD = [-(2**63), -(2**62), -(2**31), -1, 0, 1, 2, 3, 7, 64, 4096, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**64, 2**70]
numbers = st.one_of(st.sampled_from(ABSURD), st.integers(-5, 70), st.sampled_from([math.nan, math.inf, 1.5, None, "x", True]))
floats = st.one_of(st.floats(), st.sampled_from([None, "x", 2**2000, np.float16(2), 1e300]))
KINDS = ["f8", "f4", "f2", ">f4", "i8", "i4", "u1", "u8", "c8", "?", "O", "U3", "M8[s]"]


@st.composite
def arrays(draw, largest=5, last=(0, 1, 2, 3, 4, 8, 16)):
    """Of any type, rank, strides and alignment; some read-only, some repeated, some with NaN."""
    rank = draw(st.integers(0, 5))
    shape = [draw(st.integers(0, largest)) for _ in range(rank)]
    if rank:
        shape[-1] = draw(st.sampled_from(last))
    kind = np.dtype(draw(st.sampled_from(KINDS + ["f4"] * 8)))
    x = np.asarray(np.arange(math.prod(shape)).reshape(shape) % 7 - 2).astype("i8" if kind.kind == "M" else kind).astype(kind)
    if x.size and kind.kind == "f" and draw(st.booleans()):
        x.flat[draw(st.integers(0, x.size - 1))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    change = draw(st.sampled_from(["none"] * 6 + ["swap", "step", "backwards", "repeat", "shift", "huge", "read-only", "list"]))
    if change == "swap" and rank > 1:
        x = x.swapaxes(0, -1)
    elif change == "step" and rank:
        x = x[..., ::2]
    elif change == "backwards" and rank:
        x = x[::-1]
    elif change == "repeat" and rank:
        x = np.broadcast_to(x[:1], x.shape)
    elif change == "shift" and kind.kind in "fiu":  # unaligned
        raw = np.zeros(x.nbytes + 1, "u1")
        shifted = raw[1:].view(kind).reshape(x.shape)
        shifted[...] = x
        x = shifted
    elif change == "huge" and rank:  # no memory could hold it: one element, told many times
        x = np.broadcast_to(np.zeros((1,) * rank, kind), (2**48,) + (1,) * (rank - 1))
    elif change == "read-only":
        x.flags.writeable = False
    elif change == "list":
        return x.tolist()
    return x


def attempt(call, *watched):
    """Returns or raises Error; what is not asked to change stays."""
    before = [np.array(x) for x in watched]
    try:
        return call()
    except rw.Error as e:
        assert e.code in ("invalid_argument", "unsupported", "invalid_config", "invalid_file", "io") and str(e)
    except MemoryError:
        pass
    finally:
        for x, old in zip(watched, before, strict=True):
            np.testing.assert_array_equal(x, old)
    return None


R = rw.rotation(8, layout="half", trained_length=64)
AXES = rw.rotation(8, layout="interleaved", sections=(2, 1, 1))
TABLES = [R, R.table(64), R.table(9, 2**31 - 9), AXES, AXES.table(64), rw.rotation(8, layout="half", xpos_scale_base=512.0)]
Q = np.ones((3, 2, 8), np.float32)


@SETTINGS
@given(data=st.data())
def test_rotate(data):
    draw = data.draw
    small = st.one_of(arrays(last=(0, 4, 8, 8, 8, 16)), st.just(Q), st.none())
    q, k = draw(small), draw(small)
    table = draw(st.sampled_from(TABLES))
    more = {}
    for name, values in {
        "positions": st.one_of(numbers, arrays()),
        "layout": st.sampled_from(["half", "interleaved", "x", 3]),
        "direction": st.sampled_from(["forward", "inverse", "adjoint", "x", None]),
        "first_dim": numbers,
        "rotated_heads": numbers,
        "v": small,
        "rotate_v": st.booleans(),
        "slots": arrays(),
        "q_norm": arrays(),
        "norm_eps": floats,
        "k_scale": floats,
        "out": st.one_of(small, st.tuples(small, small), st.tuples(small, small, small)),
        "inplace": st.booleans(),
        "precision": st.sampled_from(["exact", "float32", "x"]),
    }.items():
        if draw(st.integers(0, 3)) == 0:
            more[name] = draw(values)
    if more.get("inplace") or more.get("out") is not None:
        attempt(lambda: rw.rotate(q, k, table, **more))
    else:
        given_arrays = [x for x in (q, k, more.get("v")) if isinstance(x, np.ndarray) and x.size < 2**20]
        attempt(lambda: rw.rotate(q, k, table, **more), *given_arrays)


@SETTINGS
@given(data=st.data())
def test_rerotate_and_gradients(data):
    draw = data.draw
    keys, r = draw(arrays(last=(8, 8, 8, 34, 68, 4))), draw(st.sampled_from([R, AXES, TABLES[-1]]))
    lists = st.one_of(arrays(), numbers)
    attempt(lambda: rw.rerotate(keys, r, draw(lists)))
    attempt(
        lambda: rw.rerotate(
            keys, r, old_positions=draw(lists), new_positions=draw(lists), old_rotation=draw(st.sampled_from([None, R]))
        )
    )
    attempt(lambda: rw.frequency_gradient(r, keys, draw(arrays(last=(8,))), draw(lists)))


@SETTINGS
@given(data=st.data())
def test_making_rotations_and_tables(data):
    draw = data.draw
    more = {}
    for name, values in {
        "base": floats,
        "rotary_dim": numbers,
        "first_dim": numbers,
        "method": st.sampled_from([m["name"] for m in rw.scaling_methods()] + ["x"]),
        "factor": floats,
        "trained_length": numbers,
        "length": numbers,
        "sections": st.lists(numbers, max_size=5),
        "axis_order": st.sampled_from(["chunked", "interleaved", "ernie", "x"]),
        "own_ladders": st.booleans(),
        "xpos_scale_base": floats,
        "xpos_gamma": floats,
        "rotated_heads": numbers,
        "dialect": st.sampled_from(["hf", "llamacpp", "x"]),
    }.items():
        if draw(st.integers(0, 2)) == 0:
            more[name] = draw(values)
    r = attempt(lambda: rw.rotation(draw(st.one_of(st.just(8), numbers)), layout="half", **more))
    if r is not None and r.rotary_dim <= 4096:
        assert np.isfinite(r.inv_freq).all()
        first, count = draw(numbers), draw(st.one_of(st.integers(-2, 70), st.sampled_from([2**31, 2**62, math.nan])))
        attempt(lambda: r.table(count, first=first))
        attempt(lambda: r.cos_sin(draw(arrays())) if r.axes == 1 else None)
        attempt(lambda: r.per_unit(draw(numbers)))
        attempt(lambda: r.decay(draw(arrays())))
        attempt(lambda: r.pairs_within(draw(numbers), draw(numbers)))
        attempt(lambda: r.critical_dimension(draw(numbers)))
        attempt(lambda: r.base_derivative(draw(numbers)))


@SETTINGS
@given(data=st.data())
def test_positions_and_slots(data):
    draw = data.draw
    rules = ["flat", "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "ernie", "xd-rope", "rope-tie", "rope-tv"]
    few = st.one_of(st.integers(-2, 12), st.sampled_from([2**31 + 1, 2**40, 2**62, -(2**62), 2**70, math.nan, "x"]))
    builder = attempt(lambda: rw.PositionBuilder(draw(st.sampled_from(rules)), spatial_merge=draw(few), start=draw(few)))
    if builder is not None:
        for _ in range(3):
            attempt(lambda: builder.text(draw(few)))
            attempt(lambda: builder.image(draw(few), draw(few)))
            attempt(lambda: builder.video(draw(few), draw(few), draw(few), draw(floats)))
            attempt(lambda: builder.timestamped_video(draw(arrays()), draw(few), draw(few)))
        built = attempt(builder.build)
        if built is not None:
            assert built.positions.shape[0] == builder.axes
    attempt(lambda: rw.vision_positions(draw(few), draw(few), draw(few), draw(few)))
    attempt(lambda: rw.block_table_slots(draw(arrays()), draw(few), draw(arrays()), draw(few)))
    attempt(lambda: rw.ring_slots(draw(numbers), draw(arrays()), draw(few)))


@SETTINGS
@given(data=st.data())
def test_encodings(data):
    draw = data.draw
    few = st.one_of(st.integers(-2, 9), st.sampled_from([2**40, 2**62, -(2**62), 2**70, math.nan, "x"]))
    x, table, places = draw(arrays()), draw(arrays()), draw(st.one_of(arrays(), numbers))
    for call in (
        lambda: rw.Sinusoidal(draw(few), base=draw(floats)).rows(places),
        lambda: rw.Sinusoidal(4).add(x, draw(few), draw(floats)),
        lambda: rw.learned_rows(table, places, draw(few)),
        lambda: rw.learned_rows_backward(x, draw(few), places, draw(few)),
        lambda: rw.hierarchical_rows(table, places, draw(floats)),
        lambda: rw.resize_table(table, draw(st.lists(few, max_size=4)), draw(st.lists(few, max_size=4)), prefix_rows=draw(few)),
        lambda: rw.Digits(draw(few), draw(few), draw(floats)).rows(places),
        lambda: rw.complex_order(places, places, table, table),
        lambda: rw.complex_linear(x, table, draw(arrays())),
        lambda: rw.complex_attention(x, table, table),
        lambda: rw.complex_attention_backward(x, x, table, table),
        lambda: rw.floater_rows(x, draw(few), frequencies=draw(arrays())),
        lambda: rw.recurrent_rows(x, draw(few), weight=table, input_bias=x, hidden_bias=x),
        lambda: rw.position_convolution(x, table, sizes=draw(st.lists(few, max_size=4)), prefix_rows=draw(few)),
        lambda: rw.merge_weight_norm_backward(x, x, draw(arrays())),
        lambda: rw.add_rows(x, table, draw(floats)),
        lambda: rw.multiply_rows_backward(x, x, table),
        lambda: rw.Generators(x).rotate(table, places),
        lambda: rw.Generators(x).matrix(places),
    ):
        attempt(call)


@SETTINGS
@given(data=st.data())
def test_biases(data):
    draw = data.draw
    few = st.one_of(st.integers(-2, 9), st.sampled_from([2**40, 2**62, -(2**62), 2**70, math.nan, "x"]))
    x = arrays()
    q, k = draw(st.one_of(st.integers(0, 5).map(np.arange), x)), draw(st.one_of(st.integers(0, 5).map(np.arange), x))
    for call in (
        lambda: rw.Alibi(draw(few), slopes=draw(st.one_of(x, st.none())), max_bias=draw(floats))(q, k),
        lambda: rw.T5Bias(2, embedding=draw(x), buckets=draw(few), last_distance=draw(few))(q, k),
        lambda: rw.Kerple(2, r1=draw(x), r2=draw(x))(q, k),
        lambda: rw.Sandwich(draw(few), dim=draw(few), base=draw(floats))(q, k),
        lambda: rw.Fire(2, w1=draw(x), b1=draw(x), w2=draw(x), b2=draw(x), c=draw(floats), threshold=draw(floats))(q, k),
        lambda: rw.Shaw(2, left=draw(few), right=draw(few), key_rows=draw(x)).lower(draw(few)),
        lambda: rw.TransformerXL(2, projection=draw(x)).lower(draw(few)),
        lambda: rw.DebertaBias(2, embedding=draw(x), buckets=draw(few), max_position=draw(few)).lower(draw(few)),
        lambda: rw.Tupe(2, embedding=draw(x), query_projection=draw(x), key_projection=draw(x))(q, k),
        lambda: rw.SwinBias(2, height=draw(few), width=draw(few), w1=draw(x), b1=draw(x), w2=draw(x))(q, k),
        lambda: rw.CoPE(2, position_rows=draw(x)).lower(draw(few)),
        lambda: rw.ForgettingGate(2, weight=draw(x), bias=draw(x)).of(draw(x)).lower(draw(few)),
        lambda: rw.PoPE(2, 4, phase=draw(x))(draw(x), q),
    ):
        attempt(call)
