"""Every op of `torch.ops.ropewalk`, and every module, before PyTorch's own checks: opcheck, vmap, export, compile."""

import pytest
import torch
from ops_reference import BIASES, MAPS, B, D, H, flex_arguments, inverse_frequencies, random, tensors

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn
from ropewalk.torch._attention_op import attention_op
from ropewalk.torch._rotation import rotate_op

OPS = torch.ops.ropewalk


def names():
    return sorted(s.name.split("::")[1] for s in torch._C._jit_get_all_schemas() if s.name.startswith("ropewalk::"))


def rotation_samples(grad):
    rows, axis = rt.table(inverse_frequencies(8), 40), torch.tensor([0, 1, 1, 2], dtype=torch.uint8)
    q, k = random(2, 3, 2, 8).requires_grad_(grad), random(2, 3, 1, 8, seed=1).requires_grad_(grad)
    yield q, k, rows
    yield q, None, rows, torch.arange(3), 0, 1
    yield q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(grad), k, rows, None, 3
    yield q[0].detach().requires_grad_(grad), None, rows, torch.arange(3), 0, 1, 0, 0, 1, 1
    yield q, k, rows, torch.arange(18).reshape(3, 2, 3), 0, 0, 0, 0, 0, 0, 1.0, axis
    yield q.detach().bfloat16().requires_grad_(grad), k.detach().bfloat16().requires_grad_(grad), rows, None, 7


def frequency_samples(grad):
    a = torch.tensor(1.1, dtype=torch.float64).requires_grad_(grad)
    q, k = random(2, 3, 2, 8).requires_grad_(grad), random(2, 3, 1, 8, seed=1).requires_grad_(grad)
    for f in (inverse_frequencies(8), torch.stack((inverse_frequencies(8), torch.zeros(4, dtype=torch.float64)))):
        f.requires_grad_(grad)
        yield q, k, f, a, None, 5
        yield q, None, f, a, torch.arange(3), 0, 1


def attention_samples(grad):
    for name, (make, parameters, settings) in BIASES.items():
        parameters = [p.detach().clone().requires_grad_(grad) for p in parameters]
        sinks = random(H, seed=11).requires_grad_(grad) if name in ("none", "content") else None
        inputs = [x[:, :, :, :].requires_grad_(grad) for x in tensors()]
        yield *inputs, *flex_arguments(make(*parameters)[0], sinks=sinks, **settings)
    inputs = [x.requires_grad_(grad) for x in tensors()]
    yield *inputs, *flex_arguments(remap=MAPS["rerope"][0], inv_freq=inverse_frequencies(12))


def path_samples(name, grad):
    x = [t.requires_grad_(grad) for t in (random(4), random(4, 4), random(4, seed=1), random(4, seed=2))]
    if name.startswith("recurrent_rows"):
        return (*x, 5, "tanh")
    field = [t.requires_grad_(grad) for t in (random(3, 4), random(3), random(3, seed=1), random(4, 3), random(4))]
    return x[0], field, 5, 0.1, 2


def samples(name, grad):
    """Arguments of an op. Gradients have none of their own: one without inputs that require it."""
    if name in ("rotate", "rotate_"):
        for sample in rotation_samples(grad and name == "rotate"):
            yield tuple(x.clone() if name == "rotate_" and isinstance(x, torch.Tensor) else x for x in sample)
    elif name == "rotate_frequencies":
        yield from frequency_samples(grad)
    elif name == "rotate_frequencies_backward" and not grad:
        for q, k, f, a, positions, start, *layout in frequency_samples(False):
            yield q, k, q, k, f, a, positions, start, *layout
    elif name in ("attention", "attention_entropy"):
        yield from attention_samples(grad)
    elif name == "attention_backward" and not grad:
        for sample in attention_samples(False):
            out, lse = attention_op(*sample)
            yield out, out, lse, *sample, *((None,) if len(sample) < 21 else ()), True
    elif name == "cos_sin":
        yield inverse_frequencies(8).requires_grad_(grad), torch.arange(6).reshape(2, 3).t()
    elif name in ("floater_rows", "recurrent_rows"):
        yield path_samples(name, grad)
    elif name == "floater_rows_backward" and not grad:
        start, field, count, *rest = path_samples(name, False)
        yield random(count, 4), start, field, *rest
    elif name == "recurrent_rows_backward" and not grad:
        *parts, count, cell = path_samples(name, False)
        yield random(count, 4), *parts, cell


