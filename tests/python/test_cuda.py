"""Rotation on a GPU by raw pointers. There is none here: the module `cuda_on_host` runs what the threads of the kernels do on the
host, so that these pointers are numpy's; the module of the package says why it has no GPU."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import ropewalk as rw
from hypothesis import given, settings
from hypothesis import strategies as st
from ropewalk import _core

PATH = os.environ.get("ROPEWALK_CUDA_ON_HOST")
needs_host = pytest.mark.skipif(PATH is None, reason="ROPEWALK_CUDA_ON_HOST names no module")
DTYPES = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3}


@pytest.fixture(scope="module")
def host():
    spec = importlib.util.spec_from_file_location("cuda_on_host", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pointer(x):
    return 0 if x is None or x.size == 0 else x.ctypes.data


def strides(x):
    return tuple(s // x.itemsize for s in x.strides)


def call(
    cuda,
    q,
    k,
    rows,
    /,
    *,
    q_out=None,
    k_out=None,
    positions=None,
    start=0,
    first=0,
    amplitude=1.0,
    axis=b"",
    layout="half",
    first_dim=0,
    rotated_heads=0,
    direction="forward",
    device=0,
    **changed,
):
    """As ropewalk.torch does it; `changed`: arguments of the call itself."""
    arguments = {
        "device": device,
        "stream": 0,
        "q": pointer(q),
        "q_shape": q.shape,
        "q_strides": strides(q),
        "k": pointer(k),
        "k_shape": () if k is None else k.shape,
        "k_strides": () if k is None else strides(k),
        "q_out": pointer(q_out),
        "k_out": pointer(k_out),
        "dtype": DTYPES[q.dtype.name],
        "rows": pointer(rows),
        "first": first,
        "count": rows.shape[0],
        "pairs": rows.shape[2],
        "amplitude": amplitude,
        "axis": axis,
        "positions": pointer(positions),
        "position_bytes": 0 if positions is None else positions.itemsize,
        "position_count": 0 if positions is None else positions.size,
        "axes": 1 if positions is None or not axis else positions.shape[0],
        "start": start,
        "layout": ["half", "interleaved"].index(layout),
        "first_dim": first_dim,
        "rotated_heads": rotated_heads,
        "direction": ["forward", "adjoint", "inverse"].index(direction),
    }
    assert not changed.keys() - arguments.keys()
    cuda.rotate(*{**arguments, **changed}.values())


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def types():
    try:
        import ml_dtypes

        return [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
    except ImportError:
        return [np.float64, np.float32, np.float16]


def same(a, b):
    """The bits of the CPU's, where that has a fused multiply-add; else within a unit in the last place."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    unit = {"float64": 2e-7, "float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3}[a.dtype.name]
    np.testing.assert_allclose(x, y, rtol=unit, atol=unit)


