"""PoPE and FoPE: encodings of queries and keys in plain PyTorch, from exact cosines and sines of the positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.torch._absolute import cos_sin, sinusoidal_frequencies
from ropewalk.torch._shared import beside, check_heads, places_of, refuse


def _angles(x: Tensor, positions: int | Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [.., tokens, 1, angles], float32."""
    check_heads("x", x)
    positions = places_of(positions, x)
    if not isinstance(positions, Tensor):
        positions = torch.arange(x.shape[-3], device=x.device) + positions
    batch = x.shape[:-3]
    if positions.shape[-1:] != x.shape[-3:-2] or positions.shape[:-1] not in ((), batch, (1,) * len(batch)):
        raise refuse(f"positions: expected [tokens] or [batch, tokens] for {list(x.shape)}, got {list(positions.shape)}")
    beside(x, positions=positions, frequencies=frequencies)
    cos, sin = cos_sin(frequencies, positions).unsqueeze(-3).unbind(-2)
    return cos, sin


def pope(
    x: Tensor,
    positions: int | Tensor = 0,
    *,
    phase: Tensor | None = None,
    base: float = 10000.0,
    frequencies: Tensor | None = None,
) -> Tensor:
    """PoPE (Gopalakrishnan et al. 2025, arXiv 2509.10534): each element of a head becomes softplus(x_e) (cos, sin)(n f_e +
    phase_e), f_e = base^(-e / head_dim).

    x: [(batch,) tokens, heads, head_dim] -> [.., 2 head_dim], cosines before sines. phase: [heads, head_dim] for keys,
    learned, clipped to [-2 pi, 0]; None for queries. Give `attention` the model's scale: its default is that of 2 head_dim.
    """
    if frequencies is None:
        frequencies = sinusoidal_frequencies(2 * x.shape[-1], base=base).to(x.device)
    cos, sin = _angles(x, positions, frequencies)
    if phase is not None:
        beside(x, phase=phase)
        if phase.shape != x.shape[-2:]:
            raise refuse(f"phase: expected {list(x.shape[-2:])}, got {list(phase.shape)}")
        angle = phase.clamp(-2 * math.pi, 0)
        c, s = angle.cos(), angle.sin()
        cos, sin = cos * c - sin * s, sin * c + cos * s
    wide = x if x.dtype == torch.float64 else x.float()
    length = torch.logaddexp(wide, wide.new_zeros(()))
    return torch.cat((length * cos, length * sin), -1).to(x.dtype)


def fope(
    x: Tensor,
    positions: int | Tensor = 0,
    *,
    cosines: Tensor,
    sines: Tensor,
    base: float = 10000.0,
    frequencies: Tensor | None = None,
) -> Tensor:
    """FoPE (Hua et al. 2024, arXiv 2412.17739): RoPE, half layout, whose cos and sin are learned sums over the frequencies
    base^(-2 w / head_dim).

    x: [(batch,) tokens, heads, head_dim]. cosines, sines: [kept, kept], or [table_heads, kept, kept] where table_heads divides
    heads: the weight of frequency w (row) in pair d (column); pairs from `kept` on (`ropewalk.FoPE.kept`) are not rotated.
    """
    check_heads("x", x)
    kept, half = cosines.shape[-1], x.shape[-1] // 2
    tables = cosines.shape[0] if cosines.dim() == 3 else 1
    if cosines.dim() not in (2, 3) or cosines.shape[-2] != kept or sines.shape != cosines.shape or kept > half:
        raise refuse(f"cosines, sines: expected both [(table_heads,) n, n], n at most {half}, got {list(cosines.shape)}")
    if tables < 1 or x.shape[-2] % tables or x.shape[-1] % 2:
        raise refuse(f"cosines: expected tables that divide {x.shape[-2]} heads of an even size, got {tables}")
    beside(x, cosines=cosines, sines=sines)
    if frequencies is None:
        frequencies = sinusoidal_frequencies(x.shape[-1], base=base).to(x.device)
    cos, sin = _angles(x, positions, frequencies[..., :kept].contiguous())

    def mixed(rows, weights):  # [.., tokens, heads, kept]
        weights = weights.reshape(tables, kept, kept).to(x.dtype if x.dtype == torch.float64 else torch.float32)
        rows = torch.einsum("...tow,hwd->...thd", rows.to(weights.dtype), weights)
        return rows.repeat_interleave(x.shape[-2] // tables, -2)

    cos, sin = mixed(cos, cosines), mixed(sin, sines)
    x1, x2 = x[..., :kept].to(cos.dtype), x[..., half : half + kept].to(cos.dtype)
    turned = (x1 * cos - x2 * sin).to(x.dtype), (x2 * cos + x1 * sin).to(x.dtype)
    return torch.cat((turned[0], x[..., kept:half], turned[1], x[..., half + kept :]), -1)
