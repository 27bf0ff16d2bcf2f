"""The public function of attention, and what it takes of ropewalk's own objects."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk._arrays import whole
from ropewalk._bias import Bias, Form
from ropewalk._rotary import Rotation
from ropewalk.torch._attention_op import Settings, attention_entropy_op, attention_op
from ropewalk.torch._bias import Gates, counts_of, lower, of_arrays
from ropewalk.torch._flex import flex_attention, plain_attention
from ropewalk.torch._rotate import inv_freq_of, rotate_frequencies, rotate_one
from ropewalk.torch._shared import (
    DTYPES,
    LAYOUTS,
    below_autograd,
    beside,
    check_tensors,
    choice,
    list_of,
    numbers_as_given,
    query_places,
    refuse,
    transformed,
)

# Numbers of a map, and the names of its settings.
MAPS = {
    "rerope": (0, ("window",)),
    "leaky-rerope": (1, ("window", "factor")),
    "self-extend": (2, ("window", "group")),
    "dual-chunk": (3, ("chunk", "limit")),
    "sinks": (4, ("sinks", "window")),
    "string": (5, ("shift", "window")),
    "lampe": (6, ("head", "mapped", "tail", "length")),
    "dpe": (7, ("window", *(f"group{i}" for i in range(1, 9)))),
}


class Frequencies(NamedTuple):
    """A rotation on one axis as tensors, for `attention`; `frequencies` makes it of a `ropewalk.Rotation`."""

    inv_freq: Tensor  # float64 [pairs], or [2, pairs]: the sum of both
    layout: str = "half"
    first_dim: int = 0
    amplitude: float = 1.0


def frequencies(rotation: Any) -> Frequencies:
    """The frequencies of a `ropewalk.Rotation`, float64 [2, pairs]: the sum of both is right to 106 bits."""
    if not isinstance(rotation, Rotation):
        raise refuse(f"rotation: expected a ropewalk.Rotation or Frequencies, got {type(rotation).__name__}")
    if rotation.axes != 1 or rotation.rotated_heads:
        raise refuse("rotation: expected positions on one axis and all heads to rotate", "unsupported")
    if rotation._core.decays:
        raise refuse("rotation: xPos decays with the position, which frequencies do not say; give it to rotate", "unsupported")
    return Frequencies(inv_freq_of(rotation), rotation.layout, rotation.first_dim, rotation.amplitude)


def map_settings(remap: Any) -> tuple[Any, ...]:
    """(name, settings ..) of a ropewalk map, which has these, or as given."""
    if isinstance(remap, tuple):
        return remap
    name = getattr(remap, "name", None)
    return (name, *(getattr(remap, f) for f in MAPS.get(name, (0, ()))[1]))


def remap_numbers(remap: Any) -> list[int]:
    """[map, its settings ..]: of a ropewalk map, or of a tuple of its name and settings."""
    if remap is None:
        return [-1, 0, 0]
    name, *settings = map_settings(remap)
    if name not in MAPS:
        raise refuse(
            f"remap: expected a map of ropewalk (ReRoPE, SelfExtend, ..) or ({' or '.join(MAPS)}, settings ..), got {remap!r}"
        )
    numbers = [n if isinstance(n, int) else whole("remap", n) for n in settings][: len(MAPS[name][1])]
    return [MAPS[name][0], *numbers, *[0] * (max(2, len(MAPS[name][1])) - len(numbers))]


def _form(
    bias: Any, q: Tensor, k: Tensor, query_positions: Any, key_positions: Any, causal: bool, reach: int
) -> tuple[int, list[Tensor], list[int]]:
    """The bias as the op takes it: float32 beside q, absent tensors without elements. reach: of the distances, where they
    are more than those of these tokens and keys."""
    if hasattr(bias, "form"):
        counts = (reach, reach) if reach else counts_of(q, k, query_positions, key_positions, causal)
        bias = bias.form(*counts)
    elif isinstance(bias, (Bias, Form)):
        bias = of_arrays(bias, q, k, query_positions, key_positions, causal, reach)
    if isinstance(bias, Gates) and bias.log_gates.dim() == 2:
        bias = Gates(bias.log_gates.unsqueeze(0))
    kind, tensors, numbers = lower(bias)
    if kind:
        beside(q, **{f"bias: tensor {i}": t for i, t in enumerate(tensors)})
        if any(t is not None and t.is_complex() for t in tensors):
            raise refuse("bias: expected tensors of real numbers, got complex ones")
    tensors = [  # of q's device and not made of q, which vmap may map
        torch.empty(0, dtype=torch.float32, device=q.device) if t is None else t if kind == 3 and i == 0 else t.to(torch.float32)
        for i, t in enumerate(tensors)
    ]
    return kind, tensors, numbers


def _factors(temperature: Any, q: Tensor, k: Tensor, query_positions: Tensor | None, key_positions: Tensor | None) -> Tensor:
    """Of a ropewalk.Temperature at the positions of the queries, by default those of the last keys."""
    at = query_places(query_positions, key_positions, q.shape[1], k.shape[1])
    at = torch.arange(k.shape[1] - q.shape[1], k.shape[1]) if at is None else at
    return torch.from_numpy(temperature(at.cpu().numpy())).to(q.device, torch.float32)


def _heated(q: Tensor, temperatures: Tensor, kind: int, tensors: list[Tensor]) -> Tensor:
    """q times its temperatures, which is what they do where no bias depends on q or k in a way of its own."""
    if kind == 5 or (kind == 3 and any(tensors[i].numel() for i in (2, 4, 5))):
        raise refuse(
            "attention: temperatures have no gradient with Contextual, nor with key_rows, query_bias or key_bias of Content; "
            "detach them",
            "unsupported",
        )
    return (q * temperatures[..., None, None]).to(q.dtype)


class _Prepared(NamedTuple):
    """A checked call: q, k and v have a batch, and are rotated unless the op does that."""

    q: Tensor
    k: Tensor
    v: Tensor
    settings: Settings
    dtype: torch.dtype
    single: bool  # they came without batch


def prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    bias: Any,
    remap: Any,
    rotation: Any,
    scale: float | None,
    window: int,
    soft_cap: float,
    temperatures: Any,
    sinks: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    document_starts: Tensor | None = None,
    query_document_starts: Tensor | None = None,
    reach: int = 0,
) -> _Prepared:
    """What `attention` takes, as the op takes it. reach: 0, or one more than the largest distance of keys elsewhere."""
    check_tensors(q=q, k=k, v=v)
    single = q.dim() == 3
    if single:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise refuse(
            f"attention: expected [batch, tokens, heads, head_dim] or all without batch, got {list(q.shape)}, "
            f"{list(k.shape)} and {list(v.shape)}"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in DTYPES:
            raise refuse(f"attention: {name}: expected a float dtype, got {x.dtype}")
    window, causal, soft_cap, scale = numbers_as_given(window, causal, soft_cap, scale)
    query_positions = list_of("query_positions", query_positions, q)
    key_positions = list_of("key_positions", key_positions, q)
    lists = {
        "sinks": list_of("sinks", sinks, q, floats=True),
        "query_positions": query_positions,
        "key_positions": key_positions,
        "document_starts": list_of("document_starts", document_starts, q),
        "query_document_starts": list_of("query_document_starts", query_document_starts, q),
    }
    if not callable(temperatures):
        temperatures = list_of("temperatures", temperatures, q, floats=True)
    beside(q, k=k, v=v, temperatures=temperatures, **lists)
    if scale is None and isinstance(bias, Bias):
        scale = bias.default_scale(q.shape[3])
    if scale is None and getattr(rotation, "softmax_multiplier", 1) != 1:
        scale = q.shape[3] ** -0.5 * rotation.softmax_multiplier
    kind, tensors, numbers = _form(bias, q, k, query_positions, key_positions, causal, reach)
    dtype = q.dtype
    if callable(temperatures) and not isinstance(temperatures, Tensor):
        temperatures = _factors(temperatures, q, k, query_positions, key_positions)
    if temperatures is not None and temperatures.requires_grad and torch.is_grad_enabled():
        q, temperatures = _heated(q, temperatures, kind, tensors), None
    q, k, angles = _rotated(q, k, rotation, remap, query_positions, key_positions)
    settings = Settings(
        bias=tensors,
        temperatures=temperatures,
        kind=kind,
        numbers=numbers,
        causal=causal,
        scale=scale,
        window=window,
        soft_cap=soft_cap,
        remap=remap_numbers(remap),
        **lists,
        **angles,
    )
    if transformed(q, k, v, *tensors):
        raise refuse("attention: torch.func.grad, jvp and what is made of them; use torch.autograd.grad", "unsupported")
    return _Prepared(q, k, v, settings, dtype, single)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    bias: Any = None,
    remap: Any = None,
    rotation: Any = None,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
    temperatures: Tensor | None = None,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    document_starts: Tensor | None = None,
    query_document_starts: Tensor | None = None,
    return_lse: bool = False,
    return_entropy: bool = False,
) -> Any:
    """Attention with a position bias, memory linear in tokens, and gradients of q, k, v, the bias, sinks and temperatures.

        score(i, j) = scale temperatures[i] q_i . k_j + bias(i, j), then soft_cap tanh(score / soft_cap)
        out_i = sum of exp(score) v_j / (exp(sink) + sum of exp(score)) over the keys that query i sees

    q: [batch, tokens, heads, head_dim] or without batch; k, v: [batch, keys, kv_heads, head_dim], heads a multiple of
        kv_heads. Heads of v may have another size (multi-head latent attention), which the result then has. float32
        arithmetic on the CPU whatever the dtype; the result has q's dtype.
    bias: `Slopes`, `Distances`, `Content`, `Gates`, `Contextual`, `Fire`, `Tupe`, `Swin`; a module of `ropewalk.nn`; or
        a bias of ropewalk (`ropewalk.Alibi(heads=8)`), whose arrays have no gradient here.
        Off the CPU, Contextual, Fire and rows of values are refused ("unsupported").
    rotation: a `ropewalk.Rotation` or `Frequencies`: q and k are unrotated and are rotated here. remap: a position map
        (`ropewalk.ReRoPE(window=512)` or ("rerope", 512)), which needs it; through a map frequencies have no gradient.
    scale: default head_dim ** -0.5, times the softmax_multiplier of a `ropewalk.Rotation`; a `ropewalk.DebertaBias` or Tupe
        has its own. window: |distance| < window; 0: none. soft_cap: 0: none. sinks: [heads].
    temperatures: [tokens] or [batch, tokens], or a `ropewalk.Temperature`. query_positions, key_positions: int64 [tokens] or
        [batch, tokens], not decreasing; by default queries are the last tokens of the keys, and key j has position j.
    document_starts: int64, index of the first key of each packed document. query_document_starts: the same for queries
        that are not the last tokens.
    return_lse: also the log-sum-exp [batch, tokens, heads], float32, without gradient.
    return_entropy: also the entropy of each query's weights in nats, as the log-sum-exp; on the CPU alone.
    """
    q, k, v, settings, dtype, single = prepared(
        q,
        k,
        v,
        causal=causal,
        bias=bias,
        remap=remap,
        rotation=rotation,
        scale=scale,
        window=window,
        soft_cap=soft_cap,
        temperatures=temperatures,
        sinks=sinks,
        query_positions=query_positions,
        key_positions=key_positions,
        document_starts=document_starts,
        query_document_starts=query_document_starts,
    )
    if q.is_cpu:
        op = attention_entropy_op if return_entropy else attention_op
        learned = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (q, k, v, settings.sinks, settings.inv_freq, *settings.bias)
        )
        if learned or torch.compiler.is_compiling():
            out, *sums = op(q.float(), k.float(), v.float(), *settings)
        else:  # autograd's way to an op costs as much as the attention of a token
            with below_autograd():
                out, *sums = op(q.float(), k.float(), v.float(), *settings)
    else:
        if return_entropy:
            raise refuse("attention: return_entropy: the entropy is computed on the CPU alone", "unsupported")
        if not q.is_meta and torch.is_autocast_enabled(q.device.type):  # which does not know "meta"
            q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
        out, sums = None if return_lse else plain_attention(q, k, v, settings), []
        if out is None:
            out, *sums = flex_attention(q, k, v, *settings)
    results = [out.to(dtype), *(x.detach() for x in sums)]
    wanted = [r for r, w in zip(results, (True, return_lse, return_entropy)) if w]
    wanted = [r.squeeze(0) for r in wanted] if single else wanted
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


def _rotated(q, k, rotation, remap, query_positions, key_positions) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """q and k, rotated where no map is given, and the settings of the rotation that attention does itself."""
    none = {"inv_freq": None, "layout": 0, "first_dim": 0, "amplitude": 1.0}
    if rotation is None:
        if remap is not None:
            raise refuse("remap: expected the rotation too: a map rotates one key by several positions")
        return q, k, none
    q_at = query_places(query_positions, key_positions, q.shape[1], k.shape[1])
    q_at = k.shape[1] - q.shape[1] if q_at is None else q_at
    k_at = 0 if key_positions is None else key_positions
    if remap is None and isinstance(rotation, Rotation):
        return rotate_one(q, rotation, q_at, False), rotate_one(k, rotation, k_at, True), none
    rotation = rotation if isinstance(rotation, Frequencies) else frequencies(rotation)
    inv_freq = rotation.inv_freq.to(q.device)
    settings = {"layout": rotation.layout, "amplitude": rotation.amplitude, "first_dim": rotation.first_dim}
    if remap is None:
        q, _ = rotate_frequencies(q, None, inv_freq, q_at, **settings)
        k, _ = rotate_frequencies(k, None, inv_freq, k_at, **settings)
        return q, k, none
    return (
        q,
        k,
        {
            "inv_freq": inv_freq,
            "layout": choice("layout", rotation.layout, LAYOUTS),
            "first_dim": rotation.first_dim,
            "amplitude": float(rotation.amplitude),
        },
    )
