"""`ropewalk::rotate_frequencies` and `cos_sin`: angles from frequencies, [pairs] radians per position in float64 or [2, pairs], a
sum. Both have gradients of the frequencies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk._core import pointers
from ropewalk.torch._rotation import (
    _OPPOSITE,
    axis_pointer,
    call_rotate,
    positions_arguments,
    rotate_fake,
    rotate_vmap,
    select_axes,
    turn,
)
from ropewalk.torch._shared import (
    DTYPES,
    check_heads,
    check_whole,
    define,
    empty_like,
    first_derivatives_alone,
    library,
    ready,
    refuse,
)


def frequency_arguments(inv_freq: Tensor, amplitude: Any) -> tuple[Any, ...]:
    """The angles of `call_rotate`."""
    if (
        inv_freq.dtype != torch.float64
        or inv_freq.device.type != "cpu"
        or not inv_freq.is_contiguous()
        or inv_freq.dim() not in (1, 2)
        or (inv_freq.dim() == 2 and inv_freq.shape[0] != 2)
    ):
        raise refuse(
            f"inv_freq: expected contiguous float64 [pairs] or [2, pairs], got {inv_freq.dtype} "
            f"{list(inv_freq.shape)} on {inv_freq.device}"
        )
    pairs = inv_freq.shape[-1]
    high = inv_freq.data_ptr()
    return 0, 0, 0, high, high + 8 * pairs if inv_freq.dim() == 2 else 0, pairs, float(amplitude)


def sum_of(inv_freq: Tensor) -> Tensor:
    return inv_freq if inv_freq.dim() == 1 else inv_freq[0] + inv_freq[1]


def rotate_frequencies_cpu(
    q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, direction=0, rotated_heads=0, axis=None
):
    angles = frequency_arguments(inv_freq, amplitude)
    q = ready(q)
    q_out = empty_like(q)
    k = None if k is None else ready(k)
    k_out = None if k is None else empty_like(k)
    call_rotate(q, k, q_out, k_out, angles, positions, start, layout, first_dim, direction, rotated_heads, axis)
    return q_out, q.new_empty(0) if k_out is None else k_out


def _angle_rows(
    x: Tensor, inv_freq: Tensor, amplitude: Tensor, positions: Tensor | None, start: int, axis: Tensor | None
) -> Tensor:
    """Rows [.., tokens, 2, pairs] in float64, differentiable by frequencies and amplitude."""
    if inv_freq.device.type == "mps":
        raise refuse("inv_freq: a device without float64 needs a table", "unsupported")
    if positions is None:
        positions = torch.arange(x.shape[-3], device=x.device) + start
    else:
        check_whole(positions)
    angles = positions.to(torch.float64)[..., None] * sum_of(inv_freq)
    rows = torch.stack((angles.cos(), angles.sin()), -2) * amplitude
    return select_axes(rows, axis) if axis is not None and positions.dim() == 3 else rows


def rotate_frequencies_formula(
    q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, direction=0, rotated_heads=0, axis=None
):
    check_heads("q", q)
    at = _angle_rows(q, inv_freq, amplitude, positions, start, axis)
    q_out = turn(q, at, layout, first_dim, direction, rotated_heads, amplitude)
    if k is None:
        return q_out, q.new_empty(0)
    return q_out, turn(k, at, layout, first_dim, direction, rotated_heads, amplitude)


def _dense(*args):
    return tuple(x.contiguous() for x in rotate_frequencies_formula(*args))


def rotate_frequencies_backward_cpu(
    d_q, d_k, q, k, inv_freq, amplitude, positions=None, start=0, layout=0, first_dim=0, rotated_heads=0, axis=None
):
    d_q, d_k = rotate_frequencies_cpu(d_q, d_k, inv_freq, amplitude, positions, start, layout, first_dim, 1, rotated_heads, axis)
    _, _, _, high, low, pairs, factor = frequency_arguments(inv_freq, amplitude)
    out = torch.zeros(pairs + 1, dtype=torch.float64)
    for x, d_x in ((q, d_q), (k, d_k)):
        if x is None:
            continue
        *where, _alive = positions_arguments(x, positions, axis)
        x, d_x = ready(x), d_x.to(x.dtype)
        if rotated_heads:
            x, d_x = x[..., :rotated_heads, :], d_x[..., :rotated_heads, :]
        pointers.frequency_gradient(
            x.data_ptr(),
            x.shape,
            x.stride(),
            d_x.data_ptr(),
            d_x.stride(),
            DTYPES[x.dtype],
            high,
            low,
            pairs,
            factor,
            axis_pointer(axis, pairs),
            *where,
            start,
            layout,
            first_dim,
            out.data_ptr(),
        )
    return d_q, d_k, out


def rotate_frequencies_backward_formula(
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
        d_x.append(turn(d_y, at, layout, first_dim, 1, rotated_heads, 1.0).contiguous())
        parts = []
        for y in (x, d_x[-1]):
            y = y[..., :rotated_heads, :] if rotated_heads else y
            y = y[..., first_dim : first_dim + 2 * pairs].to(torch.float64)
            parts += [y[..., :pairs], y[..., pairs:]] if layout == 0 else [y[..., 0::2], y[..., 1::2]]
        x1, x2, d1, d2 = parts
        d_f = d_f + (p * (d2 * x1 - d1 * x2).sum(-2)).reshape(-1, pairs).sum(0)
        d_a = d_a + (d1 * x1 + d2 * x2).sum() / amplitude
    return *d_x, torch.cat((d_f, d_a.reshape(1)))


def _backward_fake(d_q, d_k, q, k, inv_freq, *_args):
    return (
        empty_like(q),
        q.new_empty(0) if k is None else empty_like(k),
        inv_freq.new_empty(inv_freq.shape[-1] + 1, dtype=torch.float64),
    )


_ARGUMENTS = "Tensor inv_freq, Tensor amplitude, Tensor? positions=None, SymInt start=0, int layout=0, int first_dim=0"
define(
    "rotate_frequencies",
    f"(Tensor q, Tensor? k, {_ARGUMENTS}, int direction=0, int rotated_heads=0, Tensor? axis=None) -> (Tensor, Tensor)",
)
define(
    "rotate_frequencies_backward",
    f"(Tensor d_q, Tensor? d_k, Tensor q, Tensor? k, {_ARGUMENTS}, int rotated_heads=0, Tensor? axis=None) "
    "-> (Tensor, Tensor, Tensor)",
)
library.impl("rotate_frequencies", rotate_frequencies_cpu, "CPU")
library.impl("rotate_frequencies", _dense, "CompositeExplicitAutograd")
library.impl("rotate_frequencies_backward", rotate_frequencies_backward_cpu, "CPU")
library.impl("rotate_frequencies_backward", rotate_frequencies_backward_formula, "CompositeExplicitAutograd")
torch.library.register_fake("ropewalk::rotate_frequencies", rotate_fake, lib=library)
torch.library.register_fake("ropewalk::rotate_frequencies_backward", _backward_fake, lib=library)
first_derivatives_alone("rotate_frequencies_backward", "; tensors in float64 have them")
rotate_frequencies_op = torch.ops.ropewalk.rotate_frequencies.default


def _setup(ctx, inputs, output):
    q, k, inv_freq, amplitude, positions, start, layout, first_dim, direction, rotated_heads, axis = inputs
    learned = inv_freq.requires_grad or amplitude.requires_grad
    ctx.save_for_backward(q if learned else None, k if learned else None, inv_freq, amplitude, positions, axis)
    ctx.with_k, ctx.learned = k is not None, learned
    ctx.direction, ctx.rest, ctx.rotated_heads = direction, (start, layout, first_dim), rotated_heads


def _backward(ctx, d_q, d_k):
    q, k, inv_freq, amplitude, positions, axis = ctx.saved_tensors
    if ctx.learned and ctx.direction != 0:
        raise refuse("direction: frequencies are learned by the forward rotation", "unsupported")
    d_k = d_k if ctx.with_k else None
    d_inv_freq = d_amplitude = None
    if ctx.learned:
        d_q, d_k, d = torch.ops.ropewalk.rotate_frequencies_backward(
            d_q, d_k, q, k, inv_freq, amplitude, positions, *ctx.rest, ctx.rotated_heads, axis
        )
        d_inv_freq = d[:-1] if inv_freq.dim() == 1 else d[:-1].expand(2, -1)
        d_amplitude = d[-1].to(amplitude.dtype).reshape(amplitude.shape)
    else:
        d_q, d_k = rotate_frequencies_op(
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


torch.library.register_autograd("ropewalk::rotate_frequencies", _backward, setup_context=_setup, lib=library)
torch.library.register_vmap("ropewalk::rotate_frequencies", rotate_vmap(rotate_frequencies_op, 2), lib=library)


# Cosines and sines themselves, of any positions: what sinusoids, PoPE and FoPE are made of.


def _cos_sin_cpu(inv_freq, positions):
    _, _, _, high, low, pairs, _ = frequency_arguments(inv_freq, 1.0)
    if positions.dtype != torch.int64 or positions.device.type != "cpu":
        raise refuse(f"positions: expected int64 beside the frequencies, got {positions.dtype} on {positions.device}")
    positions = positions.contiguous()
    rows = torch.empty((*positions.shape, 2, pairs), dtype=torch.float32)
    pointers.fill_cos_sin(high, low, pairs, positions.data_ptr(), positions.numel(), rows.data_ptr())
    return rows


def cos_sin_formula(inv_freq, positions):
    """As float64 has it, whose product with a position p is off by p 2^-53."""
    if inv_freq.device.type == "mps":
        raise refuse("cos_sin: expected a device with float64", "unsupported")
    angles = positions.to(torch.float64)[..., None] * sum_of(inv_freq)
    return torch.stack((angles.cos(), angles.sin()), -2).to(torch.float32)


define("cos_sin", "(Tensor inv_freq, Tensor positions) -> Tensor")
library.impl("cos_sin", _cos_sin_cpu, "CPU")
library.impl("cos_sin", cos_sin_formula, "CompositeExplicitAutograd")
torch.library.register_fake(
    "ropewalk::cos_sin",
    lambda f, p: f.new_empty((*p.shape, 2, f.shape[-1]), dtype=torch.float32),
    lib=library,
)
cos_sin_op = torch.ops.ropewalk.cos_sin.default


def _cos_sin_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output)


def _cos_sin_backward(ctx, d):
    inv_freq, positions, rows = ctx.saved_tensors
    cos, sin = rows.to(torch.float64).unbind(-2)
    d_cos, d_sin = d.to(torch.float64).unbind(-2)
    d_angle = (d_sin * cos - d_cos * sin) * positions.to(torch.float64)[..., None]
    d_f = d_angle.reshape(-1, inv_freq.shape[-1]).sum(0)
    return d_f if inv_freq.dim() == 1 else d_f.expand(2, -1), None


def _cos_sin_vmap(info, in_dims, inv_freq, positions):
    if in_dims[0] is not None:
        raise refuse("vmap: cos_sin maps over positions, not over frequencies", "unsupported")
    return cos_sin_op(inv_freq, positions.movedim(in_dims[1], 0)), 0


torch.library.register_autograd("ropewalk::cos_sin", _cos_sin_backward, setup_context=_cos_sin_setup, lib=library)
torch.library.register_vmap("ropewalk::cos_sin", _cos_sin_vmap, lib=library)
