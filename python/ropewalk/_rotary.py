"""Rotations, and tables of cos and sin."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import int64, needed, number, whole
from ropewalk._core import Error

__all__ = ["Rotation", "Table", "base_bounds", "rotation", "scaling_methods"]


class Rotation:
    """A rotary position embedding (RoPE; Su et al. 2021, arXiv 2104.09864) whose frequencies are known: what a scaling
    method made of it at a length. Made by `rotation`, or of a model by `plan`. It does not change.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Rotation):
        self._core = core

    @property
    def inv_freq(self) -> np.ndarray:
        """float64 [pairs]: radians per position, the exact value rounded once."""
        return self._core.inv_freq

    @property
    def inv_freq_f32(self) -> np.ndarray:
        """float32 [pairs]: bit for bit what transformers computes."""
        return self._core.inv_freq_f32

    @property
    def amplitude(self) -> float:
        """YaRN's attention factor (`attention_scaling` in transformers): cos and sin are multiplied by it."""
        return self._core.amplitude

    @property
    def softmax_multiplier(self) -> float:
        """Multiplies the scale of the scores (DeepSeek's mscale_all_dim); 1 for most models."""
        return self._core.softmax_multiplier

    @property
    def layout(self) -> str:
        """Which elements of a head form pair i: "half" (i and i + pairs; GPT-NeoX, transformers) or "interleaved"
        (2 i and 2 i + 1; GPT-J, Meta's llama)."""
        return self._core.layout

    @property
    def head_dim(self) -> int:
        """Elements of one head."""
        return self._core.head_dim

    @property
    def rotary_dim(self) -> int:
        """Elements of a head that are rotated: first_dim to first_dim + rotary_dim - 1."""
        return self._core.rotary_dim

    @property
    def first_dim(self) -> int:
        """The first rotated element of a head."""
        return self._core.first_dim

    @property
    def rotated_heads(self) -> int:
        """Only the first n heads are rotated; 0: all."""
        return self._core.rotated_heads

    @property
    def axes(self) -> int:
        """The number of position axes: 1 for text, 3 for M-RoPE (time, height, width)."""
        return self._core.axes

    @property
    def axis(self) -> np.ndarray:
        """int64 [pairs]: the position axis of each pair."""
        return self._core.axis

    @property
    def base(self) -> float:
        """The base of the frequencies (rope_theta)."""
        return self._core.base

    @property
    def trained_length(self) -> int:
        """Tokens that the model was trained with; 0: unknown."""
        return self._core.trained_length

    @property
    def method(self) -> str:
        """The scaling with its settings: "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)"."""
        return self._core.method

    @property
    def dialect(self) -> str:
        """Whose formula: "native", "paper", "hf", "vllm", "llamacpp", "megatron" or "yarn_repo"."""
        return self._core.dialect

    @property
    def length_dependent(self) -> bool:
        """Whether the frequencies depend on the declared length of the sequence (dynamic NTK, LongRoPE)."""
        return self._core.length_dependent

    def table(self, count: int, first: int = 0, precision: str = "exact") -> Table:
        """cos and sin of positions first to first + count - 1.

        Args:
            precision: "exact": correct to the last float32 bit at any position below 2^31. "float32": as transformers
                computes them, a float32 frequency times a float32 position, off by 4e-3 radians at position 131071.
        """
        core = _core.make_table(self._core, whole("first", first), whole("count", count, 0), str(precision))
        return Table(core, self)

    def cos_sin(self, positions: Any, precision: str = "exact") -> np.ndarray:
        """cos and sin of any positions, times the amplitude: float32 [*positions.shape, 2, pairs]. One axis."""
        p = int64("positions", positions)
        rows = _core.cos_sin(self._core, p, str(precision))
        return rows.reshape(*p.shape, *rows.shape[1:])

    def base_derivative(self, length: int | None = None) -> np.ndarray:
        """d(inv_freq) / d(base), float64 [pairs], for training the base; its product with the gradient of `frequency_gradient`
        is that of the base. length: as given to `rotation`; default: the trained length."""
        return _core.base_derivative(self._core, max(1, self.trained_length) if length is None else whole("length", length, 1))

    def per_unit(self, denominator: int) -> Rotation:
        """For positions in units of 1 / denominator (`PositionBuilder`): the frequencies divided by it, exactly."""
        return Rotation(_core.per_unit(self._core, whole("denominator", denominator)))

    def pairs_within(self, length: int, trained_length: int | None = None) -> dict[str, np.ndarray]:
        """What each pair does, float64 [pairs] each: "frequency"; "wavelength" in tokens; "trained_rotations" and "rotations",
        how often it goes round within the trained length and within `length`; "unseen_share", the share of the distances below
        `length` whose angle is one that no distance of training had, with the frequencies of training (LongRoPE, arXiv
        2402.13753, section 3; arXiv 2310.05209)."""
        trained = self.trained_length if trained_length is None else whole("trained_length", trained_length)
        return _core.pairs(self._core, trained, whole("length", length))

    def critical_dimension(self, length: int) -> int:
        """Elements of a head whose pairs go round at least once within `length` tokens (d_extra of Liu et al. 2023, arXiv
        2310.05209, eq. 10)."""
        return _core.critical(self._core, whole("length", length))[1]

    def longest_context(self, limit: int = 2**22) -> int:
        """The longest context that the frequencies support, or `limit`: up to it no sum over pairs of cos(distance f) is
        negative (Men et al. 2024, arXiv 2405.14591, section 4)."""
        return _core.longest_context(self._core, whole("limit", limit))

    def decay(self, distances: Any) -> tuple[np.ndarray, np.ndarray]:
        """How scores decay with distance, float64 of the shape of `distances`: the bound of RoFormer (section 3.4.3, figure 2)
        and (2 / d) sum over pairs of cos(distance f), the expected score of alike queries and keys."""
        d = int64("distances", distances)
        if d.size and not 0 <= d.min() <= d.max() < 2**31:
            raise Error(f"distances: expected 0 to {2**31 - 1}, got {d.min()} to {d.max()}")
        bound, expected = _core.decay(self._core, d.ravel().tolist())
        return bound.reshape(d.shape), expected.reshape(d.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rotation) and self._core == other._core

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._core.packed(),)

    def __hash__(self) -> int:
        return hash((self.layout, self.head_dim, self.inv_freq_f32.tobytes(), self.amplitude))

    def __repr__(self) -> str:
        some = "" if self.rotary_dim == self.head_dim else f", rotary_dim={self.rotary_dim}"
        return f"Rotation(head_dim={self.head_dim}{some}, layout={self.layout!r}, base={self.base:g}, method={self.method})"


