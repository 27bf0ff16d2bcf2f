"""ropewalk.nn against the encodings of ropewalk for arrays."""

import pathlib
import re

import numpy as np
import pytest
import torch
from ops_reference import B, D, H, S, random, tensors
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn


def modules():
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


@pytest.mark.parametrize("name", MODULES)
def test_modules_take_no_tokens(name):
    module = next(m for n, m, *_ in modules() if n == name)
    q, k = random(1, 0, H, D), random(1, 0, H, D)
    assert module(q, k, k).shape == (1, 0, H, D)
    assert module(q, k, k).sum() == 0


def test_forgetting_gate():
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
    rotation = rw.rotation(64, layout="half", method="yarn", factor=4, trained_length=4096)
    module = nn.RotaryEmbedding(rotation, 16)
    q, k = random(1, 10, 2, 64), random(1, 10, 1, 64, seed=1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
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
    module = nn.LearnedRotaryEmbedding(64, layout="half", learn=learn).half()
    q = random(1, 10, 2, 64).half()
    out, _ = module(q, None, 1000)
    want, _ = nn.RotaryEmbedding(rw.rotation(64, layout="half"))(q, None, 1000)
    assert_close(out, want, rtol=0, atol=2e-3)
    out.float().square()[..., :7].sum().backward()
    (p,) = module.parameters()
    assert p.dtype == torch.float64 and p.grad.abs().sum() > 0


# Every encoding of the library ---------------------------------------------------------------------------------------

# The page of docs/encodings.md, which has a row for every encoding, and its module.
OF_PAGES = {
    "rotary": ("RotaryEmbedding", "LearnedRotaryEmbedding"),
    "alibi": ("Alibi",),
    "t5": ("T5Bias",),
    "kerple": ("Kerple",),
    "sandwich": ("Sandwich",),
    "fire": ("Fire",),
    "shaw": ("Shaw",),
    "transformer-xl": ("TransformerXL",),
    "deberta": ("DebertaBias",),
    "tupe": ("Tupe",),
    "swin": ("SwinBias",),
    "forgetting-gate": ("ForgettingGate",),
    "cope": ("CoPE",),
    "pope": ("PoPE",),
    "fope": ("FoPE",),
    "rerope": ("RemappedAttention",),
    "self-extend": ("RemappedAttention",),
    "dual-chunk": ("RemappedAttention",),
    "sinks": ("RemappedAttention",),
    "string": ("RemappedAttention",),
    "lampe": ("RemappedAttention",),
    "dpe": ("RemappedAttention",),
    "temperature": ("QueryTemperature",),
    "sinusoidal": ("Sinusoidal", "SinusoidalGrid"),
    "learned": ("LearnedRows",),
    "hierarchical": ("HierarchicalRows",),
    "multiplicative": ("MultiplicativeRows",),
    "complex-order": ("ComplexOrder",),
    "digits": ("Digits",),
    "convolutional": ("PositionConvolution",),
    "recurrent": ("RecurrentRows",),
    "floater": ("Floater",),
}


def test_every_encoding_of_the_library_has_a_module():
    text = (pathlib.Path(__file__).parents[3] / "docs" / "encodings.md").read_text(encoding="utf-8")
    pages = re.findall(r"\[page\]\((?:[a-z]+/methods/)?([a-z0-9-]+)(?:/README)?\.md\)", text)
    assert len(pages) == sum(line.startswith("| ") for line in text.splitlines()) - 1  # the heading
    assert set(pages) == set(OF_PAGES), "a row without a module, or a module of no row"
    modules = {name for names in OF_PAGES.values() for name in names}
    bases = {"Bias", "Absolute"}
    assert modules | bases == set(nn.__all__)
    # and the classes and row functions of the package
    for name in rw.__all__:
        thing = getattr(rw, name)
        if isinstance(thing, type) and issubclass(thing, rw.Bias) and thing is not rw.Bias:
            assert name in modules, name
        if name.endswith("_rows_backward"):
            assert {"add": "LearnedRows", "multiply": "MultiplicativeRows", "floater": "Floater"}.get(
                name.split("_")[0], "".join(part.title() for part in name.split("_")[:2])
            ) in modules, name


def absolute_modules():
    yield "sinusoidal", nn.Sinusoidal(12, learn="scale", scale=0.5), 1
    yield "sinusoids with learned frequencies", nn.Sinusoidal(12, layout="concatenated", learn="frequencies"), 1
    yield "learned", nn.LearnedRows(40, 12, offset=2), 1
    yield "hierarchical", nn.HierarchicalRows(7, 12, learned=True), 2
    yield "multiplicative", nn.MultiplicativeRows(40, 12), 1
    yield "digits", nn.Digits(12), 1
    yield "recurrent", nn.RecurrentRows(12, cell="gru"), 4
    yield "floater", nn.Floater(12, hidden=5, substeps=2), 6


@pytest.mark.parametrize("name", [name for name, *_ in absolute_modules()])
def test_absolute_modules(name, counter):
    torch.manual_seed(3)
    module, count = next((m, c) for n, m, c in absolute_modules() if n == name)
    x = random(2, 9, 12).requires_grad_()
    out = module(x, 3)
    assert_close(module(x[:, :4], torch.arange(3, 7)), out[:, :4], rtol=1e-6, atol=1e-6)
    rows = module.rows(torch.arange(3, 12))
    scale = module.scale if name == "sinusoidal" else 1.0
    want = x * rows if name == "multiplicative" else x + scale * rows
    assert_close(out, want, rtol=1e-6, atol=1e-6)
    parameters = list(module.parameters())
    assert len(parameters) == count
    for g in torch.autograd.grad(out.square().sum(), [x, *parameters]):
        assert g.abs().sum() > 0
    assert module(x.detach().bfloat16(), 3).dtype == torch.bfloat16
    torch.optim.SGD(parameters, 0.1).step()
    run = torch.compile(module, backend=counter, fullgraph=True, dynamic=True)
    for tokens in (3, 5, 9):
        assert_close(run(x[:, :tokens].contiguous(), 3), out[:, :tokens], rtol=1e-6, atol=1e-6)
        torch.compiler.set_stance("fail_on_recompile")


def test_float64_parameters_stay_float64():
    module = nn.Sinusoidal(12, learn="frequencies").half()
    assert module.frequencies.dtype == torch.float64
    both = torch.nn.Sequential(nn.LearnedRotaryEmbedding(8, layout="half"), nn.Sinusoidal(12, learn="frequencies"))
    assert {p.dtype for p in both.to(torch.bfloat16).parameters()} == {torch.float64}


def test_grids_and_resizing():
    half = rw.Sinusoidal(6, layout="concatenated")
    blocks, sizes = [(1, half), (0, half)], (3, 4)
    x = random(2, 12, 12)
    assert torch.equal(nn.SinusoidalGrid(blocks, sizes)(x), x + torch.from_numpy(rw.sinusoidal_grid(blocks, sizes)))
    module = nn.LearnedRows(13, 4)
    want = rw.resize_table(module.table.detach().numpy(), (3, 4), (6, 8), prefix_rows=1, kernel="cubic")
    module.resize((3, 4), (6, 8), prefix_rows=1, kernel="cubic")
    assert_close(module.table.detach(), torch.from_numpy(want), rtol=1e-5, atol=1e-6)
    assert isinstance(module.table, torch.nn.Parameter) and module.table.requires_grad


@pytest.mark.parametrize(
    "settings", [{"kernel": 8, "groups": 4, "weight_norm": True, "gelu": True}, {"kernel": (3, 3), "groups": 12}]
)
def test_position_convolution_module(settings):
    torch.manual_seed(3)
    module, x = nn.PositionConvolution(12, **settings), random(2, 20, 12)
    sizes = (4, 5) if settings["kernel"] == (3, 3) else None
    out = module(x, sizes)
    weight = module.v.detach().numpy()
    if module.g is not None:
        weight = rw.merge_weight_norm(weight, module.g.detach().numpy())
        assert_close(module.weight, module.v, rtol=1e-5, atol=1e-6)  # as it starts
    bias = module.bias.detach().numpy()
    want = rw.position_convolution(x.numpy(), weight, bias, sizes=sizes, gelu=settings.get("gelu", False))
    assert_close(out, torch.from_numpy(want), rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in module.parameters())


def test_complex_order_module():
    torch.manual_seed(3)
    module, words = nn.ComplexOrder(6, 4, frequency_shared="words"), torch.tensor([[0, 5, 3], [3, 3, 1]])
    out = module(words, 7)
    tables = [p.detach().numpy() for p in (module.amplitude, module.frequency, module.phase)]
    want = rw.complex_order(words.numpy(), np.tile(np.arange(7, 10), (2, 1)), *tables, frequency_shared="words")
    assert_close(out, torch.from_numpy(want), rtol=1e-5, atol=1e-5)
    out.abs().sum().backward()
    torch.view_as_real(out.detach())
    assert module.amplitude.grad.abs().sum() > 0
    torch.view_as_real(module(words)).square()[..., 0].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in module.parameters())


