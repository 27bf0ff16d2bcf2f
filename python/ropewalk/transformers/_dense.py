"""Attention by its formula, on every device: scores in blocks of queries, one product for each view of a map."""

from __future__ import annotations

import torch

from ropewalk.transformers._mask import slots
from ropewalk.transformers._pass import Attention, Pass
from ropewalk.transformers._probe import turn
from ropewalk.transformers._views import view_cos_sin, views_of

_SCORES = 1 << 25  # elements of a block of scores: 128 MiB


def _rotated(info: Attention, query, key, now: Pass) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Queries [batch, kv_heads, group, tokens, dim] and keys [batch, kv_heads, 1, dim, keys] of every view."""
    batch, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    pairs = []
    for view in range(1 if info.map is None else len(info.map.views)):
        q, k = query, key
        if info.layout is not None:
            q = turn(query, *view_cos_sin(info, view, 0, now), info.layout)
            k = turn(key, *view_cos_sin(info, view, 1, now), info.layout)
        pairs.append((q.reshape(batch, kv_heads, heads // kv_heads, tokens, dim), k[:, :, None].transpose(-1, -2)))
    return pairs


def _scores(info: Attention, rotated, rows: slice, seen: int, now: Pass, scaling):
    """Scores of some queries and of the first `seen` keys, float32 [batch, kv_heads, group, tokens, seen], and the
    pairs that the map masks, or None."""
    if info.map is None:
        ((q, k),) = rotated
        return torch.matmul(q[..., rows, :], k[..., :seen]).float() * scaling, None
    chosen = views_of(info.map, info.settings, now.at[:, rows], now.to[:, :seen])[:, None, None]
    scores = None
    for view, (q, k) in enumerate(rotated):
        mine = chosen == view
        if view > 0 and mine.device.type == "cpu" and not torch.compiler.is_compiling() and not mine.any():
            continue
        these = torch.matmul(q[..., rows, :], k[..., :seen]).float() * scaling
        scores = these if scores is None else torch.where(mine, these, scores)
    return scores, chosen < 0 if info.map.name == "sinks" else None


def attend(
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
