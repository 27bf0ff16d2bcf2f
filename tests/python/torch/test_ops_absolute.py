"""Absolute encodings, PoPE and FoPE of ropewalk.torch against those of ropewalk for arrays, and PyTorch's checks of the ops."""

import math

import numpy as np
import pytest
import torch
from ops_reference import random
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk.torch._absolute import cos_sin, sinusoidal_frequencies
from ropewalk.torch._frequencies import cos_sin_formula

FAR = torch.tensor([0, 1, -5, 255, 256, 257, 131071, 1048575, 2**31 - 1])


def double(*tensors):
    return [x.double().requires_grad_() for x in tensors]


# Sinusoids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cosine_first", [False, True])
@pytest.mark.parametrize("ladder", ["paper", "to-base"])
@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_sinusoidal_rows_have_the_bits_of_the_library(layout, ladder, cosine_first):
    for dim in (8, 9):
        settings = {"layout": layout, "ladder": ladder, "cosine_first": cosine_first, "base": 500.0}
        want = rw.Sinusoidal(dim, **settings).rows(FAR.numpy())
        got = rt.sinusoidal_rows(FAR, dim, **settings)
        assert got.dtype == torch.float32 and np.array_equal(got.numpy(), want)
        assert torch.equal(rt.sinusoidal_rows(FAR.reshape(3, 3), dim, **settings).reshape(9, -1), got)


def test_cosines_and_sines_of_other_devices_and_gradients_of_frequencies():
    f = sinusoidal_frequencies(8)
    assert_close(cos_sin_formula(f, FAR), cos_sin(f, FAR), rtol=0, atol=3e-7)  # 2^31 times 2^-53 in float64
    given, learned = f[0].clone().requires_grad_(), f.clone().requires_grad_()
    positions = torch.tensor([0, 3, 50])
    upstream = random(3, 2, 4)
    (got,) = torch.autograd.grad((cos_sin(given, positions) * upstream).sum(), given)
    (both,) = torch.autograd.grad((cos_sin(learned, positions) * upstream).sum(), learned)
    angle = positions.double()[:, None] * f.sum(0)
    want = ((-upstream[:, 0] * angle.sin() + upstream[:, 1] * angle.cos()) * positions.double()[:, None]).sum(0)
    assert_close(got, want, rtol=1e-6, atol=1e-6)
    assert_close(both, want.expand(2, -1), rtol=1e-6, atol=1e-6)
    formula = torch.func.grad(lambda f: (cos_sin(f, positions) * upstream).sum())(f[0])
    assert_close(formula, want, rtol=1e-6, atol=1e-6)


# Rows against arrays --------------------------------------------------------------------------------------------------


def test_learned_rows():
    table, p = random(9, 4).requires_grad_(), torch.tensor([[0, 6, 6], [1, 2, 0]])
    rows = rt.learned_rows(table, p, 2)
    assert torch.equal(rows, table[p + 2])
    d = random(2, 3, 4, seed=1)
    (got,) = torch.autograd.grad(rows, table, d)
    assert_close(got.double(), torch.from_numpy(rw.learned_rows_backward(d.numpy(), 9, p.numpy(), 2)))
    for bad in (-3, -1, 7):  # rows that are reserved are of no position
        with pytest.raises(rw.Error, match=f"expected 0 to 6, got {bad}"):
            rt.learned_rows(table, torch.tensor([0, bad]), 2)
        with pytest.raises(rw.Error, match=f"{bad}"):
            rw.learned_rows(table.detach().numpy(), [0, bad], 2)
        with pytest.raises(rw.Error, match=f"expected 0 to 6, got {bad}"):
            rw.nn.LearnedRows(9, 4, offset=2)(random(2, 4), torch.tensor([0, bad]))
    with pytest.raises(rw.Error, match="offset: expected 0 or more, got -1"):
        rt.learned_rows(table, p, -1)
    # where the host does not read positions
    out = torch.compile(rt.learned_rows, backend="aot_eager", fullgraph=True)(table, torch.tensor([-3, -1, 0, 6, 7]), 2)
    assert out.isnan().all(1).tolist() == [True, True, False, False, True] and torch.equal(out[2:4], table[[2, 8]])
    mapped = torch.func.vmap(lambda p: rt.learned_rows(table, p, 2))(p)
    assert torch.equal(mapped, rows)


