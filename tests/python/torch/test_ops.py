"""ropewalk.torch against formulas in float64 that are typed again here, and PyTorch's own checks of custom ops."""

import math

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt

POSITIONS = (0, 1, 255, 256, 257, 4095, 4096, 4097, 131071, 1048575)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def inverse_frequencies(dim, base=10000.0):
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def turned(x, positions, inv_freq, layout, first_dim=0, amplitude=1.0, sign=1):
    """x [batch, tokens, heads, dim] in float64; positions [batch or 1, tokens]."""
    x = x.double().clone()
    angle = sign * positions.double()[..., None, None] * inv_freq
    c, s, n = angle.cos() * amplitude, angle.sin() * amplitude, len(inv_freq)
    if layout == "half":
        a, b = slice(first_dim, first_dim + n), slice(first_dim + n, first_dim + 2 * n)
    else:
        a, b = slice(first_dim, first_dim + 2 * n, 2), slice(first_dim + 1, first_dim + 2 * n, 2)
    x1, x2 = x[..., a].clone(), x[..., b].clone()
    x[..., a], x[..., b] = x1 * c - x2 * s, x2 * c + x1 * s
    return x


# How far a rotation with a float32 table may be from float64, of elements of at most 6.
TOLERANCE = {torch.float64: 2e-6, torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rotate_is_the_formula_and_so_is_what_other_devices_run(layout, dtype):
    f = inverse_frequencies(48)
    q, k = random(2, len(POSITIONS), 4, 64, dtype=dtype), random(2, len(POSITIONS), 2, 64, seed=1, dtype=dtype)
    positions = torch.tensor(POSITIONS)
    for first in (0, 1048500):
        rows = rt.table(f, 1048576 - first if first == 0 else 80, first, amplitude=1.25)
        at = positions[positions >= first]
        settings = dict(first=first, first_dim=9, amplitude=1.25)
        got = rt.rotate(q[:, : len(at)], k[:, : len(at)], rows, at, layout=layout, **settings)
        same = rt._rotate_formula(
            q[:, : len(at)], k[:, : len(at)], rows, at, 0, ("half", "interleaved").index(layout), first, 9, 0, 0, 1.25
        )
        for x, y, formula in zip((q, k), got, same):
            assert y.dtype == dtype and y.is_contiguous()
            expected = turned(x[:, : len(at)], at[None], f, layout, 9, 1.25)
            assert_close(y.double(), expected, rtol=0, atol=TOLERANCE[dtype])
            assert_close(formula, y, rtol=0, atol=1e-6 if dtype in DTYPES[:2] else TOLERANCE[dtype])


@pytest.mark.parametrize("direction", ["forward", "adjoint", "inverse"])
def test_directions(direction):
    f, q = inverse_frequencies(16), random(1, 7, 2, 16)
    rows = rt.table(f, 50, amplitude=1.5)
    got, none = rt.rotate(q, None, rows, 30, layout="half", direction=direction, amplitude=1.5)
    assert none is None
    sign, factor = {"forward": (1, 1.5), "adjoint": (-1, 1.5), "inverse": (-1, 1 / 1.5)}[direction]
    assert_close(got.double(), turned(q, torch.arange(30, 37)[None], f, "half", 0, factor, sign), rtol=0, atol=2e-6)
    formula, _ = rt._rotate_formula(q, None, rows, None, 30, 0, 0, 0, rt._DIRECTIONS[direction], 0, 1.5)
    assert_close(formula, got, rtol=0, atol=1e-6)


def test_positions_of_every_shape_strides_and_some_heads():
    f = inverse_frequencies(16)
    rows = rt.table(f, 100)
    q = random(3, 5, 4, 16).transpose(1, 2).contiguous().transpose(1, 2)  # as [batch, heads, tokens, dim]
    each = torch.randint(0, 100, (3, 5), generator=generator())
    for positions in (each, each.int(), each[:1].expand(3, 5), each[0]):
        got, _ = rt.rotate(q, None, rows, positions, layout="half")
        expected = turned(q, positions.expand(3, 5), f, "half")
        assert_close(got.double(), expected, rtol=0, atol=2e-6)
        assert_close(rt._rotate_formula(q, None, rows, positions)[0], got, rtol=0, atol=1e-6)
    some, _ = rt.rotate(q, None, rows, 9, layout="half", rotated_heads=3)
    expected = turned(q, torch.arange(9, 14)[None], f, "half")
    expected[:, :, 3:] = q[:, :, 3:].double()
    assert_close(some.double(), expected, rtol=0, atol=2e-6)
    assert_close(rt._rotate_formula(q, None, rows, None, 9, 0, 0, 0, 0, 3)[0], some, rtol=0, atol=1e-6)
    no_batch, _ = rt.rotate(q[1], None, rows, each[1], layout="half")
    assert_close(no_batch, rt.rotate(q, None, rows, each, layout="half")[0][1], rtol=0, atol=0)
    assert rt.rotate(q[:, :0], q[:, :0], rows, 5, layout="half")[1].shape == (3, 0, 4, 16)


def test_several_axes():
    rotation = rw.rotation(16, layout="half", sections=(2, 3, 3))
    table = rotation.table(60)
    positions = torch.randint(0, 60, (3, 2, 5), generator=generator())
    q = random(2, 5, 4, 16)
    got, _ = rt.rotate(q, None, table, positions)
    angle = positions.double()[torch.tensor(rotation.axis)].movedim(0, -1) * torch.tensor(rotation.inv_freq)
    c, s = angle.cos()[:, :, None], angle.sin()[:, :, None]
    x1, x2 = q.double()[..., :8], q.double()[..., 8:]
    assert_close(got.double(), torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), -1), rtol=0, atol=2e-6)
    rows, axis = torch.from_numpy(table.rows), torch.tensor(rotation.axis, dtype=torch.uint8)
    formula = rt._rotate_formula(q, None, rows, positions, 0, 0, 0, 0, 0, 0, 1.0, axis)[0]
    assert_close(formula, got, rtol=0, atol=1e-6)


def test_a_table_of_ropewalk_and_that_of_this_module_have_the_same_bits():
    rotation = rw.rotation(64, layout="half", method="yarn", factor=4, trained_length=4096)
    f = rt.frequencies(rotation)
    rows = rt.table(f.inv_freq, 300, 16000, amplitude=f.amplitude)
    assert np.array_equal(rows.numpy(), rotation.table(300, first=16000).rows)
    q, k = random(1, 300, 2, 64), random(1, 300, 1, 64, seed=1)
    by_table = rt.rotate(q, k, rotation.table(300, first=16000), 16000)
    by_frequencies = rt.rotate_frequencies(q, k, f.inv_freq, 16000, layout="half", amplitude=f.amplitude)
    for x, y in zip(by_table, by_frequencies):
        assert torch.equal(x, y)
    for table in (rotation.table(300, first=16000), rotation):
        a, b = rw.rotate(q, k, table, 16000)
        assert torch.equal(a, by_table[0]) and torch.equal(b, by_table[1])
    arrays = rw.rotate(q.numpy(), k.numpy(), rotation, 16000)
    assert np.array_equal(arrays[0], by_table[0].numpy()) and np.array_equal(arrays[1], by_table[1].numpy())


