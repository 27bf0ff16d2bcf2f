"""Attention on a CPU by the library's own kernel, where that computes what is asked."""

from __future__ import annotations

import torch

import ropewalk.torch as ops
from ropewalk.transformers._mask import Visible, by_itself
from ropewalk.transformers._pass import Attention

_KERNEL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def fits(info: Attention, query, key, value, causal: bool, wants_weights: bool) -> bool:
    """Whether ropewalk.torch.attention computes what is asked, apart from what the mask says."""
    if not by_itself():
        return False
    if not query.is_cpu or query.dtype not in _KERNEL_TYPES or wants_weights or not causal:
        return False
    if info.map is not None and info.layout is None:
        return False
    return key.shape[3] == query.shape[3]


def counts_up(info: Attention, rows: list[Visible], queries: torch.Tensor, keys: torch.Tensor) -> bool:
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


def attend(info: Attention, query, key, value, rows, at, to, scaling, temperature, softcap, s_aux):
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
