"""Absolute encodings: what is added to token embeddings, or multiplied with them. x is [(batch,) tokens, dim]; positions are
that of the first token, or int64 [tokens] or [batch, tokens]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk import torch as ops
from ropewalk.nn._rotary import keep_float64
from ropewalk.torch._absolute import sinusoidal_frequencies
from ropewalk.torch._shared import places_of


class Absolute(nn.Module):
    """What the encodings below have in common: rows, which are added."""

    def rows(self, positions: Tensor) -> Tensor:
        """[*positions.shape, dim]. Differentiable."""
        raise NotImplementedError

    def forward(self, x: Tensor, positions: int | Tensor = 0) -> Tensor:
        """x with the rows of its positions, in its dtype."""
        return ops.add_rows(x, self.rows(_positions(x, positions)))


def _positions(x: Tensor, positions: int | Tensor) -> Tensor:
    positions = places_of(positions, x)
    if isinstance(positions, Tensor):
        return positions
    return torch.arange(x.shape[-2], device=x.device) + positions


class Sinusoidal(Absolute):
    """Sinusoidal encoding (Vaswani et al. 2017, arXiv 1706.03762, section 3.5), exact at any position below 2^31.

    layout, base, ladder, cosine_first: as in `ropewalk.Sinusoidal`. learn: "" (nothing), "scale" of the rows, or
    "frequencies" (float64, and they stay it under `.half()`).
    """

    def __init__(
        self,
        dim: int,
        *,
        layout: str = "interleaved",
        base: float = 10000.0,
        ladder: str = "paper",
        cosine_first: bool = False,
        scale: float = 1.0,
        learn: str = "",
    ):
        super().__init__()
        if learn not in ("", "scale", "frequencies"):
            raise rw.Error(f"learn: expected 'scale', 'frequencies' or nothing, got {learn!r}")
        self.dim, self.layout, self.cosine_first = dim, layout, cosine_first
        self._frequencies = sinusoidal_frequencies(dim, layout, base, ladder)
        self.scale: Any = nn.Parameter(torch.tensor(float(scale))) if learn == "scale" else scale
        if learn == "frequencies":
            self.frequencies = nn.Parameter(self._frequencies[0].clone())

    def _apply(self, fn, recurse=True):
        return keep_float64(self, super()._apply, fn, recurse)

    def rows(self, positions: Tensor) -> Tensor:
        f = getattr(self, "frequencies", None)
        f = self._frequencies.to(positions.device) if f is None else f
        return ops.sinusoidal_rows(positions, self.dim, layout=self.layout, cosine_first=self.cosine_first, frequencies=f)

    def forward(self, x: Tensor, positions: int | Tensor = 0) -> Tensor:
        return ops.add_rows(x, self.rows(_positions(x, positions)), self.scale)


class SinusoidalGrid(nn.Module):
    """The sinusoids of the patches of an image or a video, added to x [(batch,) patches, dim] (masked autoencoders).

    blocks: pairs of an axis and a `ropewalk.Sinusoidal`; sizes: 1 to 3 axes, as in `ropewalk.sinusoidal_grid`.
    """

    def __init__(self, blocks: Any, sizes: Any):
        super().__init__()
        self._rows = torch.from_numpy(rw.sinusoidal_grid(blocks, sizes))

    def forward(self, x: Tensor) -> Tensor:
        """x with the row of each patch, in its dtype."""
        return ops.add_rows(x, self._rows.to(x.device))


class LearnedRows(Absolute):
    """A learned row for each position (Gehring et al. 2017, arXiv 1705.03122; BERT; ViT). offset: rows reserved in front."""

    def __init__(self, rows: int, dim: int, *, offset: int = 0):
        super().__init__()
        self.offset = offset
        self.table = nn.Parameter(torch.randn(rows, dim) * 0.02)

    def rows(self, positions: Tensor) -> Tensor:
        return ops.learned_rows(self.table, positions, self.offset)

    @torch.no_grad()
    def resize(self, from_sizes: Any, to_sizes: Any, **settings: Any) -> None:
        """Another length or grid, as `ropewalk.torch.resize_table`; the parameter is a new one."""
        self.table = nn.Parameter(ops.resize_table(self.table, from_sizes, to_sizes, **settings).clone())


class HierarchicalRows(Absolute):
    """rows^2 positions from a table of `rows` (Su 2020, kexue.fm/archives/7947). `learned`: alpha is a parameter too."""

    def __init__(self, rows: int, dim: int, *, alpha: float = 0.4, learned: bool = False):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, dim) * 0.02)
        rw.hierarchical_rows([[0.0]], 0, alpha)  # refuses an alpha that has no rows
        self.alpha: Any = nn.Parameter(torch.tensor(float(alpha))) if learned else alpha

    def rows(self, positions: Tensor) -> Tensor:
        return ops.hierarchical_rows(self.table, positions, self.alpha)


class MultiplicativeRows(LearnedRows):
    """Learned rows that are multiplied with the embeddings (Su 2021, kexue.fm/archives/8130); they start near 1."""

    def __init__(self, rows: int, dim: int, *, offset: int = 0):
        super().__init__(rows, dim, offset=offset)
        with torch.no_grad():
            self.table += 1

    def forward(self, x: Tensor, positions: int | Tensor = 0) -> Tensor:
        return ops.multiply_rows(x, self.rows(_positions(x, positions)))


class Digits(Absolute):
    """Positions as digits, and the layer that reads them (Su 2023, kexue.fm/archives/9675): weight [dim, digits].

    digits: a `ropewalk.Digits`, which `extend` makes longer.
    """

    def __init__(self, dim: int, digits: Any = None):
        super().__init__()
        self.digits = rw.Digits() if digits is None else digits
        self.weight = nn.Parameter(torch.randn(dim, self.digits.digits) * self.digits.digits**-0.5)

    def rows(self, positions: Tensor) -> Tensor:
        d = self.digits
        rows = ops.digit_rows(positions, d.base, d.digits, d.factor)
        return nn.functional.linear(rows.to(self.weight.dtype), self.weight)


class ComplexOrder(nn.Module):
    """Complex-order embeddings of words (Wang et al. 2020, arXiv 1912.12333): an amplitude, a frequency and a phase of each word
    and dimension. shared: "none", "words" or "dims". Attention over them is `ropewalk.torch.complex_attention`."""

    def __init__(self, words: int, dim: int, *, frequency_shared: str = "none", phase_shared: str = "none"):
        super().__init__()
        shapes = {"none": (words, dim), "words": (dim,), "dims": (words,)}
        for name, shared in (("frequency_shared", frequency_shared), ("phase_shared", phase_shared)):
            if shared not in shapes:
                raise rw.Error(f"{name}: expected one of {', '.join(shapes)}, got {shared!r}")
        self.shared = {"frequency_shared": frequency_shared, "phase_shared": phase_shared}
        self.amplitude = nn.Parameter(torch.randn(words, dim) * dim**-0.5)
        self.frequency = nn.Parameter(torch.rand(shapes[frequency_shared]))
        self.phase = nn.Parameter(torch.rand(shapes[phase_shared]) * 6.283185307179586)

    def forward(self, words: Tensor, positions: int | Tensor = 0) -> Tensor:
        """words int64 [.., tokens] -> complex64 [.., tokens, dim]."""
        positions = places_of(positions, words)
        if not isinstance(positions, Tensor):
            positions = torch.arange(words.shape[-1], device=words.device) + positions
        positions = positions.expand(words.shape)
        return ops.complex_order(words, positions, self.amplitude, self.frequency, self.phase, **self.shared)


class PositionConvolution(nn.Module):
    """Convolutional position encoding: wav2vec 2.0 (arXiv 2006.11477; kernel 128, 16 groups, gelu, weight_norm) and CPE / PEG
    (arXiv 2102.10882; kernel (3, 3), groups = channels).

    kernel: 1 to 3 sizes. weight_norm: over taps of a 1-D kernel, as wav2vec 2.0 has it. border, gelu, residual, prefix_rows: as
    in `ropewalk.position_convolution`.
    """

    def __init__(
        self,
        channels: int,
        kernel: Any,
        *,
        groups: int = 1,
        bias: bool = True,
        weight_norm: bool = False,
        prefix_rows: int = 0,
        border: str = "zero",
        gelu: bool = False,
        residual: bool = True,
    ):
        super().__init__()
        sizes = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,)
        if channels % groups:
            raise rw.Error(f"groups: expected a divisor of {channels}, got {groups}")
        self.settings = {"prefix_rows": prefix_rows, "border": border, "gelu": gelu, "residual": residual}
        held = torch.empty(channels, channels // groups, *sizes)
        self.v = nn.Parameter(held.normal_(std=(held[0].numel()) ** -0.5))
        self.g = nn.Parameter(self.v.detach().norm(dim=(0, 1))) if weight_norm else None
        if weight_norm and len(sizes) != 1:
            raise rw.Error("weight_norm: expected a kernel of one axis")
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    @property
    def weight(self) -> Tensor:
        """[channels, channels / groups, kernel ..], normalised."""
        return self.v if self.g is None else self.g * self.v / self.v.norm(dim=(0, 1), keepdim=True)

    def forward(self, x: Tensor, sizes: Any = None) -> Tensor:
        """x [(batch,) prefix_rows + product of sizes, channels]; sizes default: all tokens on one axis."""
        return ops.position_convolution(x, self.weight, self.bias, sizes=sizes, **self.settings)


class _Path(Absolute):
    """Rows 0 to the last position, computed one after the other in each call."""

    def path(self, count: int) -> Tensor:
        """[count, dim], the rows of positions 0 to count - 1."""
        raise NotImplementedError

    def rows(self, positions: Tensor) -> Tensor:
        if positions.numel() == 0:
            return self.start.new_zeros(*positions.shape, self.start.shape[0])
        if torch.compiler.is_compiling() or type(positions) is not Tensor:
            raise rw.Error("positions: expected the position of the first token: a path needs to know the last one")
        return ops.learned_rows(self.path(max(1, int(positions.max()) + 1)), positions)

    def forward(self, x: Tensor, positions: int | Tensor = 0) -> Tensor:
        positions = places_of(positions, x)
        if isinstance(positions, Tensor):
            return ops.add_rows(x, self.rows(positions))
        if positions < 0:
            raise rw.Error(f"positions: expected 0 or more, got {positions}")
        return ops.add_rows(x, self.path(positions + x.shape[-2])[positions:])


class RecurrentRows(_Path):
    """Rows that a recurrent cell computes, each from the one before, from a learned row 0 (kexue.fm/archives/8130). cell: "tanh"
    or "gru", with the weights of PyTorch's RNNCell and GRUCell."""

    def __init__(self, dim: int, *, cell: str = "tanh"):
        super().__init__()
        gates = {"tanh": 1, "gru": 3}.get(cell)
        if gates is None:
            raise rw.Error(f"cell: expected tanh or gru, got {cell!r}")
        self.cell = cell
        self.start = nn.Parameter(torch.randn(dim) * 0.02)
        self.weight = nn.Parameter(torch.randn(gates * dim, dim) * dim**-0.5)
        self.input_bias = nn.Parameter(torch.zeros(gates * dim))
        self.hidden_bias = nn.Parameter(torch.zeros(gates * dim))

    def path(self, count: int) -> Tensor:
        own = {"weight": self.weight, "input_bias": self.input_bias, "hidden_bias": self.hidden_bias}
        return ops.recurrent_rows(self.start, count, cell=self.cell, **own)


class Floater(_Path):
    """FLOATER (Liu et al. 2020, arXiv 2003.09229): rows on the path of a learned differential equation with one hidden layer."""

    def __init__(self, dim: int, *, hidden: int = 64, spacing: float = 0.1, substeps: int = 10):
        super().__init__()
        self.spacing, self.substeps = spacing, substeps
        self.start = nn.Parameter(torch.randn(dim) * 0.02)
        self.w, self.u = nn.Parameter(torch.randn(hidden, dim) * dim**-0.5), nn.Parameter(torch.randn(hidden))
        self.b, self.v = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.randn(dim, hidden) * hidden**-0.5)
        self.c = nn.Parameter(torch.zeros(dim))

    def path(self, count: int) -> Tensor:
        field = {name: getattr(self, name) for name in ("w", "u", "b", "v", "c")}
        return ops.floater_rows(self.start, count, **field, spacing=self.spacing, substeps=self.substeps)
