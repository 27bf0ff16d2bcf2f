"""What devices without kernels run, on tensors without data ("meta"): an op that needs a value on the host, or the host to wait
for the device, raises there."""

import pytest
import torch
from ops_reference import BIASES, MAPS, B, H, S, T, flex_arguments, tensors
from torch._subclasses import FakeTensorMode

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn
from ropewalk.torch._flex import flex_attention
from ropewalk.torch._rotation import rotate_formula


def like(*shape, dtype=torch.float32, grad=False):
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=grad)


def test_such_a_tensor_notices_a_synchronisation():
    x = like(3)
    for read in (lambda: x.sum().item(), lambda: x.cpu(), lambda: bool(x.any()), lambda: x.nonzero(), lambda: x[x > 0]):
        with pytest.raises((RuntimeError, NotImplementedError)):
            read()


def test_rotation_reads_nothing():
    rows = like(100, 2, 8)
    for dtype in (torch.float32, torch.bfloat16):
        q, k = like(2, 5, 4, 16, dtype=dtype, grad=True), like(2, 5, 2, 16, dtype=dtype, grad=True)
        for positions in (3, like(5, dtype=torch.int64), like(2, 5, dtype=torch.int32)):
            a, b = rt.rotate(q, k, rows, positions, layout="half")
            assert a.is_meta and a.dtype == dtype and b.shape == k.shape
            torch.autograd.grad(a.sum() + b.sum(), (q, k))
            with torch.no_grad():
                assert rt.rotate(q.detach(), None, rows, positions, layout="half", inplace=True)[0].is_meta
    f = like(8, dtype=torch.float64, grad=True)
    a, _ = rt.rotate_frequencies(q, None, f, positions, layout="interleaved")
    torch.autograd.grad(a.sum(), (q, f))


def test_modules_that_rotate_read_nothing():
    q, positions = like(2, 5, 4, 16, grad=True), like(2, 5, dtype=torch.int64)
    for rotation in (rw.rotation(16, layout="half"), rw.rotation(16, layout="half", xpos_scale_base=512)):
        module = nn.RotaryEmbedding(rotation, 64)
        for at in (3, positions):
            out, _ = module(q, q, at)
            assert out.is_meta
            torch.autograd.grad(out.sum(), q)
    for module in (nn.PoPE(4, 16), nn.FoPE(16, frequencies=5)):
        assert module.to("meta")(q, q, positions)[0].is_meta


def test_absolute_rows_read_nothing():
    x, positions = like(2, 5, 12), like(2, 5, dtype=torch.int64)
    modules = [nn.LearnedRows(9, 12), nn.HierarchicalRows(9, 12), nn.MultiplicativeRows(9, 12), nn.Digits(12)]
    modules += [nn.Sinusoidal(12), nn.Sinusoidal(12, learn="frequencies")]
    for module in modules:
        out = module.to("meta")(x, positions)
        assert out.is_meta and out.shape == x.shape
    for module in (nn.RecurrentRows(12), nn.Floater(12, hidden=3, substeps=2)):
        assert module.to("meta")(x, 1).is_meta  # the last position is known
    assert nn.PositionConvolution(12, 3).to("meta")(x).is_meta


def test_tensors_of_two_devices_are_refused():
    q, cpu = like(2, 5, 4, 16), torch.empty(2, 5, 4, 16)
    rows = like(100, 2, 8)
    here = torch.empty(100, 2, 8)
    positions = torch.arange(5)
    for name, call in {
        "k": lambda: rt.rotate(q, cpu, rows, layout="half"),
        "table": lambda: rt.rotate(q, None, here, layout="half"),
        "table ": lambda: rt.rotate(cpu, None, rows, layout="half"),
        "positions": lambda: rt.rotate(q, None, rows, positions, layout="half"),
        "k ": lambda: rt.attention(q, cpu, q),
        "v": lambda: rt.attention(cpu, cpu, q),
        "sinks": lambda: rt.attention(q, q, q, sinks=torch.ones(4)),
        "bias: tensor 0": lambda: rt.attention(q, q, q, bias=rt.Slopes(torch.ones(4))),
        "positions ": lambda: rt.learned_rows(like(9, 4), positions),
        "rows": lambda: rt.add_rows(q[0], cpu[0, 0]),
        "phase": lambda: rt.pope(cpu, phase=like(4, 16)),
    }.items():
        with pytest.raises(rw.Error, match=f"{name.strip()}: expected a tensor on|rows: expected") as error:
            call()
        assert error.value.code == "invalid_argument"


