"""The registered attention function: rotates queries and keys when it reads them, once per view of a position map."""

from __future__ import annotations

import copy
import dataclasses
import threading
import weakref
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

import ropewalk.torch as ops
from ropewalk import Error
from ropewalk.transformers._mask import Visible, by_itself, mask, positions, sees_ahead, slots, visible
from ropewalk.transformers._parts import attend, parts_of, works
from ropewalk.transformers._probe import Layout, not_causal, turn
from ropewalk.transformers._state import ATTENTION, STATE, Change

_SCORES = 1 << 25  # elements of a block of scores: 128 MiB
_KERNEL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Pass:
    """What layers compute alike in a forward pass: positions, and what follows from them."""

    def __init__(self, of: tuple, at: torch.Tensor, to: torch.Tensor):
        self.of = tuple(x if x is None else weakref.ref(x) for x in of)
        self.at, self.to = at, to  # positions of queries [batch or 1, tokens] and of keys [batch or 1, keys]
        self.rows: dict[tuple, Any] = {}
        self._first: int | None = None

    def is_of(self, of: tuple) -> bool:
        return all(y is None if x is None else x is not None and x() is y for x, y in zip(self.of, of))

    def first(self) -> int:
        """The position of the first key, from which all count up by one; -1: they do not."""
        if self._first is None:
            tokens, keys = self.at.shape[1], self.to.shape[1]
            first = self.to[:1, :1]
            every = first + torch.arange(keys, device=self.to.device)
            counts = (self.to == every).all() & (self.at == every[:, keys - tokens :]).all()
            self._first = int(torch.where(counts, first[0, 0], -1))
        return self._first


class Running(threading.local):
    """The forward pass of a thread."""

    def __init__(self):
        self.positions: torch.Tensor | None = None  # as of Shared
        self.passes: dict[tuple, Pass] = {}  # by what they are of

    def __reduce__(self):
        return Running, ()  # a copy of the model finds its own


@dataclasses.dataclass(eq=False)
class Shared:
    """What the layers of a model have in common during a forward pass."""

    # [batch or 1, tokens]: what the rotary modules were called with, in any thread. For threads in which they were not
    # (those of autograd, where layers are computed again from checkpoints), and torch.compile, which loses what is of
    # a thread.
    positions: torch.Tensor | None = None
    recorded: bool = False  # by what was compiled
    tables: dict[tuple, torch.Tensor] = dataclasses.field(default_factory=dict)
    follower: Any = None
    attention: list[Change] = dataclasses.field(default_factory=list)  # where the rotary modules are the identity
    running: Running = dataclasses.field(default_factory=Running)

    def note(self, positions: torch.Tensor) -> None:
        """At the beginning of a forward pass."""
        self.positions, self.recorded = positions, not by_itself()
        if by_itself():
            self.running.positions = positions
            self.running.passes.clear()

    def noted(self) -> torch.Tensor | None:
        own = self.running.positions if by_itself() and not self.recorded else None
        return self.positions if own is None else own


@dataclasses.dataclass(eq=False)
class Attention:
    """What a layer's attention does, kept on its module."""

    shared: Shared
    layout: Layout | None
    rotation: Any  # ropewalk.Rotation
    map: Any  # ropewalk.PositionMap or None
    temperature: Any  # ropewalk.Temperature, where the model's own code does not apply it; or None
    multiplier: float  # of the scores

    def __post_init__(self):
        self.settings = None if self.map is None else self.map.settings
        self.rotate_by(self.rotation)

    def rotate_by(self, rotation: Any) -> None:
        """Also as plain data, which torch.compile takes."""
        self.rotation = rotation
        with torch.inference_mode(False):  # gradients may go through it later
            self.inv_freq = None if rotation is None else torch.tensor(rotation.inv_freq, device="cpu")
        self.amplitude = 1.0 if rotation is None else rotation.amplitude
        numbers = None if rotation is None else self.inv_freq.numpy().tobytes()
        views = None if self.map is None else (self.map.name, *self.settings.items())
        self.alike = numbers, self.amplitude, views  # layers that are equal in it rotate alike

    def __deepcopy__(self, memo: dict) -> Attention:
        return dataclasses.replace(self, shared=copy.deepcopy(self.shared, memo))  # the rest does not change


