"""Absolute encodings: a row for each position, which is added to the token embeddings or multiplied with them.

Rows are float32, gradients float64; positions are whole numbers of any shape, which the rows keep in front.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import float32, int64, number, whole
from ropewalk._core import Error

__all__ = [
    "Digits",
    "Sinusoidal",
    "add_rows",
    "add_rows_backward",
    "complex_attention",
    "complex_order",
    "complex_order_backward",
    "floater_rows",
    "floater_rows_backward",
    "hierarchical_rows",
    "hierarchical_rows_backward",
    "learned_rows",
    "learned_rows_backward",
    "merge_weight_norm",
    "multiply_rows",
    "multiply_rows_backward",
    "position_convolution",
    "position_convolution_backward",
    "recurrent_rows",
    "recurrent_rows_backward",
    "resize_table",
    "resize_table_backward",
    "sinusoidal_grid",
]


_NONE = np.zeros(0, np.float32)  # as the compiled part takes an array that is not given


def _needed(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
    made = float32(name, value, shape)
    if made is None:
        raise Error(f"{name}: expected an array, got None")
    return made


def _tokens(name: str, given: Any) -> tuple[np.ndarray, int]:
    """[..., tokens, dim] and the product of what is in front."""
    x = _needed(name, given)
    if x.ndim < 2:
        raise Error(f"{name}: expected [tokens, dim] or [batch, tokens, dim], got shape {list(x.shape)}")
    return x, math.prod(x.shape[:-2])


class Sinusoidal:
    """Sinusoidal position encoding (Vaswani et al. 2017, arXiv 1706.03762, section 3.5): every value is correct to the last
    float32 bit, at any position of magnitude below 2^31.

    Args:
        dim: elements of a row.
        layout: "interleaved" s0 c0 s1 c1 ... (the paper), or "concatenated" s0 s1 ... c0 c1 ... (tensor2tensor, fairseq,
            Whisper).
        base: frequencies fall from 1 towards 1 / base.
        ladder: "paper": the last frequency is above 1 / base; "to-base": it is 1 / base (tensor2tensor, fairseq, Whisper).
        cosine_first: sine and cosine change places (timestep embeddings of diffusion models).
    """

    __slots__ = ("_core", "dim")

    def __init__(
        self,
        dim: int,
        *,
        layout: str = "interleaved",
        base: float = 10000.0,
        ladder: str = "paper",
        cosine_first: bool = False,
    ):
        self.dim = whole("dim", dim)
        self._core = _core.make_sinusoidal(self.dim, str(layout), number("base", base), str(ladder), bool(cosine_first))

    @property
    def frequencies(self) -> np.ndarray:
        """float64 [angles]: radians per position."""
        return self._core.frequencies

    def rows(self, positions: Any) -> np.ndarray:
        """float32 [*positions.shape, dim]."""
        p = int64("positions", positions)
        return self._core.rows(p).reshape(*p.shape, self.dim)

    def add(self, x: Any, start: int = 0, scale: float = 1.0) -> np.ndarray:
        """x + scale row(start + t), x float32 [(batch,) tokens, dim]."""
        made, batch = _tokens("x", x)
        out = made.copy()
        self._core.add(out, batch, whole("start", start), number("scale", scale))
        return out

    def scale_gradient(self, d_out: Any, start: int = 0) -> float:
        """d(loss) / d(scale) of `add`."""
        d, batch = _tokens("d_out", d_out)
        return self._core.scale_gradient(d, batch, whole("start", start))

    def frequency_gradient(self, d_out: Any, start: int = 0, scale: float = 1.0) -> np.ndarray:
        """d(loss) / d(frequencies) of `add`, float64 [angles]."""
        d, batch = _tokens("d_out", d_out)
        return self._core.frequency_gradient(d, batch, whole("start", start), number("scale", scale))


def sinusoidal_grid(blocks: Any, sizes: Any) -> np.ndarray:
    """The patches of a grid in row-major order, each the concatenation of one encoding for each block.

    Args:
        blocks: list of (axis, Sinusoidal), axis an index into sizes. Masked autoencoders: the width's, then the height's.
        sizes: 1 to 3 axes, the last one fastest: (height, width) or (frames, height, width).

    Returns:
        float32 [product of sizes, sum of dims].
    """
    pairs = list(blocks)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[1], Sinusoidal):
            raise Error(f"blocks: expected pairs of an axis and a Sinusoidal, got {pair!r}")
    axes = [whole("axis", axis) for axis, _ in pairs]
    if any(not 0 <= axis < 3 for axis in axes):
        raise Error(f"blocks: expected axes 0 to 2, got {axes}")
    return _core.sinusoidal_grid(axes, [s._core for _, s in pairs], [whole("sizes", n) for n in sizes])


def hierarchical_rows(table: Any, positions: Any, alpha: float = 0.4) -> np.ndarray:
    """n^2 positions from a trained table of n rows, without training (Su 2020, kexue.fm/archives/7947): position i n + j has
    the row table[j] + alpha / (1 - alpha) (table[i] - table[0]).

    Args:
        table: [n, dim].
        positions: 0 to n^2 - 1.
        alpha: between 0 and 1, and not 1/2.

    Returns:
        float32 [*positions.shape, dim].
    """
    t, p = _needed("table", table, (None, None)), int64("positions", positions)
    return _core.hierarchical_rows(t, p, number("alpha", alpha)).reshape(*p.shape, t.shape[1])


def hierarchical_rows_backward(d_rows: Any, table: Any, positions: Any, alpha: float = 0.4) -> tuple[np.ndarray, float]:
    """d(loss) / d(table) and d(loss) / d(alpha)."""
    t, p = _needed("table", table, (None, None)), int64("positions", positions)
    d = _needed("d_rows", d_rows, (*p.shape, t.shape[1]))
    return _core.hierarchical_rows_backward(t, p, number("alpha", alpha), d)


def learned_rows(table: Any, positions: Any, offset: int = 0) -> np.ndarray:
    """table[positions + offset] (Gehring et al. 2017, arXiv 1705.03122; BERT); Error for a position without a row.

    Args:
        table: [rows, dim].
        offset: rows that a family reserves in front: 2 in BART and OPT, padding index + 1 in RoBERTa.
    """
    t, p = _needed("table", table, (None, None)), int64("positions", positions)
    return _core.learned_rows(t, p, whole("offset", offset)).reshape(*p.shape, t.shape[1])


def learned_rows_backward(d_rows: Any, rows: int, positions: Any, offset: int = 0) -> np.ndarray:
    """d(loss) / d(table), float64 [rows, dim]."""
    p = int64("positions", positions)
    d = _needed("d_rows", d_rows, (*p.shape, None))
    return _core.learned_rows_backward(whole("rows", rows, 0), d.shape[-1], p, whole("offset", offset), d)


def _sizes(name: str, given: Any) -> list[int]:
    return [whole(name, n) for n in (given if isinstance(given, (tuple, list, np.ndarray)) else (given,))]


def resize_table(
    table: Any, from_sizes: Any, to_sizes: Any, *, prefix_rows: int = 0, kernel: str = "linear", antialias: bool = False
) -> np.ndarray:
    """A learned table for another length or grid, as torch.nn.functional.interpolate(align_corners=False) does.

    Args:
        table: [prefix_rows + product of from_sizes, dim].
        from_sizes, to_sizes: 1 to 3 sizes each, last axis fastest: (512,) to (1024,), or (14, 14) to (24, 24).
        prefix_rows: rows in front that are kept (the class token of ViT).
        kernel: "linear", or "cubic" (Keys 1981 with a = -0.75, with antialias -0.5; on two axes PyTorch's "bicubic").
        antialias: on axes that shrink, the kernel is widened (DINOv2 with registers, SigLIP 2).

    Returns:
        float32 [prefix_rows + product of to_sizes, dim].
    """
    t = _needed("table", table, (None, None))
    sizes = _sizes("from_sizes", from_sizes), _sizes("to_sizes", to_sizes)
    return _core.resize_table(t, *sizes, whole("prefix_rows", prefix_rows), str(kernel), bool(antialias))


def resize_table_backward(
    d_table: Any,
    from_sizes: Any,
    to_sizes: Any,
    *,
    prefix_rows: int = 0,
    kernel: str = "linear",
    antialias: bool = False,
) -> np.ndarray:
    """d(loss) / d(table), float64, from that of the resized table."""
    d = _needed("d_table", d_table, (None, None))
    sizes = _sizes("from_sizes", from_sizes), _sizes("to_sizes", to_sizes)
    rows = whole("prefix_rows", prefix_rows, 0) + math.prod(max(n, 0) for n in sizes[0])
    return _core.resize_table_backward(rows, d.shape[1], d, *sizes, prefix_rows, str(kernel), bool(antialias))


class Digits:
    """Positions as the digits of a number, most significant first, and three ways to extend them (Su 2023,
    kexue.fm/archives/9675): 749 in base 10 is [7, 4, 9].

    Attributes:
        base, digits: the number's.
        factor: the digits are those of position / factor; the last one then has the fraction.
    """

    __slots__ = ("base", "digits", "factor")

    def __init__(self, base: int = 10, digits: int = 3, factor: float = 1.0):
        self.base, self.digits, self.factor = whole("base", base), whole("digits", digits), number("factor", factor)
        _core.digit_capacity(*self._spec())

    def _spec(self) -> tuple[int, int, float]:
        return self.base, self.digits, self.factor

    @property
    def capacity(self) -> int:
        """The number of positions that have rows."""
        return _core.digit_capacity(*self._spec())

    def extend(self, length: int, how: str) -> Digits:
        """For at least `length` positions: "extrapolate" (more digits in front), "interpolate" (a finer last digit) or
        "change-base" (the smallest base that suffices)."""
        return Digits(*_core.extend_digits(*self._spec(), whole("length", length), str(how)))

    def rows(self, positions: Any) -> np.ndarray:
        """float32 [*positions.shape, digits]."""
        p = int64("positions", positions)
        return _core.digit_rows(*self._spec(), p).reshape(*p.shape, self.digits)

    def project(self, weight: Any, positions: Any) -> np.ndarray:
        """rows(positions) @ weight.T, weight [dim, digits]: the first layer of a model that reads digits."""
        w, p = _needed("weight", weight, (None, self.digits)), int64("positions", positions)
        return _core.project_digits(*self._spec(), w, p).reshape(*p.shape, w.shape[0])

    def project_backward(self, d_out: Any, positions: Any) -> np.ndarray:
        """d(loss) / d(weight), float64 [dim, digits]."""
        p = int64("positions", positions)
        d = _needed("d_out", d_out, (*p.shape, None))
        return _core.project_digits_backward(*self._spec(), d.shape[-1], p, d)

    def __repr__(self) -> str:
        return f"Digits(base={self.base}, digits={self.digits}, factor={self.factor:g})"


def _complex(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    out = np.empty(re.shape, np.complex64)
    out.real, out.imag = re, im
    return out


def _parts(name: str, given: Any, shape: tuple[int | None, ...]) -> tuple[np.ndarray, np.ndarray]:
    z = np.asarray(given)
    return _needed(name, np.real(z), shape), _needed(name, np.imag(z), shape)


def _order(
    words: Any, positions: Any, amplitude: Any, frequency: Any, phase: Any, frequency_shared: str, phase_shared: str
) -> tuple:
    w, p = int64("words", words), int64("positions", positions)
    if w.shape != p.shape:
        raise Error(f"positions: expected the shape of words, {list(w.shape)}, got {list(p.shape)}")
    a = _needed("amplitude", amplitude, (None, None))
    angle = _NONE if phase is None else _needed("phase", phase)
    return a, _needed("frequency", frequency), angle, str(frequency_shared), str(phase_shared), w, p


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


def complex_attention(q: Any, k: Any, v: Any, *, causal: bool = False, hermitian: bool = False) -> np.ndarray:
    """Attention whose weights are softmax over keys of |q . k| / sqrt(head_dim), as the authors of complex-order embeddings
    compute it; `hermitian` conjugates k, so that the scores depend on the difference of positions.

    Args:
        q: complex [queries, heads, head_dim]; k, v: complex [keys, heads, head_dim].
        causal: the last query has the position of the last key.

    Returns:
        complex64, of the shape of q.
    """
    shape = (None, None, None)
    parts = [_parts("q", q, shape), _parts("k", k, shape), _parts("v", v, shape)]
    if parts[1][0].shape != parts[2][0].shape:
        raise Error(f"v: expected the shape of k, {list(parts[1][0].shape)}, got {list(parts[2][0].shape)}")
    return _complex(*_core.complex_attention(*(x for pair in parts for x in pair), bool(causal), bool(hermitian)))


def _field(start: Any, w: Any, u: Any, b: Any, v: Any, c: Any, frequencies: Any) -> tuple[int, int, np.ndarray, np.ndarray]:
    first = _needed("start", start, (None,))
    dim = first.shape[0]
    if frequencies is not None:
        f = np.ascontiguousarray(frequencies, np.float64)
        if f.shape != (dim // 2,) or dim % 2 or any(x is not None for x in (w, u, b, v, c)):
            raise Error(f"frequencies: expected [{dim // 2}] for a start of {dim} elements, and no w, u, b, v, c")
        return dim, 0, f, first
    made_w = _needed("w", w, (None, dim))
    hidden = made_w.shape[0]
    parts = (made_w, _needed("u", u, (hidden,)), _needed("b", b, (hidden,)), _needed("v", v, (dim, hidden)))
    values = np.concatenate([x.ravel() for x in (*parts, _needed("c", c, (dim,)))])
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
    d = _needed("d_rows", d_rows, (None, dim))
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
    first = _needed("start", start, (None,))
    dim = first.shape[0]
    rows = dim * (3 if cell == "gru" else 1)
    return (
        str(cell),
        first,
        _needed("weight", weight, (rows, dim)),
        _needed("input_bias", input_bias, (rows,)),
        _needed("hidden_bias", hidden_bias, (rows,)),
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
    d = _needed("d_rows", d_rows, (None, call[1].shape[0]))
    flat = _core.recurrent_rows_backward(*call, d)
    names = ("start", "weight", "input_bias", "hidden_bias")
    return {name: g.reshape(held.shape) for name, g, held in zip(names, flat, call[1:], strict=True)}


def _convolution(x: Any, weight: Any, bias: Any, sizes: Any) -> tuple:
    made = _needed("x", x)
    if made.ndim == 2:
        made = made[None]
    w = _needed("weight", weight)
    extents = _sizes("sizes", (made.shape[1],) if sizes is None and made.ndim == 3 else sizes)
    if made.ndim != 3 or w.ndim != 2 + len(extents) or w.shape[1] < 1 or w.shape[0] != made.shape[2]:
        raise Error(
            "weight: expected [channels, channels / groups, kernel...] with a kernel size for each axis of sizes, and x "
            f"[(batch,) tokens, channels]; got {list(w.shape)} and {list(made.shape)}"
        )
    added = _NONE if bias is None else _needed("bias", bias, (w.shape[0],))
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
    d = _needed("d_out", d_out, np.shape(x)).reshape(made.shape)
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


def merge_weight_norm(v: Any, g: Any) -> np.ndarray:
    """The weight of wav2vec 2.0's convolution from its weight normalisation over taps: v [channels, channels / groups, taps],
    g [taps] (or [1, 1, taps]); weight[..., t] = g[t] v[..., t] / |v[..., t]|."""
    made = _needed("v", v)
    taps = made.shape[-1] if made.ndim else 0
    norms = _needed("g", np.reshape(g, -1), (taps,))
    return _core.merge_weight_norm(made.reshape(-1, taps), norms).reshape(made.shape)


def add_rows(x: Any, rows: Any, scale: float = 1.0) -> np.ndarray:
    """x + scale rows: x [(batch,) tokens, dim], rows [tokens, dim]; float32."""
    made, batch = _tokens("x", x)
    out = made.copy()
    _core.add_rows(out, batch, _needed("rows", rows, made.shape[-2:]), number("scale", scale))
    return out


def add_rows_backward(d_out: Any, scale: float = 1.0) -> np.ndarray:
    """d(loss) / d(rows) of `add_rows`, float64 [tokens, dim]; d(loss) / d(x) is d_out."""
    d, batch = _tokens("d_out", d_out)
    return _core.add_rows_backward(d, batch, math.prod(d.shape[-2:]), number("scale", scale)).reshape(d.shape[-2:])


def multiply_rows(x: Any, rows: Any) -> np.ndarray:
    """x * rows, element by element: multiplicative encoding (Su 2021, kexue.fm/archives/8130). Shapes as in `add_rows`."""
    made, batch = _tokens("x", x)
    out = made.copy()
    _core.multiply_rows(out, batch, _needed("rows", rows, made.shape[-2:]))
    return out


def multiply_rows_backward(d_out: Any, x: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """d(loss) / d(x) (float32) and d(loss) / d(rows) (float64), where x is as before `multiply_rows`."""
    made, batch = _tokens("x", x)
    r = _needed("rows", rows, made.shape[-2:])
    dx, d_rows = _core.multiply_rows_backward(made, _needed("d_out", d_out, made.shape), batch, r)
    return dx.reshape(made.shape), d_rows.reshape(r.shape)
