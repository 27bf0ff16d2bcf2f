"""What devices without kernels run, on tensors without data ("meta"): an op that needs a value on the host, or the host to wait
for the device, raises there."""

import copy
import functools

import pytest
import torch
import torch.nn.attention.flex_attention
from ops_reference import BIASES, MAPS, B, H, S, T, flex_arguments, generator, inverse_frequencies, random, tensors
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn
from ropewalk.torch._attention_op import Settings, attention_op
from ropewalk.torch._flex import flex_attention, plain_attention
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
    from ropewalk.torch._flex_bias import _swin

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


def test_attention_of_tensors_without_data():
    """Which FlexAttention and autocast do not know."""
    q, k, v = like(2, 5, 4, 16, grad=True), like(2, 9, 2, 16), like(2, 9, 2, 24, grad=True)
    biases = [nn.Alibi(4), nn.T5Bias(4), nn.Kerple(4), nn.Sandwich(4), nn.Shaw(4, 16, left=2, values=False)]
    biases += [nn.TransformerXL(4, 16, 12), nn.Tupe(4, 16, 12, 9), nn.SwinBias(4, height=3, width=3)]
    for bias in biases:
        assert bias.to("meta")(q, k, v, window=4).shape == (2, 5, 4, 24)
    rotation = rw.rotation(16, layout="half")
    for settings in ({}, {"causal": False}, {"remap": rw.ReRoPE(3), "sinks": like(4)}, {"key_positions": like(9, dtype=torch.int64)}):
        out, lse = rt.attention(q, k, v, rotation=rotation, return_lse=True, **settings)
        assert out.is_meta and lse.shape == (2, 5, 4) and lse.dtype == torch.float32 and not lse.requires_grad
        assert [g.shape for g in torch.autograd.grad(out.sum(), (q, v))] == [q.shape, v.shape]


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


@pytest.fixture
def compiled(monkeypatch):
    """FlexAttention as a GPU has it, compiled to one graph each; what compiles counts them. PyTorch has its backward pass on a
    CPU too, and does not offer it."""
    import ropewalk.torch._flex as flex

    counter = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch.nn.attention.flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex, "_compiles", lambda x: True)
    monkeypatch.setattr(flex, "_function", functools.partial(flex._function, backend=counter))
    torch._dynamo.reset()
    yield counter
    torch._dynamo.reset()


def _agrees(tokens, keys, settings, parameters=()):
    q, k, v = (random(1, n, h, 16, seed=h) for n, h in ((tokens, 4), (keys, 2), (keys, 2)))
    upstream, results = random(*q.shape, seed=9), []
    for op in (flex_attention, attention_op):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out, lse = op(*inputs, *flex_arguments(**settings()))
        results.append([out, lse, *torch.autograd.grad(out, [*inputs, *parameters], upstream)])
    scale = max(float(x.detach().abs().max()) for x in results[1])
    for x, y in zip(*results):
        assert_close(x, y, rtol=1e-3, atol=1e-5 * scale)


