"""rotate, and what belongs to it: moving cached keys, slots of a cache, gradients of frequencies."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import array, float32, int64, like, number, whole
from ropewalk._core import Error
from ropewalk._rotary import Rotation, Table, _is_torch

__all__ = ["block_table_slots", "frequency_gradient", "rerotate", "ring_slots", "rotate"]


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


def _outputs(out: Any, q: Any, k: Any, v: Any) -> list[Any]:
    """[q_out, k_out, v_out] as given; None: a new array."""
    parts = list(out) if isinstance(out, (tuple, list)) else [out]
    wanted = 3 if v is not None else 2
    if not isinstance(out, (tuple, list)) and k is None and v is None:
        parts += [None] * (wanted - 1)
    given = (q, k, v)
    if len(parts) != wanted or any(to is not None and x is None for to, x in zip(parts, given)):
        raise Error(
            "out: expected (q_out, k_out), with v (q_out, k_out, v_out), each an array or None (a new one), or q_out alone where "
            "there is nothing else"
        )
    return [*parts, None][:3]


def _rotate_tensors(q: Any, k: Any, table: Any, positions: Any, **more: Any) -> tuple[Any, Any]:
    layout, inplace, direction = more.pop("layout"), more.pop("inplace"), more.pop("direction")
    given = [name for name, value in more.items() if value is not None]
    if given:
        raise Error(f"{', '.join(given)}: expected none for tensors of PyTorch; see ropewalk.torch.rotate for what it has")
    import ropewalk.torch as for_torch

    if not isinstance(positions, int) and not _is_torch(positions):
        torch = sys.modules["torch"]
        positions = torch.as_tensor(int64("positions", positions), device=q.device)
    return for_torch.rotate(q, k, table, positions, layout=layout, inplace=inplace, direction=direction)


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
    v: Any = None,
    rotate_v: bool = False,
    slots: Any = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    q_norm: Any = None,
    k_norm: Any = None,
    norm_eps: float = 1e-6,
    precision: str | None = None,
) -> tuple[Any, ...]:
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
        out: (q_out, k_out), with v (q_out, k_out, v_out), of the shapes of q, k and v and of any of these types; None: new.
        v: values beside the keys, with their shape: copied to v_out, so that one call writes a cache; or
        rotate_v: rotated as k. Values that carry positions become relative when the output of attention is rotated back
            (v=output, q=None, rotate_v=True, direction="inverse"; Su 2021, kexue.fm/archives/8265).
        slots: integers [tokens] or [batch, tokens]: k_out and v_out are a KV cache, [slots, kv_heads, head_dim] or in blocks
            [blocks, block_slots, kv_heads, head_dim], and token i goes to slot slots[i], -1: nowhere (padding).
            `block_table_slots` and `ring_slots` give them. A cache of float8_e4m3fn (ml_dtypes) holds value / scale with
            k_scale and v_scale.
        q_norm, k_norm: float32 [head_dim]: an RMSNorm of each head before the rotation, with norm_eps (Qwen3, Gemma 3, whose
            weight is 1 + w). Forward alone.
        precision: of the angles of a Rotation: "exact" (default) or "float32", as transformers computes them.

    Returns:
        q and k (None without one), and v where it is given: new arrays of numpy, or with `inplace` or `out` those. Arithmetic
        is float32 (float64 for float64) with one rounding at the end.

    Raises:
        Error: for shapes or types that do not fit, memory that overlaps in part, and a position outside the table, which is
            named; before anything is written.
    """
    if _is_torch(q, k, v):
        return _rotate_tensors(
            q,
            k,
            table,
            positions,
            layout=layout,
            inplace=inplace,
            direction=direction,
            out=out,
            first_dim=first_dim,
            rotated_heads=rotated_heads,
            v=v,
            slots=slots,
            q_norm=q_norm,
            k_norm=k_norm,
            precision=precision,
        )
    k_array = None if k is None else array("k", k)
    more: dict[str, Any] = {}
    if v is not None:
        more = {"v": array("v", v), "rotate_values": bool(rotate_v)}
    q_array = more["v"][..., :0, :] if q is None and v is not None and more["v"].ndim >= 2 else array("q", q)
    if isinstance(table, Table):
        core, angles, spec = table._core, None, table.rotation
        if precision is not None:
            raise Error("precision: expected None, because the table has its own")
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
    batch, tokens = q_array.shape[0] if q_array.ndim == 4 else None, q_array.shape[-3]
    start, places, axes = _positions(positions, batch, tokens, axes)
    q_out = k_out = v_out = None
    if out is not None:
        if inplace:
            raise Error("out: expected None, because the call is in place")
        q_out, k_out, v_out = _outputs(out, q, k, v)
    if slots is not None:
        if any(x is not None and to is None for x, to in ((k, k_out), (v, v_out))):
            raise Error("slots: expected out=(q_out, k_cache) or (q_out, k_cache, v_cache), the caches to write to")
        more["slots"] = int64("slots", slots)
    if inplace:
        if v is not None and not rotate_v:
            raise Error("v: expected rotate_v in place: a copy needs somewhere to go")
    else:
        q_out = like(q_array) if q_out is None else q_out
        k_out = like(k_array) if k_out is None and k_array is not None else k_out
        v_out = like(more["v"]) if v_out is None and v is not None else v_out
    if v_out is not None:
        more["v_out"] = v_out
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None:
            more[name] = number(name, scale)
    for name, weight in (("q_norm", q_norm), ("k_norm", k_norm)):
        if weight is not None:
            more[name] = float32(name, weight, (None,))
            more["norm_eps"] = number("norm_eps", norm_eps)
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
        "exact" if precision is None else str(precision),
        more,
    )
    if inplace:
        return (q, k) if v is None else (q, k, v)
    q_out = None if q is None else q_out
    return (q_out, k_out) if v is None else (q_out, k_out, v_out)