def test_hierarchical_rows():
    table, p = random(5, 3).requires_grad_(), torch.arange(25).reshape(5, 5)
    alpha = torch.tensor(0.3, requires_grad=True)
    rows = rt.hierarchical_rows(table, p, alpha)
    arrays = table.detach().numpy(), p.numpy()
    assert_close(rows, torch.from_numpy(rw.hierarchical_rows(*arrays, 0.3)), rtol=1e-6, atol=1e-6)
    assert torch.equal(rt.hierarchical_rows(table, p[0]), table)  # as before
    d = random(5, 5, 3, seed=1)
    d_table, d_alpha = rw.hierarchical_rows_backward(d.numpy(), *arrays, 0.3)
    got = torch.autograd.grad(rows, (table, alpha), d)
    assert_close(got[0].double(), torch.from_numpy(d_table), rtol=1e-5, atol=1e-5)
    assert got[1].item() == pytest.approx(d_alpha, rel=1e-5)
    torch.autograd.gradcheck(lambda t, a: rt.hierarchical_rows(t, p, a), double(table.detach(), alpha.detach()))
    for message, call in {
        "got 25": lambda: rt.hierarchical_rows(table, torch.tensor([25])),
        "alpha": lambda: rt.hierarchical_rows(table, p, 0.5),
    }.items():
        with pytest.raises(rw.Error, match=message):
            call()


@pytest.mark.parametrize("digits", [(10, 3, 1.0), (13, 3, 1.0), (10, 3, 2.0), (2, 11, 1.3)])
def test_digits(digits):
    number = rw.Digits(*digits)
    p = torch.tensor([0, 1, 9, 10, 749, number.capacity - 1])
    p = p[p < number.capacity]
    assert np.array_equal(rt.digit_rows(p, *digits).numpy(), number.rows(p.numpy()))
    with pytest.raises(rw.Error, match=f"got {number.capacity}"):
        rt.digit_rows(torch.tensor([number.capacity]), *digits)
    run = torch.compile(rt.digit_rows, backend="aot_eager", fullgraph=True)
    out = run(torch.tensor([0, number.capacity, -1]), *digits)
    assert out.isnan().all(1).tolist() == [False, True, True]


def test_adding_and_multiplying():
    x, rows = random(2, 5, 6).requires_grad_(), random(5, 6, seed=1).requires_grad_()
    scale = torch.tensor(0.5, requires_grad=True)
    assert_close(rt.add_rows(x, rows, scale), torch.from_numpy(rw.add_rows(x.detach().numpy(), rows.detach().numpy(), 0.5)))
    product = rt.multiply_rows(x, rows)
    assert_close(product, torch.from_numpy(rw.multiply_rows(x.detach().numpy(), rows.detach().numpy())))
    d = random(2, 5, 6, seed=2)
    dx, d_rows = rw.multiply_rows_backward(d.numpy(), x.detach().numpy(), rows.detach().numpy())
    got = torch.autograd.grad(product, (x, rows), d)
    assert_close(got[0], torch.from_numpy(dx)), assert_close(got[1].double(), torch.from_numpy(d_rows))
    assert rt.add_rows(x.bfloat16(), rows).dtype == torch.bfloat16 == rt.multiply_rows(x.bfloat16(), rows).dtype
    with pytest.raises(rw.Error, match="rows: expected the shape"):
        rt.add_rows(x, rows[:4])


@pytest.mark.parametrize("kernel", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [((7,), (13,)), ((4, 3), (5, 5)), ((2, 3, 4), (4, 3, 2))])
@pytest.mark.parametrize("antialias", [False, True])
def test_resized_tables(sizes, kernel, antialias):
    table = random(2 + math.prod(sizes[0]), 5).requires_grad_()
    settings = {"prefix_rows": 2, "kernel": kernel, "antialias": antialias}
    got = rt.resize_table(table, *sizes, **settings)
    want = rw.resize_table(table.detach().numpy(), *sizes, **settings)
    assert_close(got, torch.from_numpy(want), rtol=1e-5, atol=1e-5)
    d = random(*got.shape, seed=1)
    (grad,) = torch.autograd.grad(got, table, d)
    assert_close(grad.double(), torch.from_numpy(rw.resize_table_backward(d.numpy(), *sizes, **settings)), rtol=1e-4, atol=1e-5)
    with pytest.raises(rw.Error, match="rows with"):
        rt.resize_table(table[1:], *sizes, **settings)