def rotation(
    head_dim: int,
    *,
    layout: str,
    base: float = 10000.0,
    rotary_dim: int | None = None,
    first_dim: int = 0,
    method: str = "none",
    factor: float | None = None,
    trained_length: int = 0,
    length: int | None = None,
    dialect: str = "native",
    sections: Any = (),
    axis_order: str = "chunked",
    own_ladders: bool = False,
    xpos_scale_base: float | None = None,
    xpos_centre: float = 0.0,
    xpos_gamma: float = 0.4,
    rotated_heads: int = 0,
    **settings: Any,
) -> Rotation:
    """A rotation without a model.

    Args:
        head_dim: elements of one head.
        layout: "half" or "interleaved"; required, because weights do not tell it.
        base: the frequencies are base^(-2 i / rotary_dim).
        rotary_dim: elements that are rotated (default: the whole head), from first_dim on.
        method: a scaling: "none", "linear", "ntk", "yarn", "llama3", "longrope", "dynamic", "base" ...; Error lists all.
        factor: target length over trained length, for methods that have one.
        trained_length: tokens; required by "yarn", "dynamic", "llama3", "longrope" and some others.
        length: final length of the sequence in tokens, which length-dependent methods read. Default: factor times the
            trained length.
        dialect: whose formula where implementations differ: "native", "paper", "hf", "vllm", "llamacpp", "megatron",
            "yarn_repo".
        sections: pairs of each position axis, for M-RoPE and 2-D rotary: (16, 24, 24) in Qwen2-VL.
        axis_order: "chunked", "interleaved" (Qwen3-VL) or "ernie".
        own_ladders: each axis has frequencies of its own (vision models).
        xpos_scale_base: xPos decay (Sun et al. 2022, arXiv 2212.10554), usually 512; None: no decay. xpos_centre: the
            position at which its factor is 1. xpos_gamma: the paper's.
        rotated_heads: only the first n heads rotate; 0: all.
        **settings: of the method: beta_fast, beta_slow, truncate, attention_factor, short_factor, ...

    Raises:
        Error: for dims that do not fit, an unknown method or setting, a factor below 1, a missing trained length.
    """
    if factor is not None:
        settings["factor"] = number("factor", factor)
    trained = whole("trained_length", trained_length, 0)
    if length is None:
        scaled = factor is not None and trained > 0
        length = max(1, round(min(max(1.0, number("factor", factor)), 1e9) * trained) if scaled else trained)
    dim = whole("head_dim", head_dim)
    return Rotation(
        _core.make_rotation(
            str(layout),
            dim,
            dim if rotary_dim is None else whole("rotary_dim", rotary_dim),
            whole("first_dim", first_dim),
            number("base", base),
            trained,
            whole("length", length),
            str(method),
            settings,
            str(dialect),
            [whole("sections", n) for n in sections],
            str(axis_order),
            bool(own_ladders),
            None if xpos_scale_base is None else number("xpos_scale_base", xpos_scale_base),
            number("xpos_centre", xpos_centre),
            number("xpos_gamma", xpos_gamma),
            whole("rotated_heads", rotated_heads),
        )
    )


