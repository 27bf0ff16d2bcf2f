"""Rotations, tables of cos and sin, and rotate."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import array, int64, like, number, whole
from ropewalk._core import Error

__all__ = ["Rotation", "Table", "frequency_gradient", "rerotate", "rotate", "rotation"]


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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rotation) and self._core == other._core

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
            position at which its factor is 1.
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
        length = max(1, round(min(max(number("factor", factor), 1.0), 1e9) * trained) if scaled else trained)
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
            whole("rotated_heads", rotated_heads),
        )
    )


class Table:
    """cos and sin in float32 of consecutive positions, for `rotate`. Made by `Rotation.table`.

    Attributes:
        rotation: what it was made of; None after `Table.from_rows`.
    """

    __slots__ = ("_core", "rotation")

    def __init__(self, core: _core.Table, rotation: Rotation | None = None):
        self._core = core
        self.rotation = rotation

    @staticmethod
    def from_rows(rows: Any) -> Table:
        """A table from given rows, float32 [count, 2, pairs] as in `rows`, of positions 0 to count - 1, which are copied:
        for rotations that no frequencies describe. `rotate` then needs a layout."""
        return Table(_core.table_from_rows(np.ascontiguousarray(rows, np.float32)))

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
        return self._core.pairs

    @property
    def precision(self) -> str:
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


def _positions(given: Any, batch: int | None, tokens: int, axes: int) -> tuple[int, np.ndarray | None, int]:
    """start, list and axes as the library takes them."""
    if isinstance(given, int):
        return given, None, 1
    p = given
    if not isinstance(p, np.ndarray):
        p = array("positions", p) if hasattr(p, "__dlpack__") else np.asarray(p)
    if p.ndim == 0:
        return whole("positions", p.item()), None, 1
    if p.dtype not in (np.int32, np.int64):
        p = int64("positions", p)
    if p.ndim == 2 and batch is not None and p.shape[0] == 1:
        p = p[0]  # shared by the batch
    if axes > 1:
        wanted = (axes,) if batch is None else (axes, batch)
        if p.ndim == 1 or (p.ndim == 2 and batch is not None):  # the same on every axis, as text has
            p = np.broadcast_to(p, (*wanted, p.shape[-1]))
        elif p.ndim == 3 and p.shape[1] == 1:
            p = p[:, 0]
    elif p.ndim == 3 and p.shape[0] == 1:
        p = p[0]
    shapes = {(tokens,), (batch, tokens)} if axes == 1 else {(axes, tokens), (axes, batch, tokens)}
    if p.shape not in shapes:
        known = "[tokens] or [batch, tokens]" if axes == 1 else f"[{axes}, batch, tokens], [batch, tokens] or [tokens]"
        raise Error(
            f"positions: expected a start, or an array {known} with {tokens} tokens"
            f"{'' if batch is None else f' and a batch of {batch}'}, got shape {list(np.shape(given))}"
        )
    return 0, np.ascontiguousarray(p), axes


def rotate(
    q: Any,
    k: Any | None,
    table: Table | Rotation,
    positions: Any = 0,
    *,
    layout: str | None = None,
    inplace: bool = False,
    direction: str = "forward",
    first_dim: int | None = None,
    rotated_heads: int | None = None,
    out: Any = None,
) -> tuple[Any, Any]:
    """Rotates queries and keys by their positions (RoFormer, Su et al. 2021, arXiv 2104.09864, eq. 34).

    Args:
        q: [tokens, heads, head_dim] or [batch, tokens, heads, head_dim]: float64, float32, float16 or bfloat16 (ml_dtypes);
            numpy, or any array of the CPU with DLPack. The elements of a head are contiguous, other strides are free.
            Tensors of PyTorch, on any device and with gradients, go to `ropewalk.torch.rotate`.
        k: the same with its own number of heads, or None.
        table: a Table that holds all positions, or a Rotation, whose angles are then computed in this call.
        positions: the position of the first token (then start + t for token t), or integers [tokens], [batch, tokens] or, on
            several axes, [axes, batch, tokens] ([axes, tokens] for q without a batch).
        layout, first_dim, rotated_heads: default: those of the table's rotation.
        inplace: overwrite q and k.
        direction: "forward" a R x; "adjoint" a R^T x, the gradient with respect to x; "inverse" R^T x / a, which undoes
            forward. a is the amplitude.
        out: (q_out, k_out), of the shapes of q and k and of any of these types.

    Returns:
        q and k (None without one): new arrays of numpy, or with `inplace` or `out` those. Arithmetic is float32 (float64 for
        float64) with one rounding at the end.

    Raises:
        Error: for shapes or types that do not fit, memory that overlaps in part, and a position outside the table, which is
            named; before anything is written.
    """
    if _is_torch(q, k):
        if out is not None or first_dim is not None or rotated_heads is not None:
            raise Error("out, first_dim and rotated_heads: expected None for tensors; ropewalk.torch.rotate has them")
        import ropewalk.torch as for_torch

        if not isinstance(positions, int) and not _is_torch(positions):
            torch = sys.modules["torch"]
            positions = torch.as_tensor(int64("positions", positions), device=q.device)
        return for_torch.rotate(q, k, table, positions, layout=layout, inplace=inplace, direction=direction)
    q_array = array("q", q)
    k_array = None if k is None else array("k", k)
    if isinstance(table, Table):
        core, angles, spec = table._core, None, table.rotation
    elif isinstance(table, Rotation):
        core, angles, spec = None, table._core, table
    else:
        raise Error(f"table: expected a Table or a Rotation, got {type(table).__name__}")
    if spec is None:
        if layout is None:
            raise Error('layout: expected "half" or "interleaved", because the table was made from rows')
        axes, first, heads = 1, 0, 0
    else:
        axes, first, heads = spec.axes, spec.first_dim, spec.rotated_heads
        if layout is None:
            layout = spec.layout
    if q_array.ndim not in (3, 4):
        raise Error(f"q: expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got shape {list(q_array.shape)}")
    start, places, axes = _positions(positions, q_array.shape[0] if q_array.ndim == 4 else None, q_array.shape[-3], axes)
    q_out = k_out = None
    if out is not None:
        if inplace:
            raise Error("out: expected None, because the call is in place")
        q_out, k_out = out if isinstance(out, (tuple, list)) and len(out) == 2 else (out, None)
        if q_out is None or (k is None) != (k_out is None):
            raise Error("out: expected (q_out, k_out) for q and k, or q_out where there is no k")
    elif not inplace:
        q_out = like(q_array)
        k_out = None if k_array is None else like(k_array)
    _core.rotate(
        q_array,
        k_array,
        q_out,
        k_out,
        core,
        angles,
        whole("positions", start),
        places,
        axes,
        str(layout),
        first if first_dim is None else whole("first_dim", first_dim),
        heads if rotated_heads is None else whole("rotated_heads", rotated_heads),
        str(direction),
        "exact",
    )
    return (q, k) if inplace else (q_out, k_out)


def rerotate(
    keys: Any,
    rotation: Rotation,
    delta: int | None = None,
    *,
    old_positions: Any = None,
    new_positions: Any = None,
    old_rotation: Rotation | None = None,
) -> Any:
    """Moves cached rotated keys to other positions, in place: a rotation by the difference of positions.

    Args:
        keys: [tokens, kv_heads, head_dim] or [batch, tokens, kv_heads, head_dim], float64 to bfloat16.
        rotation: of the keys after the call.
        delta: all keys move by this many positions; or
        old_positions, new_positions: integers [tokens], [batch, tokens] or [axes, batch, tokens].
        old_rotation: of the keys before the call, where the method changes; needs both lists of positions. The amplitude
            changes with it. This corrects the rotation alone: keys of all layers but the first were computed under the old
            method.

    Returns:
        keys.
    """
    if (delta is None) == (new_positions is None) or (old_positions is None) != (new_positions is None):
        raise Error("expected delta, or old_positions with new_positions")
    _core.rerotate(
        array("keys", keys),
        rotation._core,
        0 if delta is None else whole("delta", delta),
        None if old_positions is None else int64("old_positions", old_positions),
        None if new_positions is None else int64("new_positions", new_positions),
        None if old_rotation is None else old_rotation._core,
    )
    return keys


def frequency_gradient(rotation: Rotation, value: Any, gradient: Any, positions: Any = 0) -> dict[str, np.ndarray | float]:
    """The gradient with respect to learned frequencies, from the two sides of one tensor of `rotate`; add those of q and k.

    Args:
        rotation: of the call.
        value: the rotated tensor, or the one before the rotation: [(batch,) tokens, heads, head_dim].
        gradient: d(loss) / d(value), of the same side, shape and type.
        positions: of the call.

    Returns:
        dict: "inv_freq" float64 [pairs], d(loss) / d(inv_freq); "amplitude" d(loss) / d(amplitude).
    """
    v = array("value", value)
    if v.ndim not in (3, 4):
        raise Error(f"value: expected [(batch,) tokens, heads, head_dim], got shape {list(v.shape)}")
    start, places, axes = _positions(positions, v.shape[0] if v.ndim == 4 else None, v.shape[-3], rotation.axes)
    inv_freq, amplitude = _core.frequency_gradient(
        rotation._core, v, array("gradient", gradient), whole("positions", start), places, axes
    )
    return {"inv_freq": inv_freq, "amplitude": amplitude}
