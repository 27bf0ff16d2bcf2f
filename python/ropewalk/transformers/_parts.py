"""On a GPU: attention of a position map by fused kernels. Each view scores ranges of keys; their results are merged by
log-sum-exp, so that scores are never in memory."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

_MOST = 512  # parts, above which their launches cost more than scores in memory
_TYPES = (torch.bfloat16, torch.float16)
# Tokens, keys, causal and window by which flash attention is tried.
_CASES = (150, 333, True, 0), (333, 333, True, 100), (90, 333, True, 100), (200, 300, False, 0), (1, 99, True, 0)


class Part(NamedTuple):
    """Some queries and some keys, which a view scores. Causal: the last query sees all of the keys, the one before all
    but the last, and so on; with a window, the last so many of them."""

    view: int
    queries: tuple[int, int]
    keys: tuple[int, int]
    causal: bool = True
    window: int = 0  # 0: all


def parts_of(position_map: Any, s: dict[str, int], tokens: int, keys: int) -> list[Part] | None:
    """The parts of causal attention of the last `tokens` of `keys` positions, which count from 0. Together they have
    each pair that the map does not mask once. All queries of a part are new, or all are in parts before it. None: the
    map has no such parts, or too many."""
    before = keys - tokens

    def band(view: int, near: int, far: int | None, begin: int = 0) -> list[Part]:
        """near <= query - key < far, of keys from `begin` on."""
        first = max(before, begin + near)  # the first query that has such a key
        if first >= keys or (far is not None and far <= near):
            return []
        low = begin if far is None else max(begin, first - far + 1)
        windowed = far is not None and keys - far > low  # the last query does not see all of them
        return [Part(view, (first - before, tokens), (low, keys - near), True, far - near if windowed else 0)]

    name = None if position_map is None else position_map.name
    if name is None or (name == "lampe" and len(position_map.views) == 1):
        return band(0, 0, None)
    if name == "lampe":
        far = max(s["head"], s["length"] - min(s["tail"], s["length"]))
        return band(0, 0, s["head"]) + band(1, s["head"], far) + band(2, far, None)
    if name in ("rerope", "leaky-rerope", "self-extend", "dpe", "string"):
        far = s["shift" if name == "string" else "window"]
        return band(0, 0, far) + band(1, far, None)
    found = []
    if name == "sinks":
        sinks = min(s["sinks"], keys)
        if before < sinks:
            found.append(Part(1, (0, sinks - before), (0, sinks)))
        if 0 < sinks < keys:
            found.append(Part(1, (max(sinks - before, 0), tokens), (0, sinks), False))
        return found + band(0, 0, s["window"], sinks)
    if name == "dual-chunk":
        size = s["chunk"]
        chunks = range(before // size, -(-keys // size))
        if 3 * len(chunks) > _MOST:
            return None
        for chunk in chunks:
            begin, end = chunk * size, min(keys, (chunk + 1) * size)
            queries = max(begin - before, 0), end - before
            found.append(Part(0, queries, (begin, end)))
            if chunk > 0:
                found.append(Part(1, queries, (begin - size, begin), False))
            if chunk > 1:
                found.append(Part(2, queries, (0, begin - size), False))
        return found
    return None


def _formula(q, k, v, causal: bool, window: int, scale: float):
    """What `_flash` computes, by scores in float32."""
    tokens, keys, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        distance = torch.arange(keys - tokens, keys, device=q.device)[:, None] - torch.arange(keys, device=q.device)
        hidden = distance < 0
        if window:
            hidden |= distance >= window
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def _flash(q, k, v, causal: bool, window: int, scale: float):
    """[batch, tokens, heads, dim] and the log-sum-exp, float32 [batch, heads, tokens]. scaled_dot_product_attention
    returns no log-sum-exp, has no window, and aligns causal by the first query and key, not by the last."""
    if q.is_cpu:
        return _formula(q, k, v, causal, window, scale)
    windowed = {"window_size_left": window - 1, "window_size_right": 0} if window else {}
    out, sums, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False, scale=scale, **windowed
    )
    return out, sums[..., : q.shape[1]]


@functools.cache
def works(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, dim: int) -> bool:
    """Whether PyTorch's flash attention is there and does what is asked of it, which its interface does not promise:
    tried on a few tokens."""
    if device.type != "cuda" or dtype not in _TYPES or dim % 8 or dim > 256 or heads % kv_heads:
        return False
    generator = torch.Generator().manual_seed(1)
    try:
        with torch.inference_mode():
            for tokens, keys, causal, window in _CASES:
                shapes = (tokens, heads), (keys, kv_heads), (keys, kv_heads)
                q, k, v = (torch.randn(1, *shape, dim, generator=generator).to(device, dtype) for shape in shapes)
                found = _flash(q, k, v, causal, window, dim**-0.5)
                for x, y in zip(found, _formula(q, k, v, causal, window, dim**-0.5)):
                    if x.shape != y.shape or not bool((x.float() - y).abs().max() < 0.05):
                        return False
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AttributeError):
        return False
    return True


def attend(parts: list[Part], turned: Any, value: torch.Tensor, scale: float, s_aux: Any = None) -> torch.Tensor:
    """[batch, tokens, heads, dim]. `turned(view, side, first, end)`: queries (side 0) or keys (1) from `first` to
    `end`, rotated for a view, [batch, heads, tokens, dim]; value [batch, kv_heads, keys, dim]."""
    ranges: dict[tuple[int, int], tuple[int, int]] = {}  # of each view and side: what its parts have together
    for part in parts:
        for side, (first, end) in enumerate((part.queries, part.keys)):
            least, most = ranges.get((part.view, side), (first, end))
            ranges[part.view, side] = min(least, first), max(most, end)
    rotated = {of: turned(*of, *where).transpose(1, 2) for of, where in ranges.items()}
    value = value.transpose(1, 2)
    tokens = max(part.queries[1] for part in parts)
    out = sums = None
    done = 0
    for part in parts:
        (q0, q1), (k0, k1) = part.queries, part.keys
        q, k = (
            rotated[part.view, side][:, first - ranges[part.view, side][0] : end - ranges[part.view, side][0]]
            for side, (first, end) in enumerate((part.queries, part.keys))
        )
        new, new_sums = _flash(q, k, value[:, k0:k1], part.causal, part.window, scale)
        if len(parts) == 1:
            out, sums = new, new_sums
            break
        if out is None:
            out = torch.empty(new.shape[0], tokens, *new.shape[2:], dtype=torch.float32, device=new.device)
            sums = torch.empty(*new_sums.shape[:2], tokens, dtype=torch.float32, device=new.device)
        mine, my_sums = out[:, q0:q1], sums[:, :, q0:q1]
        if q0 >= done:
            mine.copy_(new)
            my_sums.copy_(new_sums)
        else:
            mine.lerp_(new.float(), torch.sigmoid(new_sums - my_sums).transpose(1, 2)[..., None])
            torch.logaddexp(my_sums, new_sums, out=my_sums)
        done = max(done, q1)
    if s_aux is not None:  # a key without a value
        out = out * torch.sigmoid(sums - s_aux.float()[:, None]).transpose(1, 2)[..., None]
    return out.to(value.dtype).contiguous()