def test_the_list_of_ops():
    assert names() == [
        "attention",
        "attention_backward",
        "attention_entropy",
        "cos_sin",
        "floater_rows",
        "floater_rows_backward",
        "recurrent_rows",
        "recurrent_rows_backward",
        "rotate",
        "rotate_",
        "rotate_frequencies",
        "rotate_frequencies_backward",
    ]


@pytest.mark.parametrize("name", names())
def test_opcheck(name):
    checked = 0
    for grad in (False, True):
        for sample in samples(name, grad):
            torch.library.opcheck(getattr(OPS, name).default, sample)
            checked += 1
    assert checked > 0


@pytest.mark.parametrize("name", names())
def test_vmap_is_right_or_refused(name):
    """Over the first tensor alone. The ops of gradients are called by none but PyTorch."""
    if name.endswith("_backward"):
        pytest.skip("is called by autograd")
    op = getattr(OPS, name).default
    with torch.no_grad():
        for first, *rest in samples(name, False):
            many = torch.stack((first, first * 2, first + 1))
            try:
                got = torch.func.vmap(lambda x, rest=rest: op(x, *rest))(many.clone())
            except rw.Error as error:
                assert error.code == "unsupported" and "vmap" in str(error)
                continue
            assert name not in ("rotate_", "floater_rows", "recurrent_rows", "cos_sin")
            for i, x in enumerate(many):
                for a, b in zip(got, op(x, *rest)):
                    assert torch.equal(a[i], b)


def test_vmap_in_place_is_refused():
    rows, q = rt.table(inverse_frequencies(8), 40), random(3, 2, 5, 1, 8)
    with pytest.raises(rw.Error, match="vmap") as error:
        torch.func.vmap(lambda q: rt.rotate(q, None, rows, layout="half", inplace=True)[0])(q)
    assert error.value.code == "unsupported"


def second_derivatives():
    q, k, f = random(5, H, 16), random(9, 2, 16), inverse_frequencies(16)
    cell, path, rotary = nn.RecurrentRows(8), nn.Floater(8, hidden=3, substeps=2), nn.LearnedRotaryEmbedding(16, layout="half")
    slopes, sinks = torch.ones(H) * 0.1, random(H, seed=11)
    yield "attention", q, lambda q: rt.attention(q, k, k)
    yield "attention", k, lambda v: rt.attention(q, k, v, remap=rw.ReRoPE(3), rotation=rt.Frequencies(f))
    yield "attention", slopes, lambda s: rt.attention(q, k, k, bias=rt.Slopes(s))
    yield "attention", sinks, lambda s: rt.attention(q, k, k, sinks=s, return_entropy=True)[0]
    yield "rotate_frequencies", f, lambda f: rt.rotate_frequencies(q, None, f, 3, layout="half")[0][..., 1]
    yield "rotate_frequencies", q, lambda q: rotary(q)[0][..., 1]
    own = {"weight": cell.weight, "input_bias": cell.input_bias, "hidden_bias": cell.hidden_bias}
    yield "recurrent_rows", cell.start, lambda s: rt.recurrent_rows(s, 4, **own)
    yield "floater_rows", path.start, lambda s: rt.floater_rows(s, 4, w=path.w, u=path.u, b=path.b, v=path.v, c=path.c)


@pytest.mark.parametrize("case", range(8))
def test_second_derivatives_are_refused_by_name(case):
    torch.manual_seed(3)
    name, x, call = list(second_derivatives())[case]
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
    with pytest.raises(rw.Error, match=f"{name}: second derivatives are not computed") as error:
        torch.autograd.grad(first.square().sum(), x)
    assert error.value.code == "unsupported"


