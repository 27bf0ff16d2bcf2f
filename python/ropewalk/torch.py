"""Ropewalk's ops for PyTorch: rotation and attention with gradients, `torch.compile` and `torch.export`.

Tensors of the CPU go to ropewalk's kernels, without a copy. On every other device the same functions are plain
PyTorch with the same exact tables (rotation) and FlexAttention (attention), so that a compiler fuses them.

Everything here takes tensors: tables of cosines and sines are rows, float32 [count, 2, pairs] (cosines, then sines,
both times the attention factor), which `table` makes. Modules that keep them are in `ropewalk.nn`.

The ops are `torch.ops.ropewalk.rotate`, `rotate_`, `rotate_frequencies`, `attention` and two backward ops.
Under autocast rotation keeps the dtype of its inputs (it computes in float32 and rounds once), and attention casts to
float32. `torch.func.vmap` maps over queries, keys, values and positions; over tables and biases it is refused.
`torch.func.grad`, `jvp` and forward-mode derivatives of rotation go through its formula; of attention they are refused.
Second derivatives exist for rotation with a table alone.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad

from ropewalk._core import Error, pointers

__all__ = [
    "Content",
    "Contextual",
    "Distances",
    "Fire",
    "Frequencies",
    "Gates",
    "Slopes",
    "Swin",
    "Tupe",
    "attention",
    "frequencies",
    "rotate",
    "rotate_frequencies",
    "table",
]

_DTYPES = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
_LAYOUTS = {"half": 0, "interleaved": 1}
_DIRECTIONS = {"forward": 0, "adjoint": 1, "inverse": 2}
_OPPOSITE = (1, 0, 0)  # the direction of the gradient; that of R^T x / a is R x / a
_NONE = ()


def _refuse(message: str, code: str = "invalid_argument") -> Error:
    error = Error(message)
    error.code = code
    return error


def _choice(name: str, value: str, choices: dict[str, int]) -> int:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise _refuse(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}") from None


# Rotation ------------------------------------------------------------------------------------------------------------


def _ready(x: Tensor) -> Tensor:
    """What a kernel reads: any strides but for the last, which is 1. Gradients arrive expanded."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _check_heads(name: str, x: Tensor) -> None:
    if x.dtype not in _DTYPES:
        raise _refuse(f"{name}: expected float64, float32, float16 or bfloat16, got {x.dtype}")
    if x.dim() not in (3, 4):
        raise _refuse(f"{name}: expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got {list(x.shape)}")


def _positions_arguments(x: Tensor, positions: Tensor | None, axis: Tensor | None) -> tuple[Any, ...]:
    """Pointer, bytes of a position, their number and axes, and the tensor that has to live until the call."""
    if positions is None:
        return 0, 0, 0, 1, None
    size = positions.element_size()
    if positions.dtype not in (torch.int64, torch.int32) or positions.device.type != "cpu":
        raise _refuse(f"positions: expected int64 or int32 beside the tensors, got {positions.dtype} on {positions.device}")
    if not positions.is_contiguous():
        positions = positions.contiguous()
    axes = positions.shape[0] if axis is not None and positions.dim() == 3 else 1
    tokens = x.shape[-3]
    count = positions.numel()
    batch = x.shape[0] if x.dim() == 4 else 1
    if positions.dim() == 0 or positions.shape[-1] != tokens or (count != axes * tokens and count != axes * batch * tokens):
        raise _refuse(
            f"positions: expected [tokens], [batch, tokens] or [axes, batch, tokens] for {list(x.shape)}, "
            f"got {list(positions.shape)}"
        )
    return positions.data_ptr(), size, count, axes, positions


def _axis_pointer(axis: Tensor | None, pairs: int) -> int:
    if axis is None:
        return 0
    if axis.dtype != torch.uint8 or axis.device.type != "cpu" or axis.numel() != pairs or not axis.is_contiguous():
        raise _refuse(f"axis: expected uint8 [{pairs}], got {axis.dtype} {list(axis.shape)} on {axis.device}")
    return axis.data_ptr()


def _check_rows(rows: Tensor) -> tuple[int, int]:
    """Their number and pairs. The dispatcher sends tensors of several devices elsewhere, so the device needs no look."""
    shape = rows.shape
    if rows.dtype is not torch.float32 or len(shape) != 3 or shape[1] != 2 or not rows.is_contiguous():
        raise _refuse(f"table: expected contiguous float32 [count, 2, pairs], got {rows.dtype} {list(shape)}")
    return shape[0], shape[2]


def _call_rotate(
    q: Tensor,
    k: Tensor | None,
    q_out: Tensor | None,
    k_out: Tensor | None,
    angles: tuple[Any, ...],
    positions: Tensor | None,
    start: int,
    layout: int,
    first_dim: int,
    direction: int,
    rotated_heads: int,
    axis: Tensor | None,
) -> None:
    dtype = _DTYPES.get(q.dtype)
    if dtype is None:
        _check_heads("q", q)
    if k is not None and k.dtype is not q.dtype:
        _check_heads("k", k)
        _call_rotate(k, None, k_out, None, angles, positions, start, layout, first_dim, direction, rotated_heads, axis)
        k = k_out = None
    axis_pointer = 0 if axis is None else _axis_pointer(axis, angles[5])
    where = (0, 0, 0, 1) if positions is None else _positions_arguments(q, positions, axis)
    if k is None:
        pointers.rotate(
            q.data_ptr(),
            q.shape,
            q.stride(),
            0,
            _NONE,
            _NONE,
            0 if q_out is None else q_out.data_ptr(),
            0,
            dtype,
            *angles,
            axis_pointer,
            *where[:4],
            start,
            layout,
            first_dim,
            rotated_heads,
            direction,
        )
    else:
        pointers.rotate(
            q.data_ptr(),
            q.shape,
            q.stride(),
            k.data_ptr(),
            k.shape,
            k.stride(),
            0 if q_out is None else q_out.data_ptr(),
            0 if k_out is None else k_out.data_ptr(),
            dtype,
            *angles,
            axis_pointer,
            *where[:4],
            start,
            layout,
            first_dim,
            rotated_heads,
            direction,
        )


_contiguous = torch.contiguous_format


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=_contiguous)


def _rotate_cpu(
    q,
    k,
    rows,
    positions=None,
    start=0,
    layout=0,
    first=0,
    first_dim=0,
    direction=0,
    rotated_heads=0,
    amplitude=1.0,
    axis=None,
):
    count, pairs = _check_rows(rows)
    q = _ready(q)
    q_out = k_out = torch.empty_like(q, memory_format=_contiguous)
    if k is not None:
        k = _ready(k)
        k_out = torch.empty_like(k, memory_format=_contiguous)
    _call_rotate(
        q,
        k,
        q_out,
        k_out,
        (rows.data_ptr(), first, count, 0, 0, pairs, amplitude),
        positions,
        start,
        layout,
        first_dim,
        direction,
        rotated_heads,
        axis,
    )
    return q_out, q.new_empty(0) if k is None else k_out


def _rotate_in_place_cpu(
    q,
    k,
    rows,
    positions=None,
    start=0,
    layout=0,
    first=0,
    first_dim=0,
    direction=0,
    rotated_heads=0,
    amplitude=1.0,
    axis=None,
):
    count, pairs = _check_rows(rows)
    _call_rotate(
        q,
        k,
        None,
        None,
        (rows.data_ptr(), first, count, 0, 0, pairs, amplitude),
        positions,
        start,
        layout,
        first_dim,
        direction,
        rotated_heads,
        axis,
    )


def _select_axes(rows: Tensor, axis: Tensor) -> Tensor:
    """Of rows [axes, batch, tokens, 2, pairs] those of the axis of each pair."""
    index = axis.to(torch.int64).expand(1, *rows.shape[1:])
    return rows.gather(0, index).squeeze(0)


def _rows_at(x: Tensor, rows: Tensor, positions: Tensor | None, start: int, first: int, axis: Tensor | None) -> Tensor:
    """[.., tokens, 2, pairs] for the tokens of x; NaN at positions that the table does not have."""
    count = rows.shape[0]
    if positions is None:
        if start < first or start - first + x.shape[-3] > count:
            raise _refuse(
                f"positions: {start} to {start + x.shape[-3] - 1} are outside the table, {first} to {first + count - 1}"
            )
        return rows.narrow(0, start - first, x.shape[-3])
    index = positions.to(torch.int64) - first
    known = (index >= 0) & (index < count)
    # One address computation a token; a device cannot say that a position is outside, so it becomes NaN.
    at = torch.where(known[..., None, None], rows[index.clamp(0, max(count - 1, 0))], float("nan"))
    return _select_axes(at, axis) if axis is not None and positions.dim() == 3 else at