@pytest.mark.parametrize("phase", [None, "none", "words", "dims"])
@pytest.mark.parametrize("shared", ["none", "words", "dims"])
def test_complex_order(shared, phase):
    shapes = {"none": (6, 4), "words": (4,), "dims": (6,)}
    words, positions = torch.tensor([[0, 5, 3], [3, 3, 1]]), torch.tensor([[0, 1, 70], [1 << 20, 5, 2]])
    held = [random(6, 4), random(*shapes[shared], seed=1)] + ([] if phase is None else [random(*shapes[phase], seed=2)])
    settings = {"frequency_shared": shared, "phase_shared": phase or "none"}
    given = [x.requires_grad_() for x in held]
    out = rt.complex_order(words, positions, *given, **settings)
    arrays = [words.numpy(), positions.numpy(), *(x.detach().numpy() for x in given)]
    want = torch.from_numpy(rw.complex_order(*arrays, **settings))
    assert_close(out, want, rtol=1e-5, atol=1e-5)
    d = torch.complex(random(2, 3, 4, seed=3), random(2, 3, 4, seed=4))
    grads = rw.complex_order_backward(d.numpy(), *arrays, **settings)
    for x, y in zip(torch.autograd.grad(out, given, d), grads.values()):
        assert_close(x.double(), torch.from_numpy(y), rtol=1e-4, atol=1e-4 * np.abs(y).max())
    with pytest.raises(rw.Error, match="words"):
        rt.complex_order(words + 1, positions, *given, **settings)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hermitian", [False, True])
def test_complex_attention(causal, hermitian):
    def number(tokens, seed):
        return torch.complex(random(tokens, 2, 4, seed=seed), random(tokens, 2, 4, seed=seed + 1))

    q, k, v = number(5, 0), number(9, 2), number(9, 4)
    got = rt.complex_attention(q, k, v, causal=causal, hermitian=hermitian)
    want = rw.complex_attention(q.numpy(), k.numpy(), v.numpy(), causal=causal, hermitian=hermitian)
    assert_close(got, torch.from_numpy(want), rtol=1e-5, atol=1e-5)
    inputs = [x.to(torch.complex128).requires_grad_() for x in (q, k, v)]
    torch.autograd.gradcheck(lambda *x: rt.complex_attention(*x, causal=causal, hermitian=hermitian), inputs)


