"""Absolute encodings: rows for positions, and what adds or multiplies them. Plain PyTorch on every device but for exact rows of
sinusoids (`ropewalk::cos_sin`) and paths (_paths.py)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ropewalk import _absolute as arrays
from ropewalk._core import pointers
from ropewalk.torch._frequencies import cos_sin_formula, cos_sin_op
from ropewalk.torch._rotation import rows_or_nan
from ropewalk.torch._shared import beside, check_whole, choice, host_reads, refuse, transformed


def check_positions(name: str, positions: Tensor, first: int, end: int) -> bool:
    """Refuses positions outside [first, end) where the host may read them, which it says; elsewhere they become NaN."""
    check_whole(positions)
    if not host_reads(positions):
        return False
    if positions.numel():
        low, high = torch.aminmax(positions)
        for p in (low.item(), high.item()):
            if not first <= p < end:
                raise refuse(f"{name}: positions: expected {first} to {end - 1}, got {p}")
    return True


def _matrix(name: str, table: Tensor) -> None:
    if table.dim() != 2 or not table.is_floating_point():
        raise refuse(f"{name}: table: expected float [rows, dim], got {table.dtype} {list(table.shape)}")


def cos_sin(inv_freq: Tensor, positions: Tensor) -> Tensor:
    """Exact float32 [*positions.shape, 2, pairs], with gradients of the frequencies (float64 [pairs] or [2, pairs], a sum)."""
    check_whole(positions)
    inv_freq, positions = inv_freq.to(torch.float64), positions.to(torch.int64)
    beside(inv_freq, positions=positions)
    kernel = inv_freq.is_cpu and not transformed(inv_freq)
    return cos_sin_op(inv_freq.contiguous(), positions) if kernel else cos_sin_formula(inv_freq, positions)


_SINUSOIDAL = {"interleaved": 0, "concatenated": 1}
_LADDERS = {"paper": 0, "to-base": 1}


@functools.lru_cache(maxsize=64)  # numbers: a tensor may be one without data
def _frequencies(dim: int, layout: int, base: float, ladder: int) -> np.ndarray:
    return np.array(pointers.sinusoidal_frequencies(dim, layout, base, ladder), np.float64).reshape(2, -1)


def sinusoidal_frequencies(dim: int, layout: str = "interleaved", base: float = 10000.0, ladder: str = "paper") -> Tensor:
    """float64 [2, angles], whose sum is right to 106 bits. Not to be written to."""
    return torch.from_numpy(_frequencies(dim, choice("layout", layout, _SINUSOIDAL), base, choice("ladder", ladder, _LADDERS)))


def sinusoidal_rows(
    positions: Tensor,
    dim: int,
    *,
    layout: str = "interleaved",
    base: float = 10000.0,
    ladder: str = "paper",
    cosine_first: bool = False,
    frequencies: Tensor | None = None,
) -> Tensor:
    """Sinusoidal position encoding (Vaswani et al. 2017, arXiv 1706.03762): float32 [*positions.shape, dim], right to the last
    bit on the CPU at any position of magnitude below 2^31.

    layout, base, ladder, cosine_first: as in `ropewalk.Sinusoidal`. frequencies: float64 [angles], or [2, angles], in place of
    those of base and ladder; they have gradients.
    """
    if frequencies is None:
        frequencies = sinusoidal_frequencies(dim, layout, base, ladder).to(positions.device)
    interleaved = choice("layout", layout, _SINUSOIDAL) == 0
    angles = (dim + 1) // 2 if interleaved else dim // 2
    if frequencies.shape[-1] != angles:
        raise refuse(f"frequencies: expected {angles} for rows of {dim}, got {list(frequencies.shape)}")
    cos, sin = cos_sin(frequencies, positions).unbind(-2)
    first, second = (cos, sin) if cosine_first else (sin, cos)
    if interleaved:
        return torch.stack((first, second), -1).flatten(-2)[..., :dim]
    return functional.pad(torch.cat((first, second), -1), (0, dim % 2))


def learned_rows(table: Tensor, positions: Tensor, offset: int = 0) -> Tensor:
    """table[positions + offset] (Gehring et al. 2017, arXiv 1705.03122; BERT), with the gradient of the table [rows, dim].

    offset: rows that a family reserves in front: 2 in BART and OPT, padding index + 1 in RoBERTa. A position without a row is
    an Error on the CPU; where the host does not read positions it becomes NaN.
    """
    _matrix("learned_rows", table)
    if offset < 0:
        raise refuse(f"learned_rows: offset: expected 0 or more, got {offset}")
    beside(table, positions=positions)
    if check_positions("learned_rows", positions, 0, table.shape[0] - offset):
        return functional.embedding(positions + offset, table)
    p = positions.to(torch.int64)
    return rows_or_nan(table, torch.where(p < 0, -1, p + offset))  # the reserved rows are of no position


def hierarchical_rows(table: Tensor, positions: Tensor, alpha: float | Tensor = 0.4) -> Tensor:
    """n^2 positions from a trained table of n rows (Su 2020, kexue.fm/archives/7947): position i n + j has the row
    table[j] + alpha / (1 - alpha) (table[i] - table[0]). Gradients of the table and of alpha, where it is a tensor."""
    _matrix("hierarchical_rows", table)
    if not isinstance(alpha, Tensor) and (not 0 < alpha < 1 or alpha == 0.5):
        raise refuse(f"hierarchical_rows: alpha: expected a number between 0 and 1, and not 1/2, got {alpha}")
    beside(table, positions=positions, alpha=alpha)
    n = table.shape[0]
    check_positions("hierarchical_rows", positions, 0, n * n)
    p = positions.to(torch.int64)
    coarse, fine = torch.div(p, max(n, 1), rounding_mode="floor"), p % max(n, 1)
    return rows_or_nan(table, fine) + alpha / (1 - alpha) * (rows_or_nan(table, coarse) - table[:1].reshape(-1))


def digit_rows(positions: Tensor, base: int = 10, digits: int = 3, factor: float = 1.0) -> Tensor:
    """Positions as the digits of a number, most significant first: float32 [*positions.shape, digits], as
    `ropewalk.Digits(base, digits, factor).rows`; the first layer that reads them is `torch.nn.functional.linear`."""
    if not (2 <= base <= 1 << 20 and 1 <= digits <= 53 and 1 <= factor <= 2**53):
        raise refuse(f"digit_rows: expected base 2 or more, 1 to 53 digits, factor 1 or more, got {base}, {digits}, {factor}")
    most = 1 << 53  # whole numbers of a double
    power = min(base**digits, most)
    end = min(math.ceil(power * factor), most)
    while end > 1 and (end - 1) / factor >= power:
        end -= 1
    check_positions("digit_rows", positions, 0, end)
    p = positions.to(torch.int64)
    whole, fraction = p, None
    if factor != 1:
        scaled = p.to(torch.float64) / factor
        whole = scaled.floor().to(torch.int64)
        fraction = scaled - whole
    places = [torch.div(whole, base**i, rounding_mode="floor") % base for i in reversed(range(digits))]
    rows = torch.stack(places, -1)
    if fraction is not None:
        rows = torch.cat((rows[..., :-1].to(torch.float64), (rows[..., -1] + fraction)[..., None]), -1)
    known = ((p >= 0) & (p < end))[..., None]
    return torch.where(known, rows.to(torch.float32), float("nan"))


def _like_rows(name: str, x: Tensor, rows: Tensor) -> None:
    if x.dim() < 2 or rows.shape not in (x.shape, x.shape[-2:]) or not x.is_floating_point():
        raise refuse(f"{name}: rows: expected the shape of x or its [tokens, dim], got {list(rows.shape)} for {list(x.shape)}")
    beside(x, rows=rows)


def add_rows(x: Tensor, rows: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """x + scale rows, in the dtype of x: x [(batch,) tokens, dim], rows [tokens, dim] or of the shape of x."""
    _like_rows("add_rows", x, rows)
    return (x + scale * rows).to(x.dtype)


def multiply_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x * rows, element by element: multiplicative encoding (Su 2021, kexue.fm/archives/8130). Shapes as in `add_rows`."""
    _like_rows("multiply_rows", x, rows)
    return (x * rows).to(x.dtype)