def test_in_place():
    rows = rt.table(inverse_frequencies(16), 20)
    q, k = random(2, 5, 4, 16), random(2, 5, 1, 16, seed=1)
    expected = rt.rotate(q, k, rows, 3, layout="interleaved")
    addresses = q.data_ptr(), k.data_ptr()
    got = rt.rotate(q, k, rows, 3, layout="interleaved", inplace=True)
    assert got[0] is q and got[1] is k and (q.data_ptr(), k.data_ptr()) == addresses
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1])
    with pytest.raises(rw.Error, match="inplace"):
        rt.rotate(q.requires_grad_(), None, rows, 3, layout="half", inplace=True)


def test_bad_input():
    rows = rt.table(inverse_frequencies(16), 20)
    q = random(2, 5, 4, 16)
    for message, call in {
        "layout": lambda: rt.rotate(q, None, rows, 0),
        "position 20": lambda: rt.rotate(q, None, rows, 16, layout="half"),
        "position 99": lambda: rt.rotate(q, None, rows, torch.tensor([0, 1, 99, 3, 4]), layout="half"),
        "position -1": lambda: rt.rotate(q, None, rows, torch.tensor([0, 1, -1, 3, 4]), layout="half"),
        "positions": lambda: rt.rotate(q, None, rows, torch.arange(4), layout="half"),
        "positions: expected int64": lambda: rt.rotate(q, None, rows, torch.arange(5.0), layout="half"),
        "head_dim": lambda: rt.rotate(q[..., :8], None, rows, layout="half"),
        "first_dim": lambda: rt.rotate(q, None, rows, layout="half", first_dim=1),
        "float64, float32": lambda: rt.rotate(q.int(), None, rows, layout="half"),
        r"\[tokens, heads, head_dim\]": lambda: rt.rotate(q[0, 0], None, rows, layout="half"),
        "k": lambda: rt.rotate(q, q[:, :3], rows, layout="half"),
        "table": lambda: rt.rotate(q, None, rows.double(), layout="half"),
        "rotated_heads": lambda: rt.rotate(q, None, rows, layout="half", rotated_heads=5),
        "direction": lambda: rt.rotate(q, None, rows, layout="half", direction="back"),
        "inv_freq": lambda: rt.rotate_frequencies(q, None, torch.ones(3, 8), layout="half"),
        "written|share": lambda: rt.rotate(q[:, :, :1].expand(2, 5, 4, 16), None, rows, layout="half", inplace=True),
    }.items():
        with pytest.raises((rw.Error, RuntimeError), match=message) as error:
            call()
        assert isinstance(error.value, rw.Error), message
    xpos = rw.rotation(16, layout="half", xpos_scale_base=512).table(20)
    with pytest.raises(rw.Error, match="xPos") as error:
        rt.rotate(q, None, xpos, 0)
    assert error.value.code == "unsupported"


def test_where_the_host_does_not_read_positions_a_token_outside_becomes_nan():
    rows, q = rt.table(inverse_frequencies(16), 20, 10), random(5, 4, 16)
    out, _ = rt._rotate_formula(q, None, rows, torch.tensor([9, 10, 29, 30, -7]), 0, 0, 10)
    assert out.isnan().flatten(1).any(1).tolist() == [True, False, False, True, True]


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("direction", ["forward", "adjoint", "inverse"])
def test_gradcheck_of_rotate(layout, direction):
    rows = rt.table(inverse_frequencies(6), 40, amplitude=1.25)
    q = random(2, 3, 2, 8, dtype=torch.float64).requires_grad_()
    k = random(2, 3, 1, 8, seed=1, dtype=torch.float64).requires_grad_()
    positions = torch.tensor([[0, 1, 39], [17, 3, 3]])

    def rotate(q, k):
        return rt.rotate(q, k, rows, positions, layout=layout, first_dim=1, amplitude=1.25, direction=direction)

    torch.autograd.gradcheck(rotate, (q, k))
    torch.autograd.gradgradcheck(rotate, (q, k))


