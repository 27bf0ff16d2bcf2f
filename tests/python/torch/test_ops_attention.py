"""Attention of ropewalk.torch against a matrix of scores in float64, and what other devices run against the kernel."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from ops_reference import (
    BIASES,
    MAPS,
    B,
    D,
    G,
    H,
    S,
    T,
    agree,
    dense,
    flex_arguments,
    generator,
    inverse_frequencies,
    random,
    tensors,
    turned,
    turned_each,
)
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk.torch._attention_op import attention_op
from ropewalk.torch._flex import flex_attention


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


# As multi-head latent attention has them.
@pytest.mark.parametrize("width", [3, 24])
def test_values_of_another_width(width):
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01])

    def ours(q, k, v):
        return rt.attention(q, k, v, bias=rt.Slopes(slopes, slopes), return_lse=True)

    def reference(q, k, v):
        return dense(q, k, v, bias=lambda d: -slopes[:, None, None] * d.abs())

    q, k, v = tensors()
    wide = random(*v.shape[:3], width, seed=13)
    agree(ours, reference, [q, k, wide])
    q, k = q.detach(), k.detach()
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q[:, -1:], k, wide.detach())), enable_gqa=True
    ).transpose(1, 2)
    assert_close(rt.attention(q[:, -1:], k, wide.detach()), expected, rtol=0, atol=1e-5)
    out, _ = flex_attention(q, k, wide.detach(), *flex_arguments())
    assert out.shape == (*q.shape[:3], width)
    assert_close(out, rt.attention(q, k, wide.detach()), rtol=0, atol=1e-5)
    with pytest.raises(rw.Error, match="v: expected"):
        rt.attention(q, k, v[..., :0])
    with pytest.raises(rw.Error, match="value_rows"):
        rt.attention(q, k, wide.detach(), bias=rw.Shaw(H, left=1, right=1, value_rows=torch.zeros(3, D).numpy()))


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


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("apart", [False, True])
def test_without_their_own_the_queries_have_the_positions_of_the_last_keys(apart, window):
    """Of the rotation as of the mask, on the CPU and on other devices; against a formula in float64."""
    q, k, v = tensors()
    f = inverse_frequencies(D)
    k_at = torch.stack((torch.arange(S) * 3 + 1000, torch.arange(S) + 50)) if apart else torch.arange(1000, 1000 + S)
    q_at = k_at[..., S - T :]
    wide = turned(q, q_at.expand(B, T), f, "half"), turned(k, k_at.expand(B, S), f, "half"), v.double()
    want, _ = dense(*wide, window=window, query_positions=q_at, key_positions=k_at)
    for rotation in (rw.rotation(D, layout="half"), rt.Frequencies(f)):
        out = rt.attention(q, k, v, rotation=rotation, key_positions=k_at, window=window)
        assert_close(out.double(), want, rtol=0, atol=1e-5)
        assert torch.equal(
            out, rt.attention(q, k, v, rotation=rotation, key_positions=k_at, query_positions=q_at, window=window)
        )
    temperature = rw.Temperature("step-log", period=100)
    hot = torch.from_numpy(temperature(q_at.numpy())).float()
    out = rt.attention(q, k, v, key_positions=k_at, temperatures=temperature)
    assert torch.equal(out, rt.attention(q, k, v, key_positions=k_at, temperatures=hot))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_positions_of_keys_alone_on_other_devices():
    k_at = torch.arange(S) * 3 + 1000
    for window in (0, 9):
        arguments = flex_arguments(rt.Slopes(torch.ones(H) * 0.1), key_positions=k_at, window=window)
        with torch.no_grad():
            for x, y in zip(flex_attention(*tensors(), *arguments), attention_op(*tensors(), *arguments)):
                assert_close(x, y, rtol=1e-4, atol=2e-5)
    remap = {"inv_freq": inverse_frequencies(12), "remap": MAPS["self-extend"][0], "key_positions": torch.arange(S) + 64}
    with pytest.raises(rw.Error, match="with a position map are computed on the CPU alone") as error:
        flex_attention(*tensors(), *flex_arguments(**remap))
    assert error.value.code == "unsupported"


FLEX = [n for n in BIASES if n not in ("contextual", "fire", "content")]


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
        for x, y in zip(flex_attention(*tensors(), *arguments), attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("settings", [{"reset": False}, {"relative": True, "buckets": 8, "last_distance": 20}])
def test_tupe_of_other_devices(settings):
    torch.manual_seed(3)
    module = rw.nn.Tupe(H, D, 12, S, **settings)
    for p in module.parameters():
        torch.nn.init.normal_(p)
    hot, at = torch.rand(B, T, generator=generator(3)) + 0.5, torch.stack((torch.arange(T), torch.arange(T) + S - T))
    arguments = flex_arguments(module.form(T, S), causal=False, temperatures=hot, query_positions=at, scale=0.2)
    with torch.no_grad():
        for x, y in zip(flex_attention(*tensors(), *arguments), attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=5e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", MAPS)
def test_maps_of_other_devices(name):
    arguments = flex_arguments(inv_freq=inverse_frequencies(12), remap=MAPS[name][0], sinks=random(H, seed=11), first_dim=2)
    with torch.no_grad():
        for x, y in zip(flex_attention(*tensors(), *arguments), attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_documents_and_refusals_of_other_devices():
    arguments = flex_arguments(rt.Slopes(torch.ones(H) * 0.1), document_starts=torch.tensor([0, 11, 50]), window=15)
    with torch.no_grad():
        for x, y in zip(flex_attention(*tensors(), *arguments), attention_op(*tensors(), *arguments)):
            assert_close(x, y, rtol=1e-4, atol=2e-5)
    for name in ("contextual", "fire", "content"):
        make, parameters, settings = BIASES[name]
        with pytest.raises(rw.Error, match="CPU alone") as error:
            flex_attention(*tensors(), *flex_arguments(make(*parameters)[0], **settings))
        assert error.value.code == "unsupported"
    with pytest.raises(rw.Error, match="knows distances"):
        flex_attention(*tensors(), *flex_arguments(rt.Distances(random(H, 9))))


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


def test_memory_of_the_call_before_changes_no_bit():
    """Calls take the memory of the call before where it fits: longer, shorter, other heads, gradients and threads between."""

    def step(tokens, kv_heads, dim, seed):
        q = random(1, tokens, 4, dim, seed=seed).requires_grad_()
        k, v = (random(1, tokens, kv_heads, dim, seed=seed + i).requires_grad_() for i in (1, 2))
        out = rt.attention(q, k, v, bias=rw.nn.Alibi(4))
        return [out, *torch.autograd.grad(out, [q, k, v], torch.ones_like(out))]

    shapes = [(70, 2, 8), (300, 2, 8), (5, 2, 8), (70, 4, 8), (70, 2, 24), (70, 2, 8), (129, 2, 8), (70, 2, 8)]
    first = {shape: step(*shape, seed=9) for shape in dict.fromkeys(shapes)}
    step(4000, 4, 600, seed=1)  # too large to be kept
    rt.attention(*(torch.full((1, 300, 4, 8), math.nan) for _ in range(3)))  # what stays is no number
    for shape in shapes:
        for x, y in zip(step(*shape, seed=9), first[shape]):
            assert torch.equal(x, y)
    with ThreadPoolExecutor(4) as pool:
        for shape, got in pool.map(lambda shape: (shape, step(*shape, seed=9)), shapes * 4):
            for x, y in zip(got, first[shape]):
                assert torch.equal(x, y)


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
    slopes = (torch.ones(H) * 0.1).requires_grad_()
    q, k, v = (torch.stack((x, x + 1, x * 2)) for x in tensors())
    got = torch.func.vmap(lambda q, k, v: rt.attention(q, k, v, window=9))(q, k, v)
    for i in range(3):
        assert torch.equal(got[i], rt.attention(q[i], k[i], v[i], window=9))
    for dims in ((0, None, None), (0, 0, None), (None, 0, 0)):  # gradients go through to what is mapped and what is not
        given = [(x if d == 0 else x[0]).detach().requires_grad_() for x, d in zip((q, k, v), dims)]
        got = torch.func.vmap(lambda *x: rt.attention(*x, bias=rt.Slopes(slopes), window=9), dims)(*given)
        want = torch.stack(
            [rt.attention(*(x[i] if d == 0 else x for x, d in zip(given, dims)), bias=rt.Slopes(slopes), window=9) for i in range(3)]
        )
        assert torch.equal(got, want)
        for x, y in zip(*(torch.autograd.grad(o.square().sum(), [*given, slopes]) for o in (got, want))):
            assert_close(x, y, rtol=1e-4, atol=1e-4)
    with pytest.raises(rw.Error, match="vmap"):
        torch.func.vmap(lambda s: rt.attention(q[0], k[0], v[0], sinks=s))(torch.ones(3, H))


# What the op has beside its output, and what else is learned ----------------------------------------------------------


def test_entropy():
    q, k, v = tensors()
    sinks, slopes = random(H, seed=11), torch.ones(H) * 0.1
    settings = {"bias": rt.Slopes(slopes), "sinks": sinks, "window": 9}
    out, lse, entropy = rt.attention(q, k, v, **settings, return_lse=True, return_entropy=True)
    assert torch.equal(out, rt.attention(q, k, v, **settings))
    arrays = {"bias": rw.Alibi(H, slopes=slopes.numpy()), "sinks": sinks.numpy(), "window": 9}
    _, want_lse, want = rw.attention(*(x.numpy() for x in (q, k, v)), **arrays, return_lse=True, return_entropy=True)
    assert_close(entropy, torch.from_numpy(want), rtol=1e-5, atol=1e-5)
    assert_close(lse, torch.from_numpy(want_lse), rtol=1e-5, atol=1e-5)
    one = rt.attention(q[1], k[1], v[1], **settings, return_entropy=True)
    assert torch.equal(one[1], entropy[1]) and torch.equal(one[0], out[1])
    q.requires_grad_()
    with_entropy = rt.attention(q, k, v, **settings, return_entropy=True)
    assert not with_entropy[1].requires_grad
    for x, y in zip(*(torch.autograd.grad(o.sum(), q) for o in (with_entropy[0], rt.attention(q, k, v, **settings)))):
        assert torch.equal(x, y)


def test_documents_of_queries_that_are_not_the_last_tokens():
    q, k, v = tensors()
    q, starts, of_queries = q[:, :10], torch.tensor([0, 20, 50]), torch.tensor([0, 3, 7])
    at_q = torch.tensor([2, 5, 19, 0, 11, 12, 29, 4, 6, 19])
    at_k = torch.cat((torch.arange(20), torch.arange(30), torch.arange(20)))
    settings = {"document_starts": starts, "query_document_starts": of_queries, "query_positions": at_q, "key_positions": at_k}
    document = torch.tensor([0] * 3 + [1] * 4 + [2] * 3)
    keep = document[:, None] == torch.searchsorted(starts, torch.arange(S), right=True) - 1

    def reference(q, k, v):
        return dense(q, k, v, query_positions=at_q, key_positions=at_k, keep=keep)

    agree(lambda q, k, v: rt.attention(q, k, v, **settings, return_lse=True), reference, (q, k, v))
    with torch.no_grad():
        for x, y in zip(flex_attention(q, k, v, *flex_arguments(**settings)), attention_op(q, k, v, *flex_arguments(**settings))):
            assert_close(x, y, rtol=1e-4, atol=2e-5)
    for call in (rt.attention, lambda *x, **s: flex_attention(*x, *flex_arguments(**s))):
        with pytest.raises(rw.Error, match="query_document_starts"):
            call(q, k, v, **{**settings, "query_document_starts": of_queries[:2]})


@pytest.mark.parametrize("name", ["none", "slopes", "content by head", "gates", "distances"])
@pytest.mark.parametrize("shape", [(T,), (B, T)])
def test_gradients_of_temperatures(name, shape):
    make, parameters, settings = BIASES[name]
    if name == "content by head":  # without rows of keys, whose products do not have the query

        def make(query_rows, _):
            form, reference = BIASES[name][0](query_rows, torch.zeros_like(query_rows))
            return form._replace(key_rows=None), reference

    temperatures = torch.rand(shape, generator=generator(3)) + 0.5

    def ours(q, k, v, t, *p):
        return rt.attention(q, k, v, bias=make(*p)[0], temperatures=t, soft_cap=4.0, return_lse=True, **settings)

    def reference(q, k, v, t, *p):
        return dense(q, k, v, temperatures=t, soft_cap=4.0, **make(*p)[1], **settings)

    if name == "content by head":
        parameters = parameters[:1] * 2
        call, formula = ours, reference

        def ours(q, k, v, t, rows):
            return call(q, k, v, t, rows, None)

        def reference(q, k, v, t, rows):
            return formula(q, k, v, t, rows, None)

        parameters = parameters[:1]
    agree(ours, reference, [*tensors(), temperatures, *parameters])


def test_what_has_no_gradient_is_refused():
    q, k, v = tensors()
    hot = torch.ones(T, requires_grad=True)
    for name in ("content", "contextual"):
        make, parameters, settings = BIASES[name]
        with pytest.raises(rw.Error, match="temperatures have no gradient") as error:
            rt.attention(q, k, v, bias=make(*parameters)[0], temperatures=hot, **settings)
        assert error.value.code == "unsupported"
        rt.attention(q, k, v, bias=make(*parameters)[0], temperatures=hot.detach(), **settings)
    out, _ = attention_op(q, k, v, *flex_arguments(temperatures=hot))
    with pytest.raises(rw.Error, match="temperatures has no gradient in this op"):
        out.sum().backward()
    learned = rt.Frequencies(inverse_frequencies(D).requires_grad_())
    rt.attention(q, k, v, rotation=learned).sum().backward()
    assert learned.inv_freq.grad.abs().sum() > 0
    with pytest.raises(rw.Error, match="no gradient through a position map") as error:
        rt.attention(q, k, v, rotation=learned, remap=rw.ReRoPE(window=9)).sum().backward()
    assert error.value.code == "unsupported"


def test_rotations_of_ropewalk_with_all_that_they_say():
    q, k, v = tensors()
    arrays = [x[0].numpy() for x in (q, k, v)]
    yarn = rw.rotation(D, layout="half", method="yarn", factor=4, trained_length=64, mscale_all_dim=0.7, softmax_mscale=True)
    assert yarn.softmax_multiplier != 1
    for rotation in (yarn, rw.rotation(D, layout="interleaved", rotated_heads=0, rotary_dim=8, first_dim=4)):
        want = rw.attention(*arrays, rotation=rotation)
        assert_close(rt.attention(q[0], k[0], v[0], rotation=rotation), torch.from_numpy(want), rtol=1e-4, atol=1e-5)
    temperature = rw.Temperature("log-n", period=8)
    want = rw.attention(*arrays, temperatures=temperature)
    assert_close(rt.attention(q[0], k[0], v[0], temperatures=temperature), torch.from_numpy(want), rtol=1e-4, atol=1e-5)
    bias = rw.DebertaBias(
        H,
        buckets=8,
        max_position=32,
        embedding=random(16, 4).numpy(),
        key_projection=random(H, D, 4).numpy(),
        query_projection=random(H, D, 4, seed=1).numpy(),
    )
    want = rw.attention(*arrays, bias=bias, causal=False)
    assert_close(rt.attention(q[0], k[0], v[0], bias=bias, causal=False), torch.from_numpy(want), rtol=1e-4, atol=1e-4)
    xpos = rw.rotation(D, layout="half", xpos_scale_base=64)
    turned = rt.rotate(torch.nn.functional.pad(q, (0, 0, 0, 0, S - T, 0)), k, xpos)
    want = rt.attention(turned[0][:, S - T :], turned[1], v)
    assert_close(rt.attention(q, k, v, rotation=xpos), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(rw.Error, match="xPos") as error:
        rt.attention(q, k, v, rotation=xpos, remap=rw.ReRoPE(window=9))
    assert error.value.code == "unsupported"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_positions_per_share_of_the_pairs_need_a_cpu():
    q, k, v = random(1, 30, 4, 16), random(1, 30, 2, 16), random(1, 30, 2, 16)
    rotation, remap = rw.rotation(16, layout="half"), rw.DPE(8, 2, 3, 4, 5, 6, 7, 8, 3)
    want = rw.attention(*(x[0].numpy() for x in (q, k, v)), rotation=rotation, remap=remap)
    assert_close(rt.attention(q, k, v, rotation=rotation, remap=remap)[0], torch.from_numpy(want), rtol=1e-5, atol=1e-6)
    frequencies = torch.ones(8, dtype=torch.float64)
    with pytest.raises(rw.Error, match=r"dpe\(window 8.*on the CPU alone"):
        flex_attention(q, k, v, *flex_arguments(remap=remap, inv_freq=frequencies))