def _turn(x: Tensor, at: Tensor, layout: int, first_dim: int, direction: int, rotated_heads: int, amplitude: float) -> Tensor:
    """The rotation as a formula, of any device: float32 arithmetic (float64 for float64), one rounding at the end."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    at = at.to(compute).unsqueeze(-3)
    cos, sin = at[..., 0, :], at[..., 1, :]
    if direction != 0:
        sin = -sin
    if direction == 2:
        cos, sin = cos / amplitude**2, sin / amplitude**2
    heads = x[..., :rotated_heads, :] if rotated_heads else x
    pairs = cos.shape[-1]
    if first_dim < 0 or pairs == 0 or first_dim + 2 * pairs > x.shape[-1]:
        raise _refuse(f"first_dim {first_dim} and the rotary_dim {2 * pairs} do not fit head_dim {x.shape[-1]}")
    part = heads[..., first_dim : first_dim + 2 * pairs].to(compute)
    if layout == 0:
        a, b = part[..., :pairs], part[..., pairs:]
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = part[..., 0::2], part[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    turned = turned.to(x.dtype)
    if 2 * pairs != x.shape[-1]:
        turned = torch.cat((heads[..., :first_dim], turned, heads[..., first_dim + 2 * pairs :]), -1)
    return torch.cat((turned, x[..., rotated_heads:, :]), -2) if rotated_heads else turned


def _rotate_formula(
    q,
    k,
    rows,
    positions=None,
    start=0,
    layout=0,
    first=0,
    first_dim=0,
    direction=0,
    rotated_heads=0,
    amplitude=1.0,
    axis=None,
):
    """`ropewalk::rotate` of every device but the CPU."""
    _check_heads("q", q)
    at = _rows_at(q, rows, positions, start, first, axis)
    q_out = _turn(q, at, layout, first_dim, direction, rotated_heads, amplitude)
    if k is None:
        return q_out, q.new_empty(0)
    _check_heads("k", k)
    return q_out, _turn(k, at, layout, first_dim, direction, rotated_heads, amplitude)


def _rotate_dense(*args):
    """As an op, whose outputs are row-major."""
    return tuple(x.contiguous() for x in _rotate_formula(*args))


def _rotate_in_place_formula(q, k, *args):
    q_out, k_out = _rotate_formula(q, k, *args)
    q.copy_(q_out)
    if k is not None:
        k.copy_(k_out)


def _rotate_fake(q, k, *_args, **_kwargs):
    _check_heads("q", q)
    return _empty_like(q), q.new_empty(0) if k is None else _empty_like(k)


# The frequencies themselves instead of a table: [pairs], or [2, pairs] for their sum.


def _frequency_arguments(inv_freq: Tensor, amplitude: Tensor) -> tuple[Any, ...]:
    if (
        inv_freq.dtype != torch.float64
        or inv_freq.device.type != "cpu"
        or not inv_freq.is_contiguous()
        or inv_freq.dim() not in (1, 2)
        or (inv_freq.dim() == 2 and inv_freq.shape[0] != 2)
    ):
        raise _refuse(
            f"inv_freq: expected contiguous float64 [pairs] or [2, pairs], got {inv_freq.dtype} "
            f"{list(inv_freq.shape)} on {inv_freq.device}"
        )
    pairs = inv_freq.shape[-1]
    high = inv_freq.data_ptr()
    return 0, 0, 0, high, high + 8 * pairs if inv_freq.dim() == 2 else 0, pairs, float(amplitude)


def _rotate_frequencies_cpu(
    q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, direction=0, rotated_heads=0, axis=None
):
    angles = _frequency_arguments(inv_freq, amplitude)
    q = _ready(q)
    q_out = _empty_like(q)
    k = None if k is None else _ready(k)
    k_out = None if k is None else _empty_like(k)
    _call_rotate(q, k, q_out, k_out, angles, positions, start, layout, first_dim, direction, rotated_heads, axis)
    return q_out, q.new_empty(0) if k_out is None else k_out


def _angle_rows(
    x: Tensor, inv_freq: Tensor, amplitude: Tensor, positions: Tensor | None, start: int, axis: Tensor | None
) -> Tensor:
    """Rows [.., tokens, 2, pairs] in float64, differentiable by frequencies and amplitude."""
    if inv_freq.device.type == "mps":
        raise _refuse("inv_freq: a device without float64 needs a table", "unsupported")
    if positions is None:
        positions = torch.arange(x.shape[-3], device=x.device) + start
    frequencies = inv_freq if inv_freq.dim() == 1 else inv_freq[0] + inv_freq[1]
    angles = positions.to(torch.float64)[..., None] * frequencies
    rows = torch.stack((angles.cos(), angles.sin()), -2) * amplitude
    return _select_axes(rows, axis) if axis is not None and positions.dim() == 3 else rows


def _rotate_frequencies_formula(
    q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, direction=0, rotated_heads=0, axis=None
):
    _check_heads("q", q)
    at = _angle_rows(q, inv_freq, amplitude, positions, start, axis)
    q_out = _turn(q, at, layout, first_dim, direction, rotated_heads, amplitude)
    if k is None:
        return q_out, q.new_empty(0)
    return q_out, _turn(k, at, layout, first_dim, direction, rotated_heads, amplitude)


def _rotate_frequencies_dense(*args):
    return tuple(x.contiguous() for x in _rotate_frequencies_formula(*args))


def _rotate_frequencies_backward_cpu(
    d_q, d_k, q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, rotated_heads=0, axis=None
):
    d_q, d_k = _rotate_frequencies_cpu(d_q, d_k, inv_freq, amplitude, positions, start, layout, first_dim, 1, rotated_heads, axis)
    _, _, _, high, low, pairs, factor = _frequency_arguments(inv_freq, amplitude)
    out = torch.zeros(pairs + 1, dtype=torch.float64)
    for x, d_x in ((q, d_q), (k, d_k)):
        if x is None:
            continue
        pointer, size, count, axes, _alive = _positions_arguments(x, positions, axis)
        x, d_x = _ready(x), d_x.to(x.dtype)
        if rotated_heads:
            x, d_x = x[..., :rotated_heads, :], d_x[..., :rotated_heads, :]
        pointers.frequency_gradient(
            x.data_ptr(),
            x.shape,
            x.stride(),
            d_x.data_ptr(),
            d_x.stride(),
            _DTYPES[x.dtype],
            high,
            low,
            pairs,
            factor,
            _axis_pointer(axis, pairs),
            pointer,
            size,
            count,
            axes,
            start,
            layout,
            first_dim,
            out.data_ptr(),
        )
    return d_q, d_k, out


def _rotate_frequencies_backward_formula(
    d_q, d_k, q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, rotated_heads=0, axis=None
):
    # With J the rotation by pi / 2: d / d angle of <dy, a R x> is <dx, J x>, d / d a is <dx, x> / a.
    at = _angle_rows(q, inv_freq, amplitude, positions, start, axis)
    if positions is None:
        positions = torch.arange(q.shape[-3], device=q.device) + start
    p = positions.to(torch.float64)
    p = p[axis.to(torch.int64)].movedim(0, -1) if axis is not None and p.dim() == 3 else p[..., None]
    d_x, pairs = [], inv_freq.shape[-1]
    d_f, d_a = q.new_zeros(pairs, dtype=torch.float64), q.new_zeros(1, dtype=torch.float64)
    for x, d_y in ((q, d_q), (k, d_k)):
        if x is None:
            d_x.append(q.new_empty(0))
            continue
        d_x.append(_turn(d_y, at, layout, first_dim, 1, rotated_heads, 1.0).contiguous())
        parts = []
        for y in (x, d_x[-1]):
            y = y[..., :rotated_heads, :] if rotated_heads else y
            y = y[..., first_dim : first_dim + 2 * pairs].to(torch.float64)
            parts += [y[..., :pairs], y[..., pairs:]] if layout == 0 else [y[..., 0::2], y[..., 1::2]]
        x1, x2, d1, d2 = parts
        d_f = d_f + (p * (d2 * x1 - d1 * x2).sum(-2)).reshape(-1, pairs).sum(0)
        d_a = d_a + (d1 * x1 + d2 * x2).sum() / amplitude
    return *d_x, torch.cat((d_f, d_a.reshape(1)))


def _rotate_frequencies_backward_fake(d_q, d_k, q, k, inv_freq, *_args):
    return (
        _empty_like(q),
        q.new_empty(0) if k is None else _empty_like(k),
        inv_freq.new_empty(inv_freq.shape[-1] + 1, dtype=torch.float64),
    )


# The ops -------------------------------------------------------------------------------------------------------------

_library = torch.library.Library("ropewalk", "DEF")
_TABLE = (
    "Tensor rows, Tensor? positions=None, SymInt start=0, int layout=0, SymInt first=0, int first_dim=0, "
    "int direction=0, int rotated_heads=0, float amplitude=1.0, Tensor? axis=None"
)
_library.define(f"rotate(Tensor q, Tensor? k, {_TABLE}) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
_library.define(f"rotate_(Tensor(a!) q, Tensor(b!)? k, {_TABLE}) -> ()", tags=torch.Tag.pt2_compliant_tag)
_FREQUENCIES = "Tensor inv_freq, Tensor amplitude, Tensor? positions=None, SymInt start=0, int layout=0, int first_dim=0"
_library.define(
    f"rotate_frequencies(Tensor q, Tensor? k, {_FREQUENCIES}, int direction=0, int rotated_heads=0, "
    "Tensor? axis=None) -> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
_library.define(
    f"rotate_frequencies_backward(Tensor d_q, Tensor? d_k, Tensor q, Tensor? k, {_FREQUENCIES}, "
    "int rotated_heads=0, Tensor? axis=None) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
_library.impl("rotate", _rotate_cpu, "CPU")
_library.impl("rotate", _rotate_dense, "CompositeExplicitAutograd")
_library.impl("rotate_", _rotate_in_place_cpu, "CPU")
_library.impl("rotate_", _rotate_in_place_formula, "CompositeExplicitAutograd")
_library.impl("rotate_frequencies", _rotate_frequencies_cpu, "CPU")
_library.impl("rotate_frequencies", _rotate_frequencies_dense, "CompositeExplicitAutograd")
_library.impl("rotate_frequencies_backward", _rotate_frequencies_backward_cpu, "CPU")
_library.impl("rotate_frequencies_backward", _rotate_frequencies_backward_formula, "CompositeExplicitAutograd")
torch.library.register_fake("ropewalk::rotate", _rotate_fake, lib=_library)
torch.library.register_fake("ropewalk::rotate_", lambda *_args, **_kwargs: None, lib=_library)
torch.library.register_fake("ropewalk::rotate_frequencies", _rotate_fake, lib=_library)
torch.library.register_fake("ropewalk::rotate_frequencies_backward", _rotate_frequencies_backward_fake, lib=_library)

_rotate_op = torch.ops.ropewalk.rotate.default
_rotate_in_place_op = torch.ops.ropewalk.rotate_.default
_rotate_frequencies_op = torch.ops.ropewalk.rotate_frequencies.default


def _rotate_setup(ctx, inputs, output):
    _, k, rows, positions, start, layout, first, first_dim, direction, rotated_heads, amplitude, axis = inputs
    ctx.save_for_backward(rows, positions, axis)
    ctx.with_k = k is not None
    ctx.rest = (start, layout, first, first_dim)
    ctx.direction, ctx.rotated_heads, ctx.amplitude = direction, rotated_heads, amplitude


def _rotate_backward(ctx, d_q, d_k):
    rows, positions, axis = ctx.saved_tensors
    if ctx.needs_input_grad[2]:
        raise _refuse("table: has no gradient; learned frequencies are rotate_frequencies'", "unsupported")
    if ctx.direction == 2 and ctx.amplitude != 1:  # R / a, from rows of a R
        rows = rows / ctx.amplitude**2
    d_q, d_k = _rotate_op(
        d_q,
        d_k if ctx.with_k else None,
        rows,
        positions,
        *ctx.rest,
        _OPPOSITE[ctx.direction],
        ctx.rotated_heads,
        ctx.amplitude,
        axis,
    )
    return d_q, d_k if ctx.with_k else None, *(None,) * 10


torch.library.register_autograd("ropewalk::rotate", _rotate_backward, setup_context=_rotate_setup, lib=_library)


def _frequencies_setup(ctx, inputs, output):
    q, k, inv_freq, amplitude, positions, start, layout, first_dim, direction, rotated_heads, axis = inputs
    learned = inv_freq.requires_grad or amplitude.requires_grad
    ctx.save_for_backward(q if learned else None, k if learned else None, inv_freq, amplitude, positions, axis)
    ctx.with_k, ctx.learned = k is not None, learned
    ctx.direction, ctx.rest, ctx.rotated_heads = direction, (start, layout, first_dim), rotated_heads


def _frequencies_backward(ctx, d_q, d_k):
    q, k, inv_freq, amplitude, positions, axis = ctx.saved_tensors
    if ctx.learned and ctx.direction != 0:
        raise _refuse("direction: frequencies are learned by the forward rotation", "unsupported")
    d_k = d_k if ctx.with_k else None
    d_inv_freq = d_amplitude = None
    if ctx.learned:
        d_q, d_k, d = torch.ops.ropewalk.rotate_frequencies_backward(
            d_q, d_k, q, k, inv_freq, amplitude, positions, *ctx.rest, ctx.rotated_heads, axis
        )
        d_inv_freq = d[:-1] if inv_freq.dim() == 1 else d[:-1].expand(2, -1)
        d_amplitude = d[-1].to(amplitude.dtype).reshape(amplitude.shape)
    else:
        d_q, d_k = _rotate_frequencies_op(
            d_q,
            d_k,
            inv_freq,
            1 / amplitude if ctx.direction == 2 else amplitude,
            positions,
            *ctx.rest,
            _OPPOSITE[ctx.direction],
            ctx.rotated_heads,
            axis,
        )
    return d_q, d_k if ctx.with_k else None, d_inv_freq, d_amplitude, *(None,) * 7


torch.library.register_autograd(
    "ropewalk::rotate_frequencies", _frequencies_backward, setup_context=_frequencies_setup, lib=_library
)


def _fold(x: Tensor | None, dim: int | None, size: int, rank: int) -> Tensor | None:
    """With the mapped dimension in front and a batch after it, of 1 where there is none: `rank` are without both."""
    if x is None:
        return None
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.unsqueeze(1) if x.dim() == rank + 1 else x


def _rotate_vmap(op, position: int):
    """For an op (q, k, .., positions, ..): the mapped dimension joins the batch."""

    def rule(info, in_dims, q, k, *args):
        for i, dim in enumerate(in_dims[2:]):
            if dim is not None and i != position:
                raise _refuse("vmap: rotation maps over q, k and positions, not over its table or frequencies", "unsupported")
        size, batched = info.batch_size, q.dim() - (in_dims[0] is not None) == 4
        q, k = _fold(q, in_dims[0], size, 3), _fold(k, in_dims[1], size, 3)
        args = list(args)
        if len(args) > position and args[position] is not None:
            p = _fold(args[position], in_dims[2 + position], size, 1)
            p = p.movedim(0, -3)  # [(axes,) mapped, batch, tokens]
            args[position] = p.expand(*p.shape[:-2], q.shape[1], p.shape[-1]).flatten(-3, -2)
        q_out, k_out = op(q.flatten(0, 1), None if k is None else k.flatten(0, 1), *args)
        q_out = q_out.reshape(q.shape)
        k_out = q_out.new_empty(size, 0) if k is None else k_out.reshape(k.shape)
        if not batched:
            q_out, k_out = q_out.squeeze(1), k_out if k is None else k_out.squeeze(1)
        return (q_out, k_out), (0, 0)

    return rule


torch.library.register_vmap("ropewalk::rotate", _rotate_vmap(_rotate_op, 1), lib=_library)
torch.library.register_vmap("ropewalk::rotate_frequencies", _rotate_vmap(_rotate_frequencies_op, 2), lib=_library)


def table(inv_freq: Any, count: int, first: int = 0, *, amplitude: float = 1.0, precision: str = "exact") -> Tensor:
    """Rows of cosines and sines for `rotate`: float32 [count, 2, pairs], on the CPU.

    inv_freq: float64 [pairs], radians per position, or [2, pairs]: the sum of both, for 106 bits.
    precision: "exact" (right to the last float32 bit at any position below 2^31) or "float32" (as Hugging Face has it).
    """
    f = torch.as_tensor(inv_freq).detach().to("cpu", torch.float64).contiguous()
    _, _, _, high, low, pairs, factor = _frequency_arguments(f, amplitude)
    rows = torch.empty((max(count, 0), 2, pairs), dtype=torch.float32)
    pointers.fill_rows(
        high,
        low,
        pairs,
        factor,
        first,
        count,
        _choice("precision", precision, {"exact": 0, "float32": 1}),
        rows.data_ptr(),
    )
    return rows


with warnings.catch_warnings():  # PyTorch tells once a program that it does not know read-only arrays
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.float32))


def _axis_of(rotation: Any) -> Tensor | None:
    return None if rotation.axes == 1 else torch.as_tensor(np.asarray(rotation.axis).astype(np.uint8))


def _refuse_decay(rotation: Any) -> None:
    if rotation._core.decays:
        raise _refuse(
            "rotation: xPos multiplies queries and keys by different factors, which ropewalk.rotate has for "
            "arrays and ropewalk.torch has not",
            "unsupported",
        )


def _settings_of(table: Any, layout: int | None) -> tuple[Tensor, tuple[Any, ...]]:
    """Rows of a ropewalk.Table, whose memory they share, and layout, first, first_dim, rotated_heads, amplitude, axis."""
    rows, rotation = torch.from_numpy(table.rows), table.rotation
    if rotation is None:
        if layout is None:
            raise _refuse("layout: expected 'half' or 'interleaved' with a table that was made from rows")
        return rows, (layout, table.first, 0, 0, 1.0, None)
    _refuse_decay(rotation)
    if layout is not None and layout != _LAYOUTS[rotation.layout]:
        raise _refuse(f"layout: the table is of a rotation whose layout is {rotation.layout!r}")
    return rows, (
        _LAYOUTS[rotation.layout],
        table.first,
        rotation.first_dim,
        rotation.rotated_heads,
        rotation.amplitude,
        _axis_of(rotation),
    )


_below_autograd = torch._C._AutoDispatchBelowAutograd
# Transforms of torch.func and forward-mode derivatives, which ops of a library do not have, go through the formulas.
_functorch = torch._C._functorch.peek_interpreter_stack


def rotate(
    q: Tensor,
    k: Tensor | None = None,
    table: Any = None,
    positions: int | Tensor = 0,
    *,
    layout: str | None = None,
    first: int = 0,
    first_dim: int = 0,
    rotated_heads: int = 0,
    amplitude: float = 1.0,
    axis: Tensor | None = None,
    inplace: bool = False,
    direction: str = "forward",
) -> tuple[Tensor, Tensor | None]:
    """Rotates queries and keys (RoFormer, Su et al. 2021, eq. 34); returns both, row-major, with their dtypes.

    q, k: [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], float32, float64, float16 or bfloat16; any
        strides (`x.transpose(1, 2)` of [batch, heads, tokens, head_dim] is not copied). k may be None.
    table: a `ropewalk.Table`, a `ropewalk.Rotation` (angles are then computed in the call), or rows [count, 2, pairs] (see
        `ropewalk.torch.table`) beside q, with `layout` "half" or "interleaved", `first` (position of the first row),
        `first_dim` (first rotated element of a head), `rotated_heads` (only the first n; 0: all), `amplitude` (attention
        factor that the rows contain, for "inverse") and `axis` (uint8 [pairs], the position axis of each pair).
    positions: that of the first token, or int64 or int32 [tokens], [batch, tokens] or [axes, batch, tokens].
    inplace: writes to q and k, which must not require gradients, and returns them.
    direction: "forward", "adjoint" (its gradient) or "inverse".

    A position outside the table is an Error on the CPU; elsewhere, where the host does not read positions, its token
    becomes NaN. The table has no gradient: for learned frequencies see `rotate_frequencies`.
    """
    code = None if layout is None else _choice("layout", layout, _LAYOUTS)
    if isinstance(table, Tensor):
        if code is None:
            raise _refuse("layout: expected 'half' or 'interleaved' with a table that is a tensor")
        rows = table
    elif table is None:
        raise _refuse("table: expected a ropewalk.Table or rows [count, 2, pairs], got None")
    elif not hasattr(table, "rows"):  # a ropewalk.Rotation: angles are computed in this call, with the same bits
        _refuse_decay(table)
        if inplace or (code is not None and code != _LAYOUTS[table.layout]):
            raise _refuse(f"table: expected a ropewalk.Table to rotate in place, and its layout {table.layout!r}")
        inv_freq = torch.tensor(pointers.frequencies(table._core), dtype=torch.float64).reshape(2, -1)
        axis = _axis_of(table)
        return rotate_frequencies(
            q,
            k,
            inv_freq.to(q.device),
            positions,
            layout=table.layout,
            amplitude=table.amplitude,
            first_dim=table.first_dim,
            rotated_heads=table.rotated_heads,
            axis=None if axis is None else axis.to(q.device),
            direction=direction,
        )
    else:
        rows, (code, first, first_dim, rotated_heads, amplitude, axis) = _settings_of(table, code)
        if not q.is_cpu:
            rows, axis = rows.to(q.device), None if axis is None else axis.to(q.device)
    way = 0 if direction == "forward" else _choice("direction", direction, _DIRECTIONS)
    if isinstance(positions, Tensor):
        start = 0
    else:
        start, positions = positions, None
    return _rotate(q, k, rows, positions, start, first, code, first_dim, way, rotated_heads, amplitude, axis, inplace)


def _rotate(q, k, rows, positions, start, first, layout, first_dim, direction, rotated_heads, amplitude, axis, inplace=False):
    if axis is None and amplitude == 1 and not (first or first_dim or direction or rotated_heads):
        arguments = (rows, positions, start, layout)  # each argument takes the dispatcher's time
    else:
        arguments = (rows, positions, start, layout, first, first_dim, direction, rotated_heads, amplitude, axis)
    if inplace:
        if torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad)):
            raise _refuse("inplace: expected tensors that do not require gradients, which need what is overwritten")
        _rotate_in_place_op(q, k, *arguments)
        return q, k
    if not q.is_cpu:  # as PyTorch's own ops, which a compiler fuses
        q_out, k_out = _rotate_formula(q, k, *arguments)
    elif torch.compiler.is_compiling():
        q_out, k_out = _rotate_op(q, k, *arguments)
    elif _forward_ad._current_level >= 0:
        q_out, k_out = _rotate_formula(q, k, *arguments)
    elif torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad) or rows.requires_grad):
        op = _rotate_op if _functorch() is None else _rotate_formula
        q_out, k_out = op(q, k, *arguments)
    else:  # no need to go through autograd, which costs more than the rotation of a token
        with _below_autograd():
            q_out, k_out = _rotate_op(q, k, *arguments)
    return q_out, None if k is None else k_out


def rotate_frequencies(
    q: Tensor,
    k: Tensor | None,
    inv_freq: Tensor,
    positions: int | Tensor = 0,
    *,
    layout: str,
    amplitude: float | Tensor = 1.0,
    first_dim: int = 0,
    rotated_heads: int = 0,
    axis: Tensor | None = None,
    direction: str = "forward",
) -> tuple[Tensor, Tensor | None]:
    """`rotate` by frequencies instead of a table: for those that are learned, and for positions without a bound.

    inv_freq: [pairs] radians per position, computed with in float64; or float64 [2, pairs], the sum of both. Gradients
        arrive here and at `amplitude`, and go on to whatever it was computed from: a learned base is
        `base ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)`.
    The others are as in `rotate`. On the CPU cosines and sines have the bits of an exact table; a float64 q has float64
    ones, so that `gradcheck` holds.
    """
    inv_freq = inv_freq.to(torch.float64)
    if not isinstance(amplitude, Tensor):
        amplitude = torch.full((), amplitude, dtype=torch.float64, device=inv_freq.device)
    code, way = _choice("layout", layout, _LAYOUTS), _choice("direction", direction, _DIRECTIONS)
    start, positions = (0, positions) if isinstance(positions, Tensor) else (positions, None)
    double = q.dtype == torch.float64 and (inv_freq.requires_grad or amplitude.requires_grad)
    transformed = not torch.compiler.is_compiling() and (
        _forward_ad._current_level >= 0
        or (
            torch.is_grad_enabled()
            and _functorch() is not None
            and any(x is not None and x.requires_grad for x in (q, k, inv_freq, amplitude))
        )
    )
    op = _rotate_frequencies_op if q.is_cpu and not double and not transformed else _rotate_frequencies_formula
    q_out, k_out = op(q, k, inv_freq, amplitude, positions, start, code, first_dim, way, rotated_heads, axis)
    return q_out, None if k is None else k_out


# Attention -----------------------------------------------------------------------------------------------------------


class Slopes(NamedTuple):
    """bias = -behind[head] distance; for keys after the query -ahead[head] |distance| (not needed when causal)."""

    behind: Tensor  # [heads]
    ahead: Tensor | None = None


class Distances(NamedTuple):
    """bias = values[head][distance - first]; beyond an end that repeats, that end's value."""

    values: Tensor  # [heads, columns]
    first: int = 0
    repeats_ahead: bool = False  # below `first`
    repeats_behind: bool = False