def test_pope_and_fope_modules(counter):
    torch.manual_seed(3)
    q, k, v = random(B, S, H, D).requires_grad_(), *(x.requires_grad_() for x in tensors()[1:])
    for module, options in ((nn.PoPE(2, D), {"scale": D**-0.5}), (nn.FoPE(D, trained_length=500, kv_heads=2), {})):

        def layer(q, k, v, module=module, options=options):
            q, k = module(q, k, 5)
            if q.shape[-1] != v.shape[-1]:  # PoPE's are twice as wide, and so values have to be
                return rt.attention(q, k, torch.nn.functional.pad(v, (0, D)), **options)[..., :D]
            return rt.attention(q, k, v, **options)

        for p in torch.autograd.grad(layer(q, k, v).square().sum(), [q, k, v, *module.parameters()]):
            assert p.abs().sum() > 0
        if isinstance(module, nn.PoPE):  # relative: what moves all positions changes no score
            near, far = (torch.einsum("bthd,bshd->bhts", x, y[:, :, :1]) for x, y in (module(q, k), module(q, k, 1000)))
            assert_close(near, far, rtol=1e-3, atol=1e-3)
        torch._dynamo.reset()
        run = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
        for tokens in (5, 9, 33):
            x = [t[:, :tokens].detach().clone() for t in (q, k, v)]
            assert_close(run(*x), layer(*x), rtol=1e-5, atol=1e-5)
            torch.compiler.set_stance("fail_on_recompile")
        torch.compiler.set_stance("default")


