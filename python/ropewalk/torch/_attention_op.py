"""`ropewalk::attention` and `attention_entropy`, and their gradient."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from ropewalk._core import pointers
from ropewalk.torch._bias import check_bias, kernel_numbers
from ropewalk.torch._frequencies import frequency_arguments
from ropewalk.torch._shared import (
    contiguous,
    define,
    empty_like,
    first_derivatives_alone,
    fold,
    host_reads,
    library,
    ready,
    refuse,
)

# What follows q, k and v: names and types of the schema. A new one has a default, so that calls of before stay right.
_TYPES = {
    "bias": "Tensor[]",  # float32, in the order of the kernel's struct; absent ones have no elements
    "sinks": "Tensor?",
    "temperatures": "Tensor?",
    "query_positions": "Tensor?",
    "key_positions": "Tensor?",
    "document_starts": "Tensor?",
    "inv_freq": "Tensor?",  # float64: q and k are rotated as they are read
    "kind": "int",  # of the bias, of KINDS; 0: none
    "numbers": "SymInt[]",  # of the bias
    "causal": "bool",
    "scale": "float?",
    "window": "SymInt",
    "soft_cap": "float",
    "layout": "int",
    "first_dim": "int",
    "amplitude": "float",
    "remap": "int[]",  # map, of MAPS (-1: none), and its settings
    "query_document_starts": "Tensor?",
}
Settings = namedtuple("Settings", _TYPES, defaults=(None,))
_SCHEMA = ", ".join(f"{kind} {name}" for name, kind in _TYPES.items())
_LISTS = ("sinks", "temperatures", "query_positions", "key_positions", "document_starts", "query_document_starts", "inv_freq")


def _per_token(name: str, x: Tensor | None, batch: int, tokens: int, dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """A list [tokens] or [batch, tokens], and how far apart those of two sequences are."""
    if x is None:
        return None, 0
    if x.dtype != dtype or x.shape[-1:] != (tokens,) or x.dim() not in (1, 2) or (x.dim() == 2 and x.shape[0] not in (1, batch)):
        raise refuse(f"{name}: expected {dtype} [{tokens}] or [{batch}, {tokens}], got {x.dtype} {list(x.shape)}")
    if dtype == torch.int64 and x.numel() and host_reads(x):
        low, high = torch.aminmax(x)
        if min(low.item(), -high.item()) <= -(1 << 62):  # whose differences are no number of 64 bits
            raise refuse(f"{name}: expected numbers of magnitude below 2^62, got {low.item()} to {high.item()}")
    return x.contiguous(), tokens if x.dim() == 2 and x.shape[0] == batch else 0


def check_lists(s: Settings, q: Tensor, k: Tensor) -> tuple[Settings, dict[str, int]]:
    """The settings with lists as kernels read them, and for those per token how far apart two sequences are."""
    batch, strides = q.shape[0], {}
    made = {"bias": [b.contiguous() for b in s.bias]}
    if s.sinks is not None:
        if s.sinks.dtype != torch.float32 or s.sinks.shape != (q.shape[2],):
            raise refuse(f"sinks: expected float32 [{q.shape[2]}], got {s.sinks.dtype} {list(s.sinks.shape)}")
        made["sinks"] = s.sinks.contiguous()
    for name, tokens, dtype in (
        ("temperatures", q.shape[1], torch.float32),
        ("query_positions", q.shape[1], torch.int64),
        ("key_positions", k.shape[1], torch.int64),
    ):
        made[name], strides[name] = _per_token(name, getattr(s, name), batch, tokens, dtype)
    for name in ("document_starts", "query_document_starts"):
        x = getattr(s, name)
        if x is not None:
            if x.dtype != torch.int64 or x.dim() != 1:
                raise refuse(f"{name}: expected int64 [documents], got {x.dtype} {list(x.shape)}")
            made[name] = x.contiguous()
    return s._replace(**made), strides


def _arguments(q, k, v, out, lse, entropy, s: Settings) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The dictionary of attention_pointers.cc, and the tensors that have to live until the call."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype != torch.float32 or x.dim() != 4:
            raise refuse(f"attention: {name}: expected float32 [batch, tokens, heads, head_dim], got {x.dtype} {list(x.shape)}")
    q, k, v = ready(q), ready(k), ready(v)
    s, strides = check_lists(s, q, k)
    check_bias(s.kind, s.bias, q, k)

    def pointer(x):
        return 0 if x is None else x.data_ptr()

    def count(x):
        return 0 if x is None else x.shape[0]

    arguments = {
        "q": (q.data_ptr(), q.shape, q.stride()),
        "k": (k.data_ptr(), k.shape, k.stride()),
        "v": (v.data_ptr(), v.shape, v.stride()),
        "out": pointer(out),
        "lse": pointer(lse),
        "entropy": pointer(entropy),
        "causal": s.causal,
        "scale": s.scale,
        "window": s.window,
        "soft_cap": s.soft_cap,
        "sinks": pointer(s.sinks),
        "temperatures": pointer(s.temperatures),
        "temperature_stride": strides["temperatures"],
        "query_positions": pointer(s.query_positions),
        "query_position_stride": strides["query_positions"],
        "key_positions": pointer(s.key_positions),
        "key_position_stride": strides["key_positions"],
        "document_starts": pointer(s.document_starts),
        "documents": count(s.document_starts),
        "query_document_starts": pointer(s.query_document_starts),
        "query_documents": count(s.query_document_starts),
        "bias": s.kind,
        "bias_data": [b.data_ptr() if b.numel() else 0 for b in s.bias],
        "bias_sizes": [b.numel() for b in s.bias],
        "bias_numbers": kernel_numbers(s.kind, s.bias, s.numbers, q, k),
    }
    if s.inv_freq is not None:
        _, _, _, high, low, pairs, _ = frequency_arguments(s.inv_freq, 1.0)
        if s.layout not in (0, 1):
            raise refuse(f"layout: expected 0 (half) or 1 (interleaved), got {s.layout}")
        arguments |= {"high": high, "low": low, "pairs": pairs, "map": list(s.remap)}
        arguments |= {name: getattr(s, name) for name in ("layout", "first_dim", "amplitude")}
    return arguments, (q, k, v, s)


def _empty_out(q, v):
    return q.new_empty((*q.shape[:3], v.shape[3]))


def _attention_cpu(q, k, v, *rest):
    out, lse = _empty_out(q, v), q.new_empty(q.shape[:3])
    arguments, _alive = _arguments(q, k, v, out, lse, None, Settings(*rest))
    pointers.attention(arguments)
    return out, lse


def _attention_entropy_cpu(q, k, v, *rest):
    out, lse, entropy = _empty_out(q, v), q.new_empty(q.shape[:3]), q.new_empty(q.shape[:3])
    arguments, _alive = _arguments(q, k, v, out, lse, entropy, Settings(*rest))
    pointers.attention(arguments)
    return out, lse, entropy


def _attention_backward_cpu(d_out, out, lse, q, k, v, *rest):
    s, bias_wanted = Settings(*rest[:-1]), rest[-1]
    d_out, out, lse = ready(d_out), out.contiguous(), lse.contiguous()
    arguments, _alive = _arguments(q, k, v, out, lse, None, s)
    d_q, d_k, d_v, d_sinks, d_bias = _empty_gradients(q, k, v, s, bias_wanted, torch.zeros_like)
    pointers.attention_backward(
        arguments,
        d_out.data_ptr(),
        d_out.stride(),
        d_q.data_ptr(),
        d_k.data_ptr(),
        d_v.data_ptr(),
        0 if s.sinks is None else d_sinks.zero_().data_ptr(),
        [d.data_ptr() if d.numel() else 0 for d in d_bias],
    )
    return d_q, d_k, d_v, d_sinks, d_bias


def _empty_gradients(q, k, v, s: Settings, bias_wanted: bool, make: Any):
    d_bias = [make(b, memory_format=contiguous) if bias_wanted and b.is_floating_point() else q.new_empty(0) for b in s.bias]
    return empty_like(q), empty_like(k), empty_like(v), q.new_empty(0 if s.sinks is None else s.sinks.shape[0]), d_bias


def _attention_backward_fake(d_out, out, lse, q, k, v, *rest):
    return _empty_gradients(q, k, v, Settings(*rest[:-1]), rest[-1], torch.empty_like)


define(
    "attention_backward",
    f"(Tensor d_out, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, {_SCHEMA}, bool bias_wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor[])",
)
library.impl("attention_backward", _attention_backward_cpu, "CPU")
torch.library.register_fake("ropewalk::attention_backward", _attention_backward_fake, lib=library)
first_derivatives_alone("attention_backward")


def _setup(ctx, inputs, output):
    q, k, v, *rest = inputs
    s = Settings(*rest)
    lists = {name: getattr(s, name) for name in _LISTS}
    ctx.save_for_backward(q, k, v, output[0], output[1], *lists.values(), *s.bias)
    ctx.rest = s._replace(bias=None, **dict.fromkeys(_LISTS))


def _backward(ctx, d_out, *_of_lse_and_entropy):
    q, k, v, out, lse, *saved = ctx.saved_tensors
    needs = Settings(*ctx.needs_input_grad[3:])
    if needs.temperatures:
        raise refuse("attention: temperatures has no gradient in this op; multiply the queries beforehand", "unsupported")
    if needs.inv_freq:
        raise refuse(
            "attention: frequencies have no gradient through a position map; learn them without one, or detach them",
            "unsupported",
        )
    lists, bias = dict(zip(_LISTS, saved)), saved[len(_LISTS) :]
    s = ctx.rest._replace(bias=bias, **lists)
    wanted = [isinstance(w, bool) and w for w in needs.bias] if bias else []
    d_q, d_k, d_v, d_sinks, d_bias = torch.ops.ropewalk.attention_backward(d_out, out, lse, q, k, v, *s, any(wanted))
    none = Settings(*(None,) * len(_TYPES))
    d_bias = [d if w else None for d, w in zip(d_bias, wanted)]
    gradients = (d_q, d_k, d_v, *none._replace(bias=d_bias, sinks=None if s.sinks is None else d_sinks))
    return gradients[: len(ctx.needs_input_grad)]  # PyTorch leaves out what has its default


def _vmap_of(op):
    def rule(info, in_dims, q, k, v, *rest):
        s, dims = Settings(*rest), Settings(*in_dims[3:], *(None,) * (len(_TYPES) - len(in_dims[3:])))
        in_bias = [d for d in dims.bias or [] if d is not None] if isinstance(dims.bias, (list, tuple)) else []
        if in_bias or any(isinstance(d, int) for d in dims[1:]):
            raise refuse("vmap: attention maps over q, k and v, not over its bias, sinks or positions", "unsupported")
        if s.kind == 4 or any(x is not None and x.dim() == 2 for x in (s.temperatures, s.query_positions, s.key_positions)):
            raise refuse("vmap: attention does not map with positions or gates per sequence", "unsupported")
        q, k, v = (fold(x, d, info.batch_size, 3) for x, d in zip((q, k, v), in_dims))
        out, *sums = op(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), *rest)
        return (out.reshape((*q.shape[:4], v.shape[4])), *(x.reshape(q.shape[:4]) for x in sums)), (0,) * (1 + len(sums))

    return rule


def _define(name: str, results: str, kernel: Any) -> Any:
    define(name, f"(Tensor q, Tensor k, Tensor v, {_SCHEMA}=None) -> ({results})")
    library.impl(name, kernel, "CPU")
    sums = results.count(",")
    torch.library.register_fake(
        f"ropewalk::{name}",
        lambda q, k, v, *_rest, **_kwargs: (_empty_out(q, v), *(q.new_empty(q.shape[:3]) for _ in range(sums))),
        lib=library,
    )
    torch.library.register_autocast(f"ropewalk::{name}", "cpu", torch.float32, lib=library)
    torch.library.register_autograd(f"ropewalk::{name}", _backward, setup_context=_setup, lib=library)
    op = getattr(torch.ops.ropewalk, name).default
    torch.library.register_vmap(f"ropewalk::{name}", _vmap_of(op), lib=library)
    return op


attention_op = _define("attention", "Tensor, Tensor", _attention_cpu)
attention_entropy_op = _define("attention_entropy", "Tensor, Tensor, Tensor", _attention_entropy_cpu)
