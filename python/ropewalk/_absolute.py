"""Absolute encodings: a row for each position, which is added to the token embeddings or multiplied with them.

Rows are float32, gradients float64; positions are whole numbers of any shape, which the rows keep in front.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import int64, needed, number, sizes_of, whole
from ropewalk._core import Error

__all__ = [
    "Digits",
    "Sinusoidal",
    "add_rows",
    "add_rows_backward",
    "hierarchical_rows",
    "hierarchical_rows_backward",
    "learned_rows",
    "learned_rows_backward",
    "multiply_rows",
    "multiply_rows_backward",
    "resize_table",
    "resize_table_backward",
    "sinusoidal_grid",
]


def _tokens(name: str, given: Any) -> tuple[np.ndarray, int]:
    """[..., tokens, dim] and the product of what is in front."""
    x = needed(name, given)
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
    t, p = needed("table", table, (None, None)), int64("positions", positions)
    return _core.hierarchical_rows(t, p, number("alpha", alpha)).reshape(*p.shape, t.shape[1])


def hierarchical_rows_backward(d_rows: Any, table: Any, positions: Any, alpha: float = 0.4) -> tuple[np.ndarray, float]:
    """d(loss) / d(table) and d(loss) / d(alpha)."""
    t, p = needed("table", table, (None, None)), int64("positions", positions)
    d = needed("d_rows", d_rows, (*p.shape, t.shape[1]))
    return _core.hierarchical_rows_backward(t, p, number("alpha", alpha), d)


def learned_rows(table: Any, positions: Any, offset: int = 0) -> np.ndarray:
    """table[positions + offset] (Gehring et al. 2017, arXiv 1705.03122; BERT); Error for a position without a row.

    Args:
        table: [rows, dim].
        offset: rows that a family reserves in front: 2 in BART and OPT, padding index + 1 in RoBERTa.
    """
    t, p = needed("table", table, (None, None)), int64("positions", positions)
    return _core.learned_rows(t, p, whole("offset", offset)).reshape(*p.shape, t.shape[1])


def learned_rows_backward(d_rows: Any, rows: int, positions: Any, offset: int = 0) -> np.ndarray:
    """d(loss) / d(table), float64 [rows, dim]."""
    p = int64("positions", positions)
    d = needed("d_rows", d_rows, (*p.shape, None))
    return _core.learned_rows_backward(whole("rows", rows, 0), d.shape[-1], p, whole("offset", offset), d)


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
    t = needed("table", table, (None, None))
    sizes = sizes_of("from_sizes", from_sizes), sizes_of("to_sizes", to_sizes)
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
    d = needed("d_table", d_table, (None, None))
    sizes = sizes_of("from_sizes", from_sizes), sizes_of("to_sizes", to_sizes)
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
        w, p = needed("weight", weight, (None, self.digits)), int64("positions", positions)
        return _core.project_digits(*self._spec(), w, p).reshape(*p.shape, w.shape[0])

    def project_backward(self, d_out: Any, positions: Any) -> np.ndarray:
        """d(loss) / d(weight), float64 [dim, digits]."""
        p = int64("positions", positions)
        d = needed("d_out", d_out, (*p.shape, None))
        return _core.project_digits_backward(*self._spec(), d.shape[-1], p, d)

    def __repr__(self) -> str:
        return f"Digits(base={self.base}, digits={self.digits}, factor={self.factor:g})"


def add_rows(x: Any, rows: Any, scale: float = 1.0) -> np.ndarray:
    """x + scale rows: x [(batch,) tokens, dim], rows [tokens, dim]; float32."""
    made, batch = _tokens("x", x)
    out = made.copy()
    _core.add_rows(out, batch, needed("rows", rows, made.shape[-2:]), number("scale", scale))
    return out


def add_rows_backward(d_out: Any, scale: float = 1.0) -> np.ndarray:
    """d(loss) / d(rows) of `add_rows`, float64 [tokens, dim]; d(loss) / d(x) is d_out."""
    d, batch = _tokens("d_out", d_out)
    return _core.add_rows_backward(d, batch, math.prod(d.shape[-2:]), number("scale", scale)).reshape(d.shape[-2:])


def multiply_rows(x: Any, rows: Any) -> np.ndarray:
    """x * rows, element by element: multiplicative encoding (Su 2021, kexue.fm/archives/8130). Shapes as in `add_rows`."""
    made, batch = _tokens("x", x)
    out = made.copy()
    _core.multiply_rows(out, batch, needed("rows", rows, made.shape[-2:]))
    return out


def multiply_rows_backward(d_out: Any, x: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """d(loss) / d(x) (float32) and d(loss) / d(rows) (float64), where x is as before `multiply_rows`."""
    made, batch = _tokens("x", x)
    r = needed("rows", rows, made.shape[-2:])
    dx, d_rows = _core.multiply_rows_backward(made, needed("d_out", d_out, made.shape), batch, r)
    return dx.reshape(made.shape), d_rows.reshape(r.shape)