class Content(NamedTuple):
    """Products with rows that the distance selects, r = row_of[distance - first]:

    bias = scale ((q_i + query_bias) . query_rows[r] + k_j . key_rows[r] + key_bias . k_j), and
    out_i += sum of weight(i, j) value_rows[r]. A row list that is None has no term.
    """

    row_of: Tensor  # int32 [columns]
    first: int
    query_rows: Tensor | None = None  # [1 or heads, rows, head_dim], as all rows
    key_rows: Tensor | None = None
    value_rows: Tensor | None = None
    query_bias: Tensor | None = None  # [heads, head_dim]
    key_bias: Tensor | None = None  # [heads, head_dim]
    repeats_ahead: bool = False
    repeats_behind: bool = False


class Gates(NamedTuple):
    """bias = sum of log_gates over the tokens after the key up to the query (forgetting gate). Causal."""

    log_gates: Tensor  # [batch, keys, heads], or [keys, heads] where queries have no batch


class Contextual(NamedTuple):
    """CoPE: position_rows at the sum of gates between key and query, times the query. Causal."""

    position_rows: Tensor  # [1 or heads, rows, head_dim]


class Fire(NamedTuple):
    """FIRE (arXiv 2310.04418): f(ln(c d + 1) / ln(c max(threshold, query) + 1)) with f a network of one layer."""

    w1: Tensor  # [width]
    b1: Tensor  # [width]
    w2: Tensor  # [heads, width]
    b2: Tensor  # [heads]
    c: Tensor  # above 0, one number
    threshold: Tensor  # above 0, one number