COMPILED = {
    "none": (lambda n: None, {}),
    "alibi": (lambda n: nn.Alibi(4, learned=True), {"window": 50}),
    "alibi, both sides": (lambda n: rt.Slopes(*(random(2, 4).abs().unbind())), {"causal": False}),
    "t5": (lambda n: nn.T5Bias(4), {"soft_cap": 5.0, "temperatures": True}),
    "sandwich": (lambda n: nn.Sandwich(4), {}),
    "shaw": (lambda n: nn.Shaw(4, 16, left=16, values=False), {"temperatures": True}),
    "transformer-xl": (lambda n: nn.TransformerXL(4, 16, 32), {"scale": 0.3, "soft_cap": 5.0}),
    "deberta": (lambda n: nn.DebertaBias(4, 16, 32, buckets=32, max_position=n), {"causal": False}),
    "tupe": (lambda n: nn.Tupe(4, 16, 32, n, relative=True), {"causal": False}),
    "swin": (lambda n: nn.SwinBias(4, height=10, width=n // 10), {"causal": False}),
    "gates": (lambda n: rt.Gates(-random(1, n, 4).abs().requires_grad_()), {"document_starts": True}),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_bias_is_compiled_as_one_graph_with_its_gradient(name, compiled):
    make, settings = COMPILED[name]
    for keys in (150, 200, 260):
        torch.manual_seed(keys)
        bias = make(keys)
        parameters = [x for x in bias.parameters() if x.requires_grad] if hasattr(bias, "parameters") else []
        for p in parameters:  # some begin with zeros
            torch.nn.init.normal_(p, std=0.3)
        if name == "gates":
            parameters = [bias.log_gates]
        given = dict(settings)
        if given.pop("temperatures", False):
            given["temperatures"] = random(keys).abs() + 0.5
        if given.pop("document_starts", False):
            given["document_starts"] = torch.tensor([0, 40, 133])
        form = (lambda: bias.form(keys, keys)) if hasattr(bias, "form") else (lambda: bias)  # noqa: B023
        _agrees(keys, keys, lambda: {"bias": form(), **given}, parameters)  # noqa: B023
    assert 1 <= compiled.frame_count <= 2


def test_maps_and_lengths_share_what_is_compiled(compiled):
    for keys in (150, 200, 260):
        for remap, _ in MAPS.values():
            _agrees(keys, keys, lambda: {"inv_freq": inverse_frequencies(16), "remap": remap})  # noqa: B023
        for window in (0, 7, 30):
            _agrees(keys, keys, lambda: {"window": window})  # noqa: B023
            _agrees(keys - 20, keys, lambda: {"window": window, "causal": False})  # noqa: B023
    assert 1 <= compiled.frame_count <= 3


def test_a_float_of_its_own_is_a_constant_of_the_kernel(compiled):
    """Many of them pass dynamo's limit of 8, past which one graph would be refused."""
    for i in range(10):
        _agrees(150, 150, lambda: {"scale": 0.1 + 0.05 * i, "soft_cap": 3.0 + i})  # noqa: B023
    assert compiled.frame_count == 10


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("documents", [False, True])
def test_keys_that_a_query_sees_and_blocks_of_them(batched, causal, window, documents):
    """Against the mask of all pairs. Within a document positions do not decrease; the next may begin again, or far off."""
    from torch.nn.attention.flex_attention import create_block_mask

    from ropewalk.torch._flex import _block_mask, _intervals

    tokens, keys, starts = 200, 300, torch.tensor([0, 70, 190])
    steps = torch.randint(0, 3, (2, keys), generator=generator(1))
    k_at = steps.cumsum(1)
    if documents:
        k_at = torch.cat([part - part[:, :1] - 1000 * n for n, part in enumerate(k_at.tensor_split(starts[1:], 1))], 1)
    k_at = k_at if batched else k_at[0]
    q_at = k_at[..., keys - tokens :]
    settings = {"causal": causal, "window": window, "document_starts": starts if documents else None}
    begins, ends = _intervals(Settings(*flex_arguments(**settings)), q_at, k_at)
    d = q_at[..., None] - k_at[..., None, :]
    want = (d >= 0) if causal else torch.ones_like(d, dtype=torch.bool)
    if window:
        want &= d.abs() < window
    if documents:
        document = torch.searchsorted(starts, torch.arange(keys), right=True)
        want &= document[keys - tokens :, None] == document
    index = torch.arange(keys)
    assert torch.equal((index >= begins[..., None]) & (index < ends[..., None]), want)
    got = _block_mask(begins, ends, keys)
    dense = want if batched else want[None]
    made = create_block_mask(lambda b, h, i, j: dense[b, i, j], len(dense), None, tokens, keys, device="cpu")
    assert torch.equal(got.to_dense(), made.to_dense())
    assert torch.equal(got.full_kv_num_blocks, made.full_kv_num_blocks)


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


@pytest.mark.parametrize("name", ["Alibi", "Shaw", "T5Bias", "DebertaBias"])
def test_constants_of_a_module_made_without_data(name):
    """As large models are made: on "meta", then emptied on the device, then loaded."""
    arguments = {"Shaw": (4, 16), "DebertaBias": (4, 16, 12)}.get(name, (4,))
    settings = {"Shaw": {"left": 5, "right": 3}, "DebertaBias": {"buckets": 8, "max_position": 32}}.get(name, {})
    want = getattr(nn, name)(*arguments, **settings)
    with torch.device("meta"):
        module = torch.nn.Sequential(getattr(nn, name)(*arguments, **settings))
    module.to_empty(device="cpu")
    module[0].load_state_dict(want.state_dict())
    assert set(want.state_dict()) == {n for n, _ in want.named_parameters()}
    q, k = random(1, 20, 4, 16), random(1, 30, 2, 16, seed=1)
    assert torch.equal(module[0](q, k, k), want(q, k, k))
    (constant,) = (n for n, _ in want.named_buffers())
    kept = getattr(want, constant).clone()
    for made in (copy.deepcopy(want).half(), want.to(torch.float64), want.to("meta").to_empty(device="cpu")):
        assert torch.equal(getattr(made, constant), kept) and getattr(made, constant).dtype == kept.dtype
    assert getattr(want.to("meta"), constant).is_meta


@pytest.mark.parametrize("causal", [True, False])
def test_attention_without_anything_to_add_is_that_of_pytorch(causal, monkeypatch):
    q, k, v = (random(B, T, heads, 16) for heads in (4, 2, 2))
    s = Settings(*flex_arguments(causal=causal))
    out, _ = attention_op(q, k, v, *s)
    assert_close(plain_attention(q, k, v, s), out, rtol=0, atol=2e-6)
    for other in (s._replace(window=5), s._replace(soft_cap=9.0), s._replace(sinks=random(4)), s._replace(kind=1)):
        assert plain_attention(q, k, v, other) is None
    # PyTorch's causal is aligned at the first key.
    assert (plain_attention(q[:, 3:], k, v, s) is None) == causal
    with pytest.raises(rw.Error, match="multiple of the 3 key heads"):
        plain_attention(q, random(B, T, 3, 16), random(B, T, 3, 16), s)

    def refuse(*args):
        raise AssertionError("FlexAttention was called")

    monkeypatch.setattr("ropewalk.torch._attention.flex_attention", refuse)
    given = [like(*x.shape, grad=True) for x in (q, k, v)]
    out = rt.attention(*given, causal=causal)
    assert out.is_meta and out.shape == q.shape
    torch.autograd.grad(out.sum(), given)
    for settings in ({"window": 5}, {"bias": rw.Alibi(4)}, {"return_lse": True}):
        with pytest.raises(AssertionError, match="was called"):
            rt.attention(*given, causal=causal, **settings)