def test_gradients_that_arrive_expanded():
    rows = rt.table(inverse_frequencies(16), 40)
    q = random(2, 3, 2, 16).requires_grad_()
    out, _ = rt.rotate(q, None, rows, 5, layout="half")
    out.sum().backward()  # strides 0, 0, 0, 0
    expected = turned(torch.ones(2, 3, 2, 16), torch.arange(5, 8)[None], inverse_frequencies(16), "half", sign=-1)
    assert_close(q.grad.double(), expected, rtol=0, atol=1e-6)
    q.grad = None
    out, _ = rt.rotate(q, None, rows, 5, layout="half")
    out.backward(torch.arange(16.0).expand(2, 3, 2, 16))  # 0, 0, 0, 1
    upstream = torch.arange(16.0).expand(2, 3, 2, 16)
    expected = turned(upstream, torch.arange(5, 8)[None], inverse_frequencies(16), "half", sign=-1)
    assert_close(q.grad.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_learned_frequencies(layout):
    f = inverse_frequencies(8).requires_grad_()
    a = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    q = random(2, 3, 2, 10, dtype=torch.float64).requires_grad_()
    k = random(2, 3, 1, 10, seed=1, dtype=torch.float64).requires_grad_()
    for positions in (3, torch.tensor([[0, 1, 9], [7, 3, 3]])):

        def rotate(q, k, f, a):
            return rt.rotate_frequencies(q, k, f, positions, layout=layout, amplitude=a, first_dim=1)

        torch.autograd.gradcheck(rotate, (q, k, f, a))
        grads = []
        for dtype in (torch.float64, torch.float32):  # float64 runs the formula, float32 the kernel
            inputs = [x.detach().to(dtype).requires_grad_() for x in (q, k)] + [x.detach().requires_grad_() for x in (f, a)]
            y, z = rotate(*inputs)
            loss = (y * torch.linspace(0, 1, y.numel()).reshape(y.shape)).sum() + z.square().sum()
            grads.append(torch.autograd.grad(loss, inputs))
        for x, y in zip(*grads):
            assert_close(y.double(), x, rtol=2e-5, atol=2e-5)


def test_a_learned_base():
    base = torch.tensor(10000.0, dtype=torch.float64, requires_grad=True)
    q = random(1, 20, 2, 8)

    def loss(base):
        f = base ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        return rt.rotate_frequencies(q, None, f, 100, layout="half")[0].double()[..., 1].sum()

    (got,) = torch.autograd.grad(loss(base), base)
    h = 1.0
    expected = (
        turned(q, torch.arange(100, 120)[None], inverse_frequencies(8, 10000 + h), "half")[..., 1].sum()
        - turned(q, torch.arange(100, 120)[None], inverse_frequencies(8, 10000 - h), "half")[..., 1].sum()
    ) / 2
    assert_close(got, expected, rtol=1e-4, atol=1e-7)


def test_backward_formula_of_other_devices():
    f, a = inverse_frequencies(8), torch.tensor(1.2, dtype=torch.float64)
    q, k = random(2, 3, 4, 10), random(2, 3, 4, 10, seed=1)
    d_q, d_k = random(2, 3, 4, 10, seed=2), random(2, 3, 4, 10, seed=3)
    arguments = (d_q, d_k, q, k, f, a, torch.tensor([[0, 1, 9], [7, 3, 3]]), 0, 1, 1, 2)
    for x, y in zip(rt._rotate_frequencies_backward_cpu(*arguments), rt._rotate_frequencies_backward_formula(*arguments)):
        assert_close(x, y, rtol=1e-5, atol=1e-5)


# The dispatcher ------------------------------------------------------------------------------------------------------


def rotate_samples():
    rows = rt.table(inverse_frequencies(8), 40)
    axis = torch.tensor([0, 1, 1, 2], dtype=torch.uint8)
    for grad in (False, True):
        q, k = random(2, 3, 2, 8).requires_grad_(grad), random(2, 3, 1, 8, seed=1).requires_grad_(grad)
        yield q, k, rows
        yield q, None, rows, torch.arange(3), 0, 1
        yield q[0].detach().requires_grad_(grad), None, rows, torch.arange(3), 0, 1, 0, 0, 1, 1
        yield q, k, rows, torch.arange(18).reshape(3, 2, 3), 0, 0, 0, 0, 0, 0, 1.0, axis
        yield q.detach().bfloat16().requires_grad_(grad), k.detach().bfloat16().requires_grad_(grad), rows, None, 7


def test_opcheck_of_rotate():
    for sample in rotate_samples():
        torch.library.opcheck(torch.ops.ropewalk.rotate.default, sample)
        q, k, *rest = (x.detach() if isinstance(x, torch.Tensor) else x for x in sample)
        torch.library.opcheck(torch.ops.ropewalk.rotate_.default, (q, k, *rest))


def test_opcheck_of_rotate_frequencies():
    a = torch.tensor(1.1, dtype=torch.float64)
    for grad in (False, True):
        f = inverse_frequencies(8).requires_grad_(grad)
        q, k = random(2, 3, 2, 8).requires_grad_(grad), random(2, 3, 1, 8, seed=1).requires_grad_(grad)
        torch.library.opcheck(torch.ops.ropewalk.rotate_frequencies.default, (q, k, f, a, None, 5))
        torch.library.opcheck(torch.ops.ropewalk.rotate_frequencies.default, (q, None, f, a, torch.arange(3), 0, 1))


@pytest.fixture
def counter():
    """A backend that counts; a test forbids to compile again after the first call."""
    torch._dynamo.reset()
    yield torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch.compiler.set_stance("default")


@pytest.mark.parametrize("inplace", [False, True])
def test_one_compilation_over_lengths(inplace, counter):
    rows = rt.table(inverse_frequencies(16), 5000)

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def f(q, k, start):
        if inplace:
            q, k = q * 1, k * 1
        q, k = rt.rotate(q, k, rows, start, layout="half", inplace=inplace)
        return q * 2, k

    for tokens, start in ((3, 17), (5, 2), (129, 1000), (4096, 900)):
        q, k = random(2, tokens, 4, 16), random(2, tokens, 2, 16, seed=1)
        got, expected = f(q, k, start), rt.rotate(q, k, rows, start, layout="half")
        assert torch.equal(got[0], expected[0] * 2) and torch.equal(got[1], expected[1])
        torch.compiler.set_stance("fail_on_recompile")
    assert counter.frame_count > 0


def test_compiled_with_gradients_and_inductor():
    torch._dynamo.reset()
    rows, f = rt.table(inverse_frequencies(16), 100), inverse_frequencies(16)

    def loss(q, k, f, positions):
        q, k = rt.rotate(q, k, rows, positions, layout="interleaved")
        q, k = rt.rotate_frequencies(q, k, f, positions, layout="half")
        return (q.square() * torch.arange(16)).sum() + k.sin().sum()

    inputs = [random(2, 5, 4, 16).requires_grad_(), random(2, 5, 2, 16, seed=1).requires_grad_(), f.requires_grad_()]
    expected = torch.autograd.grad(loss(*inputs, torch.arange(5)), inputs)
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True)(*inputs, torch.arange(5)), inputs)
    for x, y in zip(got, expected):
        assert_close(x, y, rtol=1e-5, atol=1e-5)


def test_export():
    rows = rt.table(inverse_frequencies(16), 100)

    class Model(torch.nn.Module):
        def forward(self, q, k, positions):
            return rt.rotate(q, k, rows, positions, layout="half")

    tokens = torch.export.Dim("tokens", min=2, max=90)
    q, k = random(1, 7, 4, 16), random(1, 7, 2, 16, seed=1)
    program = torch.export.export(
        Model(), (q, k, torch.arange(7)), dynamic_shapes={"q": {1: tokens}, "k": {1: tokens}, "positions": {0: tokens}}
    )
    q, k = random(1, 50, 4, 16), random(1, 50, 2, 16, seed=1)
    for x, y in zip(program.module()(q, k, torch.arange(50)), rt.rotate(q, k, rows, 0, layout="half")):
        assert torch.equal(x, y)


def test_vmap():
    rows = rt.table(inverse_frequencies(16), 100)
    q, k = random(5, 2, 3, 4, 16), random(2, 3, 5, 2, 16, seed=1)
    positions = torch.randint(0, 100, (5, 2, 3), generator=generator())

    def f(q, k, p):
        return rt.rotate(q, k, rows, p, layout="half")

    for dims, p in (((0, 2, 0), positions), ((0, 2, None), positions[0]), ((0, 2, None), positions[0, 0])):
        got = torch.func.vmap(f, dims)(q, k, p)
        for i in range(5):
            expected = f(q[i], k[:, :, i], p[i] if dims[2] == 0 else p)
            assert torch.equal(got[0][i], expected[0]) and torch.equal(got[1][i], expected[1])
    got = torch.func.vmap(lambda q: rt.rotate(q, None, rows, 3, layout="half")[0], 1)(q[0])  # without a batch inside
    assert torch.equal(got[1], rt.rotate(q[0, :, 1], None, rows, 3, layout="half")[0])
    with pytest.raises(rw.Error, match="vmap") as error:
        torch.func.vmap(lambda r: rt.rotate(q[0], None, r, 3, layout="half")[0])(rows.expand(2, -1, -1, -1))
    assert error.value.code == "unsupported"