class Hook:
    """Before a rotary module runs: remembers the positions that it is called with."""

    def __init__(self, shared: Shared):
        self.shared = shared

    def __call__(self, module, args, kwargs):
        positions = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if not all(change.holds() for change in self.shared.attention):
            raise Error(
                "the attention of this model was changed (set_attn_implementation) while a method is applied that needs "
                "its own: its layers would not rotate; call ropewalk.transformers.restore(model) first"
            )
        if isinstance(positions, torch.Tensor) and not positions.is_floating_point():
            if positions.ndim == 3:
                if self.shared.attention and _axes_differ(positions):
                    raise Error(
                        "position_ids: expected axes that are equal, as those of text are; under log-n this model "
                        "rotates by one position for each token, which images and video do not have"
                    )
                positions = positions[0]
            self.shared.note(positions if positions.ndim == 2 else positions.reshape(1, -1))
            if self.shared.follower is not None:
                self.shared.follower.see(int(positions.max()) + 1)


def _axes_differ(positions: torch.Tensor) -> bool:
    """Whether positions [axes, batch, tokens] of M-RoPE are other than text's. Yes, where their values cannot be asked
    for and they are not one row that is seen several times."""
    if positions.shape[0] == 1 or positions.stride(0) == 0:
        return False
    return not by_itself() or bool((positions != positions[:1]).any())


def attention(
    module,
    query,
    key,
    value,
    attention_mask=None,
    scaling=None,
    dropout=0.0,
    softcap=None,
    s_aux=None,
    sliding_window=None,
    **kwargs,
):
    """query [batch, heads, tokens, dim], key and value [batch, kv_heads, keys, dim], unrotated. Returns [batch, tokens,
    heads, dim] and the weights where they are asked for."""
    info = module.__dict__.get(STATE)
    if info is None:  # of another part of the model, which keeps its rotation
        info = Attention(Shared(), None, None, None, None, 1.0)
    tokens, dim = query.shape[2:]
    keys = key.shape[2]
    scaling = (dim**-0.5 if scaling is None else scaling) * info.multiplier
    now = _pass(info.shared, attention_mask, tokens, keys, query.device, kwargs.get("position_ids"))
    temperature = None if info.temperature is None else _temperature(info.temperature, now)
    causal = getattr(module, "is_causal", True) or (tokens == 1 and sliding_window is None)
    wants_weights = kwargs.get("output_attentions")
    if wants_weights is None:
        wants_weights = getattr(getattr(module, "config", None), "output_attentions", False)
    dropout = dropout if module.training else 0.0
    causal_alone = attention_mask is None and causal and (sliding_window is None or sliding_window >= keys)
    if causal_alone and not (wants_weights or dropout or softcap) and _fits_parts(query, key, value, s_aux):
        anywhere = info.map is None or info.map.name not in ("dual-chunk", "sinks")  # only distances count
        first = now.first()
        parts = parts_of(info.map, info.settings, tokens, keys) if first == 0 or (first > 0 and anywhere) else None
        if parts is not None:
            return _by_parts(info, query, key, value, now, parts, scaling, temperature, s_aux), None
    if _fits_kernel(info, query, key, value, causal or attention_mask is not None, wants_weights) and not dropout:
        rows = visible(attention_mask, tokens, keys, sliding_window)
        if rows is not None and _counts_up(info, rows, now.at, now.to):
            return _kernel(info, query, key, value, rows, now.at, now.to, scaling, temperature, softcap, s_aux), None
    if attention_mask is None and causal and sliding_window is not None and not causal_alone:
        query_slots, key_slots = slots(None, tokens, keys, query.device)
        attention_mask = key_slots <= query_slots[:, None]
        attention_mask &= key_slots > query_slots[:, None] - sliding_window
        attention_mask = attention_mask[None, None]
    if info.map is not None and by_itself():
        asked = "ahead", causal
        if asked not in now.rows:
            now.rows[asked] = sees_ahead(attention_mask, tokens, keys, causal)
        if now.rows[asked]:
            raise not_causal(module, info.map)
    rest = scaling, temperature, softcap, s_aux, dropout, wants_weights
    return _dense(info, query, key, value, attention_mask, now, causal_alone, *rest)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, mask)


