"""ropewalk.torch against formulas in float64 that are typed again here, and PyTorch's own checks of custom ops."""

import numpy as np
import pytest
import torch
from ops_reference import generator, inverse_frequencies, random, turned
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk.torch._frequencies import rotate_frequencies_backward_cpu, rotate_frequencies_backward_formula
from ropewalk.torch._rotation import rotate_formula
from ropewalk.torch._shared import DIRECTIONS

POSITIONS = (0, 1, 255, 256, 257, 4095, 4096, 4097, 131071, 1048575)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


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
        same = rotate_formula(
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
    formula, _ = rotate_formula(q, None, rows, None, 30, 0, 0, 0, DIRECTIONS[direction], 0, 1.5)
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
        assert_close(rotate_formula(q, None, rows, positions)[0], got, rtol=0, atol=1e-6)
    some, _ = rt.rotate(q, None, rows, 9, layout="half", rotated_heads=3)
    expected = turned(q, torch.arange(9, 14)[None], f, "half")
    expected[:, :, 3:] = q[:, :, 3:].double()
    assert_close(some.double(), expected, rtol=0, atol=2e-6)
    assert_close(rotate_formula(q, None, rows, None, 9, 0, 0, 0, 0, 3)[0], some, rtol=0, atol=1e-6)
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
    formula = rotate_formula(q, None, rows, positions, 0, 0, 0, 0, 0, 0, 1.0, axis)[0]
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


def test_autograd_notices_a_rotation_in_place():
    table = rw.rotation(16, layout="half").table(20)
    for make, written in (
        (lambda a, w: (a * w[0]).sum(), 0),
        (lambda a, w: (a[..., :1, :] * w[1]).sum(), 1),
        (lambda a, w: (a * w[0].view(-1).view(2, 5, 4, 16)).sum(), 0),  # a view shares its version
    ):
        a, w = random(2, 5, 4, 16).requires_grad_(), [random(2, 5, 4, 16, seed=1), random(2, 5, 1, 16, seed=2)]
        loss = make(a, w)
        rt.rotate(*(w if written else (w[0], None)), table, 3, inplace=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    with torch.inference_mode():  # whose tensors have no version
        rt.rotate(random(2, 5, 4, 16), None, table, 3, inplace=True)


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


@pytest.mark.parametrize("direction", ["forward", "adjoint", "inverse"])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_xpos(layout, direction):
    rotation = rw.rotation(16, layout=layout, rotary_dim=12, first_dim=2, xpos_scale_base=64, xpos_centre=100.0, rotated_heads=3)
    table = rotation.table(300)
    q, k = random(2, 7, 4, 16), random(2, 7, 3, 16, seed=1)
    each = torch.randint(0, 300, (2, 7), generator=generator())
    for positions in (200, each, each[0]):
        given = positions if isinstance(positions, int) else positions.numpy()
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-6), (torch.bfloat16, 0.004)):
            x, y = q.to(dtype), k.to(dtype)
            want = rw.rotate(x.float().numpy(), y.float().numpy(), table, given, direction=direction)
            for by in (table, rotation):
                got = rt.rotate(x, y, by, positions, direction=direction)
                for a, b in zip(got, want):
                    b = torch.from_numpy(b)
                    assert a.dtype == dtype
                    assert_close(a.float(), b, rtol=tolerance, atol=tolerance * b.abs().max().item())
    both = rt.rotate(q, k, table, 200, direction=direction)
    scratch = q.clone(), k.clone()
    assert rt.rotate(*scratch, table, 200, direction=direction, inplace=True)[0] is scratch[0]
    assert torch.equal(scratch[0], both[0]) and torch.equal(scratch[1], both[1])
    x, y = (t.double().requires_grad_() for t in (q, k))
    torch.autograd.gradcheck(lambda x, y: rt.rotate(x, y, table, each, direction=direction), (x, y))
    with pytest.raises(rw.Error, match="xPos multiplies (queries|keys)"):
        rt.rotate(q, k, rotation, 10**6, direction=direction)
    module = rw.nn.RotaryEmbedding(rotation, 16)
    for a, b in zip(module(q, k, 200, direction=direction), both):
        assert torch.equal(a, b)
    if direction == "forward":
        run = torch.compile(module, backend="aot_eager", fullgraph=True)
        for a, b in zip(run(q, k, each), rt.rotate(q, k, table, each)):
            assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_where_the_host_does_not_read_positions_a_token_outside_becomes_nan():
    rows, q = rt.table(inverse_frequencies(16), 20, 10), random(5, 4, 16)
    out, _ = rotate_formula(q, None, rows, torch.tensor([9, 10, 29, 30, -7]), 0, 0, 10)
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
    for x, y in zip(rotate_frequencies_backward_cpu(*arguments), rotate_frequencies_backward_formula(*arguments)):
        assert_close(x, y, rtol=1e-5, atol=1e-5)


# The dispatcher ------------------------------------------------------------------------------------------------------


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
