"""Position maps: they clip or group the relative positions that a rotation sees, so that none exceeds the trained length.

A map has one to three views. A view says by which positions queries and keys are rotated; exactly one view scores a query and
a key, and a pair without a view is masked. All maps are causal and need no training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import int64, whole

__all__ = [
    "DPE",
    "STRING",
    "AttentionSinks",
    "DualChunk",
    "LaMPE",
    "LeakyReRoPE",
    "PositionFormula",
    "PositionMap",
    "ReRoPE",
    "SelfExtend",
    "View",
]


class PositionFormula(dict):
    """The position that a token is rotated by: ``max(0, min(slope * (multiplier * (p % modulus) // divisor) + offset,
    limit))``.

    A dict with the keys ``modulus``, ``multiplier``, ``divisor``, ``slope``, ``offset`` and ``limit``; a modulus or limit of
    None is absent.
    Call it with positions (any integer array) to get the mapped ones (int64).
    """

    def __call__(self, positions: Any) -> np.ndarray:
        p = np.asarray(positions, np.int64)
        if self["modulus"] is not None:
            p = p % self["modulus"]
        p = self["slope"] * (self["multiplier"] * p // self["divisor"]) + self["offset"]
        return np.maximum(0, p if self["limit"] is None else np.minimum(p, self["limit"]))


class View:
    """One view of a map.

    Attributes:
        query, key: PositionFormula of the queries and of the keys.
        frequency_divisor: mapped positions are in units of 1 / frequency_divisor: rotate by ``position * inv_freq / divisor``.
        shares: where pairs of frequencies have positions of their own, (query, key) of equal shares of them; pair p of n is in
            share ``len(shares) * p // n``, and query and key are those of the first. Empty: all pairs have query and key.
    """

    __slots__ = ("frequency_divisor", "key", "query", "shares")

    def __init__(self, query: dict, key: dict, frequency_divisor: int, shares: Any = ()):
        self.query, self.key, self.frequency_divisor = PositionFormula(query), PositionFormula(key), frequency_divisor
        self.shares = [(PositionFormula(q), PositionFormula(k)) for q, k in shares]

    def __repr__(self) -> str:
        shares = f", shares={[(dict(q), dict(k)) for q, k in self.shares]}" if self.shares else ""
        return f"View(query={dict(self.query)}, key={dict(self.key)}, frequency_divisor={self.frequency_divisor}{shares})"


class PositionMap:
    """What all maps have in common. d is the position of the query minus that of the key, 0 or more.

    Attributes:
        name: as methods name it, "rerope".
        views: list of View.
    """

    _kind: str
    _fields: tuple[str, ...]
    __slots__ = ("_core", "views")

    def __init__(self, **fields: int):
        self._core = _core.make_map(self._kind, {name: whole(name, fields[name]) for name in self._fields})
        self.views = [View(*view) for view in self._core.views]

    @property
    def name(self) -> str:
        """As methods are named: "rerope", "self-extend"."""
        return self._kind

    @property
    def settings(self) -> dict[str, int]:
        """The fields by name."""
        return self._core.fields

    def __getattr__(self, name: str) -> int:
        if name in type(self)._fields:
            return self._core.fields[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def relative_position(self, query: int, key: int, share: int = 0) -> float:
        """The relative position by which a query and a key are rotated, in tokens. Error where the key is masked. share: of the
        pairs of frequencies, 0 to 7, which only DPE tells apart."""
        return self._core.relative_position(whole("query", query), whole("key", key), whole("share", share))

    def view_of(self, query_positions: Any, key_positions: Any) -> np.ndarray:
        """The index of the view that scores each query and key, int64 [queries, keys]; -1: masked."""
        q, k = int64("query_positions", query_positions), int64("key_positions", key_positions)
        return self._core.view_of(q, k).reshape(q.shape + k.shape)

    def largest_relative_position(self, length: int) -> float:
        """The largest relative position in a sequence of `length` tokens."""
        return self._core.largest_relative_position(whole("length", length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionMap) and self._core == other._core

    def __hash__(self) -> int:
        return hash((self._kind, tuple(sorted(self.settings.items()))))

    def __reduce__(self):
        return _from_settings, (self._kind, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.settings.items())})"


class ReRoPE(PositionMap):
    """min(d, window): all keys beyond the window are as far as its end (Su 2023, kexue.fm/archives/9708)."""

    _kind, _fields, __slots__ = "rerope", ("window",), ()

    def __init__(self, window: int = 512):
        super().__init__(window=window)


class LeakyReRoPE(PositionMap):
    """d below the window, else window + (d - window) / factor (Su 2023, kexue.fm/archives/9708)."""

    _kind, _fields, __slots__ = "leaky-rerope", ("window", "factor"), ()

    def __init__(self, window: int = 512, factor: int = 16):
        super().__init__(window=window, factor=factor)


class SelfExtend(PositionMap):
    """d below the window, else the distance of groups of tokens (Jin et al. 2024, arXiv 2401.01325, section 3):
    floor(i / group) + window - floor(window / group) - floor(j / group)."""

    _kind, _fields, __slots__ = "self-extend", ("window", "group"), ()

    def __init__(self, window: int = 512, group: int = 8):
        super().__init__(window=window, group=group)


class DualChunk(PositionMap):
    """Dual chunk attention (An et al. 2024, arXiv 2402.17463, section 3): keys at j mod chunk; queries at i mod chunk for
    their own chunk, at min(i mod chunk + chunk, limit) for the one before, and at limit for all others."""

    _kind, _fields, __slots__ = "dual-chunk", ("chunk", "limit"), ()

    def __init__(self, chunk: int = 3072, limit: int = 4095):
        super().__init__(chunk=chunk, limit=limit)


class AttentionSinks(PositionMap):
    """StreamingLLM (Xiao et al. 2023, arXiv 2309.17453, section 3.2): a query attends to the first `sinks` tokens and the
    last `window`, at their positions within a cache of sinks + window tokens."""

    _kind, _fields, __slots__ = "sinks", ("sinks", "window"), ()

    def __init__(self, sinks: int = 4, window: int = 1020):
        super().__init__(sinks=sinks, window=window)


class STRING(PositionMap):
    """d below the shift, else d - shift + window: positions of which training saw few are replaced by those of which it saw
    many (An et al. 2024, arXiv 2410.18745, section 4)."""

    _kind, _fields, __slots__ = "string", ("shift", "window"), ()

    def __init__(self, shift: int = 1365, window: int = 128):
        super().__init__(shift=shift, window=window)


class LaMPE(PositionMap):
    """Near tokens and the farthest `tail` keep true steps, positions between are squeezed linearly into `mapped` (ACL 2026,
    scar-on/LaMPE), for sequences of `length` tokens: docs/relative/methods/lampe.md."""

    _kind, _fields, __slots__ = "lampe", ("head", "mapped", "tail", "length"), ()

    def __init__(self, head: int = 1024, mapped: int = 4914, tail: int = 200, length: int = 32768):
        super().__init__(head=head, mapped=mapped, tail=tail, length=length)


class DPE(PositionMap):
    """Self-Extend with a group for each eighth of the pairs of frequencies, fastest first (Lu et al. 2025, arXiv 2504.18857)."""

    _kind, _fields, __slots__ = "dpe", ("window", *(f"group{i}" for i in range(1, 9))), ()

    def __init__(
        self,
        window: int = 1024,
        group1: int = 2,
        group2: int = 8,
        group3: int = 2,
        group4: int = 8,
        group5: int = 32,
        group6: int = 32,
        group7: int = 32,
        group8: int = 4,
    ):
        groups = (group1, group2, group3, group4, group5, group6, group7, group8)
        super().__init__(window=window, **{f"group{i}": g for i, g in enumerate(groups, 1)})


_MAPS = {m._kind: m for m in (ReRoPE, LeakyReRoPE, SelfExtend, DualChunk, AttentionSinks, STRING, LaMPE, DPE)}


def _from_settings(kind: str, settings: dict[str, int]) -> PositionMap:
    return _MAPS[kind](**settings)


def _map_of(core: _core.Map | None) -> PositionMap | None:
    return None if core is None else _from_settings(core.kind, core.fields)
