"""`ropewalk::rotate` and `rotate_`: rotation by a table of cosines and sines, rows [count, 2, pairs]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ropewalk._core import pointers
from ropewalk.torch import _cuda
from ropewalk.torch._shared import DTYPES, check_heads, check_whole, contiguous, define, empty_like, fold, library, ready, refuse

_OPPOSITE = (1, 0, 0)  # the direction of the gradient; that of R^T x / a is R x / a
_NONE = ()


def positions_arguments(x: Tensor, positions: Tensor | None, axis: Tensor | None) -> tuple[Any, ...]:
    """Pointer, bytes of a position, their number and axes, and the tensor that has to live until the call."""
    if positions is None:
        return 0, 0, 0, 1, None
    size = positions.element_size()
    if positions.dtype not in (torch.int64, torch.int32) or positions.device.type != "cpu":
        raise refuse(f"positions: expected int64 or int32 beside the tensors, got {positions.dtype} on {positions.device}")
    if not positions.is_contiguous():
        positions = positions.contiguous()
    axes = positions.shape[0] if axis is not None and positions.dim() == 3 else 1
    tokens = x.shape[-3]
    count = positions.numel()
    batch = x.shape[0] if x.dim() == 4 else 1
    if positions.dim() == 0 or positions.shape[-1] != tokens or (count != axes * tokens and count != axes * batch * tokens):
        raise refuse(
            f"positions: expected [tokens], [batch, tokens] or [axes, batch, tokens] for {list(x.shape)}, "
            f"got {list(positions.shape)}"
        )
    return positions.data_ptr(), size, count, axes, positions


def axis_pointer(axis: Tensor | None, pairs: int) -> int:
    if axis is None:
        return 0
    if axis.dtype != torch.uint8 or axis.device.type != "cpu" or axis.numel() != pairs or not axis.is_contiguous():
        raise refuse(f"axis: expected uint8 [{pairs}], got {axis.dtype} {list(axis.shape)} on {axis.device}")
    return axis.data_ptr()


def _check_rows(rows: Tensor) -> tuple[int, int]:
    """Their number and pairs. The dispatcher sends tensors of several devices elsewhere, so the device needs no look."""
    shape = rows.shape
    if rows.dtype is not torch.float32 or len(shape) != 3 or shape[1] != 2 or not rows.is_contiguous():
        raise refuse(f"table: expected contiguous float32 [count, 2, pairs], got {rows.dtype} {list(shape)}")
    return shape[0], shape[2]


def call_rotate(
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
    """The kernel of the CPU. angles: rows, first, count, high, low, pairs, amplitude; the other rows or frequencies are 0."""
    dtype = DTYPES.get(q.dtype)
    if dtype is None:
        check_heads("q", q)
    if k is not None and k.dtype is not q.dtype:
        check_heads("k", k)
        call_rotate(k, None, k_out, None, angles, positions, start, layout, first_dim, direction, rotated_heads, axis)
        k = k_out = None
    where = (0, 0, 0, 1, None) if positions is None else positions_arguments(q, positions, axis)
    pointers.rotate(
        q.data_ptr(),
        q.shape,
        q.stride(),
        *((0, _NONE, _NONE) if k is None else (k.data_ptr(), k.shape, k.stride())),
        0 if q_out is None else q_out.data_ptr(),
        0 if k_out is None else k_out.data_ptr(),
        dtype,
        *angles,
        0 if axis is None else axis_pointer(axis, angles[5]),
        *where[:4],
        start,
        layout,
        first_dim,
        rotated_heads,
        direction,
    )


# The arguments of both ops after q and k, with their defaults; kernels are given them without those at the end that have theirs.
_TABLE = (
    "Tensor rows, Tensor? positions=None, SymInt start=0, int layout=0, SymInt first=0, int first_dim=0, "
    "int direction=0, int rotated_heads=0, float amplitude=1.0, Tensor? axis=None"
)


def rotate_cpu(
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
    inplace=False,
):
    count, pairs = _check_rows(rows)
    q_out = k_out = None
    if not inplace:
        q = ready(q)
        q_out = torch.empty_like(q, memory_format=contiguous)
        if k is not None:
            k = ready(k)
            k_out = torch.empty_like(k, memory_format=contiguous)
    angles = (rows.data_ptr(), first, count, 0, 0, pairs, amplitude)
    call_rotate(q, k, q_out, k_out, angles, positions, start, layout, first_dim, direction, rotated_heads, axis)
    return q_out, q.new_empty(0) if k is None else k_out


def _rotate_in_place_cpu(*args):
    rotate_cpu(*args, inplace=True)


def select_axes(rows: Tensor, axis: Tensor) -> Tensor:
    """Of rows [axes, batch, tokens, 2, pairs] those of the axis of each pair."""
    index = axis.to(torch.int64).expand(1, *rows.shape[1:])
    return rows.gather(0, index).squeeze(0)


def rows_or_nan(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index]; NaN outside: a device cannot say that a position is outside. One address computation a token."""
    count = rows.shape[0]
    if count == 0:
        return rows.new_full((*index.shape, *rows.shape[1:]), float("nan"))
    known = (index >= 0) & (index < count)
    known = known.reshape(*known.shape, *(1,) * (rows.dim() - 1))
    return torch.where(known, rows[index.clamp(0, count - 1)], float("nan"))


def _rows_at(x: Tensor, rows: Tensor, positions: Tensor | None, start: int, first: int, axis: Tensor | None) -> Tensor:
    """[.., tokens, 2, pairs] for the tokens of x."""
    if positions is None:
        count = rows.shape[0]
        if start < first or start - first + x.shape[-3] > count:
            raise refuse(f"positions: {start} to {start + x.shape[-3] - 1} are outside the table, {first} to {first + count - 1}")
        return rows.narrow(0, start - first, x.shape[-3])
    check_whole(positions)
    at = rows_or_nan(rows, positions.to(torch.int64) - first)
    return select_axes(at, axis) if axis is not None and positions.dim() == 3 else at