def test_transforms_of_functions():
    rows, f = rt.table(inverse_frequencies(16), 100), inverse_frequencies(16)
    weights = torch.arange(16.0)
    for rotate in (
        lambda q: rt.rotate(q, None, rows, 3, layout="half")[0],
        lambda q: rt.rotate_frequencies(q, None, f, 3, layout="half")[0],
    ):
        q = random(3, 5, 4, 16).requires_grad_()

        def loss(q):
            return (rotate(q) ** 2 * weights).sum()

        (want,) = torch.autograd.grad(loss(q), q)
        q = q.detach()
        assert_close(torch.func.grad(loss)(q), want, rtol=1e-5, atol=1e-4)
        assert_close(torch.func.vmap(torch.func.grad(loss))(q), want, rtol=1e-5, atol=1e-4)
        out, tangent = torch.func.jvp(rotate, (q,), (weights.expand_as(q),))
        assert_close(out, rotate(q), rtol=1e-5, atol=1e-5)
        assert_close(tangent, rotate(weights.expand_as(q)), rtol=1e-5, atol=1e-5)  # it is linear
    with pytest.raises(rw.Error, match="torch.func.grad") as error:
        torch.func.grad(lambda q: rt.attention(q, q, q).sum())(random(5, 4, 16))
    assert error.value.code == "unsupported"