def _sizes(given: Any) -> list[int]:
    return [int(n) for n in given] if isinstance(given, Sequence) else [int(given)]


@functools.lru_cache(maxsize=64)
def _resize_matrix(size: int, to: int, kernel: str, antialias: bool) -> np.ndarray:
    return arrays.resize_table(np.eye(size, dtype=np.float32), (size,), (to,), kernel=kernel, antialias=antialias)


def resize_table(
    table: Tensor, from_sizes: Any, to_sizes: Any, *, prefix_rows: int = 0, kernel: str = "linear", antialias: bool = False
) -> Tensor:
    """A learned table [prefix_rows + product of from_sizes, dim] for another length or grid, as `ropewalk.resize_table`, with the
    gradient of the table: each axis is a product with a matrix of weights."""
    _matrix("resize_table", table)
    sizes, wanted = _sizes(from_sizes), _sizes(to_sizes)
    if len(sizes) != len(wanted) or not 1 <= len(sizes) <= 3 or table.shape[0] != prefix_rows + math.prod(sizes):
        raise refuse(
            f"resize_table: expected 1 to 3 sizes from and to, and {prefix_rows} rows with {' x '.join(map(str, sizes))}, "
            f"got {list(table.shape)} to {wanted}"
        )
    compute = torch.float64 if table.dtype == torch.float64 else torch.float32
    prefix, grid = table[:prefix_rows], table[prefix_rows:].to(compute).reshape(*sizes, -1)
    for axis, (size, to) in enumerate(zip(sizes, wanted)):
        weights = torch.from_numpy(_resize_matrix(size, to, kernel, antialias)).to(table.device, compute)
        grid = torch.tensordot(weights, grid.movedim(axis, 0), 1).movedim(0, axis)
    return torch.cat((prefix, grid.reshape(math.prod(wanted), -1).to(table.dtype)))