CONVOLUTIONS = {
    "wav2vec 2.0": ((12, 3, 8), {"gelu": True}, None),
    "cpe": ((12, 1, 3, 3), {"prefix_rows": 1}, (4, 5)),
    "even and wide": ((12, 12, 30), {"residual": False}, None),
    "circular": ((12, 6, 5), {"border": "circular"}, None),
    "wide and circular": ((12, 6, 50), {"border": "circular"}, None),
    "three axes": ((12, 4, 3, 2, 3), {"border": "circular", "gelu": True}, (2, 2, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_position_convolution(name):
    shape, settings, sizes = CONVOLUTIONS[name]
    tokens = 20 if sizes is None else math.prod(sizes)
    x = random(2, tokens + settings.get("prefix_rows", 0), 12)
    given = [x, random(*shape, seed=1) * 0.2, random(12, seed=2)]
    given = [t.requires_grad_() for t in given]
    out = rt.position_convolution(*given, sizes=sizes, **settings)
    arrays = [t.detach().numpy() for t in given]
    assert_close(out, torch.from_numpy(rw.position_convolution(*arrays, sizes=sizes, **settings)), rtol=1e-4, atol=1e-5)
    d = random(*out.shape, seed=3)
    grads = rw.position_convolution_backward(d.numpy(), *arrays, sizes=sizes, **settings)
    for x, y in zip(torch.autograd.grad(out, given, d), grads.values()):
        assert_close(x.double(), torch.from_numpy(y).double(), rtol=1e-3, atol=1e-4)
    single = rt.position_convolution(given[0][0], *given[1:], sizes=sizes, **settings)
    assert_close(single, out[0], rtol=1e-5, atol=1e-5)
    assert rt.position_convolution(given[0][:0], *given[1:], sizes=sizes, **settings).shape == (0, *out.shape[1:])


# Paths ----------------------------------------------------------------------------------------------------------------


def paths():
    field = {"w": random(7, 6) * 0.4, "u": random(7, seed=1), "b": random(7, seed=2), "v": random(6, 7, seed=3) * 0.4}
    yield "floater", {"start": random(6, seed=4), **field, "c": random(6, seed=5)}, {"spacing": 0.2, "substeps": 4}
    yield "sinusoids", {"start": torch.tensor([0.0, 1.0] * 3), "frequencies": torch.tensor([1.0, 0.3, 0.01])}, {"spacing": 1.0}
    for cell, gates in (("tanh", 1), ("gru", 3)):
        cells = {"start": random(6), "weight": random(6 * gates, 6, seed=1) * 0.4}
        biases = {"input_bias": random(6 * gates, seed=2), "hidden_bias": random(6 * gates, seed=3)}
        yield cell, {**cells, **biases}, {"cell": cell}


PATHS = {name: (parameters, settings) for name, parameters, settings in paths()}


def path_of(library, name):
    return library.recurrent_rows if "cell" in PATHS[name][1] else library.floater_rows


@pytest.mark.parametrize("name", PATHS)
def test_paths(name):
    parameters, settings = PATHS[name]
    names = list(parameters)
    arrays = {n: x.numpy() for n, x in parameters.items()}
    rows = path_of(rw, name)(arrays["start"], 9, **{n: x for n, x in arrays.items() if n != "start"}, **settings)
    rows = rows if "cell" in settings else rows[0]

    def run(*given):
        return path_of(rt, name)(given[0], 9, **dict(zip(names[1:], given[1:])), **settings)

    given = [x.clone().requires_grad_() for x in parameters.values()]
    out = run(*given)
    assert np.array_equal(out.detach().numpy(), rows)
    wide = double(*parameters.values())
    assert_close(run(*wide).float(), out, rtol=1e-6, atol=1e-6)  # the formula, as on other devices
    torch.autograd.gradcheck(run, wide)
    d = random(9, 6, seed=9)
    for x, y in zip(torch.autograd.grad(out, given, d), torch.autograd.grad(run(*wide), wide, d.double())):
        assert x.dtype == torch.float32
        assert_close(x.double(), y, rtol=1e-4, atol=1e-4)
    assert path_of(rt, name)(given[0], 0, **dict(zip(names[1:], given[1:])), **settings).shape == (0, 6)


@pytest.mark.parametrize("name", PATHS)
def test_paths_compile_and_are_refused_by_vmap(name, counter):
    parameters, settings = PATHS[name]
    start, rest = parameters["start"], {n: x for n, x in parameters.items() if n != "start"}
    run = torch.compile(path_of(rt, name), backend=counter, fullgraph=True, dynamic=True)
    for count in (3, 5, 20):
        assert torch.equal(run(start, count, **rest, **settings), path_of(rt, name)(start, count, **rest, **settings))
        torch.compiler.set_stance("fail_on_recompile")
    torch.compiler.set_stance("default")
    with pytest.raises(rw.Error, match="vmap") as error:
        torch.func.vmap(lambda s: path_of(rt, name)(s, 3, **rest, **settings))(start.expand(2, -1))
    assert error.value.code == "unsupported"


# PoPE and FoPE --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [False, True])
def test_pope(keys):
    x, p = random(2, 5, 3, 8), torch.tensor([[0, 1, 2, 70, 1 << 20], [5, 4, 3, 2, 1]])
    phase = -8 * torch.rand(3, 8, generator=torch.Generator().manual_seed(1)) + 0.5 if keys else None
    encoding = rw.PoPE(3, 8, phase=None if phase is None else phase.numpy(), base=500.0)
    given = [x.requires_grad_()] + ([phase.requires_grad_()] if keys else [])
    out = rt.pope(x, p, phase=phase, base=500.0)
    d, sums = random(2, 5, 3, 16, seed=2), {}
    got = torch.autograd.grad(out, given, d)
    for b in range(2):
        arrays = x[b].detach().numpy(), p[b].numpy()
        assert_close(out[b], torch.from_numpy(encoding(*arrays)), rtol=1e-5, atol=1e-6)
        grads = encoding.backward(d[b].numpy(), *arrays)
        assert_close(got[0][b].double(), torch.from_numpy(grads["x"]), rtol=1e-4, atol=1e-5)
        sums = {n: sums.get(n, 0) + g for n, g in grads.items()}
    if keys:
        assert_close(got[1].double(), torch.from_numpy(sums["phase"]), rtol=1e-4, atol=1e-4)
    assert_close(rt.pope(x, 3, phase=phase, base=500.0), rt.pope(x, torch.arange(3, 8), phase=phase, base=500.0))
    torch.autograd.gradcheck(lambda x, *f: rt.pope(x, p, phase=f[0] if f else None), double(*(t.detach() for t in given)))


@pytest.mark.parametrize("tables", [None, 1, 2])
def test_fope(tables):
    n = rw.FoPE.kept(12, trained_length=200)
    assert 0 < n < 6
    shape = (n, n) if tables is None else (tables, n, n)
    x, p = random(2, 5, 4, 12), torch.tensor([[0, 1, 2, 70, 1 << 20], [5, 4, 3, 2, 1]])
    given = [x.requires_grad_(), random(*shape, seed=1).requires_grad_(), random(*shape, seed=2).requires_grad_()]
    cosines, sines = (t.detach().numpy() for t in given[1:])
    encoding = rw.FoPE(4, 12, cosines=cosines, sines=sines, trained_length=200)
    out = rt.fope(x, p, cosines=given[1], sines=given[2])
    d, sums = random(2, 5, 4, 12, seed=3), {}
    got = torch.autograd.grad(out, given, d)
    for b in range(2):
        arrays = x[b].detach().numpy(), p[b].numpy()
        assert_close(out[b], torch.from_numpy(encoding(*arrays)), rtol=1e-5, atol=1e-5)
        grads = encoding.backward(d[b].numpy(), *arrays)
        sums = {name: sums.get(name, 0) + g for name, g in grads.items()}
        assert_close(got[0][b].double(), torch.from_numpy(grads["x"]), rtol=1e-4, atol=1e-5)
    for g, name in zip(got[1:], ("cosines", "sines")):
        assert_close(g.double(), torch.from_numpy(sums[name]), rtol=1e-4, atol=1e-4)
    torch.autograd.gradcheck(lambda x, c, s: rt.fope(x, p, cosines=c, sines=s), double(*(t.detach() for t in given)))


# The dispatcher -------------------------------------------------------------------------------------------------------


def test_vmap_of_cosines_and_sines():
    f = sinusoidal_frequencies(8)
    assert torch.equal(torch.func.vmap(lambda p: cos_sin(f, p), 1)(FAR.reshape(3, 3)), cos_sin(f, FAR.reshape(3, 3).t()))
    with pytest.raises(rw.Error, match="vmap"):
        torch.func.vmap(lambda f: cos_sin(f, FAR))(f)


def placed_modules():
    """Calls of modules that take positions one by one, with 4 tokens."""
    x, words, q = random(1, 4, 8), torch.tensor([3, 1, 0, 2]), random(4, 1, 2)
    yield "recurrent", lambda module, p: module(x, p), rw.nn.RecurrentRows(8)
    yield "floater", lambda module, p: module(x, p), rw.nn.Floater(8)
    yield "learned", lambda module, p: module(x, p), rw.nn.LearnedRows(10, 8)
    yield "complex order", lambda module, p: module(words, p), rw.nn.ComplexOrder(5, 4)
    yield "temperature", lambda module, p: module(q, p), rw.nn.QueryTemperature("log-n", period=2)


@pytest.mark.parametrize("name", [name for name, *_ in placed_modules()])
def test_positions_as_lists_and_arrays(name):
    call, module = next((call, module) for n, call, module in placed_modules() if n == name)
    places = [3, 4, 5, 6]
    want = call(module, torch.tensor(places))
    for given in (places, np.array(places), np.array(places, np.int32), 3, np.int64(3)):
        assert_close(call(module, given), want)
    for wrong in (1.5, [0.5, 1.0, 2.0, 3.0], torch.tensor([0.5, 1.0, 2.0, 3.0]), None):
        with pytest.raises(rw.Error, match="positions: expected"):
            call(module, wrong)
    if name in ("recurrent", "floater", "learned"):
        for wrong in (-1, [-2, -1, 0, 1], [-4, -3, -2, -1]):
            with pytest.raises(rw.Error, match="positions: expected 0 .*got -"):
                call(module, wrong)