def _pass(shared: Shared, mask: Any, tokens: int, keys: int, device: torch.device, given: Any) -> Pass:
    noted = shared.noted()
    if not by_itself() or not (mask is None or isinstance(mask, torch.Tensor)):
        return Pass((), *positions(mask, tokens, keys, device, given, noted))
    of = (mask, given if isinstance(given, torch.Tensor) else None, noted)
    passes = shared.running.passes
    key = (tokens, keys, device, torch.is_inference_mode_enabled(), *map(id, of))
    found = passes.get(key)
    if found is None or not found.is_of(of):
        if len(passes) > 8:  # of a model whose rotary modules do not say when a pass begins
            passes.clear()
        found = Pass(of, *positions(mask, tokens, keys, device, given, noted))
        passes[key] = found
    return found


def _temperature(temperature: Any, now: Pass) -> torch.Tensor:
    """Float32 [batch or 1, tokens]: the formulas of ropewalk.Temperature, on the positions' device."""
    key = "temperature", str(temperature)
    if key not in now.rows:
        now.rows[key] = _temperature_at(temperature, now.at)
    return now.rows[key]


def _temperature_at(temperature: Any, positions: torch.Tensor) -> torch.Tensor:
    n = positions.clamp_min(0).double()  # before the first position as at it, so that padding may have any
    if temperature.kind == "log-n":
        values = (torch.log(n + 1) / np.log(temperature.period)).clamp_min(1)
    elif temperature.kind == "mscale":
        values = torch.full_like(n, (1 + temperature.beta * np.log(temperature.period)) ** 2)
    else:
        values = 1 + temperature.beta * torch.log1p(((n + temperature.offset) / temperature.period).floor())
    return values.float()


# ---------------------------------------------------------------------------------------------------------------------
# On a CPU: the library's own kernel


def _fits_kernel(info: Attention, query, key, value, causal: bool, wants_weights: bool) -> bool:
    """Whether ropewalk.torch.attention computes what is asked, apart from what the mask says."""
    if not by_itself():
        return False
    if not query.is_cpu or query.dtype not in _KERNEL_TYPES or wants_weights or not causal:
        return False
    if info.map is not None and info.layout is None:
        return False
    return key.shape[3] == query.shape[3]


def _counts_up(info: Attention, rows: list[Visible], queries: torch.Tensor, keys: torch.Tensor) -> bool:
    """Whether positions say the same as the slots that `rows` are made of. The kernel masks and windows by positions;
    maps take key j of a document at position j (from any first one on, where only distances count)."""
    anywhere = info.map is None or info.map.name in ("rerope", "leaky-rerope")
    for row in range(max(len(rows), queries.shape[0])):
        one = rows[row if len(rows) > 1 else 0]
        if one.queries[0] == one.queries[1]:  # padding alone
            continue
        q, k = (x[row if x.shape[0] > 1 else 0] for x in (queries, keys))
        k, q = k[slice(*one.keys)], q[slice(*one.queries)]
        if not torch.equal(q, k[k.shape[0] - q.shape[0] :]):
            return False
        steps = k.diff()
        if one.starts:
            steps[torch.tensor(one.starts[1:], device="cpu") - 1] = 1
        if not bool((steps == 1).all() if one.window or info.map is not None else (steps > 0).all()):
            return False
        if not anywhere and bool(k[list(one.starts or (0,))].any()):
            return False
        if info.map is None and bool((k < 0).any()):
            return False
    return True


