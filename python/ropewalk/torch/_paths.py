"""`ropewalk::floater_rows` and `recurrent_rows`: rows computed one after the other, by the library on the CPU and as loops in
float64 elsewhere and for tensors in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk import _paths as arrays
from ropewalk.torch._shared import beside, choice, define, first_derivatives_alone, library, refuse, transformed

_FIELD = ("w", "u", "b", "v", "c")


def _array(x: Tensor) -> Any:
    return x.detach().contiguous().numpy()


def _field(field: list[Tensor]) -> dict[str, Any]:
    names = ("frequencies",) if len(field) == 1 else _FIELD
    return {name: _array(x) for name, x in zip(names, field)}


def _like(gradients: list[Any], tensors: list[Tensor]) -> list[Tensor]:
    return [torch.from_numpy(g).reshape(x.shape).to(x.dtype) for g, x in zip(gradients, tensors)]


def _floater_cpu(start, field, count, spacing, substeps):
    rows, _ = arrays.floater_rows(_array(start), count, **_field(field), spacing=spacing, substeps=substeps)
    return torch.from_numpy(rows)


def _floater_backward_cpu(d_rows, start, field, spacing, substeps):
    named = _field(field)
    g = arrays.floater_rows_backward(_array(d_rows), _array(start), **named, spacing=spacing, substeps=substeps)
    return _like([g["start"], *(g[name] for name in named)], [start, *field])


def _recurrent_cpu(start, weight, input_bias, hidden_bias, count, cell):
    parts = {"weight": _array(weight), "input_bias": _array(input_bias), "hidden_bias": _array(hidden_bias)}
    return torch.from_numpy(arrays.recurrent_rows(_array(start), count, **parts, cell=cell))


def _recurrent_backward_cpu(d_rows, start, weight, input_bias, hidden_bias, cell):
    parts = {"weight": weight, "input_bias": input_bias, "hidden_bias": hidden_bias}
    held = {name: _array(x) for name, x in parts.items()}
    g = arrays.recurrent_rows_backward(_array(d_rows), _array(start), **held, cell=cell)
    return _like([g["start"], *(g[name] for name in parts)], [start, *parts.values()])


define("floater_rows", "(Tensor start, Tensor[] field, SymInt count, float spacing, int substeps) -> Tensor")
define("floater_rows_backward", "(Tensor d_rows, Tensor start, Tensor[] field, float spacing, int substeps) -> Tensor[]")
_CELL = "Tensor start, Tensor weight, Tensor input_bias, Tensor hidden_bias"
define("recurrent_rows", f"({_CELL}, SymInt count, str cell) -> Tensor")
define("recurrent_rows_backward", f"(Tensor d_rows, {_CELL}, str cell) -> Tensor[]")
for _name, _kernel in {
    "floater_rows": _floater_cpu,
    "floater_rows_backward": _floater_backward_cpu,
    "recurrent_rows": _recurrent_cpu,
    "recurrent_rows_backward": _recurrent_backward_cpu,
}.items():
    library.impl(_name, _kernel, "CPU")


def _empty_rows(start, *rest):
    return start.new_empty((rest[-2] if isinstance(rest[-1], str) else rest[1], start.shape[0]))


torch.library.register_fake("ropewalk::floater_rows", _empty_rows, lib=library)
torch.library.register_fake("ropewalk::recurrent_rows", _empty_rows, lib=library)
torch.library.register_fake(
    "ropewalk::floater_rows_backward",
    lambda d, start, field, *_: [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (start, *field)],
    lib=library,
)
torch.library.register_fake(
    "ropewalk::recurrent_rows_backward",
    lambda d, *parts: [torch.empty_like(x, memory_format=torch.contiguous_format) for x in parts[:4]],
    lib=library,
)


def _floater_setup(ctx, inputs, output):
    start, field, _, ctx.spacing, ctx.substeps = inputs
    ctx.save_for_backward(start, *field)


def _floater_backward(ctx, d):
    start, *field = ctx.saved_tensors
    d_start, *d_field = torch.ops.ropewalk.floater_rows_backward(d, start, field, ctx.spacing, ctx.substeps)
    return d_start, d_field, None, None, None


def _recurrent_setup(ctx, inputs, output):
    *parts, _, ctx.cell = inputs
    ctx.save_for_backward(*parts)


def _recurrent_backward(ctx, d):
    return *torch.ops.ropewalk.recurrent_rows_backward(d, *ctx.saved_tensors, ctx.cell), None, None


def _no_vmap(name: str) -> Any:
    def rule(*_args):
        raise refuse(f"vmap: {name} does not map", "unsupported")

    return rule


for _name, _backward, _setup in (
    ("floater_rows", _floater_backward, _floater_setup),
    ("recurrent_rows", _recurrent_backward, _recurrent_setup),
):
    torch.library.register_autograd(f"ropewalk::{_name}", _backward, setup_context=_setup, lib=library)
    torch.library.register_vmap(f"ropewalk::{_name}", _no_vmap(_name), lib=library)
    first_derivatives_alone(f"{_name}_backward", "; tensors in float64 have them")


def _in_kernel(*tensors: Tensor) -> bool:
    return tensors[0].is_cpu and all(x.dtype == torch.float32 for x in tensors) and not transformed(*tensors)


def _check(name: str, x: Tensor | None, shape: tuple[int | None, ...]) -> Tensor:
    if x is None or not x.is_floating_point() or x.dim() != len(shape) or any(n not in (None, m) for n, m in zip(shape, x.shape)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise refuse(f"{name}: expected float [{wanted}], got {'None' if x is None else f'{x.dtype} {list(x.shape)}'}")
    return x


def floater_rows(
    start: Tensor,
    count: int,
    *,
    w: Tensor | None = None,
    u: Tensor | None = None,
    b: Tensor | None = None,
    v: Tensor | None = None,
    c: Tensor | None = None,
    frequencies: Tensor | None = None,
    spacing: float = 0.1,
    substeps: int = 10,
) -> Tensor:
    """FLOATER (Liu et al. 2020, arXiv 2003.09229): rows 0 to count - 1 [count, dim] of the path p' = v tanh(w p + u t + b) + c
    from start, or of the field of sinusoids with these frequencies; arguments as in `ropewalk.floater_rows`, with gradients."""
    dim = _check("start", start, (None,)).shape[0]
    if frequencies is not None:
        if any(x is not None for x in (w, u, b, v, c)) or dim % 2:
            raise refuse(f"frequencies: expected an even start, got {dim} elements, and no w, u, b, v, c")
        field = [_check("frequencies", frequencies, (dim // 2,))]
    else:
        hidden = _check("w", w, (None, dim)).shape[0]
        shapes = {"w": (hidden, dim), "u": (hidden,), "b": (hidden,), "v": (dim, hidden), "c": (dim,)}
        field = [_check(name, x, shapes[name]) for name, x in zip(_FIELD, (w, u, b, v, c))]
    beside(start, **{f"field {i}": x for i, x in enumerate(field)})
    if not count >= 0 or substeps < 2 or substeps % 2 or not spacing > 0:
        raise refuse(f"floater_rows: expected a count, a spacing above 0 and even substeps, got {count}, {spacing}, {substeps}")
    if _in_kernel(start, *(x.float() for x in field)):
        field = [x.double() if frequencies is not None else x.float() for x in field]
        return torch.ops.ropewalk.floater_rows(start, field, count, spacing, substeps)
    return _floater_formula(start, field, count, spacing, substeps)


def _floater_formula(start, field, count, spacing, substeps):
    f = [x.to(torch.float64) for x in field]

    def slope(t, p):
        if len(f) == 1:
            sine, cosine = p.unflatten(0, (-1, 2)).unbind(-1)
            return torch.stack((f[0] * cosine, -f[0] * sine), -1).flatten()
        w, u, b, v, c = f
        return v @ torch.tanh(w @ p + u * t + b) + c

    h, p = spacing / substeps, start.to(torch.float64)
    rows = [p]
    for i in range((count - 1) * substeps if count else 0):
        t = i * h
        k1 = slope(t, p)
        k2 = slope(t + h / 2, p + h / 2 * k1)
        k3 = slope(t + h / 2, p + h / 2 * k2)
        k4 = slope(t + h, p + h * k3)
        p = p + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        if (i + 1) % substeps == 0:
            rows.append(p)
    return torch.stack(rows)[:count].to(start.dtype)


def recurrent_rows(
    start: Tensor, count: int, *, weight: Tensor, input_bias: Tensor, hidden_bias: Tensor, cell: str = "tanh"
) -> Tensor:
    """Rows [count, dim] that a small recurrent cell computes, each from the one before (kexue.fm/archives/8130): arguments as in
    `ropewalk.recurrent_rows`, with gradients."""
    dim = _check("start", start, (None,)).shape[0]
    rows = dim * (3 if choice("cell", cell, {"tanh": 0, "gru": 1}) else 1)
    parts = [_check("weight", weight, (rows, dim)), _check("input_bias", input_bias, (rows,))]
    parts.append(_check("hidden_bias", hidden_bias, (rows,)))
    beside(start, weight=weight, input_bias=input_bias, hidden_bias=hidden_bias)
    if not count >= 0:
        raise refuse(f"count: expected 0 or more, got {count}")
    if _in_kernel(start, *parts):
        return torch.ops.ropewalk.recurrent_rows(start, *parts, count, cell)
    w, b, c = (x.to(torch.float64) for x in parts)
    p = start.to(torch.float64)
    made = [p]
    for _ in range(count - 1):
        hidden = w @ p + c
        if cell == "tanh":
            p = torch.tanh(b + hidden)
        else:
            r, z = torch.sigmoid((b + hidden)[: 2 * dim]).chunk(2)
            p = (1 - z) * torch.tanh(b[2 * dim :] + r * hidden[2 * dim :]) + z * p
        made.append(p)
    return torch.stack(made)[:count].to(start.dtype)
