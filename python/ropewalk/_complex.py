"""Complex-order embeddings and the complex layers after them: arrays of complex numbers, computed in complex64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import NOTHING, int64, needed
from ropewalk._core import Error

__all__ = [
    "complex_attention",
    "complex_attention_backward",
    "complex_linear",
    "complex_linear_backward",
    "complex_order",
    "complex_order_backward",
]


def _complex(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    out = np.empty(re.shape, np.complex64)
    out.real, out.imag = re, im
    return out


def _parts(name: str, given: Any, shape: tuple[int | None, ...]) -> tuple[np.ndarray, np.ndarray]:
    z = np.asarray(given)
    return needed(name, np.real(z), shape), needed(name, np.imag(z), shape)


def _order(
    words: Any, positions: Any, amplitude: Any, frequency: Any, phase: Any, frequency_shared: str, phase_shared: str
) -> tuple:
    w, p = int64("words", words), int64("positions", positions)
    if w.shape != p.shape:
        raise Error(f"positions: expected the shape of words, {list(w.shape)}, got {list(p.shape)}")
    a = needed("amplitude", amplitude, (None, None))
    angle = NOTHING if phase is None else needed("phase", phase)
    return a, needed("frequency", frequency), angle, str(frequency_shared), str(phase_shared), w, p


def complex_order(
    words: Any,
    positions: Any,
    amplitude: Any,
    frequency: Any,
    phase: Any = None,
    *,
    frequency_shared: str = "none",
    phase_shared: str = "none",
) -> np.ndarray:
    """Complex-order embeddings (Wang et al. 2020, arXiv 1912.12333, section 2): word w at position k is, in each dimension,
    amplitude e^(i (frequency k + phase)).

    Args:
        words, positions: whole numbers of one shape [...].
        amplitude: [words, dim].
        frequency, phase: [words, dim]; with sharing "words" [dim] (one for all words), with "dims" [words]. phase None: 0.

    Returns:
        complex64 [..., dim].
    """
    call = _order(words, positions, amplitude, frequency, phase, frequency_shared, phase_shared)
    re, im = _core.complex_order(*call)
    return _complex(re, im).reshape(*call[-1].shape, re.shape[-1])


def complex_order_backward(
    d_out: Any,
    words: Any,
    positions: Any,
    amplitude: Any,
    frequency: Any,
    phase: Any = None,
    *,
    frequency_shared: str = "none",
    phase_shared: str = "none",
) -> dict[str, np.ndarray]:
    """d(loss) / d(amplitude), d(frequency) and d(phase), float64 of their shapes, from d_out complex [..., dim]: d(loss) /
    d(real part) + i d(loss) / d(imaginary part)."""
    call = _order(words, positions, amplitude, frequency, phase, frequency_shared, phase_shared)
    d = _parts("d_out", d_out, (*call[-1].shape, call[0].shape[1]))
    gradients = dict(zip(("amplitude", "frequency", "phase"), _core.complex_order_backward(*call, *d), strict=True))
    if phase is None:
        del gradients["phase"]
    held = dict(zip(gradients, call, strict=False))
    return {name: g.reshape(held[name].shape) for name, g in gradients.items()}


def _optional(name: str, given: Any, shape: tuple[int | None, ...]) -> tuple[np.ndarray, np.ndarray]:
    return (NOTHING, NOTHING) if given is None else _parts(name, given, shape)


def _linear(x: Any, weight: Any, bias: Any) -> tuple[tuple[int, ...], tuple]:
    """The shape of x without its last axis, and the parts of all."""
    w = _parts("weight", weight, (None, None))
    z = np.asarray(x)
    if z.ndim < 1 or z.shape[-1] != w[0].shape[1]:
        raise Error(f"x: expected [..., {w[0].shape[1]}], got shape {list(z.shape)}")
    rows = _parts("x", z.reshape(-1, z.shape[-1]) if z.size else z.reshape(math.prod(z.shape[:-1]), z.shape[-1]), (None, None))
    return z.shape[:-1], (*rows, *w, *_optional("bias", bias, (w[0].shape[0],)))


def complex_linear(x: Any, weight: Any, bias: Any = None) -> np.ndarray:
    """x @ weight.T + bias of complex numbers: x [..., in], weight [out, in], bias [out] or None -> complex64 [..., out]. Sums
    are in double."""
    front, call = _linear(x, weight, bias)
    re, im = _core.complex_linear(*call)
    return _complex(re, im).reshape(*front, re.shape[1])


def complex_linear_backward(d_out: Any, x: Any, weight: Any, bias: Any = None) -> dict[str, np.ndarray]:
    """Gradients of x (complex64), weight and, where there is one, bias (complex128), from d_out [..., out]; each d(loss) /
    d(real part) + i d(loss) / d(imaginary part)."""
    front, call = _linear(x, weight, bias)
    out, inputs = call[2].shape
    d = _parts("d_out", d_out, (*front, out))
    dx_re, dx_im, dw, db = _core.complex_linear_backward(*call, *d)
    grads = {"x": _complex(dx_re, dx_im).reshape(*front, inputs), "weight": _sum(dw).reshape(out, inputs)}
    return grads if bias is None else {**grads, "bias": _sum(db)}


def _sum(parts: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return parts[0] + 1j * parts[1]


def _attention_parts(q: Any, k: Any, v: Any) -> tuple[np.ndarray, ...]:
    shape = (None, None, None)
    parts = [_parts("q", q, shape), _parts("k", k, shape), _parts("v", v, shape)]
    if parts[1][0].shape != parts[2][0].shape:
        raise Error(f"v: expected the shape of k, {list(parts[1][0].shape)}, got {list(parts[2][0].shape)}")
    return tuple(x for pair in parts for x in pair)


def complex_attention(q: Any, k: Any, v: Any, *, causal: bool = False, hermitian: bool = False) -> np.ndarray:
    """Attention whose weights are softmax over keys of |q . k| / sqrt(head_dim), as the authors of complex-order embeddings
    compute it; `hermitian` conjugates k, so that the scores depend on the difference of positions.

    Args:
        q: complex [queries, heads, head_dim]; k, v: complex [keys, heads, head_dim].
        causal: the last query has the position of the last key.

    Returns:
        complex64, of the shape of q.
    """
    return _complex(*_core.complex_attention(_attention_parts(q, k, v), bool(causal), bool(hermitian)))


def complex_attention_backward(
    d_out: Any, q: Any, k: Any, v: Any, *, causal: bool = False, hermitian: bool = False
) -> dict[str, np.ndarray]:
    """Gradients of q, k and v, complex128 of their shapes, from d_out: each d(loss) / d(real part) + i d(loss) /
    d(imaginary part). The derivative of the modulus of 0 is taken as 0."""
    parts = _attention_parts(q, k, v)
    d = _parts("d_out", d_out, parts[0].shape)
    flat = _core.complex_attention_backward(parts, bool(causal), bool(hermitian), *d)
    return {name: _sum(g).reshape(x.shape) for name, g, x in zip("qkv", flat, parts[::2], strict=True)}