def test_autocast_keeps_the_dtype():
    rows, q = rt.table(inverse_frequencies(16), 100), random(1, 5, 4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        a, b = rt.rotate(q, q.bfloat16(), rows, 3, layout="half")
    assert a.dtype == torch.float32 and b.dtype == torch.bfloat16
    assert torch.equal(a, rt.rotate(q, None, rows, 3, layout="half")[0])
    assert torch.equal(b, rt.rotate(q.bfloat16(), None, rows, 3, layout="half")[0])


def test_fake_and_meta_tensors():
    rows = rt.table(inverse_frequencies(16), 100)
    q = torch.empty(1, 5, 4, 16, device="meta")
    assert rt.rotate(q, q, rows.to("meta"), torch.arange(5, device="meta"), layout="half")[1].shape == q.shape
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert rt.rotate(torch.empty(1, 5, 4, 16), None, rows, 3, layout="half")[0].shape == (1, 5, 4, 16)


# Attention -----------------------------------------------------------------------------------------------------------


def dense(
    q,
    k,
    v,
    bias=None,
    causal=True,
    window=0,
    soft_cap=0.0,
    sinks=None,
    temperatures=None,
    scale=None,
    query_positions=None,
    key_positions=None,
    document_starts=None,
    products=None,
    value_rows=None,
    keep=None,
):
    """Attention with a matrix of scores. bias(distance [B, 1, T, S]) -> [.., T, S]; products(q, k, distance) are
    scaled with q . k."""
    (_, t, h, d), s = q.shape, k.shape[1]
    k, v = (x.repeat_interleave(h // k.shape[2], 2) for x in (k, v))
    at_q = torch.arange(s - t, s)[None] if query_positions is None else query_positions.reshape(-1, t)
    at_k = torch.arange(s)[None] if key_positions is None else key_positions.reshape(-1, s)
    distance = (at_q[:, :, None] - at_k[:, None, :])[:, None]
    score = torch.einsum("bthd,bshd->bhts", q, k)
    if products is not None:
        score = score + products(q, k, distance)
    score = score * (d**-0.5 if scale is None else scale)
    if temperatures is not None:
        score = score * temperatures.reshape(-1, 1, t, 1)
    if bias is not None:
        score = score + bias(distance)
    if soft_cap:
        score = soft_cap * torch.tanh(score / soft_cap)
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window:
        seen = seen & (distance.abs() < window)
    if document_starts is not None:
        document = torch.searchsorted(document_starts, torch.arange(s), right=True)
        seen = seen & (document[s - t :, None] == document[None])
    if keep is not None:
        seen = seen & keep
    score = score.masked_fill(~seen, -math.inf)
    lse = score.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[None, :, None])
    weights = torch.exp(score - lse[..., None])
    out = torch.einsum("bhts,bshd->bthd", weights, v)
    if value_rows is not None:
        out = out + value_rows(weights, distance)
    return out, lse.transpose(1, 2)


B, T, S, H, G, D = 2, 37, 70, 4, 2, 16


def tensors(seed=0):
    return [random(B, T, H, D, seed=seed), random(B, S, G, D, seed=seed + 1), random(B, S, G, D, seed=seed + 2)]


def leaf(x):
    return x.detach().float().clone().requires_grad_()


def agree(call, reference, inputs, rtol=2e-4, atol=2e-5):
    """Outputs, log-sum-exps and gradients of all inputs (float32) against those of `reference` in float64."""
    ours = [leaf(x) for x in inputs]
    theirs = [x.detach().double().requires_grad_() for x in inputs]
    out, lse = call(*ours)
    expected, expected_lse = reference(*theirs)
    assert_close(out.double(), expected, rtol=rtol, atol=atol)
    assert_close(lse.double(), expected_lse, rtol=rtol, atol=atol)
    upstream = random(*expected.shape, seed=99)
    got = torch.autograd.grad((out * upstream).sum(), ours)
    want = torch.autograd.grad((expected * upstream).sum(), theirs)
    for i, (x, y) in enumerate(zip(got, want)):
        assert_close(x.double(), y, rtol=1e-3, atol=1e-4 * max(1.0, y.abs().max().item()), msg=lambda m: f"{i}: {m}")


def bucket_free(values, first):
    return lambda distance: values[:, (distance[:, 0] - first).clamp(0, values.shape[1] - 1)].transpose(0, 1)


BIASES = {}


def bias_case(name, *parameters, **settings):
    return lambda f: BIASES.__setitem__(name, (f, parameters, settings))


@bias_case("none")
def _():
    return None, {}


@bias_case("slopes", torch.tensor([0.5, 0.25, 0.1, 0.01]))
def _(slopes):
    return rt.Slopes(slopes), {"bias": lambda d: -slopes[:, None, None] * d}


@bias_case("slopes of both sides", torch.rand(4, generator=generator(5)), torch.rand(4, generator=generator(6)), causal=False)
def _(behind, ahead):
    return rt.Slopes(behind, ahead), {"bias": lambda d: torch.where(d >= 0, -behind[:, None, None] * d, ahead[:, None, None] * d)}


@bias_case("distances", random(4, 70, seed=7))
def _(values):
    return rt.Distances(values), {"bias": bucket_free(values, 0)}


@bias_case("distances that repeat", random(4, 21, seed=7), causal=False, window=40)
def _(values):
    return rt.Distances(values, -10, True, True), {"bias": bucket_free(values, -10)}


def rows_of(d, first, row_of):
    return torch.tensor(row_of)[(d[:, 0] - first).clamp(0, len(row_of) - 1)]


ROW_OF = [8, 7, 6, 5, 4, 4, 4, 3, 2, 1, 0]  # distance -5 to 5


@bias_case(
    "content",
    *(random(1, 9, D, seed=i) * 0.3 for i in (1, 2, 3)),
    random(H, D, seed=4),
    random(H, D, seed=5),
    causal=False,
)
def _(query_rows, key_rows, value_rows, query_bias, key_bias):
    form = rt.Content(
        torch.tensor(ROW_OF, dtype=torch.int32), -5, query_rows, key_rows, value_rows, query_bias, key_bias, True, True
    )

    def products(q, k, d):
        r = rows_of(d, -5, ROW_OF)
        return (
            torch.einsum("bthd,btsd->bhts", q + query_bias, query_rows[0][r].expand(q.shape[0], -1, -1, -1))
            + torch.einsum("bshd,btsd->bhts", k, key_rows[0][r].expand(q.shape[0], -1, -1, -1))
            + torch.einsum("bshd,hd->bhs", k, key_bias)[:, :, None]
        )

    def values(weights, d):
        return torch.einsum("bhts,tsd->bthd", weights, value_rows[0][rows_of(d, -5, ROW_OF)][0])

    return form, {"products": products, "value_rows": values}


@bias_case("content by head", random(H, 9, D, seed=1) * 0.3, random(H, 9, D, seed=2) * 0.3)
def _(query_rows, key_rows):
    form = rt.Content(torch.tensor(ROW_OF, dtype=torch.int32), -5, query_rows, key_rows, None, None, None, True, True)

    def products(q, k, d):
        r = rows_of(d, -5, ROW_OF)[0]
        return torch.einsum("bthd,htsd->bhts", q, query_rows[:, r]) + torch.einsum("bshd,htsd->bhts", k, key_rows[:, r])

    return form, {"products": products}


@bias_case("gates", -torch.rand(B, S, H, generator=generator(8)) * 0.2)
def _(log_gates):
    sums = log_gates.double().cumsum(1)
    return rt.Gates(log_gates), {"bias": lambda d: (sums[:, S - T :, None] - sums[:, None]).permute(0, 3, 1, 2)}


@bias_case("contextual", random(1, 6, D, seed=3))
def _(rows):
    def reference(q, k):  # CoPE: no bias of the distance, so it is added as products that are divided by the scale
        scale = D**-0.5
        content = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(H // k.shape[2], 2) if k.shape[2] != H else k)
        seen = torch.arange(S)[None] <= torch.arange(S - T, S)[:, None]
        gates = torch.sigmoid(scale * content) * seen
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=rows.shape[1] - 1)
        low = position.floor().long().clamp(max=rows.shape[1] - 2)
        by_row = torch.einsum("bthd,rd->bhtr", q, rows[0])
        at_low, at_high = by_row.gather(-1, low), by_row.gather(-1, low + 1)
        return (at_low + (position - low) * (at_high - at_low)) / scale

    return rt.Contextual(rows), {"products": lambda q, k, d: reference(q, k)}


@bias_case(
    "fire",
    random(8, seed=1),
    random(8, seed=2),
    random(H, 8, seed=3),
    random(H, seed=4),
    torch.tensor([0.3]),
    torch.tensor([20.0]),
)
def _(w1, b1, w2, b2, c, threshold):
    def bias(d):
        psi = torch.log(c * d.abs() + 1)
        x = psi / torch.log(c * torch.maximum(threshold, torch.arange(S - T, S)) + 1)[:, None]
        return (torch.relu(x[..., None] * w1 + b1) @ w2.T + b2)[:, 0].permute(0, 3, 1, 2)

    return rt.Fire(w1, b1, w2, b2, c, threshold), {"bias": bias}


@bias_case(
    "tupe",
    random(S, 12, seed=1),
    random(H, D, 12, seed=2) * 0.3,
    random(H, D, seed=3),
    random(H, D, 12, seed=4) * 0.3,
    random(H, D, seed=5),
    random(H, seed=6),
    random(H, seed=7),
    causal=False,
)
def _(p, w_q, b_q, w_k, b_k, from_cls, to_cls):
    def bias(d):
        q, k = torch.einsum("pm,hdm->hpd", p, w_q) + b_q[:, None], torch.einsum("pm,hdm->hpd", p, w_k) + b_k[:, None]
        score = torch.einsum("hid,hjd->hij", q, k) * (2 * D) ** -0.5
        score = torch.cat((to_cls[:, None, None].expand(-1, S, 1), score[:, :, 1:]), 2)
        score = torch.cat((from_cls[:, None, None].expand(-1, 1, S), score[:, 1:]), 1)
        return score[None, :, S - T :]

    return rt.Tupe(p, w_q, w_k, b_q, b_k, None, from_cls, to_cls), {"bias": bias}


@bias_case("swin", random(8, 2, seed=1), random(8, seed=2), random(H, 8, seed=3), causal=False)
def _(w1, b1, w2):
    def spaced(n, size):
        return torch.sign(n) * torch.log2(1 + 8 * n.abs() / (size - 1)) / 3

    def bias(d):
        i, j = torch.arange(S - T, S)[:, None].double(), torch.arange(S)[None].double()
        y, x = spaced(i // 10 - j // 10, 7), spaced(i % 10 - j % 10, 10)
        return 16 * torch.sigmoid(torch.relu(torch.stack((y, x), -1) @ w1.double().T + b1) @ w2.double().T).permute(2, 0, 1)[None]

    return rt.Swin(w1, b1, w2, 7, 10), {"bias": bias}


@pytest.mark.parametrize("name", BIASES)
def test_attention_and_its_gradients(name):
    make, parameters, settings = BIASES[name]

    def ours(q, k, v, *p):
        return rt.attention(q, k, v, bias=make(*p)[0], return_lse=True, **settings)

    def reference(q, k, v, *p):
        return dense(q, k, v, **make(*p)[1], **settings)

    agree(ours, reference, [*tensors(), *parameters])


@pytest.mark.parametrize(
    "settings",
    [
        {"causal": False},
        {"window": 9},
        {"soft_cap": 5.0},
        {"scale": 0.7},
        {"window": 20, "soft_cap": 3.0},
        {"query_positions": torch.arange(T) + 200, "key_positions": torch.arange(S) * 3 + 100},
        {"query_positions": torch.stack((torch.arange(T) + 33, torch.arange(T) + 50))},
        {"document_starts": torch.tensor([0, 11, 50])},
        {"temperatures": torch.rand(T, generator=generator(3)) + 0.5},
        {"temperatures": torch.rand(B, T, generator=generator(3)) + 0.5},
    ],
    ids=lambda s: "+".join(s),
)
def test_attention_settings(settings):
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01])

    def ours(q, k, v, sinks):
        return rt.attention(q, k, v, bias=rt.Slopes(slopes, slopes), sinks=sinks, return_lse=True, **settings)

    def reference(q, k, v, sinks):
        return dense(q, k, v, bias=lambda d: -slopes[:, None, None] * d.abs(), sinks=sinks, **settings)

    agree(ours, reference, [*tensors(), random(H, seed=11)])


MAPS = {
    "rerope": (rw.ReRoPE(window=9), lambda i, j: min(i - j, 9)),
    "leaky": (rw.LeakyReRoPE(window=9, factor=4), lambda i, j: i - j if i - j < 9 else 9 + (i - j - 9) / 4),
    "self-extend": (
        rw.SelfExtend(window=12, group=4),
        lambda i, j: i - j if i - j < 12 else i // 4 + 12 - 12 // 4 - j // 4,
    ),
    "sinks": (rw.AttentionSinks(sinks=3, window=20), None),
    "dual-chunk": (
        rw.DualChunk(chunk=16, limit=24),
        lambda i, j: i - j if i // 16 == j // 16 else min(i % 16 + 16, 24) - j % 16 if i // 16 == j // 16 + 1 else 24 - j % 16,
    ),
}


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("name", MAPS)
def test_position_maps_and_fused_rotation(name, layout):
    remap, relative = MAPS[name]
    f = inverse_frequencies(12)
    rotation = rt.Frequencies(f, layout, 2)
    distance, keep = torch.zeros(T, S), torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        for j in range(S):
            i = S - T + t
            keep[t, j] = j <= i and (name != "sinks" or j < 3 or i - j < 20)
            if not keep[t, j]:
                continue
            distance[t, j] = remap.relative_position(i, j) if relative is None else relative(i, j)

    def reference(q, k, v):
        turned_q = turned_each(q, distance, f, layout, 2)  # [B, T, S, H, D]
        score = torch.einsum("btshd,bshd->bhts", turned_q, k.repeat_interleave(H // G, 2))
        plain = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(H // G, 2))
        return dense(q, k, v, products=lambda *_: score - plain, keep=keep)

    agree(lambda q, k, v: rt.attention(q, k, v, rotation=rotation, remap=remap, return_lse=True), reference, tensors())


def turned_each(q, distance, inv_freq, layout, first_dim):
    """q rotated by a distance of its own for each key: [B, T, S, H, D]."""
    b, t, h, d = q.shape
    s = distance.shape[1]
    x = q[:, :, None].expand(b, t, s, h, d).reshape(b * t * s, 1, h, d)
    positions = distance[None].expand(b, t, s).reshape(-1, 1)
    n = len(inv_freq)
    angle = positions.double()[..., None, None] * inv_freq
    c, sn = angle.cos(), angle.sin()
    part = x[..., first_dim : first_dim + 2 * n]
    if layout == "half":
        x1, x2 = part[..., :n], part[..., n:]
        y = torch.cat((x1 * c - x2 * sn, x2 * c + x1 * sn), -1)
    else:
        x1, x2 = part[..., 0::2], part[..., 1::2]
        y = torch.stack((x1 * c - x2 * sn, x2 * c + x1 * sn), -1).flatten(-2)
    x = torch.cat((x[..., :first_dim], y, x[..., first_dim + 2 * n :]), -1)
    return x.reshape(b, t, s, h, d)


def test_rotation_without_a_map_is_rotate_before_attention():
    q, k, v = tensors()
    f = inverse_frequencies(16)
    out = rt.attention(q, k, v, rotation=rt.Frequencies(f))
    rows = rt.table(f, S)
    turned_q, _ = rt.rotate(q, None, rows, S - T, layout="half")
    turned_k, _ = rt.rotate(k, None, rows, 0, layout="half")
    assert torch.equal(out, rt.attention(turned_q, turned_k, v))
    by_rotation = rt.attention(q, k, v, rotation=rw.rotation(16, layout="half"))
    assert_close(by_rotation, out, rtol=0, atol=1e-6)


FLEX = [n for n in BIASES if n not in ("contextual", "fire", "tupe", "swin", "content")]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", FLEX)
def test_what_other_devices_run(name):
    make, parameters, settings = BIASES[name]
    arguments = flex_arguments(
        make(*parameters)[0],
        **settings,
        sinks=random(H, seed=11),
        soft_cap=4.0,
        temperatures=torch.rand(T, generator=generator(3)) + 0.5,
    )
    with torch.no_grad():
        for x, y in zip(rt._flex_attention(*tensors(), *arguments), rt._attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)


def flex_arguments(
    bias=None,
    causal=True,
    window=0,
    soft_cap=0.0,
    sinks=None,
    temperatures=None,
    inv_freq=None,
    remap=None,
    documents=None,
    scale=None,
    layout=0,
    first_dim=0,
):
    kind, parts, numbers = rt._lower(bias)
    parts = [torch.empty(0) if p is None else p for p in parts]
    return (
        parts,
        sinks,
        temperatures,
        None,
        None,
        documents,
        inv_freq,
        kind,
        numbers,
        causal,
        scale,
        window,
        soft_cap,
        layout,
        first_dim,
        1.0,
        rt._remap_numbers(remap),
    )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", MAPS)
def test_maps_of_other_devices(name):
    arguments = flex_arguments(inv_freq=inverse_frequencies(12), remap=MAPS[name][0], sinks=random(H, seed=11), first_dim=2)
    with torch.no_grad():
        for x, y in zip(rt._flex_attention(*tensors(), *arguments), rt._attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_documents_and_refusals_of_other_devices():
    arguments = flex_arguments(rt.Slopes(torch.ones(H) * 0.1), documents=torch.tensor([0, 11, 50]), window=15)
    with torch.no_grad():
        for x, y in zip(rt._flex_attention(*tensors(), *arguments), rt._attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)
    for name in ("contextual", "fire", "tupe", "swin", "content"):
        make, parameters, settings = BIASES[name]
        with pytest.raises(rw.Error, match="CPU alone") as error:
            rt._flex_attention(*tensors(), *flex_arguments(make(*parameters)[0], **settings))
        assert error.value.code == "unsupported"
    with pytest.raises(rw.Error, match="knows distances"):
        rt._flex_attention(*tensors(), *flex_arguments(rt.Distances(random(H, 9))))


def test_attention_in_other_dtypes_and_without_a_batch():
    q, k, v = tensors()
    expected = rt.attention(q, k, v)
    assert torch.equal(rt.attention(q[1], k[1], v[1]), expected[1])
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        out = rt.attention(q.to(dtype), k.to(dtype), v.to(dtype))
        assert out.dtype == dtype
        want, _ = dense(*(x.to(dtype).double() for x in (q, k, v)))
        assert_close(out.double(), want, rtol=1e-2, atol=1e-2 if dtype != torch.float64 else 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        out = rt.attention(q.bfloat16(), k, v)
        assert out.dtype == torch.bfloat16
        op = torch.ops.ropewalk.attention.default(q.bfloat16(), k.bfloat16(), v, *flex_arguments())[0]
        assert op.dtype == torch.float32
    for empty in (rt.attention(q[:, :0], k, v), rt.attention(q[:0], k[:0], v[:0])):
        assert empty.numel() == 0


def test_attention_takes_strides_and_expanded_gradients():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors())
    assert not q.is_contiguous()
    q.requires_grad_()
    out = rt.attention(q, k, v)
    assert torch.equal(out, rt.attention(q.contiguous(), k.contiguous(), v.contiguous()))
    (got,) = torch.autograd.grad(out.sum(), q)
    (want,) = torch.autograd.grad(rt.attention(q, k, v), q, torch.ones(B, T, H, D))
    assert torch.equal(got, want)


def test_bad_attention():
    q, k, v = tensors()
    slopes = torch.ones(H)
    for message, call in {
        "bias": lambda: rt.attention(q, k, v, bias=7),
        "behind": lambda: rt.attention(q, k, v, bias=rt.Slopes(slopes[:3])),
        "distances 0 to 8": lambda: rt.attention(q, k, v, bias=rt.Distances(random(H, 9))),
        "log_gates": lambda: rt.attention(q, k, v, bias=rt.Gates(-torch.ones(B, T, H))),
        "heads": lambda: rt.attention(q[:, :, :3], k, v),
        "v": lambda: rt.attention(q, k, v[:, :-1]),
        "k:": lambda: rt.attention(q, k[..., :8], v),
        "float": lambda: rt.attention(q.long(), k, v),
        "sinks": lambda: rt.attention(q, k, v, sinks=torch.ones(3)),
        "temperatures": lambda: rt.attention(q, k, v, temperatures=torch.ones(3)),
        "query_positions": lambda: rt.attention(q, k, v, query_positions=torch.arange(T).float()),
        "remap": lambda: rt.attention(q, k, v, remap=("rerope", 5)),
        "remap: expected a map": lambda: rt.attention(q, k, v, remap=("nothing", 5), rotation=rt.Frequencies(torch.ones(2))),
        "tokens": lambda: rt.attention(k.repeat_interleave(2, 2), q[:, :, :2], q[:, :, :2]),
        "finite": lambda: rt.attention(q, k, v, bias=rt.Slopes(slopes * math.nan)),
        "scale": lambda: rt.attention(q, k, v, scale=-1.0),
        r"w1: expected \[8, 2\]|width|w2": lambda: rt.attention(
            q, k, v, bias=rt.Fire(*(torch.ones(4),) * 4, *(torch.ones(1),) * 2)
        ),
    }.items():
        with pytest.raises(rw.Error, match=message):
            call()


def test_bad_arguments_of_the_ops():
    q, k, v = tensors()
    rows = rt.table(inverse_frequencies(16), 40)
    rotate, attention = torch.ops.ropewalk.rotate.default, torch.ops.ropewalk.attention.default
    good = list(flex_arguments(rt.Distances(random(H, 70))))
    for message, call in {
        "holds no positions": lambda: rotate(q, None, rows[:0]),
        "pairs": lambda: rotate(q, None, rows[..., :0].contiguous()),
        "position -5": lambda: rotate(q, None, rows, None, -5),
        "position 1099511627776": lambda: rotate(q, None, rows, None, 1 << 40),
        "layout": lambda: rotate(q, None, rows, None, 0, 7),
        "does not have 0 tensors": lambda: attention(q, k, v, [], *good[1:]),
        "does not have 1 numbers": lambda: attention(q, k, v, *good[:8], [0], *good[9:]),
        "kind 9": lambda: attention(q, k, v, *good[:7], 9, *good[8:]),
        "float32": lambda: attention(q.double(), k, v, *good),
    }.items():
        with pytest.raises(rw.Error, match=message):
            call()


def test_opcheck_of_attention():
    for name in ("none", "slopes", "content", "gates"):
        make, parameters, settings = BIASES[name]
        for grad in (False, True):
            parameters = [p.detach().requires_grad_(grad) for p in parameters]
            inputs = [x.requires_grad_(grad) for x in tensors()]
            sinks = random(H, seed=11).requires_grad_(grad)
            torch.library.opcheck(
                torch.ops.ropewalk.attention.default,
                (*inputs, *flex_arguments(make(*parameters)[0], sinks=sinks, **settings)),
            )


def test_attention_compiles_once_over_lengths(counter):
    slopes = (torch.ones(H) * 0.1).requires_grad_()

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def f(q, k, v):
        return rt.attention(q, k, v, bias=rt.Slopes(slopes), window=30)

    for tokens in (5, 12, 70):
        q, k, v = (x[:, :tokens].clone().requires_grad_() for x in (random(B, S, H, D), *tensors()[1:]))
        eager = rt.attention(q, k, v, bias=rt.Slopes(slopes), window=30)
        out = f(q, k, v)
        assert torch.equal(out, eager)
        for x, y in zip(torch.autograd.grad(out.sum(), (q, slopes)), torch.autograd.grad(eager.sum(), (q, slopes))):
            assert torch.equal(x, y)
        torch.compiler.set_stance("fail_on_recompile")
    assert counter.frame_count > 0


def test_attention_vmap():
    q, k, v = (torch.stack((x, x + 1, x * 2)) for x in tensors())
    got = torch.func.vmap(lambda q, k, v: rt.attention(q, k, v, window=9))(q, k, v)
    for i in range(3):
        assert torch.equal(got[i], rt.attention(q[i], k[i], v[i], window=9))
    with pytest.raises(rw.Error, match="vmap"):
        torch.func.vmap(lambda s: rt.attention(q[0], k[0], v[0], sinks=s))(torch.ones(3, H))


# Modules -------------------------------------------------------------------------------------------------------------


def modules():
    from ropewalk import nn

    yield "alibi", nn.Alibi(H, learned=True), rw.Alibi, {}, None
    yield "t5", nn.T5Bias(H), rw.T5Bias, {"bidirectional": False}, None
    yield "t5 of encoders", nn.T5Bias(H, bidirectional=True, last_distance=30), rw.T5Bias, {"last_distance": 30}, None
    yield "kerple", nn.Kerple(H), rw.Kerple, {}, None
    yield (
        "kerple of powers",
        nn.Kerple(H, kernel="power", causal=False),
        rw.Kerple,
        {"kernel": "power", "causal": False},
        None,
    )
    yield "sandwich", nn.Sandwich(H, dim=32), rw.Sandwich, {"dim": 32}, None
    yield "fire", nn.Fire(H, width=8, threshold=20.0), rw.Fire, {}, None
    yield "shaw", nn.Shaw(H, D, left=5, right=3), rw.Shaw, {"left": 5, "right": 3}, None
    yield "shaw by head", nn.Shaw(H, D, left=5, values=False, per_head=True), rw.Shaw, {"left": 5, "right": 0}, None
    yield "transformer-xl", nn.TransformerXL(H, D, 12), rw.TransformerXL, {}, None
    yield (
        "transformer-xl clamped",
        nn.TransformerXL(H, D, 12, clamp_distance=9),
        rw.TransformerXL,
        {"clamp_distance": 9},
        None,
    )
    yield (
        "deberta",
        nn.DebertaBias(H, D, 12, buckets=8, max_position=32),
        rw.DebertaBias,
        {"buckets": 8, "max_position": 32},
        None,
    )
    yield "tupe", nn.Tupe(H, D, 12, S), rw.Tupe, {}, None
    yield "tupe with distances", nn.Tupe(H, D, 12, S, relative=True, buckets=8, last_distance=20), rw.Tupe, {}, None
    yield "swin", nn.SwinBias(H, height=7, width=10, hidden=8), rw.SwinBias, {"height": 7, "width": 10}, None
    yield "cope", nn.CoPE(H, D, 6), rw.CoPE, {}, None


MODULES = [name for name, *_ in modules()]


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_the_biases_of_ropewalk(name):
    """Values and gradients of a module against those of the same bias for arrays, whose lowering is C++."""
    torch.manual_seed(3)
    module, kind, settings = next((m, k, s) for n, m, k, s, _ in modules() if n == name)
    for p in module.parameters():
        if p.dim() > 0 and bool((p == 0).all()):
            torch.nn.init.normal_(p)
    if name.startswith("kerple"):
        with torch.no_grad():
            for p in module.parameters():
                p += 0.05
    held = {n: p.detach().numpy() for n, p in module.named_parameters()}
    given = {n: p.item() if p.ndim == 0 else p[0] if n.endswith("_rows") and p.shape[0] == 1 else p for n, p in held.items()}
    if given.get("relative") is not None:
        given["relative"] = rw.T5Bias(H, buckets=8, last_distance=20, embedding=given["relative"])
    bias = kind(H, **settings, **given)
    q, k, v = tensors()
    out = module(*(x.requires_grad_() for x in (q, k, v)))
    arrays = [x.detach().numpy() for x in (q, k, v)]
    causal = getattr(module, "causal", True)
    options = {"bias": bias, "causal": causal, "scale": module.default_scale(D)}
    assert_close(out, torch.from_numpy(np.asarray(rw.attention(*arrays, **options))), rtol=1e-4, atol=1e-5)
    assert_close(out, rt.attention(q, k, v, **options), rtol=1e-4, atol=1e-5)  # the bias for arrays, given to tensors
    if not held:
        return
    upstream = random(*out.shape, seed=99)
    got = torch.autograd.grad((out * upstream).sum(), (q, k, v, *module.parameters()))
    total = None
    for b in range(B):
        g = rw.attention_backward(upstream[b].numpy(), *(x[b] for x in arrays), **options)
        for x, y in zip(got[:3], (g.q, g.k, g.v)):
            assert_close(x[b], torch.from_numpy(np.asarray(y)), rtol=1e-3, atol=1e-4)
        flat = {n: np.asarray(x, np.float64) for n, x in g.bias.items()}
        total = flat if total is None else {n: total[n] + x for n, x in flat.items()}
    for n, x in zip(held, got[3:]):
        y = torch.as_tensor(np.asarray(total[n])).reshape(x.shape)
        assert_close(x.double(), y, rtol=1e-3, atol=1e-4 * max(1.0, y.abs().max().item()), msg=lambda m: f"{n}: {m}")


@pytest.mark.parametrize("name", MODULES)
def test_modules_compile_once_over_lengths(name, counter):
    module = next(m for n, m, *_ in modules() if n == name)
    if name == "swin":  # a window has one size
        pytest.skip("a window has one length")
    run = torch.compile(module, backend=counter, fullgraph=True, dynamic=True)
    for tokens in (5, 9, 33):
        x = [random(B, tokens, H, D, seed=i).requires_grad_() for i in range(3)]
        out = run(*x)
        out.sum().backward()
        assert torch.equal(out, module(*x))
        torch.compiler.set_stance("fail_on_recompile")


def test_forgetting_gate():
    from ropewalk import nn

    torch.manual_seed(3)
    gate, x = nn.ForgettingGate(H, 12), random(B, S, 12)
    q, k, v = tensors()
    out = rt.attention(q, k, v, bias=gate(x))
    arrays = rw.ForgettingGate(H, weight=gate.weight.detach().numpy(), bias=gate.bias.detach().numpy())
    for b in range(B):
        expected = rw.attention(*(t[b].numpy() for t in (q, k, v)), bias=arrays.of(x[b].numpy()))
        assert_close(out[b], torch.from_numpy(np.asarray(expected)), rtol=1e-4, atol=1e-5)
    out.sum().backward()
    assert gate.weight.grad.abs().sum() > 0


def test_rotary_embedding():
    from ropewalk import nn

    rotation = rw.rotation(64, layout="half", method="yarn", factor=4, trained_length=4096)
    module = nn.RotaryEmbedding(rotation, 16)
    q, k = random(1, 10, 2, 64), random(1, 10, 1, 64, seed=1)
    for dtype in DTYPES[1:]:
        module.to(dtype)  # nothing to round
        for positions in (0, 131067, torch.arange(200000, 200010)):
            start = positions if isinstance(positions, int) else 200000
            want = rt.rotate(q.to(dtype), k.to(dtype), rotation.table(10, first=start), start)
            got = module(q.to(dtype), k.to(dtype), positions)
            assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
    assert not list(module.parameters()) and not list(module.buffers()) and not module.state_dict()
    q.requires_grad_()
    back, _ = module(module(q, None, 5)[0], None, 5, direction="inverse")
    assert_close(back, q, rtol=1e-5, atol=1e-5)
    (grad,) = torch.autograd.grad(back.sum(), q)
    assert_close(grad, torch.ones_like(q), rtol=1e-5, atol=1e-5)


def test_rotary_embedding_compiles_once(counter):
    from ropewalk import nn

    rotation = rw.rotation(64, layout="half")
    module, compiled = nn.RotaryEmbedding(rotation, 16), nn.RotaryEmbedding(rotation, 16)
    run = torch.compile(compiled, backend=counter, fullgraph=True, dynamic=True)
    for tokens, start in ((3, 5), (7, 100), (300, 1048000)):
        q, k = random(2, tokens, 4, 64), random(2, tokens, 1, 64, seed=1)
        for x, y in zip(run(q, k, start), module(q, k, start)):
            assert torch.equal(x, y)
        torch.compiler.set_stance("fail_on_recompile")
    assert counter.frame_count > 0


@pytest.mark.parametrize("learn", ["frequencies", "base"])
def test_learned_rotary_embedding(learn):
    from ropewalk import nn

    module = nn.LearnedRotaryEmbedding(64, layout="half", learn=learn).half()
    q = random(1, 10, 2, 64).half()
    out, _ = module(q, None, 1000)
    want, _ = nn.RotaryEmbedding(rw.rotation(64, layout="half"))(q, None, 1000)
    assert_close(out, want, rtol=0, atol=2e-3)
    out.float().square()[..., :7].sum().backward()
    (p,) = module.parameters()
    assert p.dtype == torch.float64 and p.grad.abs().sum() > 0