class Tupe(NamedTuple):
    """TUPE (arXiv 2006.15595): products of projected positions, a T5 table (TUPE-R) and values of the first token."""

    embedding: Tensor  # [positions, model_dim]
    query_projection: Tensor  # [heads, head_dim, model_dim]
    key_projection: Tensor
    query_projection_bias: Tensor | None = None  # [heads, head_dim]
    key_projection_bias: Tensor | None = None
    relative: Tensor | None = None  # [buckets, heads]
    from_cls: Tensor | None = None  # [heads]
    to_cls: Tensor | None = None
    last_distance: int = 128
    bidirectional: bool = True


class Swin(NamedTuple):
    """Swin V2's continuous bias (arXiv 2111.09883) of a window of height x width positions."""

    w1: Tensor  # [hidden, 2]
    b1: Tensor  # [hidden]
    w2: Tensor  # [heads, hidden]
    height: int
    width: int
    pretrained_height: int = 0  # 0: as height
    pretrained_width: int = 0


# The numbers of BiasKind in register_pointers.cc.
_KINDS = {Slopes: 1, Distances: 2, Content: 3, Gates: 4, Contextual: 5, Fire: 6, Tupe: 7, Swin: 8}
_MAPS = {"rerope": 0, "leaky-rerope": 1, "self-extend": 2, "dual-chunk": 3, "sinks": 4}