def scaling_methods() -> list[dict[str, Any]]:
    """The scalings that `rotation` and `plan` know: dicts of "name", "title", "source" (paper or repository),
    "length_dependent", "needs_trained_length" and "by_factor" (a factor is all that it needs)."""
    return _core.scaling_methods()


def base_bounds(rotary_dim: int, context: int) -> list[tuple[int, float]]:
    """(context, base) for contexts of 2^10, 2^11, ... tokens and `context` itself: the smallest base whose plain RoPE supports
    it (`Rotation.longest_context`; Men et al. 2024, arXiv 2405.14591). Contexts that no base supports are left out: with a
    rotary_dim of 2 all beyond 1 token."""
    return _core.base_bounds(whole("rotary_dim", rotary_dim), whole("context", context))


def _unpacked(packed: bytes) -> Rotation:
    return Rotation(_core.rotation_of_packed(packed))


class Table:
    """cos and sin in float32 of consecutive positions, for `rotate`. Made by `Rotation.table`.

    Attributes:
        rotation: what it was made of; None after `Table.from_rows`.
    """

    __slots__ = ("_core", "rotation")

    def __init__(self, core: _core.Table, rotation: Rotation | None = None):
        self._core = core
        self.rotation = rotation

    def __reduce__(self) -> tuple[Any, ...]:
        if self.rotation is None:
            return Table.from_rows, (np.array(self.rows),)
        return self.rotation.table, (self.count, self.first, self.precision)

    @staticmethod
    def from_rows(rows: Any) -> Table:
        """A table from given rows, float32 [count, 2, pairs] as in `rows`, of positions 0 to count - 1, which are copied:
        for rotations that no frequencies describe. `rotate` then needs a layout."""
        return Table(_core.table_from_rows(needed("rows", rows)))

    @property
    def rows(self) -> np.ndarray:
        """float32 [count, 2, pairs], cos then sin, times the amplitude: a read-only view. It stays valid, and as it is, when
        the table grows."""
        return self._core.rows

    @property
    def first(self) -> int:
        """The first position."""
        return self._core.first

    @property
    def count(self) -> int:
        """The number of positions."""
        return self._core.count

    @property
    def pairs(self) -> int:
        """Pairs of a head that rotate."""
        return self._core.pairs

    @property
    def precision(self) -> str:
        """That of its angles: "exact" or "float32"."""
        return self._core.precision

    def grow(self, count: int) -> None:
        """Extends the table to `count` positions; rows that exist keep their bits. Calls of other threads that use the table
        finish with its old rows."""
        self._core.grow(whole("count", count))

    def __repr__(self) -> str:
        return f"Table({self.rotation!r}, first={self.first}, count={self.count})"


def _is_torch(*tensors: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(t, torch.Tensor) for t in tensors)
