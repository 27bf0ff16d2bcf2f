"""`torch.ops.ropewalk.rotate` and `rotate_` of tensors on NVIDIA GPUs: ropewalk's kernels, where this build has them.

A call is put on PyTorch's current stream and returns. It neither allocates (but for its outputs) nor waits, so that a CUDA
graph can capture it; the host does not read positions. What the kernels do not take goes to the formula of all devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk import _core
from ropewalk.torch._shared import DTYPES, empty_like, ready

_NONE = ()
_Op = Callable[..., Any]


@functools.cache
def _capabilities() -> frozenset[tuple[int, int]]:
    """Of the GPUs that the kernels run on. Asked for once, which loads them."""
    return frozenset(device["capability"] for device in _core.cuda.find()["devices"])


@functools.cache
def _has_kernels(device: torch.device) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) in _capabilities()


def _stream(device: torch.device) -> tuple[int, int]:
    """The number of the GPU and the stream that PyTorch uses there now."""
    return device.index, torch.cuda.current_stream(device).cuda_stream


def _takes(q: Tensor, k: Tensor | None, rows: Tensor, positions: Tensor | None, axis: Tensor | None) -> bool:
    """Whether the kernels do: their message for sizes that do not fit is the library's."""
    device = q.device
    return (
        q.dtype in DTYPES
        and q.dim() in (3, 4)
        and (k is None or (k.dtype == q.dtype and k.device == device))
        and (rows.dtype == torch.float32 and rows.dim() == 3 and rows.shape[1] == 2 and rows.is_contiguous())
        and rows.device == device
        and (axis is None or axis.is_cpu)  # one on the GPU could only be read by waiting for it
        and (
            positions is None
            or (
                positions.device == device
                and positions.dtype in (torch.int32, torch.int64)
                and positions.dim() in (1, 2, 3)
                and positions.shape[-1] == q.shape[-3]
            )
        )
        and _has_kernels(device)
    )


def _call(
    q: Tensor,
    k: Tensor | None,
    q_out: Tensor | None,
    k_out: Tensor | None,
    rows: Tensor,
    positions: Tensor | None,
    start: int,
    layout: int,
    first: int,
    first_dim: int,
    direction: int,
    rotated_heads: int,
    amplitude: float,
    axis: Tensor | None,
) -> None:
    many = axis is not None and positions is not None and positions.dim() == 3
    if positions is not None:
        positions = positions.contiguous()
    _core.cuda.rotate(
        *_stream(q.device),
        q.data_ptr(),
        tuple(q.shape),
        q.stride(),
        0 if k is None else k.data_ptr(),
        _NONE if k is None else tuple(k.shape),
        _NONE if k is None else k.stride(),
        0 if q_out is None else q_out.data_ptr(),
        0 if k_out is None else k_out.data_ptr(),
        DTYPES[q.dtype],
        rows.data_ptr(),
        first,
        rows.shape[0],
        rows.shape[2],
        amplitude,
        axis.numpy().tobytes() if many else b"",
        0 if positions is None else positions.data_ptr(),
        0 if positions is None else positions.element_size(),
        0 if positions is None else positions.numel(),
        positions.shape[0] if many else 1,
        start,
        layout,
        first_dim,
        rotated_heads,
        direction,
    )


_DEFAULTS = (None, 0, 0, 0, 0, 0, 0, 1.0, None)  # from positions to axis; the dispatcher leaves out those at the end


def _functions(formula: _Op, formula_in_place: _Op) -> tuple[_Op, _Op]:
    def rotate(q, k, rows, *rest):
        rest += _DEFAULTS[len(rest) :]
        if not _takes(q, k, rows, rest[0], rest[-1]):
            return formula(q, k, rows, *rest)
        q, k = ready(q), None if k is None else ready(k)
        q_out, k_out = empty_like(q), None if k is None else empty_like(k)
        _call(q, k, q_out, k_out, rows, *rest)
        return q_out, q.new_empty(0) if k_out is None else k_out

    def rotate_in_place(q, k, rows, *rest):
        rest += _DEFAULTS[len(rest) :]
        dense = all(x is None or x.stride(-1) == 1 or x.shape[-1] <= 1 for x in (q, k))
        if dense and _takes(q, k, rows, rest[0], rest[-1]):
            _call(q, k, None, None, rows, *rest)
        else:
            formula_in_place(q, k, rows, *rest)

    return rotate, rotate_in_place


def register(register_kernels: _Op, formula: _Op, formula_in_place: _Op) -> None:
    """The kernels for PyTorch's dispatch key CUDA, where this build has them; else the formulas serve it."""
    if _core.cuda.built:  # which does not touch the driver: a process may still fork
        register_kernels("CUDA", *_functions(formula, formula_in_place))
