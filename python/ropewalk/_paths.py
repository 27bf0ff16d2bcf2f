"""Absolute encodings that are computed from token to token: paths of a differential equation or a recurrent cell, and
convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import NOTHING, float64, needed, number, sizes_of, whole
from ropewalk._core import Error

__all__ = [
    "floater_rows",
    "floater_rows_backward",
    "merge_weight_norm",
    "merge_weight_norm_backward",
    "position_convolution",
    "position_convolution_backward",
    "recurrent_rows",
    "recurrent_rows_backward",
]


def _field(start: Any, w: Any, u: Any, b: Any, v: Any, c: Any, frequencies: Any) -> tuple[int, int, np.ndarray, np.ndarray]:
    first = needed("start", start, (None,))
    dim = first.shape[0]
    if frequencies is not None:
        f = float64("frequencies", frequencies)
        if f.shape != (dim // 2,) or dim % 2 or any(x is not None for x in (w, u, b, v, c)):
            raise Error(f"frequencies: expected [{dim // 2}] for a start of {dim} elements, and no w, u, b, v, c")
        return dim, 0, f, first
    made_w = needed("w", w, (None, dim))
    hidden = made_w.shape[0]
    parts = (made_w, needed("u", u, (hidden,)), needed("b", b, (hidden,)), needed("v", v, (dim, hidden)))
    values = np.concatenate([x.ravel() for x in (*parts, needed("c", c, (dim,)))])
    if hidden == 0:
        raise Error("w: expected a hidden element or more, got none")
    return dim, hidden, values, first


def floater_rows(
    start: Any,
    count: int,
    *,
    w: Any = None,
    u: Any = None,
    b: Any = None,
    v: Any = None,
    c: Any = None,
    frequencies: Any = None,
    spacing: float = 0.1,
    substeps: int = 10,
) -> tuple[np.ndarray, float]:
    """FLOATER (Liu et al. 2020, arXiv 2003.09229, section 3): rows 0 to count - 1 of the path p' = v tanh(w p + u t + b) + c
    from p(0) = start, by Runge-Kutta of order 4 in double.

    Args:
        start: [dim].
        w [hidden, dim], u [hidden], b [hidden], v [dim, hidden], c [dim]: learned; or
        frequencies: [dim / 2], the field whose path from (0, 1, 0, 1, ...) is the interleaved sinusoidal encoding.
        spacing: time between positions; substeps: even, of the integrator between them.

    Returns:
        float32 [count, dim], and an estimate of the largest error of an element before rounding.
    """
    dim, hidden, values, first = _field(start, w, u, b, v, c, frequencies)
    steps = number("spacing", spacing), whole("substeps", substeps)
    return _core.floater_rows(dim, hidden, values, *steps, first, whole("count", count, 0))


def floater_rows_backward(
    d_rows: Any,
    start: Any,
    *,
    w: Any = None,
    u: Any = None,
    b: Any = None,
    v: Any = None,
    c: Any = None,
    frequencies: Any = None,
    spacing: float = 0.1,
    substeps: int = 10,
) -> dict[str, np.ndarray]:
    """The exact gradient of the discretised path: float64 of start and of w, u, b, v, c (or frequencies)."""
    dim, hidden, values, first = _field(start, w, u, b, v, c, frequencies)
    d = needed("d_rows", d_rows, (None, dim))
    steps = number("spacing", spacing), whole("substeps", substeps)
    d_start, flat = _core.floater_rows_backward(dim, hidden, values, *steps, first, d)
    if hidden == 0:
        return {"start": d_start, "frequencies": flat}
    out, at = {"start": d_start}, 0
    for name, shape in {"w": (hidden, dim), "u": (hidden,), "b": (hidden,), "v": (dim, hidden), "c": (dim,)}.items():
        size = math.prod(shape)
        out[name] = flat[at : at + size].reshape(shape)
        at += size
    return out


def _cell(cell: str, start: Any, weight: Any, input_bias: Any, hidden_bias: Any) -> tuple:
    first = needed("start", start, (None,))
    dim = first.shape[0]
    rows = dim * (3 if cell == "gru" else 1)
    return (
        str(cell),
        first,
        needed("weight", weight, (rows, dim)),
        needed("input_bias", input_bias, (rows,)),
        needed("hidden_bias", hidden_bias, (rows,)),
    )


def recurrent_rows(start: Any, count: int, *, weight: Any, input_bias: Any, hidden_bias: Any, cell: str = "tanh") -> np.ndarray:
    """Rows that a small recurrent cell computes, each from the one before (kexue.fm/archives/8130).

    Args:
        start: [dim], row 0.
        cell: "tanh" or "gru": PyTorch's RNNCell and GRUCell without input.
        weight: [gates dim, dim] (weight_hh); input_bias, hidden_bias: [gates dim] (bias_ih, bias_hh); 1 gate or 3.

    Returns:
        float32 [count, dim].
    """
    return _core.recurrent_rows(*_cell(cell, start, weight, input_bias, hidden_bias), whole("count", count, 0))


def recurrent_rows_backward(
    d_rows: Any, start: Any, *, weight: Any, input_bias: Any, hidden_bias: Any, cell: str = "tanh"
) -> dict[str, np.ndarray]:
    """Backpropagation through all rows: float64 of start, weight, input_bias and hidden_bias."""
    call = _cell(cell, start, weight, input_bias, hidden_bias)
    d = needed("d_rows", d_rows, (None, call[1].shape[0]))
    flat = _core.recurrent_rows_backward(*call, d)
    names = ("start", "weight", "input_bias", "hidden_bias")
    return {name: g.reshape(held.shape) for name, g, held in zip(names, flat, call[1:], strict=True)}


def _convolution(x: Any, weight: Any, bias: Any, sizes: Any) -> tuple:
    made = needed("x", x)
    if made.ndim == 2:
        made = made[None]
    w = needed("weight", weight)
    extents = sizes_of("sizes", (made.shape[1],) if sizes is None and made.ndim == 3 else sizes)
    if made.ndim != 3 or w.ndim != 2 + len(extents) or w.shape[1] < 1 or w.shape[0] != made.shape[2]:
        raise Error(
            "weight: expected [channels, channels / groups, kernel...] with a kernel size for each axis of sizes, and x "
            f"[(batch,) tokens, channels]; got {list(w.shape)} and {list(made.shape)}"
        )
    added = NOTHING if bias is None else needed("bias", bias, (w.shape[0],))
    return made, w, added, extents, list(w.shape[2:]), w.shape[0] // w.shape[1]


def position_convolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    sizes: Any = None,
    prefix_rows: int = 0,
    border: str = "zero",
    gelu: bool = False,
    residual: bool = True,
) -> np.ndarray:
    """x + f(conv(x)): convolutional position encoding (wav2vec 2.0, arXiv 2006.11477; CPE / PEG, arXiv 2102.10882).

    Args:
        x: [(batch,) prefix_rows + product of sizes, channels].
        weight: [channels, channels / groups, kernel...] as in PyTorch; tap t reads offset t - kernel / 2.
        bias: [channels] or None.
        sizes: 1 to 3 axes of the tokens, last fastest; default: all tokens on one axis.
        prefix_rows: rows in front that are copied (class token).
        border: "zero" padding, which encodes absolute positions, or "circular", which does not.
        gelu: f is x Phi(x), else the identity. residual: False: f(conv(x)) alone.

    Returns:
        float32, of the shape of x.
    """
    made, w, b, extents, kernel, groups = _convolution(x, weight, bias, sizes)
    out = _core.position_convolution(
        made, w, b, extents, kernel, groups, whole("prefix_rows", prefix_rows), str(border), bool(gelu), bool(residual)
    )
    return out if np.ndim(x) == 3 else out[0]


def position_convolution_backward(
    d_out: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    sizes: Any = None,
    prefix_rows: int = 0,
    border: str = "zero",
    gelu: bool = False,
    residual: bool = True,
) -> dict[str, np.ndarray]:
    """d(loss) / d(x) (float32), d(weight) and, where there is one, d(bias) (float64)."""
    made, w, b, extents, kernel, groups = _convolution(x, weight, bias, sizes)
    d = needed("d_out", d_out, np.shape(x)).reshape(made.shape)
    dx, dw, db = _core.position_convolution_backward(
        made,
        w,
        b,
        d,
        extents,
        kernel,
        groups,
        whole("prefix_rows", prefix_rows),
        str(border),
        bool(gelu),
        bool(residual),
    )
    out = {"x": dx.reshape(np.shape(x)), "weight": dw.reshape(w.shape)}
    return out if bias is None else {**out, "bias": db}


def _weight_norm(v: Any, g: Any) -> tuple[np.ndarray, np.ndarray]:
    made = needed("v", v)
    if made.size == 0 or made.ndim == 0:
        raise Error(f"v: expected [channels, channels / groups, taps], got shape {list(made.shape)}")
    return made, needed("g", needed("g", g).reshape(-1), made.shape[-1:])


def merge_weight_norm(v: Any, g: Any) -> np.ndarray:
    """The weight of wav2vec 2.0's convolution from its weight normalisation over taps: v [channels, channels / groups, taps],
    g [taps] (or [1, 1, taps]); weight[..., t] = g[t] v[..., t] / |v[..., t]|."""
    made, norms = _weight_norm(v, g)
    return _core.merge_weight_norm(made.reshape(-1, made.shape[-1]), norms).reshape(made.shape)


def merge_weight_norm_backward(d_weight: Any, v: Any, g: Any) -> dict[str, np.ndarray]:
    """Gradients of v and g, float64 of their shapes, from that of the weight, of the shape of v."""
    made, norms = _weight_norm(v, g)
    d, taps = float64("d_weight", d_weight, made.shape), made.shape[-1]
    d_v, d_g = _core.merge_weight_norm_backward(made.reshape(-1, taps), norms, d.reshape(-1, taps))
    return {"v": d_v.reshape(made.shape), "g": d_g.reshape(np.shape(g))}