def _of_words(table: Tensor, words: Tensor, shared: str, name: str) -> Tensor:
    """A frequency or phase for each word and dimension."""
    code = choice(f"{name}_shared", shared, {"none": 0, "words": 1, "dims": 2})
    if table.dim() != (2 if code == 0 else 1):
        raise refuse(f"complex_order: {name}: expected {'[words, dim]' if code == 0 else '[n]'}, got {list(table.shape)}")
    if code == 1:
        return table
    return functional.embedding(words, table if code == 0 else table[:, None])


def complex_order(
    words: Tensor,
    positions: Tensor,
    amplitude: Tensor,
    frequency: Tensor,
    phase: Tensor | None = None,
    *,
    frequency_shared: str = "none",
    phase_shared: str = "none",
) -> Tensor:
    """Complex-order embeddings (Wang et al. 2020, arXiv 1912.12333): word w at position k is
    amplitude e^(i (frequency k + phase)). complex64 [.., dim]; tables as in `ropewalk.complex_order`, with gradients."""
    _matrix("complex_order", amplitude)
    beside(amplitude, words=words, positions=positions, frequency=frequency, phase=phase)
    if words.shape != positions.shape:
        raise refuse(f"positions: expected the shape of words, {list(words.shape)}, got {list(positions.shape)}")
    check_positions("complex_order: words", words, 0, amplitude.shape[0])
    check_positions("complex_order", positions, 1 - (1 << 31), 1 << 31)
    angle = positions.to(torch.float64)[..., None] * _of_words(frequency, words, frequency_shared, "frequency").to(torch.float64)
    if phase is not None:
        angle = angle + _of_words(phase, words, phase_shared, "phase").to(torch.float64)
    length = functional.embedding(words, amplitude)
    out = torch.complex(length * angle.cos(), length * angle.sin())
    return out if amplitude.dtype == torch.float64 else out.to(torch.complex64)


