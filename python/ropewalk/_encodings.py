"""PoPE and FoPE: encodings of queries and keys that are neither a rotation nor a bias. Encode q and k, then call attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import float32, int64, number, whole
from ropewalk._core import Error

__all__ = ["FoPE", "PoPE"]


def _input(name: str, x: Any, width: int) -> np.ndarray:
    made = float32(name, x, (None, None, width))
    if made is None:
        raise Error(f"{name}: expected an array, got None")
    return made


class PoPE:
    """PoPE (Gopalakrishnan et al. 2025, arXiv 2509.10534): each element of a head becomes softplus(x_e) (cos, sin)(n f_e +
    phase_e), f_e = base^(-e / head_dim), so that the angle depends on the position alone.

    Args:
        heads, head_dim: of x.
        phase: [heads, head_dim] for keys, learned, clipped to [-2 pi, 0]; None for queries.
    """

    def __init__(self, heads: int, head_dim: int, *, phase: Any = None, base: float = 10000.0):
        self.heads, self.head_dim, self.base = (
            whole("heads", heads, 1),
            whole("head_dim", head_dim, 1),
            number("base", base),
        )
        self.phase = float32("phase", phase, (heads, head_dim))

    def _call(self, x: Any, positions: Any) -> tuple:
        phase = np.zeros(0, np.float32) if self.phase is None else self.phase
        p = int64("positions", positions)
        return self.heads, self.head_dim, self.base, phase, _input("x", x, self.head_dim), p

    def __call__(self, x: Any, positions: Any) -> np.ndarray:
        """x float32 [tokens, heads, head_dim] at positions [tokens] -> [tokens, heads, 2 head_dim], cosines before sines.
        Give `attention` the model's scale: its default is that of 2 head_dim."""
        return _core.pope(*self._call(x, positions))

    def backward(self, d_out: Any, x: Any, positions: Any) -> dict[str, np.ndarray]:
        """float64 gradients of x and, where there is one, of the phase."""
        dx, d_phase = _core.pope_backward(*self._call(x, positions), _input("d_out", d_out, 2 * self.head_dim))
        out = {"x": dx.reshape(np.shape(x))}
        return out if self.phase is None else {**out, "phase": d_phase.reshape(self.phase.shape)}


class FoPE:
    """FoPE (Hua et al. 2024, arXiv 2412.17739): RoPE whose cos and sin are learned sums over the frequencies
    base^(-2 w / head_dim); pairs that make less than one rotation within the trained length have frequency 0. Half layout.

    Args:
        heads, head_dim: of x.
        cosines, sines: [kept, kept], or [table_heads, kept, kept] where table_heads divides heads: the weight of frequency
            w (row) in pair d (column). `FoPE.kept` gives the number.
        trained_length: tokens. frequencies: how many are kept; 0: those above 2 pi / trained_length.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        cosines: Any,
        sines: Any,
        trained_length: int = 0,
        frequencies: int = 0,
        base: float = 10000.0,
    ):
        self.heads, self.head_dim, self.base = (
            whole("heads", heads, 1),
            whole("head_dim", head_dim, 2),
            number("base", base),
        )
        self.trained_length = whole("trained_length", trained_length, 0)
        self.frequencies = whole("frequencies", frequencies, 0)
        n = FoPE.kept(head_dim, trained_length=trained_length, frequencies=frequencies, base=base)
        shape = (n, n) if np.ndim(cosines) == 2 else (None, n, n)
        self.cosines = float32("cosines", cosines, shape)
        if self.cosines is None:
            raise Error("cosines: expected an array, got None")
        self.sines = float32("sines", sines, self.cosines.shape)
        if self.sines is None:
            raise Error("sines: expected an array, got None")

    @staticmethod
    def kept(head_dim: int, *, trained_length: int = 0, frequencies: int = 0, base: float = 10000.0) -> int:
        """The number of frequencies that are kept."""
        return _core.fope_kept(
            whole("head_dim", head_dim),
            number("base", base),
            whole("trained_length", trained_length),
            whole("frequencies", frequencies),
        )

    def _call(self, x: Any, positions: Any) -> tuple:
        tables = 1 if self.cosines.ndim == 2 else self.cosines.shape[0]
        sizes = self.heads, self.head_dim, self.base, self.trained_length, self.frequencies, tables
        return *sizes, self.cosines, self.sines, _input("x", x, self.head_dim), int64("positions", positions)

    def __call__(self, x: Any, positions: Any) -> np.ndarray:
        """x float32 [tokens, heads, head_dim] at positions [tokens] -> the same shape."""
        return _core.fope(*self._call(x, positions))

    def backward(self, d_out: Any, x: Any, positions: Any) -> dict[str, np.ndarray]:
        """float64 gradients of x, cosines and sines."""
        dx, dc, ds = _core.fope_backward(*self._call(x, positions), _input("d_out", d_out, self.head_dim))
        shape = self.cosines.shape
        return {"x": dx.reshape(np.shape(x)), "cosines": dc.reshape(shape), "sines": ds.reshape(shape)}
