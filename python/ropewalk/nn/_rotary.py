"""Rotary embeddings, position maps, and PoPE and FoPE: what encodes queries and keys."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk import torch as ops
from ropewalk.torch._absolute import sinusoidal_frequencies
from ropewalk.torch._attention import map_settings
from ropewalk.torch._rotate import axis_of, by_angles, decay_of, numbers_of, rotate_by
from ropewalk.torch._shared import DIRECTIONS, LAYOUTS, check_heads, check_whole, choice, host_reads, places_of

# One grows a table at a time. Of no module: modules are copied and pickled, and a lock is not.
_growing = threading.Lock()


def keep_float64(module: nn.Module, apply: Any, fn: Any, recurse: bool) -> nn.Module:
    """`.half()` and `.to(dtype)` move parameters of float64 to another device and leave them float64."""
    kept = {name: p.data for name, p in module.named_parameters() if p.dtype == torch.float64}
    apply(fn, recurse)
    for name, p in module.named_parameters():
        if name in kept and p.dtype != torch.float64:
            p.data = kept[name].to(p.device)
    return module


class RotaryEmbedding(nn.Module):
    """Rotates queries and keys with exact tables. No parameters and no buffers: `.half()`, `.to(torch.bfloat16)`, FSDP and
    `to_empty` cannot touch its frequencies.

    rotation: a `ropewalk.Rotation`, or a Plan whose layers rotate in one way.
    length: positions of the first table; it grows when a call needs more.
    precision: "exact", or "float32" for the bits of transformers.
    """

    def __init__(self, rotation: Any, length: int = 4096, *, precision: str = "exact"):
        super().__init__()
        rotations = getattr(rotation, "rotations", None)
        if rotations is not None:
            if len(rotations) != 1:
                raise rw.Error(f"rotation: the plan has {len(rotations)} rotations; give one of plan.rotations")
            rotation = rotations[0]
        self.layout, self.amplitude = rotation.layout, rotation.amplitude
        self.first_dim, self.rotated_heads = rotation.first_dim, rotation.rotated_heads
        self.precision = precision
        self._code = LAYOUTS[self.layout]
        # Kept as plain attributes, which nothing converts.
        self._numbers, self._decay = numbers_of(rotation), decay_of(rotation)
        self._inv_freq = torch.from_numpy(self._numbers)
        self._factor = torch.from_numpy(np.array(self.amplitude, np.float64))
        self._axis = axis_of(rotation)
        self._rows = ops.table(self._numbers, length, amplitude=self.amplitude, precision=precision)
        self._elsewhere: Tensor | None = None  # the rows on another device

    @property
    def inv_freq(self) -> Tensor:
        """float64 [pairs], radians per position."""
        return self._inv_freq[0]

    def grow(self, length: int) -> None:
        """Extends the table to `length` positions, of at most 1 GiB; rows that exist keep their bits."""
        if length <= self._rows.shape[0]:  # nothing for a compiler to follow
            return
        with _growing:
            count = self._rows.shape[0]
            if length <= count:  # another thread has grown it
                return
            if not self._fits(length):
                raise rw.Error(f"positions: a table of {length} takes more than 1 GiB; see ropewalk.torch.rotate_frequencies")
            more = ops.table(
                self._numbers,
                (2 * count if length < 2 * count and self._fits(2 * count) else length) - count,
                count,
                amplitude=self.amplitude,
                precision=self.precision,
            )
            self._rows, self._elsewhere = torch.cat((self._rows, more)), None

    def _fits(self, length: int) -> bool:
        return length * self._numbers.shape[1] * 8 <= 1 << 30

    def forward(
        self, q: Tensor, k: Tensor | None = None, positions: int | Tensor = 0, *, direction: str = "forward"
    ) -> tuple[Tensor, Tensor | None]:
        """q, k: [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]. positions: of the first token, or int64
        [tokens], [batch, tokens], [axes, batch, tokens].

        Where positions are a tensor on another device, `grow` has to cover them: the host does not read them, and a token
        outside becomes NaN. Compiled on the CPU, angles are computed in the call and no position is outside.
        Compiled for another device, `grow` comes before the first call.
        """
        if q.dim() < 3:
            check_heads("q", q)
        needed, positions = None, places_of(positions, q)
        if not isinstance(positions, Tensor):
            needed = positions + q.shape[-3]
        elif positions.numel() and host_reads(positions):
            check_whole(positions)
            needed = int(positions.max()) + 1
        if q.is_cpu and self.precision == "exact":
            if torch.compiler.is_compiling() or (needed is not None and not self._fits(needed)):
                return by_angles(
                    q,
                    k,
                    self._inv_freq,
                    positions,
                    self._decay,
                    layout=self.layout,
                    amplitude=self._factor,
                    first_dim=self.first_dim,
                    rotated_heads=self.rotated_heads,
                    axis=self._axis,
                    direction=direction,
                )
        if needed is not None and needed > self._rows.shape[0]:
            self.grow(needed)
        way = 0 if direction == "forward" else choice("direction", direction, DIRECTIONS)
        rows, axis = self._rows, self._axis
        if not q.is_cpu:
            # Read once: another thread may leave fewer rows there, or those of its device.
            elsewhere = self._elsewhere
            if elsewhere is None or elsewhere.device != q.device or elsewhere.shape[0] < rows.shape[0]:
                elsewhere = self._elsewhere = rows.to(q.device)
            rows, axis = elsewhere, None if axis is None else axis.to(q.device)
        own = (self._code, self.first_dim, way, self.rotated_heads, self.amplitude, axis)
        return rotate_by(q, k, rows, positions, 0, *own, decay=self._decay)

    def extra_repr(self) -> str:
        return f"pairs={self._inv_freq.shape[1]}, layout={self.layout!r}, length={self._rows.shape[0]}"


class LearnedRotaryEmbedding(nn.Module):
    """A rotary embedding whose frequencies or base are learned. The parameter is float64 and stays it under `.half()`.

    learn: "frequencies": inv_freq [pairs]; "base": base, of which the frequencies are base^(-2 i / rotary_dim).
    """

    def __init__(
        self,
        head_dim: int,
        *,
        layout: str,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        first_dim: int = 0,
        learn: str = "frequencies",
    ):
        super().__init__()
        choice("layout", layout, LAYOUTS)
        choice("learn", learn, {"frequencies": 0, "base": 1})
        self.layout, self.first_dim, self.rotary_dim = layout, first_dim, rotary_dim or head_dim
        if learn == "base":
            self.base = nn.Parameter(torch.tensor(base, dtype=torch.float64))
        else:
            self.learned_inv_freq = nn.Parameter(self._frequencies(torch.tensor(base, dtype=torch.float64)))

    def _frequencies(self, base: Tensor) -> Tensor:
        i = torch.arange(0, self.rotary_dim, 2, dtype=torch.float64, device=base.device)
        return base ** (-i / self.rotary_dim)

    @property
    def inv_freq(self) -> Tensor:
        """float64 [pairs], radians per position."""
        return self._frequencies(self.base) if hasattr(self, "base") else self.learned_inv_freq

    def _apply(self, fn, recurse=True):
        return keep_float64(self, super()._apply, fn, recurse)

    def forward(self, q: Tensor, k: Tensor | None = None, positions: int | Tensor = 0) -> tuple[Tensor, Tensor | None]:
        """As RotaryEmbedding.forward."""
        return ops.rotate_frequencies(q, k, self.inv_freq, positions, layout=self.layout, first_dim=self.first_dim)


class RemappedAttention(nn.Module):
    """Attention under a position map: ReRoPE, leaky ReRoPE, Self-Extend, dual chunk attention, attention sinks. q and k are
    unrotated. No parameters.

    rotation: a `ropewalk.Rotation`. remap: a map of ropewalk, `ropewalk.ReRoPE(window=512)`.
    """

    def __init__(self, rotation: Any, remap: Any):
        super().__init__()
        self.rotation, self.remap = ops.frequencies(rotation), remap
        self._map = map_settings(remap)  # as numbers, since a compiler does not look into objects of C++
        self._multiplier = rotation.softmax_multiplier

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        """`ropewalk.torch.attention(q, k, v, rotation=.., remap=.., ..)`."""
        if settings.get("scale") is None and self._multiplier != 1:
            settings["scale"] = q.shape[-1] ** -0.5 * self._multiplier
        return ops.attention(q, k, v, rotation=self.rotation, remap=self._map, **settings)

    def extra_repr(self) -> str:
        return repr(self.remap)


class QueryTemperature(nn.Module):
    """A factor of each query by its position: log-n (Su 2021, kexue.fm/archives/8823; Qwen 1), step-log (Llama 4, Ministral
    3) and mscale (of STRING's code), as `ropewalk.Temperature`. `learned`: beta of step-log is a parameter."""

    def __init__(self, kind: str, *, beta: float = 0.1, period: int = 8192, offset: int = 0, learned: bool = False):
        super().__init__()
        rw.Temperature(kind, beta, period, offset)  # refuses what is none
        if learned and kind != "step-log":
            raise rw.Error(f"learned: expected step-log, whose beta is learned; {kind} has nothing to learn")
        self.kind, self.period, self.offset = kind, period, offset
        self.beta: Any = nn.Parameter(torch.tensor(float(beta))) if learned else beta

    def factors(self, positions: Tensor) -> Tensor:
        """float32, of the shape of positions: the `temperatures` of `ropewalk.torch.attention`."""
        check_whole(positions)
        n = positions.to(torch.float64)
        if self.kind == "log-n":  # 1 before position 0
            factors = (torch.log((n + 1).clamp(min=1.0)) / torch.log(n.new_full((), self.period))).clamp(min=1.0)
        elif self.kind == "mscale":
            factors = torch.full_like(n, (1 + self.beta * math.log(self.period)) ** 2)
        else:  # 1 before -offset
            steps = (positions.to(torch.int64) + self.offset).clamp(min=0) // self.period
            factors = 1 + self.beta * torch.log1p(steps.to(torch.float64))
        return factors.to(torch.float32)

    def forward(self, q: Tensor, positions: int | Tensor = 0) -> Tensor:
        """q [(batch,) tokens, heads, head_dim] times the factors of its positions (int: of the first token)."""
        positions = places_of(positions, q)
        if not isinstance(positions, Tensor):
            positions = torch.arange(q.shape[-3], device=q.device) + positions
        return (q * self.factors(positions)[..., None, None]).to(q.dtype)


class PoPE(nn.Module):
    """PoPE (Gopalakrishnan et al. 2025, arXiv 2509.10534): q and k become twice as wide, with a learned phase of each key head.
    `attention` takes them with scale=head_dim ** -0.5 (its default is that of 2 head_dim) and values padded to their width:

        out = ropewalk.torch.attention(q, k, torch.nn.functional.pad(v, (0, d)), scale=d**-0.5)[..., :d]
    """

    def __init__(self, kv_heads: int, head_dim: int, *, base: float = 10000.0):
        super().__init__()
        self.phase = nn.Parameter(torch.rand(kv_heads, head_dim) * -6.283185307179586)
        self._frequencies = sinusoidal_frequencies(2 * head_dim, base=base)

    def forward(self, q: Tensor, k: Tensor | None = None, positions: int | Tensor = 0) -> tuple[Tensor, Tensor | None]:
        """q [(batch,) tokens, heads, head_dim], k with kv_heads."""
        f = self._frequencies.to(q.device)
        q = ops.pope(q, positions, frequencies=f)
        return q, None if k is None else ops.pope(k, positions, phase=self.phase, frequencies=f)


class FoPE(nn.Module):
    """FoPE (Hua et al. 2024, arXiv 2412.17739): RoPE whose cos and sin are learned sums over frequencies; those that make less
    than one rotation within the trained length are left out. Starts as RoPE with some noise. Half layout.

    kv_heads: each head of k has matrices of its own, which its group of query heads shares; None: one for all.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        trained_length: int = 0,
        frequencies: int = 0,
        kv_heads: int | None = None,
        base: float = 10000.0,
        noise: float = 0.3,
    ):
        super().__init__()
        n = rw.FoPE.kept(head_dim, trained_length=trained_length, frequencies=frequencies, base=base)
        shape = (n, n) if kv_heads is None else (kv_heads, n, n)
        for name in ("cosines", "sines"):
            weights = torch.eye(n) + noise * n**-0.5 * torch.randn(shape)
            self.register_parameter(name, nn.Parameter(weights))
        self._frequencies = sinusoidal_frequencies(head_dim, base=base)

    def forward(self, q: Tensor, k: Tensor | None = None, positions: int | Tensor = 0) -> tuple[Tensor, Tensor | None]:
        """As RotaryEmbedding.forward."""
        own = {"cosines": self.cosines, "sines": self.sines, "frequencies": self._frequencies.to(q.device)}
        return ops.fope(q, positions, **own), None if k is None else ops.fope(k, positions, **own)