def test_maps_as_modules():
    q, k, v = tensors()
    rotation = rw.rotation(D, layout="half")
    for remap in (rw.ReRoPE(9), rw.LeakyReRoPE(9, 4), rw.SelfExtend(12, 4), rw.DualChunk(16, 24), rw.AttentionSinks(3, 20), rw.STRING(12, 3), rw.LaMPE(9, 10, 4, 30), rw.DPE(12)):
        module = nn.RemappedAttention(rotation, remap)
        want = rw.attention(*(x[0].numpy() for x in (q, k, v)), rotation=rotation, remap=remap)
        assert_close(module(q, k, v)[0], torch.from_numpy(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("remap", [rw.ReRoPE(9), rw.DPE(12)], ids=repr)
def test_maps_as_modules_compile_once(remap, counter):
    module = nn.RemappedAttention(rw.rotation(D, layout="half"), remap)
    run = torch.compile(module, backend=counter, fullgraph=True, dynamic=True)
    for tokens in (5, 9, 33):
        x = [random(B, tokens, H, D, seed=i) for i in range(3)]
        assert torch.equal(run(*x), module(*x))
        torch.compiler.set_stance("fail_on_recompile")


@pytest.mark.parametrize("kind, settings", [("log-n", {"period": 8}), ("step-log", {"period": 8, "offset": 2, "beta": 0.3})])
def test_temperatures_as_modules(kind, settings):
    module, p = nn.QueryTemperature(kind, **settings), torch.tensor([-20, -10, -9, -2, -1, 0, 1, 7, 8, 63, 131071])
    want = torch.from_numpy(rw.Temperature(kind, **settings)(p.numpy()))
    assert (want[:4] == 1).all()  # before position 0, and before -offset
    assert_close(module.factors(p).double(), want, rtol=1e-6, atol=1e-6)
    q = random(len(p), H, D)
    assert_close(module(q, p).double(), q * want[:, None, None], rtol=1e-5, atol=1e-5)
    if kind == "step-log":
        learned = nn.QueryTemperature(kind, **settings, learned=True)
        q, k, v = tensors()
        rt.attention(q, k, v, temperatures=learned.factors(torch.arange(S)[-q.shape[1] :])).square().sum().backward()
        assert learned.beta.grad.abs() > 0
    else:
        with pytest.raises(rw.Error, match="learned"):
            nn.QueryTemperature(kind, **settings, learned=True)