def block_table_slots(block_table: Any, block_slots: int, first: Any, tokens: int) -> np.ndarray:
    """Slots of tokens in a paged KV cache, for `rotate`: token t of sequence b has index n = first[b] + t in its sequence and
    lies in block block_table[b, n // block_slots].

    Args:
        block_table: [batch, blocks of a sequence].
        first: [batch]: how many tokens of each sequence are in the cache already.
        tokens: of each sequence in the call.

    Returns:
        int64 [batch, tokens].
    """
    table, begin = int64("block_table", block_table), int64("first", first)
    if table.ndim != 2 or begin.shape != table.shape[:1] or (table.size and not -(2**31) <= table.min() <= table.max() < 2**31):
        raise Error(
            f"block_table: expected whole numbers of 32 bits [batch, blocks] and first [batch], got {list(table.shape)} and "
            f"{list(begin.shape)}"
        )
    n = whole("tokens", tokens, 0)
    return _core.block_table_slots(table.astype(np.int32), whole("block_slots", block_slots), begin, n).reshape(len(begin), n)


def ring_slots(capacity: int, first: Any, tokens: int) -> np.ndarray:
    """Slots in a ring buffer of `capacity` slots for each sequence, for `rotate`: token n of sequence b has slot
    b capacity + n mod capacity; of more tokens than that only the last have one, the others -1. int64 [batch, tokens]."""
    begin = int64("first", first)
    if begin.ndim != 1:
        raise Error(f"first: expected [batch], got shape {list(begin.shape)}")
    n = whole("tokens", tokens, 0)
    return _core.ring_slots(whole("capacity", capacity), begin, n).reshape(len(begin), n)


def rerotate(
    keys: Any,
    rotation: Rotation,
    delta: Any = None,
    *,
    old_positions: Any = None,
    new_positions: Any = None,
    old_rotation: Rotation | None = None,
    keep_amplitude: bool = False,
) -> Any:
    """Moves cached rotated keys to other positions, in place: a rotation by the difference of positions. `Plan.can_rerotate`
    says whether a model's can be moved.

    Args:
        keys: [tokens, kv_heads, head_dim] or [batch, tokens, kv_heads, head_dim], float64 to bfloat16; or uint8
            [(batch,) tokens, kv_heads, 34 head_dim / 32] without gaps: ggml's Q8_0.
        rotation: of the keys after the call.
        delta: all keys move by this many positions; or a list [tokens] or [batch, tokens] ([axes, ..] on several axes), or
            [batch, 1]: the same for a sequence; or
        old_positions, new_positions: integers [tokens], [batch, tokens] or [axes, batch, tokens].
        old_rotation: of the keys before the call, where the method changes; needs both lists of positions. This corrects the
            rotation alone: keys of all layers but the first were computed under the old method.
        keep_amplitude: keys keep the amplitude that they were cached with; else it changes with the method.

    Returns:
        keys.
    """
    if (delta is None) == (new_positions is None) or (old_positions is None) != (new_positions is None):
        raise Error("expected delta, or old_positions with new_positions")
    k = array("keys", keys)
    kind, by, to = "from-to", 0, None
    if delta is None:
        to = int64("new_positions", new_positions)
    elif np.ndim(delta) == 0:
        kind, by = "all", whole("delta", delta)
    else:
        to = int64("delta", delta)
        kind = "sequences" if k.ndim == 4 and to.shape[-2:] == (k.shape[0], 1) and k.shape[1] != 1 else "tokens"
    _core.rerotate(
        k,
        rotation._core,
        kind,
        by,
        None if old_positions is None else int64("old_positions", old_positions),
        to,
        None if old_rotation is None else old_rotation._core,
        bool(keep_amplitude),
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