def _frequencies(info: Attention) -> ops.Frequencies | None:
    if info.layout is None:
        return None
    key = ("kernel", info.inv_freq.numpy().tobytes(), info.layout.direction)
    inv_freq = info.shared.tables.get(key)
    if inv_freq is None:
        # Axes of M-RoPE are equal for text.
        with torch.inference_mode(False):  # it is kept, and gradients may go through it later
            exact = ops.frequencies(info.rotation).inv_freq if info.rotation.axes == 1 else info.inv_freq
            inv_freq = info.layout.direction * exact
        info.shared.tables[key] = inv_freq
    layout = "interleaved" if info.layout.interleaved else "half"
    return ops.Frequencies(inv_freq, layout, info.layout.first_dim, info.amplitude)


def _documents(one: Visible) -> list[Visible]:
    """Each document by itself: maps count from its first token."""
    if not one.starts:
        return [one]
    calls = []
    first, last = one.keys
    shift = one.queries[1] - last  # the last token's own key is the last key
    for begin, end in zip(one.starts, (*one.starts[1:], last - first)):
        begin, end = first + begin, first + end
        calls.append(Visible((begin, end), (max(one.queries[0], begin + shift), end + shift), one.window))
    return calls


def _kernel(info: Attention, query, key, value, rows, at, to, scaling, temperature, softcap, s_aux):
    """The result [batch, tokens, heads, dim]; tokens of padding get zeros."""
    batch, heads, tokens = query.shape[:3]
    width = value.shape[3]
    alike = len(rows) == 1 and at.shape[0] == 1 and to.shape[0] == 1
    positions = info.map is None  # with a map, key j is at position j
    outputs = []
    for row in range(1 if alike else batch):
        some = slice(None) if alike else slice(row, row + 1)
        parts, done = [], 0
        for one in _documents(rows[row if len(rows) > 1 else 0]):
            (q0, q1), (k0, k1) = one.queries, one.keys
            if q0 == q1:
                continue
            if q0 > done:
                parts.append(query.new_zeros(query[some].shape[0], q0 - done, heads, width))
            done = q1
            mine = [x[some if x.shape[0] > 1 else slice(None)].long() for x in (at, to)]
            out = ops.attention(
                query[some, :, q0:q1].transpose(1, 2),
                key[some, :, k0:k1].transpose(1, 2),
                value[some, :, k0:k1].transpose(1, 2),
                rotation=_frequencies(info),
                remap=info.map,
                scale=scaling,
                window=one.window,
                soft_cap=softcap or 0.0,
                sinks=None if s_aux is None else s_aux.float(),
                temperatures=None
                if temperature is None
                else temperature[some if len(temperature) > 1 else slice(None), q0:q1],
                query_positions=mine[0][:, q0:q1] if positions else None,
                key_positions=mine[1][:, k0:k1] if positions else None,
            )
            parts.append(out)
        if done < tokens:
            parts.append(query.new_zeros(query[some].shape[0], tokens - done, heads, width))
        outputs.append(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).contiguous()


# ---------------------------------------------------------------------------------------------------------------------
# On a GPU, in 16 bits: fused kernels


def _fits_parts(query, key, value, s_aux) -> bool:
    """Whether PyTorch's flash attention takes these. What is merged has no gradients."""
    if not by_itself() or not query.shape[3] == key.shape[3] == value.shape[3]:
        return False
    if not query.dtype == key.dtype == value.dtype or query.shape[2] == 0:
        return False
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (query, key, value, s_aux)):
        return False
    return works(query.device, query.dtype, query.shape[1], key.shape[1], query.shape[3])


def _by_parts(info: Attention, query, key, value, now: Pass, parts, scaling, temperature, s_aux):
    def turned(view: int, side: int, first: int, end: int) -> torch.Tensor:
        x = (query, key)[side][:, :, first:end]
        if side == 0 and temperature is not None:
            x = x.float() * temperature[:, None, first:end, None]
        if info.layout is not None:
            cos, sin = (c[:, :, first:end] for c in _view_cos_sin(info, view, side, now))
            x = turn(x, cos, sin, info.layout)
        return x.to(query.dtype)

    return attend(parts, turned, value, scaling, s_aux)