def test_second_derivatives_of_float64_are_right():
    torch.manual_seed(3)
    q, f, cell = random(3, 2, 8, dtype=torch.float64), inverse_frequencies(8).requires_grad_(), nn.RecurrentRows(4).double()
    torch.autograd.gradgradcheck(lambda f: rt.rotate_frequencies(q, None, f, 3, layout="half")[0], (f,))
    own = {"input_bias": cell.input_bias, "hidden_bias": cell.hidden_bias}
    torch.autograd.gradgradcheck(lambda s, w: rt.recurrent_rows(s, 3, weight=w, **own), (cell.start, cell.weight))


# Whole models ----------------------------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    """A decoder's layer with an absolute encoding, a rotation, and a learned bias."""

    def __init__(self):
        super().__init__()
        self.rows, self.sinusoids = nn.LearnedRows(90, H * D), nn.Sinusoidal(H * D)
        self.rotary, self.bias = nn.RotaryEmbedding(rw.rotation(D, layout="half"), 90), nn.T5Bias(H)
        self.project = torch.nn.Linear(H * D, 3 * H * D)

    def forward(self, x):
        x = self.sinusoids(self.rows(x))
        q, k, v = self.project(x).unflatten(-1, (3, H, D)).unbind(2)
        q, k = self.rotary(q, k, 3)
        return self.bias(q, k, v, window=30).flatten(2)


def test_a_layer_exports():
    torch.manual_seed(3)
    layer, x = Layer(), random(B, 7, H * D)
    program = torch.export.export(layer, (x,), dynamic_shapes={"x": {1: torch.export.Dim("tokens", min=3, max=80)}})
    for tokens in (3, 50, 80):
        x = random(B, tokens, H * D)
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-5, atol=1e-5)
    called = {str(n.target) for n in program.graph.nodes if "ropewalk" in str(n.target)}
    assert called == {"ropewalk.attention.default", "ropewalk.cos_sin.default", "ropewalk.rotate_frequencies.default"}


def test_a_layer_trains_compiled_in_one_compilation(counter):
    torch.manual_seed(3)
    layer = Layer()
    run = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    for tokens in (5, 12, 70):
        x = random(B, tokens, H * D).requires_grad_()
        out, want = run(x), layer(x)
        torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
        inputs = [x, *layer.parameters()]
        for a, b in zip(torch.autograd.grad(out.square().sum(), inputs), torch.autograd.grad(want.square().sum(), inputs)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        torch.compiler.set_stance("fail_on_recompile")
    assert counter.frame_count == 2  # the graph, and the one of its gradient


def test_a_layer_under_autocast():
    torch.manual_seed(3)
    layer, x = Layer(), random(B, 9, H * D)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16  # as its projections
    torch.testing.assert_close(out.float(), layer(x), rtol=0.05, atol=0.05)


def test_the_op_of_rotation_under_autocast_keeps_its_dtypes():
    rows, q = rt.table(inverse_frequencies(D), 100), random(1, 5, H, D)
    with torch.autocast("cpu", torch.bfloat16):
        a, b = rotate_op(q, q.bfloat16(), rows)
        out = OPS.attention_entropy.default(q.bfloat16(), q.bfloat16(), q, *flex_arguments())
    assert (a.dtype, b.dtype) == (torch.float32, torch.bfloat16) and {x.dtype for x in out} == {torch.float32}


def test_a_call_without_gradients_is_still_seen_by_who_watches():
    """On its own it goes past PyTorch's dispatcher, to save the time."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op)
            return op(*args, **(kwargs or {}))

    seen = []
    q, k, rows = random(3, 2, 8), random(3, 1, 8, seed=1), rt.table(inverse_frequencies(8), 40)
    expected = OPS.rotate(q, k, rows, None, 5, 1)
    with torch.no_grad(), Watch():
        watched = rt.rotate(q, k, rows, 5, layout="interleaved")
    assert OPS.rotate.default in seen
    with torch.profiler.profile() as profile:
        rt.rotate(q, k, rows, 5, layout="interleaved")
    assert any(event.key == "ropewalk::rotate" for event in profile.key_averages())
    for got in (watched, rt.rotate(q, k, rows, 5, layout="interleaved")):
        for x, y in zip(got, expected):
            assert torch.equal(x, y)
