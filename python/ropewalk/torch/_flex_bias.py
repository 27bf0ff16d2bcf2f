"""The biases of attention on devices without kernels: what FlexAttention adds to a score."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk._bias import T5Bias
from ropewalk.torch._attention_op import Settings
from ropewalk.torch._rotation import rows_or_nan
from ropewalk.torch._shared import refuse

# What has no formula here, and what has instead.
_CPU_ALONE = {
    "value_rows": "Content with value_rows is computed on the CPU alone: FlexAttention has no weights by distance; use Shaw with "
    "values=False, or rows for queries and keys",
    5: "Contextual (CoPE) is computed on the CPU alone, because its positions are sums over scores; use Gates (ForgettingGate)",
    6: "Fire is computed on the CPU alone, because each pair has a network; use a table of distances (Kerple, T5Bias)",
}


def _distances(values: Tensor, first: int, ahead: bool, behind: bool):
    last = values.shape[1] - 1

    def add(b, h, i, j, d):
        c = d - first
        known = ((c >= 0) | ahead) & ((c <= last) | behind)
        return torch.where(known, values[h, c.clamp(0, last)], float("nan"))

    return add


def _content(bias: list[Tensor], numbers: list[int], q: Tensor, k: Tensor, scale: float):
    heads, group = q.shape[2], q.shape[2] // k.shape[2]
    row_of, last = bias[0].long(), bias[0].shape[0] - 1
    first, ahead, behind = numbers[0], bool(numbers[1]), bool(numbers[2])
    query_rows, key_rows, value_rows, query_bias, key_bias = bias[1:]
    if value_rows.numel():
        raise refuse(f"bias: {_CPU_ALONE['value_rows']}", "unsupported")

    def product(x, rows):  # [B, H, tokens, rows]
        return torch.einsum("bthd,hrd->bhtr", x, rows.expand(heads, -1, -1).to(x.dtype)) * scale

    by_query = by_key = by_bias = None
    if query_rows.numel():
        by_query = product(q + query_bias.to(q.dtype) if query_bias.numel() else q, query_rows)
    keys = k.repeat_interleave(group, 2)
    if key_rows.numel():
        by_key = product(keys, key_rows)
    if key_bias.numel():
        by_bias = torch.einsum("bthd,hd->bht", keys, key_bias.to(k.dtype)) * scale

    def add(b, h, i, j, d):
        c = d - first
        r = row_of[c.clamp(0, last)]
        score = 0.0
        if by_query is not None:
            score = score + by_query[b, h, i, r]
        if by_key is not None:
            score = score + by_key[b, h, j, r]
        if by_bias is not None:
            score = score + by_bias[b, h, j]
        return torch.where(((c >= 0) | ahead) & ((c <= last) | behind), score, float("nan"))

    return add


def _gates(log_gates: Tensor, offset: int):
    """Differences of sums, each as two numbers of float32: one alone has lost what a query sees to what was forgotten before."""
    sums = log_gates.double().cumsum(1)
    high = sums.float()
    low = (sums - high.double()).detach().float()  # the gradient is that of the high ones
    of_queries, low_of_queries = high[:, offset:].clone(), low[:, offset:]

    def add(b, h, i, j, d):
        return (of_queries[b, i, h] - high[b, j, h]) + (low_of_queries[b, i, h] - low[b, j, h])

    return add


def _swin(bias: list[Tensor], numbers: list[int], q_at: Tensor, k_at: Tensor):
    """The values of all offsets of the window, [heads, (2 height - 1) (2 width - 1)], and which a pair has."""
    w1, b1, w2 = bias
    height, width, *trained = numbers

    def spaced(size, trained):
        n = torch.arange(1 - size, size, device=w1.device, dtype=torch.float32)
        return torch.sign(n) * torch.log2(1 + 8 * n.abs() / max((trained or size) - 1, 1)) / 3

    y, x = spaced(height, trained[0]), spaced(width, trained[1])
    offsets = torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).flatten(0, 1)
    values = (16 * torch.sigmoid(torch.relu(offsets @ w1.t() + b1) @ w2.t())).t().contiguous()
    across = 2 * width - 1

    def place(p):
        return torch.where((p >= 0) & (p < height * width), p // width * across + p % width, values.shape[1] * 2)

    of_query, of_key = place(q_at) + (height - 1) * across + width - 1, place(k_at)

    def add(b, h, i, j, d):
        at = of_query[b, i] - of_key[b, j]
        known = (at >= 0) & (at < values.shape[1])
        return torch.where(known, values[h, at.clamp(0, values.shape[1] - 1)], float("nan"))

    return add


def tupe(bias: list[Tensor], numbers: list[int], q_at: Tensor, k_at: Tensor):
    """The projected positions, [B, tokens, H, D] each, whose products are scaled by (2 D)^-0.5, and what else is added."""
    embedding, query, query_bias, key, key_bias, relative, from_cls, to_cls = bias
    reset = from_cls.numel() > 0

    def projected(weight, added, at):
        rows = torch.einsum("pm,hdm->phd", embedding, weight) + (added if added.numel() else 0.0)
        rows = rows_or_nan(rows, at)
        return torch.where((at == 0)[..., None, None], 0.0, rows) if reset else rows

    bucket = None
    if relative.numel():
        indices = np.arange(relative.shape[0], dtype=np.float32)[:, None]
        settings = {"buckets": relative.shape[0], "last_distance": numbers[0], "bidirectional": bool(numbers[1])}
        fields = T5Bias(1, **settings, embedding=indices).lower(numbers[0]).fields
        bucket, first = torch.from_numpy(fields["values"][0]).to(relative.device).long(), int(fields["first"])

    def add(b, h, i, j, d):
        score = 0.0 if bucket is None else relative[bucket[(d - first).clamp(0, bucket.shape[0] - 1)], h]
        if not reset:
            return score
        score = torch.where(k_at[b, j] == 0, to_cls[h], score)
        return torch.where(q_at[b, i] == 0, from_cls[h], score)

    return projected(query, query_bias, q_at), projected(key, key_bias, k_at), add


def score_mod_of(s: Settings, q: Tensor, k: Tensor, scale: float, q_at: Tensor, k_at: Tensor) -> Any:
    """What a bias adds to a scaled score: a function (b, h, i, j, distance) -> number. q and k [B, tokens, H, D]."""
    bias, numbers = s.bias, s.numbers
    # A kernel adds up the gradient of a tensor at one index only, so none that may have one is read at two.
    if s.kind == 1:
        behind, ahead = bias
        if not ahead.numel() or ahead is behind:  # without, attention is causal
            return lambda b, h, i, j, d: -behind[h] * abs(d)
        return lambda b, h, i, j, d: torch.where(d >= 0, -behind[h], ahead[h]) * d
    if s.kind == 2:
        return _distances(bias[0], numbers[0], bool(numbers[1]), bool(numbers[2]))
    if s.kind == 3:
        return _content(bias, numbers, q, k, scale)
    if s.kind == 4:
        return _gates(bias[0], k.shape[1] - q.shape[1])
    if s.kind == 8:
        return _swin(bias, numbers, q_at, k_at)
    raise refuse(f"bias: {_CPU_ALONE[s.kind]}", "unsupported")