# ---------------------------------------------------------------------------------------------------------------------
# Everywhere else: the formula, scores in blocks of queries


def _mapped(formula: dict, positions: torch.Tensor) -> torch.Tensor:
    """Without the formula's bound at 0, which only pairs of other views reach, and positions below 0."""
    if formula["modulus"] is not None:
        positions = positions % formula["modulus"]
    positions = formula["slope"] * (formula["multiplier"] * positions // formula["divisor"]) + formula["offset"]
    return positions if formula["limit"] is None else positions.clamp_max(formula["limit"])


def _cos_sin(info: Attention, positions: torch.Tensor, divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [batch or 1, 1, tokens, pairs], times the amplitude."""
    if torch.compiler.is_compiling():  # how many rows a table needs is in the positions, which are not known yet
        angles = positions[:, None, :, None] * (info.inv_freq.to(positions.device) / divisor)
        return (angles.cos() * info.amplitude).float(), (angles.sin() * info.amplitude).float()
    steps = positions.abs()  # what is below 0 rotates by as much, the other way
    rows = int(steps.max()) + 1
    key = (info.inv_freq.numpy().tobytes(), info.amplitude, divisor, positions.device)
    table = info.shared.tables.get(key)
    if table is None or table.shape[0] < rows:
        count = max(256, 1 << (rows - 1).bit_length())
        if divisor == 1:
            values = np.array(info.rotation.table(count).rows, dtype=np.float32)
        else:
            angles = np.arange(count, dtype=np.float64)[:, None] * info.inv_freq.numpy() / divisor
            values = np.stack((np.cos(angles), np.sin(angles)), axis=1) * info.amplitude
        with torch.inference_mode(False):  # it is kept, and gradients may go through it later
            table = torch.from_numpy(values.astype(np.float32)).to(positions.device)
        info.shared.tables[key] = table
    chosen = table[steps]
    cos, sin = chosen[:, None, :, 0], chosen[:, None, :, 1]
    return cos, torch.where((positions < 0)[:, None, :, None], -sin, sin)


def _view_cos_sin(info: Attention, view: int, side: int, now: Pass) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the queries (side 0) or keys (1) of a view of the map; without one, of the positions as they are."""
    key = info.alike, view, side
    if key not in now.rows:
        chosen = None if info.map is None else info.map.views[view]
        now.rows[key] = _mapped_cos_sin(info, chosen, side, (now.at, now.to)[side])
    return now.rows[key]


def _mapped_cos_sin(info: Attention, view: Any, side: int, positions: torch.Tensor):
    if view is None:
        return _cos_sin(info, positions, 1)
    shares = [pair[side] for pair in view.shares] or [(view.query, view.key)[side]]
    each = [_cos_sin(info, _mapped(formula, positions), view.frequency_divisor) for formula in shares]
    if len(each) == 1:
        return each[0]
    pairs = each[0][0].shape[-1]
    share = [len(shares) * p // pairs for p in range(pairs)]
    return tuple(torch.stack([each[s][i][..., p] for p, s in enumerate(share)], dim=-1) for i in (0, 1))


def _views_of(position_map: Any, s: dict[str, int], queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """The view that scores each pair, [batch or 1, tokens, keys]; -1: masked. Keys ahead of their query, which the
    causal mask hides, get the first."""
    q, k = queries[:, :, None], keys[:, None, :]
    if position_map.name == "dual-chunk":
        return (q // s["chunk"] - k // s["chunk"]).clamp(0, 2)
    if position_map.name == "lampe":
        if len(position_map.views) == 1:
            return (q - k).clamp(0, 0)
        far = max(s["head"], s["length"] - min(s["tail"], s["length"]))
        return (q - k >= s["head"]).long() + (q - k >= far).long()
    far = (q - k >= s["shift" if position_map.name == "string" else "window"]).long()
    if position_map.name == "sinks":
        return torch.where(k < s["sinks"], 1, -far)
    return far


def _rotated(info: Attention, query, key, now: Pass) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Queries [batch, kv_heads, group, tokens, dim] and keys [batch, kv_heads, 1, dim, keys] of every view."""
    batch, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    pairs = []
    for view in range(1 if info.map is None else len(info.map.views)):
        q, k = query, key
        if info.layout is not None:
            q = turn(query, *_view_cos_sin(info, view, 0, now), info.layout)
            k = turn(key, *_view_cos_sin(info, view, 1, now), info.layout)
        pairs.append((q.reshape(batch, kv_heads, heads // kv_heads, tokens, dim), k[:, :, None].transpose(-1, -2)))
    return pairs


def _scores(info: Attention, rotated, rows: slice, seen: int, now: Pass, scaling):
    """Scores of some queries and of the first `seen` keys, float32 [batch, kv_heads, group, tokens, seen], and the
    pairs that the map masks, or None."""
    if info.map is None:
        ((q, k),) = rotated
        return torch.matmul(q[..., rows, :], k[..., :seen]).float() * scaling, None
    chosen = _views_of(info.map, info.settings, now.at[:, rows], now.to[:, :seen])[:, None, None]
    scores = None
    for view, (q, k) in enumerate(rotated):
        mine = chosen == view
        if view > 0 and mine.device.type == "cpu" and not torch.compiler.is_compiling() and not mine.any():
            continue
        these = torch.matmul(q[..., rows, :], k[..., :seen]).float() * scaling
        scores = these if scores is None else torch.where(mine, these, scores)
    return scores, chosen < 0 if info.map.name == "sinks" else None


def _dense(
    info, query, key, value, mask, now: Pass, causal: bool, scaling, temperature, softcap, s_aux, dropout, wants_weights
):
    """`causal`: instead of a mask."""
    batch, heads, tokens, _ = query.shape
    keys, kv_heads = key.shape[2], key.shape[1]
    group = heads // kv_heads
    weighted, outputs = [], []
    lowest = torch.finfo(torch.float32).min
    step = max(1, tokens if torch.compiler.is_compiling() else _SCORES // max(1, batch * heads * keys))
    rotated = _rotated(info, query, key, now)
    causal = causal and tokens > 1
    for first in range(0, tokens, step):
        rows = slice(first, first + step)
        seen = keys if wants_weights or not causal else keys - tokens + min(tokens, first + step)
        scores, hidden = _scores(info, rotated, rows, seen, now, scaling)
        if temperature is not None:
            scores = scores * temperature[:, None, None, rows, None]
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None:
            part = mask[:, :, rows, :keys] if mask.shape[2] > 1 else mask[..., :keys]
            if part.shape[1] == 1:  # of all heads
                part = part[:, :, None]
            else:
                part = part.reshape(part.shape[0], kv_heads, group, *part.shape[2:])
            scores = scores.masked_fill(~part, lowest) if part.dtype == torch.bool else scores + part.float()
        elif causal:
            query_slots, key_slots = slots(None, tokens, keys, query.device)
            scores = scores.masked_fill(key_slots[:seen] > query_slots[rows, None], lowest)
        if hidden is not None:
            scores = scores.masked_fill(hidden, lowest)
        if s_aux is not None:
            sinks = s_aux.float().reshape(1, kv_heads, group, 1, 1).expand(batch, -1, -1, scores.shape[3], 1)
            scores = torch.cat((scores, sinks), dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., :seen].to(value.dtype)
        weights = torch.nn.functional.dropout(weights, p=dropout, training=dropout > 0)
        outputs.append(torch.matmul(weights, value[:, :, None, :seen]).reshape(batch, heads, -1, value.shape[-1]))
        if wants_weights:
            weighted.append(weights.reshape(batch, heads, -1, keys))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return output.transpose(1, 2).contiguous(), torch.cat(weighted, dim=2) if weighted else None