def _lower(bias: Any) -> tuple[int, list[Tensor | None], list[int]]:
    """Kind, tensors in the order of the kernel's struct, and whole numbers (never none: pytrees want one)."""
    match bias:
        case None:
            return 0, [], [0]
        case Slopes():
            return 1, [bias.behind, bias.ahead], [0]
        case Distances():
            return 2, [bias.values], [bias.first, int(bias.repeats_ahead), int(bias.repeats_behind)]
        case Content():
            return (
                3,
                [bias.row_of, bias.query_rows, bias.key_rows, bias.value_rows, bias.query_bias, bias.key_bias],
                [bias.first, int(bias.repeats_ahead), int(bias.repeats_behind)],
            )
        case Gates():
            return 4, [bias.log_gates], [0]
        case Contextual():
            return 5, [bias.position_rows], [0]
        case Fire():
            return 6, [bias.w1, bias.b1, bias.w2, bias.b2, bias.c, bias.threshold], [0]
        case Tupe():
            return (
                7,
                [
                    bias.embedding,
                    bias.query_projection,
                    bias.query_projection_bias,
                    bias.key_projection,
                    bias.key_projection_bias,
                    bias.relative,
                    bias.from_cls,
                    bias.to_cls,
                ],
                [bias.last_distance, int(bias.bidirectional)],
            )
        case Swin():
            return (
                8,
                [bias.w1, bias.b1, bias.w2],
                [bias.height, bias.width, bias.pretrained_height, bias.pretrained_width],
            )
    raise _refuse(
        f"bias: expected one of {', '.join(k.__name__ for k in _KINDS)} of ropewalk.torch, or a module of "
        f"ropewalk.nn, got {type(bias).__name__}"
    )


def _expect(name: str, tensor: Tensor, shape: Sequence[int | None]) -> None:
    if tensor.dim() != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
        wanted = ", ".join("*" if n is None else str(n) for n in shape)
        raise _refuse(f"bias: {name}: expected [{wanted}], got {list(tensor.shape)}")


def _check_bias(kind: int, tensors: list[Tensor], q: Tensor, k: Tensor) -> None:
    """Shapes, so that the kernel may trust them. Absent tensors have no elements."""
    batch, _, heads, dim = q.shape

    def optional(name, tensor, shape):
        if tensor.numel():
            _expect(name, tensor, shape)

    counts = (0, 2, 1, 6, 1, 1, 6, 8, 3)
    if not 0 <= kind < len(counts) or len(tensors) != counts[kind]:
        raise _refuse(f"bias: kind {kind} does not have {len(tensors)} tensors")
    for i, t in enumerate(tensors):
        if t.dtype != (torch.int32 if kind == 3 and i == 0 else torch.float32):
            raise _refuse(f"bias: tensor {i}: expected float32, or int32 for row_of, got {t.dtype}")
    match kind:
        case 1:
            _expect("behind", tensors[0], (heads,))
            optional("ahead", tensors[1], (heads,))
        case 2:
            _expect("values", tensors[0], (heads, None))
        case 3:
            _expect("row_of", tensors[0], (None,))
            names = ("query_rows", "key_rows", "value_rows")
            known = [t for t in tensors[1:4] if t.numel()]
            for name, t in zip(names, tensors[1:4]):
                optional(name, t, (known[0].shape[0], known[0].shape[1], dim) if known else ())
            if known and known[0].shape[0] not in (1, heads):
                raise _refuse(f"bias: rows: expected 1 or {heads} tables, got {known[0].shape[0]}")
            optional("query_bias", tensors[4], (heads, dim))
            optional("key_bias", tensors[5], (heads, dim))
        case 4:
            _expect("log_gates", tensors[0], (batch, k.shape[1], heads))
        case 5:
            _expect("position_rows", tensors[0], (None, None, dim))
            if tensors[0].shape[0] not in (1, heads):
                raise _refuse(f"bias: position_rows: expected 1 or {heads} tables, got {tensors[0].shape[0]}")
        case 6:
            width = tensors[0].shape[0] if tensors[0].dim() == 1 else None
            for name, t, shape in zip(("w1", "b1", "w2", "b2"), tensors, ((width,), (width,), (heads, width), (heads,))):
                _expect(name, t, shape)
            if tensors[4].numel() != 1 or tensors[5].numel() != 1:
                raise _refuse("bias: c and threshold: expected one number each")
        case 7:
            model = tensors[0].shape[-1]
            _expect("embedding", tensors[0], (None, model))
            for name, i in (("query_projection", 1), ("key_projection", 3)):
                _expect(name, tensors[i], (heads, dim, model))
                optional(name + "_bias", tensors[i + 1], (heads, dim))
            optional("relative", tensors[5], (None, heads))
            optional("from_cls", tensors[6], (heads,))
            optional("to_cls", tensors[7], (heads,))
        case 8:
            _expect("w1", tensors[0], (None, 2))
            _expect("b1", tensors[1], (tensors[0].shape[0],))
            _expect("w2", tensors[2], (heads, tensors[0].shape[0]))


def _kernel_numbers(kind: int, tensors: list[Tensor], numbers: list[int], q: Tensor, k: Tensor) -> list[int]:
    """The whole numbers of the kernel's struct, with the sizes that the tensors have."""
    if len(numbers) != (1, 1, 3, 3, 1, 1, 1, 2, 4)[kind]:
        raise _refuse(f"bias: kind {kind} does not have {len(numbers)} numbers")
    match kind:
        case 2:
            return [numbers[0], tensors[0].shape[1], *numbers[1:]]
        case 3:
            rows = next((t for t in tensors[1:4] if t.numel()), None)
            tables, count = (1, 0) if rows is None else rows.shape[:2]
            return [numbers[0], count, q.shape[3], tables, *numbers[1:]]
        case 5:
            return [tensors[0].shape[1], tensors[0].shape[2], tensors[0].shape[0]]
        case 6:
            return [min(max(q.shape[1], k.shape[1]), 1 << 20)]
        case 7:
            return [*tensors[0].shape, q.shape[3], tensors[5].shape[0] if tensors[5].numel() else 0, *numbers]
        case _:
            return list(numbers)


