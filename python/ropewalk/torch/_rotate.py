"""The public functions of rotation: `table`, `rotate`, `rotate_frequencies`."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ropewalk._core import pointers
from ropewalk._rotary import Rotation, Table
from ropewalk.torch._frequencies import rotate_frequencies_formula, rotate_frequencies_op
from ropewalk.torch._rotation import has_kernels, rotate_cpu, rotate_formula, rotate_in_place_op, rotate_op
from ropewalk.torch._shared import (
    DIRECTIONS,
    LAYOUTS,
    below_autograd,
    beside,
    check_heads,
    check_tensors,
    choice,
    forward_ad,
    functorch,
    host_reads,
    places_of,
    refuse,
    transformed,
)

with warnings.catch_warnings():  # PyTorch tells once a program that it does not know read-only arrays
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.float32))


MOST_POSITIONS = 1 << 31


def table(inv_freq: Any, count: int, first: int = 0, *, amplitude: float = 1.0, precision: str = "exact") -> Tensor:
    """Rows of cosines and sines for `rotate`: float32 [count, 2, pairs], on the CPU.

    inv_freq: float64 [pairs], radians per position, or [2, pairs]: the sum of both, for 106 bits.
    precision: "exact" (right to the last float32 bit at any position below 2^31) or "float32" (as Hugging Face has it).
    """
    if isinstance(inv_freq, Tensor):
        if inv_freq.is_meta or isinstance(inv_freq, FakeTensor):
            raise refuse("inv_freq: expected numbers, got a tensor without data")
        inv_freq = inv_freq.detach().cpu().numpy()
    f = np.ascontiguousarray(inv_freq, np.float64)  # numpy: PyTorch may be told to make tensors without data
    if f.ndim not in (1, 2) or (f.ndim == 2 and f.shape[0] != 2):
        raise refuse(f"inv_freq: expected [pairs] or [2, pairs], got {list(f.shape)}")
    if not 0 <= count <= MOST_POSITIONS:
        raise refuse(f"count: expected 0 to {MOST_POSITIONS} positions, got {count}")
    pairs, high = f.shape[-1], f.ctypes.data
    rows = np.empty((count, 2, pairs), np.float32)
    exact = choice("precision", precision, {"exact": 0, "float32": 1})
    low = high + 8 * pairs if f.ndim == 2 else 0
    pointers.fill_rows(high, low, pairs, float(amplitude), first, count, exact, rows.ctypes.data)
    return torch.from_numpy(rows)


def numbers_of(rotation: Any) -> np.ndarray:
    return np.array(pointers.frequencies(rotation._core), np.float64).reshape(2, -1)


def inv_freq_of(rotation: Any) -> Tensor:
    """float64 [2, pairs], whose sum is right to 106 bits."""
    return torch.from_numpy(numbers_of(rotation))


def axis_of(rotation: Any) -> Tensor | None:
    return None if rotation.axes == 1 else torch.from_numpy(np.asarray(rotation.axis).astype(np.uint8))


class Decay(NamedTuple):
    """xPos: the query at position n is multiplied by e^(log_decay (n - centre)), a key divided by it."""

    log_decay: Tensor  # float64 [pairs]
    centre: float


def decay_of(rotation: Any) -> Decay | None:
    if not rotation._core.decays:
        return None
    log_decay, centre = pointers.decay(rotation._core)
    return Decay(torch.from_numpy(np.array(log_decay, np.float64)), centre)


def decayed(
    x: Tensor | None,
    sign: int,
    decay: Decay,
    positions: int | Tensor,
    layout: int,
    first_dim: int,
    rotated_heads: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """x times its factors, in plain PyTorch. sign: 1 of queries, -1 of keys; the inverse has the other one."""
    if x is None:
        return None
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    n = positions if isinstance(positions, Tensor) else torch.arange(x.shape[-3], device=x.device) + positions
    exponent = (sign * (n.to(wide) - decay.centre))[..., None] * decay.log_decay.to(x.device, wide)
    if x.numel() and host_reads(exponent):
        largest, limit = exponent.max().item(), (8 if dtype == torch.float16 else 64) * math.log(2)
        if largest > limit:
            raise refuse(
                f"positions: xPos multiplies {'queries' if sign > 0 else 'keys'} by e^{largest:.4g}, out of the range of "
                f"{dtype}; choose a centre nearer to the positions in use ({decay.centre:g})"
            )
    factor = exponent.exp()
    factor = torch.cat((factor, factor), -1) if layout == 0 else factor.repeat_interleave(2, -1)
    behind = x.shape[-1] - first_dim - factor.shape[-1]
    factor = torch.nn.functional.pad(factor, (first_dim, behind), value=1.0).unsqueeze(-2)
    if rotated_heads:
        turned = torch.arange(x.shape[-2], device=x.device)[:, None] < rotated_heads
        factor = torch.where(turned, factor, 1.0)
    return (x * factor.to(torch.float64 if x.dtype == torch.float64 else torch.float32)).to(dtype)


def _with_decay(rotate, decay: Decay, q, k, positions, layout, first_dim, rotated_heads, direction, inplace=False, sign=1):
    """`rotate` of q and k in float32 or float64, then xPos, then one rounding."""
    if torch.is_grad_enabled() and inplace and any(x is not None and x.requires_grad for x in (q, k)):
        raise refuse("inplace: expected tensors that do not require gradients, which need what is overwritten")
    sign = -sign if direction == 2 else sign
    wide = [x.float() if x is not None and x.dtype in (torch.float16, torch.bfloat16) else x for x in (q, k)]
    out = []
    for x, turned, s in zip((q, k), rotate(*wide), (sign, -sign)):
        y = turned if x is None else decayed(turned, s, decay, positions, layout, first_dim, rotated_heads, x.dtype)
        out.append(y if x is None or not inplace else x.copy_(y))
    return tuple(out)


def _settings_of(table: Any, layout: int | None) -> tuple[Tensor, tuple[Any, ...]]:
    """Rows of a ropewalk.Table, whose memory they share; layout, first, first_dim, rotated_heads, amplitude, axis, decay."""
    rows, rotation = torch.from_numpy(table.rows), table.rotation
    if rotation is None:
        if layout is None:
            raise refuse("layout: expected 'half' or 'interleaved' with a table that was made from rows")
        return rows, (layout, table.first, 0, 0, 1.0, None, None)
    if layout is not None and layout != LAYOUTS[rotation.layout]:
        raise refuse(f"layout: the table is of a rotation whose layout is {rotation.layout!r}")
    return rows, (
        LAYOUTS[rotation.layout],
        table.first,
        rotation.first_dim,
        rotation.rotated_heads,
        rotation.amplitude,
        axis_of(rotation),
        decay_of(rotation),
    )


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
    if not isinstance(q, Tensor) or not (k is None or isinstance(k, Tensor)):
        check_tensors(q=q, k=k)
    positions = places_of(positions, q)
    code = None if layout is None else choice("layout", layout, LAYOUTS)
    decay = None
    if isinstance(table, Tensor):
        if code is None:
            raise refuse("layout: expected 'half' or 'interleaved' with a table that is a tensor")
        rows = table
    elif table is None:
        raise refuse("table: expected a ropewalk.Table or rows [count, 2, pairs], got None")
    elif isinstance(table, Rotation):  # angles are computed in this call, with the same bits
        if inplace or (code is not None and code != LAYOUTS[table.layout]):
            raise refuse(f"table: expected a ropewalk.Table to rotate in place, and its layout {table.layout!r}")
        return _by_rotation(q, k, table, positions, direction)
    elif not isinstance(table, Table):
        raise refuse(f"table: expected a ropewalk.Table, a Rotation or rows [count, 2, pairs], got {type(table).__name__}")
    else:
        rows, (code, first, first_dim, rotated_heads, amplitude, axis, decay) = _settings_of(table, code)
        if not q.is_cpu:
            rows, axis = rows.to(q.device), None if axis is None else axis.to(q.device)
    way = 0 if direction == "forward" else choice("direction", direction, DIRECTIONS)
    return rotate_by(
        q, k, rows, positions, first, code, first_dim, way, rotated_heads, amplitude, axis, inplace=inplace, decay=decay
    )


_dispatch_modes = torch._C._len_torch_dispatch_stack
_profiled = torch._C._autograd._profiler_enabled
_traced = torch._C._get_tracing_state


def _plain(x: Tensor) -> bool:
    """Whether nobody but the kernel of the CPU wants to see the op: no subclass, transform, mode, profiler or trace."""
    return (
        type(x) is Tensor
        and x.is_cpu
        and functorch() is None
        and _dispatch_modes() == 0
        and not _profiled()
        and _traced() is None
    )


def rotate_by(
    q, k, rows, positions, first, layout, first_dim, direction, rotated_heads, amplitude, axis, inplace=False, decay=None
):
    """`rotate` whose settings are known: numbers for names, rows beside q."""
    if decay is not None:
        settings = (rows, positions, first, layout, first_dim, direction, rotated_heads, amplitude, axis)
        return _with_decay(
            lambda q, k: rotate_by(q, k, *settings), decay, q, k, positions, layout, first_dim, rotated_heads, direction, inplace
        )
    if isinstance(positions, Tensor):
        start = 0
        if positions.is_cpu is not q.is_cpu:  # of tensors with and without data the latter would decide
            beside(q, positions=positions)
    else:
        start, positions = positions, None
    if axis is None and amplitude == 1 and not (first or first_dim or direction or rotated_heads):
        arguments = (rows, positions, start, layout)  # each argument takes the dispatcher's time
    else:
        arguments = (rows, positions, start, layout, first, first_dim, direction, rotated_heads, amplitude, axis)
    if rows.is_cpu is not q.is_cpu or (k is not None and k.is_cpu is not q.is_cpu):
        beside(q, k=k, table=rows)
    if inplace:
        if torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad)):
            raise refuse("inplace: expected tensors that do not require gradients, which need what is overwritten")
        if not torch.compiler.is_compiling() and (q.is_neg() or (k is not None and k.is_neg())):
            # PyTorch has no way to hand an op what it writes through a negated view (of a conjugate's imaginary part).
            for x, y in zip((q, k), rotate_op(q, k, *arguments)):
                if x is not None:
                    x.copy_(y)
            return q, k
        rotate_in_place_op(q, k, *arguments)
        return q, k
    if not has_kernels(q):  # as PyTorch's own ops, which a compiler fuses
        beside(q, k=k, table=rows, positions=positions, axis=axis)
        q_out, k_out = rotate_formula(q, k, *arguments)
    elif torch.compiler.is_compiling():
        q_out, k_out = rotate_op(q, k, *arguments)
    elif forward_ad._current_level >= 0:
        q_out, k_out = rotate_formula(q, k, *arguments)
    elif torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad) or rows.requires_grad):
        op = rotate_op if functorch() is None else rotate_formula
        q_out, k_out = op(q, k, *arguments)
    elif _plain(q) and (k is None or _plain(k)):  # the dispatcher costs more than the rotation of a token
        q_out, k_out = rotate_cpu(q, k, *arguments)
    else:  # no need to go through autograd
        with below_autograd():
            q_out, k_out = rotate_op(q, k, *arguments)
    return q_out, None if k is None else k_out


def by_angles(q, k, inv_freq, positions, decay, as_key=False, **settings):
    """`rotate_frequencies` with xPos where there is one. as_key: q is a key, which xPos divides."""

    def turned(q, k):
        return rotate_frequencies(q, k, inv_freq, positions, **settings)

    if decay is None:
        return turned(q, k)
    own = (LAYOUTS[settings["layout"]], settings["first_dim"], settings["rotated_heads"])
    way = choice("direction", settings["direction"], DIRECTIONS)
    return _with_decay(turned, decay, q, k, positions, *own, way, sign=-1 if as_key else 1)


def _by_rotation(q, k, rotation, positions, direction, as_key=False):
    """By a ropewalk.Rotation."""
    axis = axis_of(rotation)
    return by_angles(
        q,
        k,
        inv_freq_of(rotation).to(q.device),
        positions,
        decay_of(rotation),
        as_key,
        layout=rotation.layout,
        amplitude=rotation.amplitude,
        first_dim=rotation.first_dim,
        rotated_heads=rotation.rotated_heads,
        axis=None if axis is None else axis.to(q.device),
        direction=direction,
    )


def rotate_one(x: Tensor, rotation: Any, positions: int | Tensor, as_key: bool) -> Tensor:
    """Queries or keys alone by a ropewalk.Rotation, for attention."""
    if rotation.axes != 1:
        raise refuse("rotation: expected positions on one axis; rotate beforehand", "unsupported")
    return _by_rotation(x, None, rotation, positions, "forward", as_key)[0]


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
    if not isinstance(q, Tensor) or not (k is None or isinstance(k, Tensor)) or not isinstance(inv_freq, Tensor):
        check_tensors(q=q, inv_freq=inv_freq, **({} if k is None else {"k": k}))
    positions = places_of(positions, q)
    check_heads("q", q)
    inv_freq = inv_freq.to(torch.float64)
    if not isinstance(amplitude, Tensor):
        amplitude = torch.full((), amplitude, dtype=torch.float64, device=inv_freq.device)
    code, way = choice("layout", layout, LAYOUTS), choice("direction", direction, DIRECTIONS)
    start, positions = (0, positions) if isinstance(positions, Tensor) else (positions, None)
    beside(q, k=k, inv_freq=inv_freq, amplitude=amplitude, positions=positions, axis=axis)
    double = q.dtype == torch.float64 and (inv_freq.requires_grad or amplitude.requires_grad)
    kernel = q.is_cpu and not double and not transformed(q, k, inv_freq, amplitude)
    op = rotate_frequencies_op if kernel else rotate_frequencies_formula
    q_out, k_out = op(q, k, inv_freq, amplitude, positions, start, code, first_dim, way, rotated_heads, axis)
    return q_out, None if k is None else k_out
