"""Formulas in float64 for the tests of ropewalk.torch, and their inputs."""

import math

import torch
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk.torch._attention import remap_numbers
from ropewalk.torch._attention_op import Settings
from ropewalk.torch._bias import lower


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


MAPS = {
    "rerope": (rw.ReRoPE(window=9), lambda i, j: min(i - j, 9)),
    "leaky": (rw.LeakyReRoPE(window=9, factor=4), lambda i, j: i - j if i - j < 9 else 9 + (i - j - 9) / 4),
    "self-extend": (
        rw.SelfExtend(window=12, group=4),
        lambda i, j: i - j if i - j < 12 else i // 4 + 12 - 12 // 4 - j // 4,
    ),
    "sinks": (rw.AttentionSinks(sinks=3, window=20), None),
    "lampe": (
        rw.LaMPE(head=9, mapped=10, tail=4, length=30),
        lambda i, j: rw.LaMPE(head=9, mapped=10, tail=4, length=30).relative_position(i, j) if j <= i else 0,
    ),
    "string": (rw.STRING(shift=12, window=3), lambda i, j: i - j if i - j < 12 else i - j - 12 + 3),
    "dual-chunk": (
        rw.DualChunk(chunk=16, limit=24),
        lambda i, j: i - j if i // 16 == j // 16 else min(i % 16 + 16, 24) - j % 16 if i // 16 == j // 16 + 1 else 24 - j % 16,
    ),
}


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


def flex_arguments(bias=None, remap=None, **settings):
    """What follows q, k and v in the op."""
    kind, parts, numbers = lower(bias)
    given = {
        "bias": [torch.empty(0) if p is None else p for p in parts],
        "sinks": None,
        "temperatures": None,
        "query_positions": None,
        "key_positions": None,
        "document_starts": None,
        "inv_freq": None,
        "kind": kind,
        "numbers": numbers,
        "causal": True,
        "scale": None,
        "window": 0,
        "soft_cap": 0.0,
        "layout": 0,
        "first_dim": 0,
        "amplitude": 1.0,
        "remap": remap_numbers(remap),
    }
    return tuple(Settings(**{**given, **settings}))