def _per_token(name: str, x: Tensor | None, batch: int, tokens: int, dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """A list [tokens] or [batch, tokens], and how far apart those of two sequences are."""
    if x is None:
        return None, 0
    if x.dtype != dtype or x.shape[-1:] != (tokens,) or x.dim() not in (1, 2) or (x.dim() == 2 and x.shape[0] not in (1, batch)):
        raise _refuse(f"{name}: expected {dtype} [{tokens}] or [{batch}, {tokens}], got {x.dtype} {list(x.shape)}")
    return x.contiguous(), tokens if x.dim() == 2 and x.shape[0] == batch else 0


def _attention_arguments(
    q,
    k,
    v,
    out,
    lse,
    bias,
    sinks,
    temperatures,
    query_positions,
    key_positions,
    document_starts,
    inv_freq,
    kind,
    numbers,
    causal,
    scale,
    window,
    soft_cap,
    layout,
    first_dim,
    amplitude,
    remap,
):
    """The dictionary of register_pointers.cc, and the tensors that have to live until the call."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype != torch.float32 or x.dim() != 4:
            raise _refuse(f"attention: {name}: expected float32 [batch, tokens, heads, head_dim], got {x.dtype} {list(x.shape)}")
    q, k, v = _ready(q), _ready(k), _ready(v)
    bias = [b.contiguous() for b in bias]
    _check_bias(kind, bias, q, k)
    if sinks is not None:
        if sinks.dtype != torch.float32 or sinks.shape != (q.shape[2],):
            raise _refuse(f"sinks: expected float32 [{q.shape[2]}], got {sinks.dtype} {list(sinks.shape)}")
        sinks = sinks.contiguous()
    batch = q.shape[0]
    temperatures, temperature_stride = _per_token("temperatures", temperatures, batch, q.shape[1], torch.float32)
    query_positions, query_stride = _per_token("query_positions", query_positions, batch, q.shape[1], torch.int64)
    key_positions, key_stride = _per_token("key_positions", key_positions, batch, k.shape[1], torch.int64)
    if document_starts is not None:
        if document_starts.dtype != torch.int64 or document_starts.dim() != 1:
            raise _refuse(
                f"document_starts: expected int64 [documents], got {document_starts.dtype} {list(document_starts.shape)}"
            )
        document_starts = document_starts.contiguous()

    def pointer(x):
        return 0 if x is None else x.data_ptr()

    arguments = {
        "q": (q.data_ptr(), q.shape, q.stride()),
        "k": (k.data_ptr(), k.shape, k.stride()),
        "v": (v.data_ptr(), v.shape, v.stride()),
        "out": pointer(out),
        "lse": pointer(lse),
        "causal": causal,
        "scale": scale,
        "window": window,
        "soft_cap": soft_cap,
        "sinks": pointer(sinks),
        "temperatures": pointer(temperatures),
        "temperature_stride": temperature_stride,
        "query_positions": pointer(query_positions),
        "query_position_stride": query_stride,
        "key_positions": pointer(key_positions),
        "key_position_stride": key_stride,
        "document_starts": pointer(document_starts),
        "documents": 0 if document_starts is None else document_starts.shape[0],
        "bias": kind,
        "bias_data": [b.data_ptr() if b.numel() else 0 for b in bias],
        "bias_sizes": [b.numel() for b in bias],
        "bias_numbers": _kernel_numbers(kind, bias, numbers, q, k),
    }
    if inv_freq is not None:
        _, _, _, high, low, pairs, _ = _frequency_arguments(inv_freq, 1.0)
        if layout not in (0, 1):
            raise _refuse(f"layout: expected 0 (half) or 1 (interleaved), got {layout}")
        arguments |= {
            "high": high,
            "low": low,
            "pairs": pairs,
            "layout": layout,
            "first_dim": first_dim,
            "amplitude": amplitude,
            "map": list(remap),
        }
    return arguments, (q, k, v, bias, sinks, temperatures, query_positions, key_positions, document_starts)


_ATTENTION = (
    "Tensor[] bias, Tensor? sinks, Tensor? temperatures, Tensor? query_positions, Tensor? key_positions, "
    "Tensor? document_starts, Tensor? inv_freq, int kind, SymInt[] numbers, bool causal, float? scale, "
    "SymInt window, float soft_cap, int layout, int first_dim, float amplitude, int[] remap"
)
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_ATTENTION}) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
_library.define(
    f"attention_backward(Tensor d_out, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, {_ATTENTION}, "
    "bool bias_wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor[])",
    tags=torch.Tag.pt2_compliant_tag,
)


def _attention_cpu(q, k, v, *rest):
    out, lse = _empty_like(q), q.new_empty(q.shape[:3])
    arguments, _alive = _attention_arguments(q, k, v, out, lse, *rest)
    pointers.attention(arguments)
    return out, lse


def _attention_backward_cpu(d_out, out, lse, q, k, v, bias, sinks, *rest):
    *rest, bias_wanted = rest
    d_out, out, lse = _ready(d_out), out.contiguous(), lse.contiguous()
    arguments, _alive = _attention_arguments(q, k, v, out, lse, bias, sinks, *rest)
    d_q, d_k, d_v = _empty_like(q), _empty_like(k), _empty_like(v)
    d_sinks = q.new_zeros(0 if sinks is None else sinks.shape[0])
    d_bias = [
        torch.zeros_like(b, memory_format=_contiguous) if bias_wanted and b.is_floating_point() else q.new_empty(0) for b in bias
    ]
    pointers.attention_backward(
        arguments,
        d_out.data_ptr(),
        d_out.stride(),
        d_q.data_ptr(),
        d_k.data_ptr(),
        d_v.data_ptr(),
        0 if sinks is None else d_sinks.data_ptr(),
        [d.data_ptr() if d.numel() else 0 for d in d_bias],
    )
    return d_q, d_k, d_v, d_sinks, d_bias


def _attention_fake(q, k, v, *_rest):
    return _empty_like(q), q.new_empty(q.shape[:3])


def _attention_backward_fake(d_out, out, lse, q, k, v, bias, sinks, *rest):
    d_bias = [
        torch.empty_like(b, memory_format=_contiguous) if rest[-1] and b.is_floating_point() else q.new_empty(0) for b in bias
    ]
    return (_empty_like(q), _empty_like(k), _empty_like(v), q.new_empty(0 if sinks is None else sinks.shape[0]), d_bias)


_library.impl("attention", _attention_cpu, "CPU")
_library.impl("attention_backward", _attention_backward_cpu, "CPU")
torch.library.register_fake("ropewalk::attention", _attention_fake, lib=_library)
torch.library.register_fake("ropewalk::attention_backward", _attention_backward_fake, lib=_library)
torch.library.register_autocast("ropewalk::attention", "cpu", torch.float32, lib=_library)
_attention_op = torch.ops.ropewalk.attention.default


def _attention_setup(ctx, inputs, output):
    q, k, v, bias, sinks, temperatures, query_positions, key_positions, document_starts, inv_freq, *rest = inputs
    ctx.save_for_backward(q, k, v, *output, sinks, temperatures, query_positions, key_positions, document_starts, inv_freq, *bias)
    ctx.rest = rest


def _attention_backward(ctx, d_out, _d_lse):
    q, k, v, out, lse, sinks, temperatures, query_positions, key_positions, documents, inv_freq, *bias = ctx.saved_tensors
    for i, name in ((5, "temperatures"), (9, "inv_freq")):
        if ctx.needs_input_grad[i]:
            raise _refuse(f"attention: {name} has no gradient; multiply or rotate the queries beforehand", "unsupported")
    wanted = [isinstance(w, bool) and w for w in ctx.needs_input_grad[3]] if bias else []
    d_q, d_k, d_v, d_sinks, d_bias = torch.ops.ropewalk.attention_backward(
        d_out,
        out,
        lse,
        q,
        k,
        v,
        bias,
        sinks,
        temperatures,
        query_positions,
        key_positions,
        documents,
        inv_freq,
        *ctx.rest,
        any(wanted),
    )
    return (
        d_q,
        d_k,
        d_v,
        [d if w else None for d, w in zip(d_bias, wanted)],
        None if sinks is None else d_sinks,
        *(None,) * 15,
    )


torch.library.register_autograd("ropewalk::attention", _attention_backward, setup_context=_attention_setup, lib=_library)


def _attention_vmap(info, in_dims, q, k, v, bias, *rest):
    flat = [d for d in in_dims[3] or [] if d is not None] if isinstance(in_dims[3], (list, tuple)) else []
    if flat or any(isinstance(d, int) for d in in_dims[4:]):
        raise _refuse("vmap: attention maps over q, k and v, not over its bias, sinks or positions", "unsupported")
    if any(x is not None and x.dim() == 2 for x in rest[1:4]) or rest[6] == 4:
        raise _refuse("vmap: attention does not map with positions or gates per sequence", "unsupported")
    size = info.batch_size
    q, k, v = (_fold(x, d, size, 3) for x, d in zip((q, k, v), in_dims))
    out, lse = _attention_op(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), bias, *rest)
    return (out.reshape(q.shape), lse.reshape(q.shape[:4])), (0, 0)


torch.library.register_vmap("ropewalk::attention", _attention_vmap, lib=_library)


# On other devices: FlexAttention, one call for each view of a position map.


@functools.cache
def _flex_function(compiled: bool):
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def _known_distances(first: int, count: int, ahead: bool, behind: bool, tokens: int, keys: int, causal: bool) -> None:
    last = first + count - 1
    far, near = keys - 1, 0 if causal else -(tokens - 1)
    if (far > last and not behind) or (near < first and not ahead):
        raise _refuse(f"bias: knows distances {first} to {last}, and queries see keys at {near} to {far}")


def _score_mod(kind, bias, numbers, q, k, scale, gate_offset):
    """What a bias adds to a scaled score: a function (b, h, i, j, distance) -> number. q and k [B, tokens, H, D]."""
    heads, group = q.shape[2], q.shape[2] // k.shape[2]
    if kind == 1:
        behind, ahead = bias[0], bias[1] if bias[1].numel() else bias[0]
        return lambda b, h, i, j, d: torch.where(d >= 0, -behind[h] * d, ahead[h] * d)
    if kind == 2:
        values, first = bias[0], numbers[0]
        last, ahead, behind = values.shape[1] - 1, bool(numbers[1]), bool(numbers[2])

        def table(b, h, i, j, d):
            c = d - first
            value = values[h, c.clamp(0, last)]
            known = ((c >= 0) | ahead) & ((c <= last) | behind)
            return torch.where(known, value, float("nan"))

        return table
    if kind == 3:
        row_of, first, count = bias[0].long(), numbers[0], bias[0].shape[0]
        query_rows, key_rows, value_rows, query_bias, key_bias = bias[1:]
        if value_rows.numel():
            raise _refuse(
                "bias: Content with value_rows is computed on the CPU alone: FlexAttention has no weights by distance",
                "unsupported",
            )

        def product(x, rows):  # [B, H, tokens, rows]
            rows = rows.expand(heads, -1, -1)
            return torch.einsum("bthd,hrd->bhtr", x, rows.to(x.dtype)) * scale

        by_query = by_key = by_bias = None
        if query_rows.numel():
            by_query = product(q + query_bias.to(q.dtype) if query_bias.numel() else q, query_rows)
        keys = k.repeat_interleave(group, 2)
        if key_rows.numel():
            by_key = product(keys, key_rows)
        if key_bias.numel():
            by_bias = torch.einsum("bthd,hd->bht", keys, key_bias.to(k.dtype)) * scale

        def content(b, h, i, j, d):
            r = row_of[(d - first).clamp(0, count - 1)]
            score = 0.0
            if by_query is not None:
                score = score + by_query[b, h, i, r]
            if by_key is not None:
                score = score + by_key[b, h, j, r]
            if by_bias is not None:
                score = score + by_bias[b, h, j]
            return score

        return content
    if kind == 4:
        sums = bias[0].double().cumsum(1).float()
        return lambda b, h, i, j, d: sums[b, i + gate_offset, h] - sums[b, j, h]
    name = next(c.__name__ for c, n in _KINDS.items() if n == kind)
    raise _refuse(f"bias: {name} is computed on the CPU alone", "unsupported")


def _flex_attention(
    q,
    k,
    v,
    bias,
    sinks,
    temperatures,
    query_positions,
    key_positions,
    document_starts,
    inv_freq,
    kind,
    numbers,
    causal,
    scale,
    window,
    soft_cap,
    layout,
    first_dim,
    amplitude,
    remap,
):
    """`_attention_op` in plain PyTorch, differentiable wherever FlexAttention is: on a GPU, not on a CPU."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

    batch, tokens, heads, dim = q.shape
    keys, device = k.shape[1], q.device
    if tokens == 0 or keys == 0:
        empty = torch.full((batch, tokens, heads), -torch.inf, device=device)
        return torch.zeros_like(q), empty if sinks is None else sinks.float().expand_as(empty)
    if tokens > keys and query_positions is None:
        raise _refuse(f"attention: q: has {tokens} tokens but there are {keys} keys; give query_positions")
    if heads % k.shape[2] != 0:
        raise _refuse(f"attention: q: expected a multiple of the {k.shape[2]} key heads, got {heads} heads")
    _check_bias(kind, bias, q, k)
    if scale is None:
        scale = dim**-0.5
    if kind == 2 and query_positions is None and key_positions is None:
        _known_distances(
            numbers[0],
            bias[0].shape[1],
            bool(numbers[1]),
            bool(numbers[2]),
            tokens,
            min(keys, window) if window else keys,
            causal,
        )
    if kind in (4, 5) and not causal:
        raise _refuse("attention: expected a causal one with a bias that sums over the tokens between")
    i_of = torch.arange(tokens, device=device) + (keys - tokens)
    q_at = (i_of if query_positions is None else query_positions).expand(batch, tokens)
    k_at = (torch.arange(keys, device=device) if key_positions is None else key_positions).expand(batch, keys)
    document = None
    if document_starts is not None:
        document = torch.searchsorted(document_starts, torch.arange(keys, device=device), right=True)
    add = None if kind == 0 else _score_mod(kind, bias, numbers, q, k, scale, keys - tokens)
    content = kind == 3

    def score_mod(score, b, h, i, j):
        if add is not None and content:
            score = score + add(b, h, i, j, q_at[b, i] - k_at[b, j])
        if temperatures is not None:
            score = score * (temperatures[i] if temperatures.dim() == 1 else temperatures[b, i])
        if add is not None and not content:
            score = score + add(b, h, i, j, q_at[b, i] - k_at[b, j])
        return soft_cap * torch.tanh(score / soft_cap) if soft_cap else score

    def seen(b, i, j):
        d = q_at[b, i] - k_at[b, j]
        ok = d >= 0 if causal else d == d
        if window:
            ok = ok & (d < window) & (d > -window)
        if document is not None:
            ok = ok & (document[i + keys - tokens] == document[j])
        return ok

    views = [None]
    if inv_freq is not None and remap[0] >= 0:
        views = range(pointers.map_views(list(remap)))
    call = _flex_function(device.type == "cuda" and not torch.compiler.is_compiling())
    factor = torch.full((), amplitude, dtype=torch.float64, device=device)
    parts = []
    for view in views:
        vq, vk = q, k
        begins = ends = None
        if inv_freq is not None:
            f, qp, kp = inv_freq, q_at[:1], k_at[:1]
            if view is not None:
                filled = torch.empty(3 * tokens + keys, dtype=torch.int64)
                divisor = pointers.fill_map_view(list(remap), view, keys - tokens, tokens, keys, filled.data_ptr())
                qp, begins, ends, kp = filled.to(device).split((tokens, tokens, tokens, keys))
                f = inv_freq / divisor
            vq = _rotate_frequencies_formula(q, None, f, factor, qp, 0, layout, first_dim)[0]
            vk = _rotate_frequencies_formula(k, None, f, factor, kp, 0, layout, first_dim)[0]

        def mask_mod(b, h, i, j, begins=begins, ends=ends):
            ok = seen(b, i, j)
            return ok if begins is None else ok & (j >= begins[i]) & (j < ends[i])

        block_mask = create_block_mask(mask_mod, batch, None, tokens, keys, device=device)
        out, aux = call(
            vq.transpose(1, 2),
            vk.transpose(1, 2),
            v.transpose(1, 2),
            score_mod=score_mod,
            block_mask=block_mask,
            scale=scale,
            enable_gqa=True,
            return_aux=AuxRequest(lse=True),
        )
        parts.append((out.transpose(1, 2), aux.lse.transpose(1, 2)))
    out, lse = parts[0]
    if len(parts) > 1:
        each = torch.stack([part[1] for part in parts])
        lse = torch.logsumexp(each, 0)
        weights = torch.where(lse.isneginf(), 0.0, torch.exp(each - torch.where(lse.isneginf(), 0.0, lse)))
        out = sum(w[..., None].to(o.dtype) * o for w, (o, _) in zip(weights, parts))
    if sinks is not None:
        out = out * torch.sigmoid(lse - sinks)[..., None].to(out.dtype)
        lse = torch.logaddexp(lse, sinks.expand_as(lse))
    return out, lse


class Frequencies(NamedTuple):
    """A rotation on one axis as tensors, for `attention`; `frequencies` makes it of a `ropewalk.Rotation`."""

    inv_freq: Tensor  # float64 [pairs], or [2, pairs]: the sum of both
    layout: str = "half"
    first_dim: int = 0
    amplitude: float = 1.0


def frequencies(rotation: Any) -> Frequencies:
    """The frequencies of a `ropewalk.Rotation`, float64 [2, pairs]: the sum of both is right to 106 bits."""
    if rotation.axes != 1 or rotation.rotated_heads:
        raise _refuse("rotation: expected positions on one axis and all heads to rotate", "unsupported")
    _refuse_decay(rotation)
    inv_freq = torch.tensor(pointers.frequencies(rotation._core), dtype=torch.float64).reshape(2, -1)
    return Frequencies(inv_freq, rotation.layout, rotation.first_dim, rotation.amplitude)


def _of_arrays(bias: Any, q: Tensor, k: Tensor, query_positions: Tensor | None, key_positions: Tensor | None) -> Any:
    """A bias of ropewalk, which holds arrays, or its form."""

    def tensor(x):
        return None if x is None else torch.tensor(np.asarray(x), device=q.device)

    if hasattr(bias, "lower"):
        if type(bias).__name__ == "Fire":
            parts = [tensor(bias.parameters[n]) for n in ("w1", "b1", "w2", "b2")]
            return Fire(*parts, *(torch.tensor([x], dtype=torch.float32, device=q.device) for x in (bias.c, bias.threshold)))
        if type(bias).__name__ == "SwinBias":
            return Swin(
                *(tensor(bias.parameters[n]) for n in ("w1", "b1", "w2")),
                bias.height,
                bias.width,
                bias.pretrained_height,
                bias.pretrained_width,
            )
        if type(bias).__name__ == "Tupe":
            names = ("embedding", "query_projection", "key_projection", "query_projection_bias", "key_projection_bias")
            made = Tupe(
                *(tensor(bias.parameters[n]) for n in names),
                None,
                tensor(bias.parameters["from_cls"]),
                tensor(bias.parameters["to_cls"]),
            )
            t5 = bias.relative
            return (
                made
                if t5 is None
                else made._replace(relative=tensor(t5.embedding), last_distance=t5.last_distance, bidirectional=t5.bidirectional)
            )
        farthest = max(q.shape[1], k.shape[1])
        if query_positions is not None or key_positions is not None:
            ends = [int(x.max()) for x in (query_positions, key_positions) if x is not None and x.numel()]
            farthest = max([farthest, *ends])
        bias = bias.lower(farthest)
    f = bias.fields
    match bias.kind:
        case "slope":
            return Slopes(tensor(f["behind"]), tensor(f["ahead"]))
        case "distance":
            return Distances(tensor(f["values"]), f["first"], f["repeats_ahead"], f["repeats_behind"])
        case "content":
            names = ("query_rows", "key_rows", "value_rows", "query_bias", "key_bias")
            return Content(
                tensor(f["row_of"]), f["first"], *(tensor(f[n]) for n in names), f["repeats_ahead"], f["repeats_behind"]
            )
        case "gates":
            return Gates(tensor(f["log_gates"]))
        case "contextual":
            return Contextual(tensor(f["position_rows"]))
    raise _refuse(f"bias: {bias!r} has no form in ropewalk.torch", "unsupported")


def _remap_numbers(remap: Any) -> list[int]:
    """[map, its settings ..]: of a ropewalk map, which has a name and settings, or of a tuple of them."""
    if remap is None:
        return [-1, 0, 0]
    if isinstance(remap, tuple):
        name, *settings = remap
    else:
        fields = {
            "rerope": ("window",),
            "leaky-rerope": ("window", "factor"),
            "self-extend": ("window", "group"),
            "dual-chunk": ("chunk", "limit"),
            "sinks": ("sinks", "window"),
        }
        name = getattr(remap, "name", None)
        settings = [getattr(remap, f) for f in fields.get(name, ())]
    if name not in _MAPS:
        raise _refuse(
            f"remap: expected a map of ropewalk (ReRoPE, SelfExtend, ..) or ({' or '.join(_MAPS)}, settings ..), got {remap!r}"
        )
    return ([_MAPS[name], *map(int, settings), 0])[:3]


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
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention with a position bias, memory linear in tokens, and gradients of q, k, v, the bias and sinks.

        score(i, j) = scale temperatures[i] q_i . k_j + bias(i, j), then soft_cap tanh(score / soft_cap)
        out_i = sum of exp(score) v_j / (exp(sink) + sum of exp(score)) over the keys that query i sees

    q: [batch, tokens, heads, head_dim] or without batch; k, v: [batch, keys, kv_heads, head_dim], heads a multiple of
        kv_heads. float32 arithmetic on the CPU whatever the dtype; the result has q's shape and dtype.
    bias: `Slopes`, `Distances`, `Content`, `Gates`, `Contextual`, `Fire`, `Tupe`, `Swin`; a module of `ropewalk.nn`; or
        a bias of ropewalk (`ropewalk.Alibi(heads=8)`), whose arrays have no gradient here.
        Off the CPU, Contextual, Fire, Tupe, Swin and rows of values are refused ("unsupported").
    rotation: a `ropewalk.Rotation` or `Frequencies`: q and k are unrotated and are rotated here. remap: a position map
        (`ropewalk.ReRoPE(window=512)` or ("rerope", 512)), which needs it.
    scale: default head_dim ** -0.5. window: |distance| < window; 0: none. soft_cap: 0: none. sinks: [heads].
    temperatures: [tokens] or [batch, tokens]. query_positions, key_positions: int64 [tokens] or [batch, tokens], not
        decreasing; by default queries are the last tokens of the keys, and key j has position j.
    document_starts: int64, index of the first key of each packed document.
    return_lse: also the log-sum-exp [batch, tokens, heads], float32, without gradient.
    query_document_starts and return_entropy are refused ("unsupported"): `ropewalk.attention` has them for arrays.
    """
    single = q.dim() == 3
    if single:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise _refuse(
            f"attention: expected [batch, tokens, heads, head_dim] or all without batch, got {list(q.shape)}, "
            f"{list(k.shape)} and {list(v.shape)}"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in _DTYPES:
            raise _refuse(f"attention: {name}: expected a float dtype, got {x.dtype}")
    for name, given in (("query_document_starts", query_document_starts), ("return_entropy", return_entropy or None)):
        if given is not None:
            raise _refuse(f"attention: {name}: ropewalk.attention has it for arrays, ropewalk.torch has not", "unsupported")
    if hasattr(bias, "form"):
        bias = bias.form(q.shape[1], k.shape[1])
    elif hasattr(bias, "lower") or hasattr(bias, "fields"):
        bias = _of_arrays(bias, q, k, query_positions, key_positions)
    if isinstance(bias, Gates) and bias.log_gates.dim() == 2:
        bias = Gates(bias.log_gates.unsqueeze(0))
    kind, tensors, numbers = _lower(bias)
    tensors = [
        q.new_empty(0, dtype=torch.float32) if t is None else t if kind == 3 and i == 0 else t.to(torch.float32)
        for i, t in enumerate(tensors)
    ]
    map_numbers = _remap_numbers(remap)
    inv_freq, layout, first_dim, amplitude = None, 0, 0, 1.0
    if rotation is not None:
        rotation = rotation if isinstance(rotation, Frequencies) else frequencies(rotation)
        inv_freq = rotation.inv_freq.to(q.device)
        layout, first_dim = _choice("layout", rotation.layout, _LAYOUTS), rotation.first_dim
        amplitude = float(rotation.amplitude)
        if remap is None:
            start = k.shape[1] - q.shape[1]
            settings = {"layout": rotation.layout, "amplitude": rotation.amplitude, "first_dim": first_dim}
            q, _ = rotate_frequencies(q, None, inv_freq, start if query_positions is None else query_positions, **settings)
            k, _ = rotate_frequencies(k, None, inv_freq, 0 if key_positions is None else key_positions, **settings)
            inv_freq = None
    elif remap is not None:
        raise _refuse("remap: expected the rotation too: a map rotates one key by several positions")
    rest = (
        tensors,
        sinks,
        temperatures,
        query_positions,
        key_positions,
        document_starts,
        inv_freq,
        kind,
        numbers,
        causal,
        scale,
        window,
        float(soft_cap),
        layout,
        first_dim,
        amplitude,
        map_numbers,
    )
    dtype = q.dtype
    if not torch.compiler.is_compiling() and (
        _forward_ad._current_level >= 0 or (_functorch() is not None and any(x.requires_grad for x in (q, k, v, *tensors)))
    ):
        raise _refuse("attention: torch.func.grad, jvp and what is made of them; use torch.autograd.grad", "unsupported")
    if q.is_cpu:
        out, lse = _attention_op(q.float(), k.float(), v.float(), *rest)
        out = out.to(dtype)
    else:
        if torch.is_autocast_enabled(q.device.type):
            q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
        out, lse = _flex_attention(q, k, v, *rest)
        out = out.to(dtype)
    if single:
        out, lse = out.squeeze(0), lse.squeeze(0)
    return (out, lse.detach()) if return_lse else out
