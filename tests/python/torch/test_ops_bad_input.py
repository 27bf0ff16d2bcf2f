"""Whatever ropewalk.torch is given: the right result or a ropewalk.Error, never a crash."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ops_reference import dense, generator, inverse_frequencies, random, turned
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn
from ropewalk.torch._rotation import rotate_formula

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float64: 2e-6, torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}
quick = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])


@st.composite
def strided(draw, shape, dtype, seed):
    """A tensor of this shape whose memory has gaps, another order, or elements that are shared or backwards in a copy."""
    x = random(*shape, seed=seed, dtype=dtype)
    how = draw(st.sampled_from(("plain", "order", "gaps", "heads apart", "expanded")))
    if how == "order":
        order = draw(st.permutations(range(len(shape))))
        back = sorted(range(len(shape)), key=order.__getitem__)
        return x.permute(order).contiguous().permute(back)
    if how == "gaps":
        wide = torch.full((*shape[:-1], 2 * shape[-1] + 3), float("nan"), dtype=dtype)
        wide[..., 1 : 1 + shape[-1]] = x
        return wide[..., 1 : 1 + shape[-1]]
    if how == "heads apart":
        wide = torch.full((*shape[:-1], shape[-1], 2), float("nan"), dtype=dtype)
        wide[..., 0] = x
        return wide[..., 0]
    if how == "expanded" and shape[0] > 0:
        return x[:1].expand(shape)
    return x


@st.composite
def rotations(draw):
    dtype = draw(st.sampled_from(DTYPES))
    batch = draw(st.sampled_from(((), (0,), (1,), (3,))))
    tokens, pairs = draw(st.sampled_from((0, 1, 2, 7))), draw(st.integers(1, 9))
    first_dim, rest = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    heads, kv_heads = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    dim = first_dim + 2 * pairs + rest
    q = draw(strided((*batch, tokens, heads, dim), dtype, 0))
    k = draw(st.one_of(st.none(), strided((*batch, tokens, kv_heads, dim), draw(st.sampled_from(DTYPES)), 1)))
    kind = draw(st.sampled_from(("start", "list", "each", "int32", "apart")))
    if kind == "start":
        positions = draw(st.integers(0, 33))
    else:
        shape = (*batch, tokens) if kind != "list" else (tokens,)
        positions = torch.randint(0, 40, shape, generator=generator(draw(st.integers(0, 99))))
        positions = positions.int() if kind == "int32" else positions
        positions = torch.stack((positions, positions), -1)[..., 0] if kind == "apart" else positions
    return q, k, positions, pairs, first_dim, draw(st.sampled_from(("half", "interleaved")))


@quick
@given(rotations())
def test_rotations_of_any_shape_and_stride(call):
    q, k, positions, pairs, first_dim, layout = call
    f = inverse_frequencies(2 * pairs)
    rows = rt.table(f, 40)
    at = positions if torch.is_tensor(positions) else torch.arange(positions, positions + q.shape[-3])
    for x, y in zip((q, k), rt.rotate(q, k, rows, positions, layout=layout, first_dim=first_dim)):
        if x is None:
            assert y is None
            continue
        assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous()
        whole = x if x.dim() == 4 else x[None]
        want = turned(whole, at if at.dim() == 2 else at[None], f, layout, first_dim).reshape(x.shape)
        assert_close(y.double(), want, rtol=0, atol=TOLERANCE[x.dtype])
        given_positions = positions if torch.is_tensor(positions) else None
        start = 0 if torch.is_tensor(positions) else positions
        formula = rotate_formula(x, None, rows, given_positions, start, ("half", "interleaved").index(layout), 0, first_dim)[0]
        assert_close(formula, y, rtol=0, atol=TOLERANCE[x.dtype])


@st.composite
def attentions(draw):
    batch, dim = draw(st.sampled_from((0, 1, 2))), draw(st.sampled_from((1, 3, 16)))
    keys, group, kv_heads = draw(st.sampled_from((0, 1, 5, 70))), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    tokens = draw(st.integers(0, keys))
    q = draw(strided((batch, tokens, group * kv_heads, dim), torch.float32, 0))
    k, v = (draw(strided((batch, keys, kv_heads, dim), torch.float32, seed)) for seed in (1, 2))
    return q, k, v, {"causal": draw(st.booleans()), "window": draw(st.sampled_from((0, 1, 3)))}


@quick
@given(attentions())
def test_attention_of_any_shape_and_stride(call):
    q, k, v, options = call
    slopes = torch.linspace(0.1, 1, q.shape[2])
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    out = rt.attention(*inputs, bias=rt.Slopes(slopes, slopes), **options)
    assert out.shape == q.shape
    if out.numel() == 0:
        return
    wide = [x.detach().double().requires_grad_() for x in inputs]
    want, _ = dense(*wide, bias=lambda d: -slopes[:, None, None] * d.abs(), **options)
    assert_close(out.double(), want, rtol=1e-4, atol=1e-5)
    upstream = random(*out.shape, seed=5)
    for x, y in zip(torch.autograd.grad((out * upstream).sum(), inputs), torch.autograd.grad((want * upstream).sum(), wide)):
        assert_close(x.double(), y, rtol=1e-3, atol=1e-4)


NUMBERS = st.sampled_from((-(2**63), -(2**31), -1, 0, 1, 2, 7, 40, 2**31, 2**62))


@quick
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    table=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    positions=st.one_of(NUMBERS, st.lists(NUMBERS, max_size=4)),
    numbers=st.tuples(*(NUMBERS for _ in range(3))),
    dtypes=st.tuples(*(st.sampled_from((*DTYPES, torch.int64, torch.bool, torch.complex64)) for _ in range(2))),
)
def test_rotations_of_anything(shape, table, positions, numbers, dtypes):
    """Mostly refused; what is not has the shape of its input."""
    q, rows = torch.zeros(shape).to(dtypes[0]), torch.zeros(table).to(dtypes[1])
    positions = torch.tensor(positions) if isinstance(positions, list) else positions
    odd = {"first": numbers[0], "first_dim": numbers[1], "rotated_heads": numbers[2], "layout": "half"}
    for options in (odd, {"layout": "interleaved"}):
        for k in (None, q):
            try:
                out, _ = rt.rotate(q, k, rows, positions, **options)
            except rw.Error:
                continue
            assert out.shape == q.shape


@quick
@given(st.tuples(*(st.lists(st.integers(0, 3), min_size=1, max_size=5) for _ in range(3))), st.integers(0, 8), st.data())
def test_attention_of_anything(shapes, kind, data):
    """Shapes that do not fit, of the tensors and of a bias."""
    q, k, v = (torch.zeros(shape) for shape in shapes)
    makers = (None, rt.Slopes, rt.Distances, None, rt.Gates, rt.Contextual, rt.Fire, rt.Tupe, rt.Swin)
    sizes = st.lists(st.integers(0, 3), max_size=4)
    bias = None
    if kind == 3:
        bias = rt.Content(torch.zeros(data.draw(sizes), dtype=torch.int32), 0, *(torch.zeros(data.draw(sizes)) for _ in range(5)))
    elif kind:
        count = {1: 2, 2: 1, 4: 1, 5: 1, 6: 6, 7: 8, 8: 3}[kind]
        parts = [torch.zeros(data.draw(sizes)) for _ in range(count)]
        bias = makers[kind](*parts, 2, 2) if kind == 8 else makers[kind](*parts)
    assume(kind != 6 or all(p.numel() < 1000 for p in bias))
    for causal in (True, False):
        try:
            out = rt.attention(q, k, v, bias=bias, causal=causal)
        except rw.Error:
            continue
        assert out.shape == q.shape


def accepted(calls):
    """What raises no ropewalk.Error, and what else it raises."""
    out = []
    for what, call in calls.items():
        try:
            call()
            out.append(what)
        except rw.Error as error:
            assert error.code in ("invalid_argument", "unsupported", "out_of_range"), what
        except Exception as error:  # noqa: BLE001
            out.append((what, error))
    return out


WRONG = {
    "integers": torch.zeros(1, 5, 2, 16, dtype=torch.int64),
    "complex": torch.zeros(1, 5, 2, 16, dtype=torch.complex64),
    "booleans": torch.zeros(1, 5, 2, 16, dtype=torch.bool),
    "two dimensions": torch.zeros(5, 16),
    "five dimensions": torch.zeros(1, 1, 5, 2, 16),
    "eight bits": torch.zeros(1, 5, 2, 16).to(torch.float8_e4m3fn),
    "meta": torch.zeros(1, 5, 2, 16, device="meta"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tensors(name):
    x, good, rows = WRONG[name], torch.zeros(1, 5, 2, 16), rt.table(inverse_frequencies(16), 40)
    rotation = rw.rotation(16, layout="half")
    module, learned = nn.RotaryEmbedding(rotation, 16), nn.LearnedRotaryEmbedding(16, layout="half")
    calls = {
        "q": lambda: rt.rotate(x, None, rows, layout="half"),
        "q in place": lambda: rt.rotate(x, None, rows, layout="half", inplace=True),
        "k": lambda: rt.rotate(good, x, rows, layout="half"),
        "frequencies": lambda: rt.rotate_frequencies(x, None, inverse_frequencies(16), layout="half"),
        "k of frequencies": lambda: rt.rotate_frequencies(good, x, inverse_frequencies(16), layout="half"),
        "module's k": lambda: module(good, x),
        "attention's q": lambda: rt.attention(x, good, good),
        "attention's k": lambda: rt.attention(good, x, good),
        "attention's v": lambda: rt.attention(good, good, x),
        "pope": lambda: rt.pope(good, phase=x),
        "table": lambda: rt.rotate(good, None, x, layout="half"),
        "sinks": lambda: rt.attention(good, good, good, sinks=x),
        "temperatures": lambda: rt.attention(good, good, good, temperatures=x),
        "slopes": lambda: rt.attention(good, good, good, bias=rt.Slopes(x)),
        "rows": lambda: rt.learned_rows(x, torch.arange(3)),
        "start": lambda: rt.recurrent_rows(x, 3, weight=x, input_bias=x, hidden_bias=x),
    }
    if name != "meta":
        calls |= {"module": lambda: module(x, None), "learned": lambda: learned(x, None), "pope's x": lambda: rt.pope(x)}
    else:  # all of a call without data: what another device runs
        for both in ("frequencies", "rows", "start"):
            del calls[both]
    if name == "two dimensions":
        del calls["rows"]  # a table has two
    assert accepted(calls) == []


@pytest.mark.parametrize(
    "positions",
    [
        torch.arange(5.0),
        torch.zeros(5, dtype=torch.bool),
        torch.zeros(5, dtype=torch.int16),
        torch.zeros(5, dtype=torch.complex64),
        torch.zeros(4, dtype=torch.int64),
        torch.zeros((), dtype=torch.int64),
        torch.zeros(2, 2, 5, dtype=torch.int64),
        torch.zeros(3, 5, dtype=torch.int64),
        torch.full((5,), 2**62),
        torch.full((5,), -(2**63)),
        torch.full((5,), -1),
        torch.arange(5, device="meta"),
    ],
    ids=lambda p: f"{p.dtype} {list(p.shape)} {p.device}",
)
def test_wrong_positions(positions):
    q = torch.zeros(1, 5, 2, 16)
    rotation = rw.rotation(16, layout="half")
    pope, fope = nn.PoPE(2, 16), nn.FoPE(16, frequencies=3)
    calls = {
        "rows": lambda: rt.rotate(q, q, rt.table(inverse_frequencies(16), 40), positions, layout="half"),
        "table": lambda: rt.rotate(q, q, rotation.table(40), positions),
        "rotation": lambda: rt.rotate(q, q, rotation, positions),
        "in place": lambda: rt.rotate(q, q.clone(), rotation.table(40), positions, inplace=True),
        "module": lambda: nn.RotaryEmbedding(rotation, 40)(q, q, positions),
        "learned": lambda: nn.LearnedRotaryEmbedding(16, layout="half")(q, q, positions),
        "query_positions": lambda: rt.attention(q, q, q, query_positions=positions),
        "key_positions": lambda: rt.attention(q, q, q, key_positions=positions),
        "pope": lambda: pope(q, q, positions),
        "fope": lambda: fope(q, q, positions),
        "rows of a table": lambda: rt.add_rows(q[:, :, 0], rt.learned_rows(torch.zeros(9, 16), positions)),
        "hierarchical": lambda: rt.add_rows(q[:, :, 0], rt.hierarchical_rows(torch.zeros(3, 16), positions)),
        "digits": lambda: rt.add_rows(q[:, :, 0], rt.digit_rows(positions, 10, 16)),
    }
    if positions.dtype == torch.int64 and positions.shape == (5,) and not positions.is_meta and positions[0] == -1:
        for name in ("query_positions", "key_positions", "pope", "fope"):
            calls.pop(name)  # which have a meaning below 0 too
    assert accepted(calls) == []


def test_arrays_and_other_things_beside_tensors():
    q, k, rotation = torch.zeros(5, 2, 16), torch.zeros(5, 1, 16), rw.rotation(16, layout="half")
    a, b = q.numpy(), k.numpy()
    for table in (rotation, rotation.table(40)):
        for message, call in {
            "q: expected a tensor of PyTorch, got ndarray": lambda: rw.rotate(a, k, table),
            "k: expected a tensor of PyTorch, got ndarray": lambda: rw.rotate(q, b, table),
            "q: expected a tensor of PyTorch, got NoneType": lambda: rw.rotate(None, k, table),
            "positions: expected whole numbers": lambda: rt.rotate(q, k, table, 1.5),
            "positions: expected whole": lambda: rt.rotate(q, k, table, [0.5] * 5),
            "positions: expected that of the first": lambda: rt.rotate(q, k, table, None),
        }.items():
            with pytest.raises(rw.Error, match=message):
                call()
    for message, call in {
        "q: expected a tensor": lambda: rw.attention(a, k, k),
        "k: expected a tensor": lambda: rw.attention(q, b, b),
        "v: expected a tensor": lambda: rw.attention(q, k, b),
        "inv_freq: expected a tensor": lambda: rt.rotate_frequencies(q, k, np.ones(8), layout="half"),
        "table: expected a ropewalk.Table": lambda: rt.rotate(q, k, "table"),
        "rotation: expected a ropewalk.Rotation": lambda: rt.attention(q, k, k, rotation=rotation.table(9)),
        "bias: expected one of": lambda: rt.attention(q, k, k, bias="alibi"),
        "remap: expected a whole number": lambda: rt.attention(q, k, k, rotation=rotation, remap=("rerope", 2.5)),
        "window: expected a whole number, got 2.5": lambda: rt.attention(q, k, k, window=2.5),
        "causal: expected True or False, got 'no'": lambda: rt.attention(q, k, k, causal="no"),
        "soft_cap: expected a number": lambda: rt.attention(q, k, k, soft_cap="much"),
        "scale: expected a number": lambda: rt.attention(q, k, k, scale="much"),
        "query_positions: expected whole numbers": lambda: rt.attention(q, k, k, query_positions="first"),
        "key_positions: expected": lambda: rt.attention(q, k, k, key_positions=3),
        "document_starts: expected": lambda: rt.attention(q, k, k, document_starts=np.array([[0, 3]])),
        "sinks: expected numbers": lambda: rt.attention(q, k, k, sinks=["a", "b"]),
    }.items():
        with pytest.raises(rw.Error, match=message):
            call()


def test_lists_and_arrays_in_place_of_tensors():
    q, k = random(5, 4, 16), random(9, 2, 16, seed=1)
    rotation = rw.rotation(16, layout="half")
    given = {
        "query_positions": [3, 4, 5, 6, 9],
        "key_positions": [0, 1, 2, 3, 4, 5, 6, 7, 9],
        "document_starts": [0, 3],
        "query_document_starts": [0, 1],
        "sinks": [0.5, 0.0, -1.0, 2.0],
        "temperatures": [1.0, 1.5, 1.0, 2.0, 0.5],
    }
    want = rt.attention(q, k, k, rotation=rotation, **{name: torch.tensor(x) for name, x in given.items()})
    for make in (list, np.array):
        got = rt.attention(q, k, k, rotation=rotation, window=np.int64(0), **{name: make(x) for name, x in given.items()})
        assert torch.equal(got, want)
    at, table = [3, 1, 4, 1, 5], rotation.table(40)
    want = rt.rotate(q, None, table, torch.tensor(at))[0]
    module, learned = nn.RotaryEmbedding(rotation, 16), nn.LearnedRotaryEmbedding(16, layout="half")
    for positions in (at, tuple(at), np.array(at), np.array(at, np.int8)):
        assert torch.equal(rt.rotate(q, None, table, positions)[0], want)
        assert torch.equal(rt.rotate(q, None, rotation, positions)[0], want)
        assert torch.equal(module(q, None, positions)[0], want)
        assert torch.equal(learned(q, None, positions)[0], learned(q, None, torch.tensor(at))[0])
        assert torch.equal(rt.pope(q, positions), rt.pope(q, torch.tensor(at)))
        x = q[:, 0]
        assert torch.equal(nn.Sinusoidal(16)(x, positions), nn.Sinusoidal(16)(x, torch.tensor(at)))
    assert torch.equal(rt.rotate(q, None, table, np.int64(3))[0], rt.rotate(q, None, table, 3)[0])


def test_a_negated_view_in_place():
    """As the imaginary part of a conjugate is one."""
    z, table = torch.complex(random(5, 4, 16), random(5, 4, 16, seed=1)), rw.rotation(16, layout="half").table(40)
    for k in (None, random(5, 2, 16)):
        view = z.clone().conj().imag
        assert view.is_neg()
        want = rt.rotate(view.clone(), k, table, 3)
        got = rt.rotate(view, None if k is None else k.clone(), table, 3, inplace=True)
        assert got[0] is view and torch.equal(view, want[0]) and (k is None or torch.equal(got[1], want[1]))


def test_a_complex_bias():
    q = torch.zeros(1, 5, 2, 16)
    with pytest.raises(rw.Error, match="bias: expected tensors of real numbers"):
        rt.attention(q, q, q, bias=rt.Slopes(torch.ones(2, dtype=torch.complex64)))


def test_gradients_of_whole_numbers_are_not_asked_for():
    with pytest.raises(RuntimeError, match="floating point"):  # PyTorch's own
        torch.zeros(5, dtype=torch.int64).requires_grad_()
    table = rt.table(inverse_frequencies(16), 40).requires_grad_()
    out, _ = rt.rotate(torch.zeros(1, 5, 2, 16), None, table, layout="half")
    with pytest.raises(rw.Error, match="learned frequencies are rotate_frequencies'") as error:
        out.sum().backward()
    assert error.value.code == "unsupported"


def test_wrong_modules():
    for message, call in {
        "head_dim|rotary": lambda: nn.LearnedRotaryEmbedding(16, layout="half", rotary_dim=20)(torch.zeros(1, 5, 2, 16)),
        "layout": lambda: nn.LearnedRotaryEmbedding(16, layout="both"),
        "learn": lambda: nn.Sinusoidal(8, learn="everything"),
        "cell": lambda: nn.RecurrentRows(8, cell="lstm"),
        "alpha": lambda: nn.HierarchicalRows(8, 4, alpha=0.5),
        "groups": lambda: nn.PositionConvolution(12, 3, groups=5),
        "weight_norm": lambda: nn.PositionConvolution(12, (3, 3), weight_norm=True),
        "frequency_shared": lambda: nn.ComplexOrder(3, 4, frequency_shared="all"),
        "kind": lambda: nn.QueryTemperature("warm"),
        "axes|one axis": lambda: nn.RemappedAttention(rw.rotation(16, layout="half", sections=(2, 3, 3)), rw.ReRoPE(9)),
        "xPos": lambda: nn.RemappedAttention(rw.rotation(16, layout="half", xpos_scale_base=512), rw.ReRoPE(9)),
    }.items():
        with pytest.raises(rw.Error, match=message):
            call()