def complex_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, hermitian: bool = False) -> Tensor:
    """Attention whose weights are softmax over keys of |q . k| / sqrt(head_dim), for complex-order embeddings; `hermitian`
    conjugates k. Complex [(batch,) tokens, heads, head_dim]; a matrix of all scores, as the authors have it."""
    if not all(x.is_complex() and x.dim() in (3, 4) for x in (q, k, v)) or k.shape != v.shape or q.shape[-2:] != k.shape[-2:]:
        raise refuse(
            "complex_attention: expected complex q, k, v [(batch,) tokens, heads, head_dim], k and v of one shape, got "
            f"{list(q.shape)}, {list(k.shape)}, {list(v.shape)} of {q.dtype}"
        )
    beside(q, k=k, v=v)
    tokens, keys = q.shape[-3], k.shape[-3]
    scores = torch.einsum("...thd,...shd->...hts", q, k.conj() if hermitian else k).abs() / math.sqrt(q.shape[-1])
    if causal:
        i = torch.arange(keys - tokens, keys, device=q.device)[:, None]
        scores = scores.masked_fill(torch.arange(keys, device=q.device) > i, -math.inf)
    return torch.einsum("...hts,...shd->...thd", scores.softmax(-1).to(v.dtype), v)


def position_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    sizes: Any = None,
    prefix_rows: int = 0,
    border: str = "zero",
    gelu: bool = False,
    residual: bool = True,
) -> Tensor:
    """x + f(conv(x)): convolutional position encoding (wav2vec 2.0, arXiv 2006.11477; CPE / PEG, arXiv 2102.10882), by PyTorch's
    convolutions. x: [batch, prefix_rows + product of sizes, channels] or without batch; weight [channels, channels / groups,
    kernel ..]; the rest as in `ropewalk.position_convolution`."""
    mode = ("constant", "circular")[choice("border", border, {"zero": 0, "circular": 1})]
    extents = [x.shape[-2] - prefix_rows] if sizes is None and x.dim() in (2, 3) else _sizes(sizes)
    axes = len(extents)
    if (
        x.dim() not in (2, 3)
        or not 1 <= axes <= 3
        or weight.dim() != 2 + axes
        or weight.shape[0] != x.shape[-1]
        or weight.shape[1] < 1
        or weight.shape[0] % weight.shape[1]
        or x.shape[-2] != prefix_rows + math.prod(extents)
        or (bias is not None and bias.shape != weight.shape[:1])
    ):
        raise refuse(
            "weight: expected [channels, channels / groups, kernel...] with a kernel size for each axis of sizes, bias "
            f"[channels] and x [(batch,) tokens, channels]; got {list(weight.shape)}, {list(x.shape)} and sizes {extents}"
        )
    beside(x, weight=weight, bias=bias)
    single = x.dim() == 2
    whole = x.unsqueeze(0) if single else x
    prefix, tokens = whole[:, :prefix_rows], whole[:, prefix_rows:]
    if tokens.numel() == 0:
        return x.clone()
    grid = tokens.transpose(1, 2).reshape(whole.shape[0], -1, *extents)
    pads = [n for size in reversed(weight.shape[2:]) for n in (size // 2, size - 1 - size // 2)]
    for i in range(axes):  # circular padding may be wider than the axis: an index for each tap
        before, after = pads[2 * (axes - 1 - i)], pads[2 * (axes - 1 - i) + 1]
        if mode == "circular":
            at = torch.arange(-before, extents[i] + after, device=x.device) % extents[i]
            grid = grid.index_select(2 + i, at)
    if mode == "constant":
        grid = functional.pad(grid, pads)
    convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1]
    out = convolution(grid, weight, bias, groups=weight.shape[0] // weight.shape[1]).flatten(2).transpose(1, 2)
    out = functional.gelu(out) if gelu else out
    out = torch.cat((prefix, tokens + out if residual else out), 1)
    return out.squeeze(0) if single else out