def turn(x: Tensor, at: Tensor, layout: int, first_dim: int, direction: int, rotated_heads: int, amplitude: float) -> Tensor:
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
        raise refuse(f"first_dim {first_dim} and the rotary_dim {2 * pairs} do not fit head_dim {x.shape[-1]}")
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


def rotate_formula(
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
    """`ropewalk::rotate` of every device that has no kernels."""
    check_heads("q", q)
    at = _rows_at(q, rows, positions, start, first, axis)
    q_out = turn(q, at, layout, first_dim, direction, rotated_heads, amplitude)
    if k is None:
        return q_out, q.new_empty(0)
    check_heads("k", k)
    return q_out, turn(k, at, layout, first_dim, direction, rotated_heads, amplitude)


def _rotate_dense(*args):
    """As an op, whose outputs are row-major."""
    return tuple(x.contiguous() for x in rotate_formula(*args))


def _rotate_in_place_formula(q, k, *args):
    q_out, k_out = rotate_formula(q, k, *args)
    q.copy_(q_out)
    if k is not None:
        k.copy_(k_out)


def rotate_fake(q, k, *_args, **_kwargs):
    check_heads("q", q)
    return empty_like(q), q.new_empty(0) if k is None else empty_like(k)


def _counted(rotate_in_place: Any) -> Any:
    """With the versions of what it writes, by which autograd knows that a tensor that it saved is another one."""

    def rotate(q, k, *args):
        rotate_in_place(q, k, *args)
        increment_version((q,) if k is None else (q, k))

    return rotate


define("rotate", f"(Tensor q, Tensor? k, {_TABLE}) -> (Tensor, Tensor)")
define("rotate_", f"(Tensor(a!) q, Tensor(b!)? k, {_TABLE}) -> ()")
library.impl("rotate", _rotate_dense, "CompositeExplicitAutograd")
library.impl("rotate_", _counted(_rotate_in_place_formula), "CompositeExplicitAutograd")
torch.library.register_fake("ropewalk::rotate", rotate_fake, lib=library)
torch.library.register_fake("ropewalk::rotate_", lambda *_args, **_kwargs: None, lib=library)

rotate_op = torch.ops.ropewalk.rotate.default
rotate_in_place_op = torch.ops.ropewalk.rotate_.default
_with_kernels: set[str] = set()


def register_kernels(key: str, rotate: Any, rotate_in_place: Any) -> None:
    """Kernels for the tensors of a device ("CPU", "CUDA"), in place of the formula: of the arguments of `rotate_cpu`."""
    library.impl("rotate", rotate, key)
    library.impl("rotate_", _counted(rotate_in_place), key)
    _with_kernels.add(key.lower())


def has_kernels(x: Tensor) -> bool:
    return x.is_cpu or x.device.type in _with_kernels


register_kernels("CPU", rotate_cpu, _rotate_in_place_cpu)
_cuda.register(register_kernels, _rotate_dense, _rotate_in_place_formula)


def _setup(ctx, inputs, output):
    _, k, rows, positions, start, layout, first, first_dim, direction, rotated_heads, amplitude, axis = inputs
    ctx.save_for_backward(rows, positions, axis)
    ctx.with_k = k is not None
    ctx.rest = (start, layout, first, first_dim)
    ctx.direction, ctx.rotated_heads, ctx.amplitude = direction, rotated_heads, amplitude


def _backward(ctx, d_q, d_k):
    rows, positions, axis = ctx.saved_tensors
    if ctx.needs_input_grad[2]:
        raise refuse("table: has no gradient; learned frequencies are rotate_frequencies'", "unsupported")
    if ctx.direction == 2 and ctx.amplitude != 1:  # R / a, from rows of a R
        rows = rows / ctx.amplitude**2
    d_q, d_k = rotate_op(
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


torch.library.register_autograd("ropewalk::rotate", _backward, setup_context=_setup, lib=library)


def rotate_vmap(op, position: int):
    """For an op (q, k, .., positions, ..): the mapped dimension joins the batch."""

    def rule(info, in_dims, q, k, *args):
        for i, dim in enumerate(in_dims[2:]):
            if dim is not None and i != position:
                raise refuse("vmap: rotation maps over q, k and positions, not over its table or frequencies", "unsupported")
        size, batched = info.batch_size, q.dim() - (in_dims[0] is not None) == 4
        q, k = fold(q, in_dims[0], size, 3), fold(k, in_dims[1], size, 3)
        args = list(args)
        if len(args) > position and args[position] is not None:
            p = fold(args[position], in_dims[2 + position], size, 1)
            p = p.movedim(0, -3)  # [(axes,) mapped, batch, tokens]
            args[position] = p.expand(*p.shape[:-2], q.shape[1], p.shape[-1]).flatten(-3, -2)
        q_out, k_out = op(q.flatten(0, 1), None if k is None else k.flatten(0, 1), *args)
        q_out = q_out.reshape(q.shape)
        k_out = q_out.new_empty(size, 0) if k is None else k_out.reshape(k.shape)
        if not batched:
            q_out, k_out = q_out.squeeze(1), k_out if k is None else k_out.squeeze(1)
        return (q_out, k_out), (0, 0)

    return rule


torch.library.register_vmap("ropewalk::rotate", rotate_vmap(rotate_op, 1), lib=library)


def _no_vmap(*_args):
    raise refuse("vmap: expected inplace=False, since what is mapped is not written to", "unsupported")


torch.library.register_vmap("ropewalk::rotate_", _no_vmap, lib=library)