@needs_host
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_call_by_pointers_is_the_call_of_the_cpu(host, data):
    draw = data.draw
    batch, tokens, heads, kv = (draw(st.integers(1, n)) for n in (3, 9, 5, 3))
    dim = draw(st.sampled_from([8, 12, 24, 128]))
    rotary = draw(st.sampled_from([dim, dim // 2 // 2 * 2]))
    first_dim = draw(st.integers(0, dim - rotary))
    layout, direction = draw(st.sampled_from(["half", "interleaved"])), draw(st.sampled_from(["forward", "adjoint", "inverse"]))
    dtype = draw(st.sampled_from(types()))
    r = rw.rotation(
        dim,
        layout=layout,
        rotary_dim=rotary,
        first_dim=first_dim,
        method="yarn",
        factor=4,
        trained_length=64,
        rotated_heads=draw(st.sampled_from([0, 1])),
    )
    first = draw(st.integers(0, 100))
    table = r.table(200, first)
    q, k = (normal(batch, n, tokens, dim, seed=n, dtype=dtype).transpose(0, 2, 1, 3) for n in (heads, kv))
    if draw(st.booleans()):
        q, k = q[0], k[0]
    k = k if draw(st.booleans()) else None
    integers = draw(st.sampled_from([None, np.int32, np.int64]))
    positions, start = None, first + draw(st.integers(0, 180))
    if integers is not None:
        shape = draw(st.sampled_from([(tokens,), q.shape[:-2]]))
        positions = np.random.default_rng(1).integers(first, first + 200, shape).astype(integers)
    expected = rw.rotate(q, k, table, start if positions is None else positions, direction=direction)
    if draw(st.booleans()):
        out = [None if x is None else np.empty(x.shape, x.dtype) for x in (q, k)]
    else:
        q, k = q.copy(), None if k is None else k.copy()
        out = [None, None]
    call(
        host.cuda,
        q,
        k,
        np.asarray(table.rows),
        q_out=out[0],
        k_out=out[1],
        positions=positions,
        start=start,
        first=first,
        amplitude=r.amplitude,
        layout=layout,
        first_dim=first_dim,
        rotated_heads=r.rotated_heads,
        direction=direction,
    )
    for got, x, y in zip(out, (q, k), expected, strict=True):
        if x is not None:
            same(x if got is None else got, y)
    host.cuda.synchronize(0, 0)


@needs_host
def test_several_axes(host):
    r = rw.rotation(32, layout="half", sections=(8, 4, 4))
    q, positions = normal(2, 6, 3, 32), np.random.default_rng(2).integers(0, 99, (3, 2, 6))
    out = np.empty_like(q)
    call(
        host.cuda,
        q,
        None,
        np.asarray(r.table(99).rows),
        q_out=out,
        positions=positions,
        axis=r.axis.astype(np.uint8).tobytes(),
    )
    same(out, rw.rotate(q, None, r, positions)[0])


@needs_host
def test_a_position_outside_the_table_becomes_nan_and_is_told_later(host):
    r, q = rw.rotation(16, layout="half"), normal(3, 2, 16)
    out = np.zeros_like(q)
    call(host.cuda, q, None, np.asarray(r.table(8).rows), q_out=out, positions=np.array([1, 8, 2]))
    assert np.isnan(out[1]).all() and np.isfinite(out[[0, 2]]).all()
    with pytest.raises(rw.Error, match="position 8") as caught:
        host.cuda.synchronize(0, 0)
    assert caught.value.code == "invalid_argument"
    host.cuda.synchronize(0, 0)  # read once


Q, ROWS = normal(5, 2, 16), np.asarray(rw.rotation(16, layout="half").table(40).rows)
BAD = {
    "beyond the table": ({"start": 36}, "position 40"),
    "before the table": ({"start": -1}, "position -1"),
    "far beyond it": ({"start": 2**62}, f"position {2**62}"),
    "a first row beyond all positions": ({"first": 2**31}, "positions are 0 to 2147483647"),
    "a first row below 0": ({"first": -1}, "positions are 0"),
    "no pairs": ({"pairs": 0}, "of 0 pairs"),
    "more pairs than a head has": ({"pairs": 9}, "rotary_dim 18"),
    "rows of null": ({"rows": 0}, "got null"),
    "a negative count": ({"count": -1}, "-1 rows"),
    "data of null": ({"q": 0}, "q: data is null"),
    "two axes": ({"q_shape": (2, 16), "q_strides": (16, 1)}, r"q: expected \[tokens"),
    "five axes": ({"q_shape": (1,) * 5, "q_strides": (1,) * 5}, "q: expected at most 4 axes"),
    "strides of other axes": ({"q_strides": (32, 16)}, "a stride for each"),
    "heads with gaps": ({"q_strides": (32, 16, 2)}, "contiguous, got last stride 2"),
    "a huge shape": ({"q_shape": (2**62, 2, 16)}, "not addressable"),
    "a negative shape": ({"q_shape": (-5, 2, 16)}, "not addressable"),
    "a huge stride": ({"q_strides": (-(2**63), 16, 1)}, "not addressable"),
    "a dtype that is none": ({"dtype": 7}, "dtype 7"),
    "a rotated part outside": ({"first_dim": 3}, "first_dim 3"),
    "positions of 2 bytes": ({"positions": np.zeros(5, np.int16)}, "4 or 8 bytes each, got 2"),
    "too few positions": ({"positions": np.zeros(4, int)}, "one per token, 5, got 4"),
    "a negative count of them": ({"positions": np.zeros(5, int), "position_count": -5}, "positions: expected"),
    "positions of null": ({"position_bytes": 8, "position_count": 5}, "expected one per token or per sequence, got none"),
    "an axis of other pairs": ({"axis": b"\0\0\0"}, "each of the 8 pairs, got 3"),
    "positions without their axes": ({"positions": np.zeros(5, int), "axis": bytes(7) + b"\1", "axes": 1}, "2 axes"),
    "more heads than there are": ({"rotated_heads": 3}, "rotated_heads 3"),
    "an output over the input": ({"q_out": Q[0, 0, 1:]}, "overlap"),
    "another GPU": ({"device": 1}, "invalid device"),
}


@needs_host
@pytest.mark.parametrize("what", BAD)
def test_bad_input(host, what):
    changed, message = BAD[what]
    q = Q.copy() if what != "an output over the input" else Q
    with pytest.raises(rw.Error, match=message) as caught:
        call(host.cuda, q, None, ROWS, **changed)
    assert caught.value.code in ("invalid_argument", "unsupported")
    if q is not Q:
        np.testing.assert_array_equal(q, Q)


@needs_host
def test_no_tokens(host):
    for shape in ((0, 2, 16), (2, 0, 16)):
        call(host.cuda, np.zeros(shape, np.float32), None, ROWS, q_strides=())


def test_the_package_says_what_it_has():
    found = rw.find_cuda()
    assert set(found) == {"toolkit", "targets", "driver", "devices", "why_none"}
    assert bool(found["toolkit"]) == _core.cuda.built
    assert bool(found["why_none"]) == (not found["devices"])


@pytest.mark.skipif(bool(rw.find_cuda()["devices"]), reason="there is a GPU")
def test_without_a_gpu_a_call_is_an_error_with_the_reason():
    for refused in (
        lambda: call(_core.cuda, Q, None, ROWS),
        lambda: call(_core.cuda, Q, None, ROWS, device=3),
        lambda: rw.cuda_synchronize(),
        lambda: rw.cuda_synchronize(7, 12345),
    ):
        with pytest.raises(rw.Error, match="CUDA: ") as caught:
            refused()
        assert caught.value.code == "unsupported"


def test_importing_the_package_does_not_ask_the_driver():
    code = "import ropewalk; print([line for line in open('/proc/self/maps') if 'libcuda.so' in line or 'nvidia' in line])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