# FlexAttention ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_swin_off_the_cpu_has_gradients_of_its_network():
    """FlexAttention has none on a CPU; the table that it reads has."""
    from ropewalk.torch._flex import _swin

    w1, b1, w2 = (p.requires_grad_() for p in BIASES["swin"][1])
    at = torch.arange(S)[None]
    add = _swin([w1, b1, w2], [7, 10, 0, 0], at, at)
    i, j = torch.arange(S)[:, None], torch.arange(S)[None]
    bias = torch.stack([add(torch.tensor(0), torch.tensor(h), i, j, None) for h in range(H)])
    want = rw.SwinBias(H, height=7, width=10, **{n: t.detach().numpy() for n, t in (("w1", w1), ("b1", b1), ("w2", w2))})
    assert torch.allclose(bias, torch.from_numpy(want(range(S), range(S))), atol=1e-5)
    for g in torch.autograd.grad(bias.square().sum(), (w1, b1, w2)):
        assert g.abs().sum() > 0


@pytest.mark.parametrize("name", ["none", "slopes", "distances", "content by head", "gates", "swin", "tupe"])
def test_flex_attention_of_a_gpu_reads_nothing(name, monkeypatch):
    """All but FlexAttention itself, which a GPU compiles: its arguments are made without a look at a value."""
    import ropewalk.torch._flex as flex

    seen = []

    def call(q, k, v, *, score_mod, block_mask, **settings):
        seen.append(block_mask)
        return torch.empty_like(q), type("Aux", (), {"lse": q.new_empty(q.shape[:3])})

    monkeypatch.setattr(flex, "_function", lambda compiled: call)
    make, parameters, settings = BIASES[name]
    inputs = [like(*x.shape) for x in tensors()]
    arguments = flex_arguments(make(*parameters)[0], sinks=like(H), temperatures=like(T), **settings)
    arguments = tuple([t.to("meta") for t in a] if isinstance(a, list) and a and torch.is_tensor(a[0]) else a for a in arguments)
    out, lse = flex_attention(*inputs, *arguments)
    assert out.is_meta and lse.shape == (B, T, H) and len(seen) == 1
    if name == "none":
        arguments = flex_arguments(inv_freq=like(6, dtype=torch.float64), remap=MAPS["rerope"][0])
        flex_attention(*inputs, *arguments)
        assert len(seen) == 3


REFUSED = {
    "contextual": "use Gates",
    "fire": "use a table of distances",
    "content": "use Shaw with values=False",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_to_use_instead(name):
    make, parameters, settings = BIASES[name]
    with pytest.raises(rw.Error, match=f"computed on the CPU alone.*{REFUSED[name]}") as error:
        flex_attention(*tensors(), *flex_arguments(make(*parameters)[0], **settings))
    assert error.value.code == "unsupported"


def test_entropy_is_of_the_cpu():
    q = torch.empty(2, 5, 4, 16, device="meta")
    with pytest.raises(rw.Error, match="return_entropy.*CPU alone") as error:
        rt.attention(q, q, q, return_entropy=True)
    assert error.value.code == "unsupported"


# Kernels of another device ----------------------------------------------------------------------------------------------


def test_rotation_of_a_device_has_one_place_for_kernels(monkeypatch):
    import ropewalk.torch._rotation as rotation

    called = []

    def kernel(q, k, *rest):
        called.append(len(rest))
        return tuple(x.contiguous() for x in rotate_formula(q, k, *rest))

    rotation.register_kernels("Meta", kernel, lambda *a: None)
    try:
        q = like(2, 5, 4, 16, grad=True)
        out, _ = rt.rotate(q, None, torch.empty(100, 2, 8, device="meta"), 3, layout="half")
        out.sum().backward()
        assert len(called) == 2  # forward and its adjoint
    finally:
        rotation._with_kernels.discard("meta")


# Tables are numbers, wherever a model is made ---------------------------------------------------------------------------


def test_modules_made_without_data_keep_their_tables():
    """`with torch.device("meta")` and FakeTensorMode are how large models are made; tables are no tensors of theirs."""
    rotation = rw.rotation(16, layout="half", xpos_scale_base=512)
    q = torch.ones(1, 5, 2, 16)
    want = nn.RotaryEmbedding(rotation, 16)(q, q, 100)
    with torch.device("meta"):
        module, sinusoids = nn.RotaryEmbedding(rotation, 16), nn.Sinusoidal(8)
    assert all(torch.equal(x, y) for x, y in zip(module(q, q, 100), want))
    assert torch.equal(sinusoids(torch.zeros(5, 8), 3), nn.Sinusoidal(8)(torch.zeros(5, 8), 3))
    with FakeTensorMode():
        fake = nn.RotaryEmbedding(rotation, 16)(torch.empty(1, 5, 2, 16), None, 100)[0]
        assert fake.shape == (1, 5, 2, 16) and nn.Sinusoidal(8)(torch.empty(5, 8)).shape == (5, 8)
        with pytest.raises(rw.Error, match="without data"):
            rt.table(torch.empty(8), 4)
    assert all(torch.equal(x, y) for x, y in zip(nn.RotaryEmbedding(rotation, 16)(q, q, 100), want))
    with pytest.raises(rw.Error, match="without data"):
        rt.table(like(8), 4)
