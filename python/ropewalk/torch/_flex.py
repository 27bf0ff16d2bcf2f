"""Attention of devices without kernels: FlexAttention, one call for each view of a position map, merged by log-sum-exp.

Differentiable wherever FlexAttention is: on a GPU, not on a CPU.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch import Tensor

from ropewalk._core import pointers
from ropewalk.torch._attention_op import Settings, check_lists
from ropewalk.torch._bias import check_bias
from ropewalk.torch._flex_bias import score_mod_of, tupe
from ropewalk.torch._frequencies import rotate_frequencies_formula
from ropewalk.torch._shared import host_reads, query_places, refuse

# Queries and keys of a block of the mask: what FlexAttention's kernels have by default.
_BLOCK = 128


def _shapes(q: Tensor, k: Tensor, v: Tensor, **_settings: Any) -> tuple[Tensor, Any]:
    """What FlexAttention gives on "meta", which it does not know."""
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return out, types.SimpleNamespace(lse=q.detach().sum(-1, dtype=torch.float32))


@functools.cache
def _function(kind: int | str | None, backend: str = "inductor"):
    """FlexAttention compiled for biases of a kind; None: as it is, for a device where it works so, or inside a compiled model;
    "meta": shapes alone."""
    if kind == "meta":
        return _shapes
    from torch.nn.attention.flex_attention import flex_attention

    if kind is None:
        return flex_attention

    def call(*args, **settings):
        return flex_attention(*args, **settings)

    # Dynamo counts and searches what it compiled by code object, so each kind has its own. One graph or an error: what it
    # does not capture whole runs without a fused kernel, with all scores in memory, and its gradients fail.
    code = call.__code__.replace(co_name=f"attention_with_bias_{kind}")
    own = types.FunctionType(code, call.__globals__, code.co_name, None, call.__closure__)
    compiled = torch.compile(own, dynamic=True, fullgraph=True, backend=backend)

    def run(*args, **settings):
        # With dynamic shapes dynamo makes an input of each float (the scale, soft_cap), and a score_mod that captures one is
        # not traced: floats have to be constants. The limit is for dtypes, head counts, batches of one, with gradients or not.
        with torch._dynamo.config.patch(specialize_float=True, recompile_limit=64):
            return compiled(*args, **settings)

    return run


def _compiles(x: Tensor) -> bool:
    return x.is_cuda and not torch.compiler.is_compiling()


def _at(x: Tensor, b: Tensor, i: Tensor) -> Tensor:
    """Of a list for all sequences, or for each."""
    return x[i] if x.dim() == 1 else x[b, i]


def _check(q: Tensor, k: Tensor, v: Tensor, s: Settings) -> None:
    """What the library checks on the CPU."""
    batch, tokens, heads, dim = q.shape
    keys = k.shape[1]
    if k.shape[0] != batch or k.shape[3] != dim or k.shape[2] < 1:
        raise refuse(f"attention: k: expected [{batch}, keys, kv_heads, {dim}], got {list(k.shape)}")
    if v.shape[:3] != k.shape[:3] or v.shape[3] < 1:
        raise refuse(f"attention: v: expected k's batch, keys and heads, and elements in them, got {list(v.shape)}")
    if heads % k.shape[2] != 0:
        raise refuse(f"attention: q: expected a multiple of the {k.shape[2]} key heads, got {heads} heads")
    if tokens > keys and s.query_positions is None and s.query_document_starts is None:
        raise refuse(f"attention: q: has {tokens} tokens but there are {keys} keys; give query_positions")
    for name, value, least in (("window", s.window, 0), ("soft_cap", s.soft_cap, 0)):
        if value < least:
            raise refuse(f"attention: {name}: expected {least} or more, got {value}")
    if s.scale is not None and not s.scale > 0:
        raise refuse(f"attention: scale: expected a number above 0, got {s.scale}")
    if s.query_document_starts is not None and (
        s.document_starts is None or s.document_starts.shape != s.query_document_starts.shape
    ):
        raise refuse("attention: query_document_starts: expected as many as document_starts")
    if s.inv_freq is not None and (s.query_positions is not None or s.key_positions is not None):
        raise refuse(
            "attention: query_positions and key_positions with a position map are computed on the CPU alone; leave them out "
            "where key j has position j and the queries are the last tokens",
            "unsupported",
        )
    check_bias(s.kind, s.bias, q, k)
    if s.kind == 1 and not s.causal and not s.bias[1].numel():
        raise refuse("bias: ahead: expected a slope for each head as attention is bidirectional")
    if s.kind in (4, 5) and not s.causal:
        raise refuse("attention: expected a causal one with a bias that sums over the tokens between")
    if s.kind == 8 and s.query_positions is None and s.key_positions is None and keys > s.numbers[0] * s.numbers[1]:
        raise refuse(f"bias: the window has {s.numbers[0] * s.numbers[1]} positions, and there are {keys} keys")


def _intervals(s: Settings, q_at: Tensor, k_at: Tensor) -> tuple[Tensor, Tensor]:
    """The keys [begin, end) that each query sees, a list for all sequences or for each. Positions do not decrease within a
    document, so those keys lie together. q_at [tokens] or [batch, tokens]; k_at the same of keys."""
    tokens, keys = q_at.shape[-1], k_at.shape[-1]
    if k_at.dim() > q_at.dim():
        q_at = q_at.expand(k_at.shape[0], tokens)
    elif q_at.dim() > k_at.dim():
        k_at = k_at.expand(q_at.shape[0], keys)
    begins, ends = torch.zeros_like(q_at), torch.full_like(q_at, keys)
    of_query = of_key = None
    if s.document_starts is not None:
        index = torch.arange(keys, device=k_at.device)
        of_key = torch.searchsorted(s.document_starts, index, right=True)
        if s.query_document_starts is None:
            of_query = of_key[keys - tokens :]
        else:
            of_query = torch.searchsorted(s.query_document_starts, torch.arange(tokens, device=k_at.device), right=True)
        # Each document's positions beyond those of the one before: then they do not decrease at all.
        low, high = k_at.amin(-1, keepdim=True) - 1, k_at.amax(-1, keepdim=True) + 1
        span = high - low + 1
        k_at = k_at - low + of_key * span

    def count(x: Tensor, right: bool) -> Tensor:
        """Keys before position x, or (right) up to it."""
        if of_query is not None:
            x = torch.minimum(torch.maximum(x, low), high) - low + of_query * span
        return torch.searchsorted(k_at.contiguous(), x.contiguous(), right=right)

    window = min(s.window, 1 << 62)
    if s.causal:
        ends = count(q_at, True)
    elif window:
        ends = count(q_at + window, False)
    if window:
        begins = count(q_at - window, True)
    if of_query is not None:
        begins = torch.maximum(begins, torch.searchsorted(of_key, of_query))
        ends = torch.minimum(ends, torch.searchsorted(of_key, of_query, right=True))
    return begins, ends


def _check_distances(s: Settings, q_at: Tensor, k_at: Tensor, seen: tuple[Tensor, Tensor]) -> None:
    """Refuses distances that a table lacks, as the library does. Lists and documents that the host may not read: such a
    distance becomes NaN. q_at and k_at as in `_intervals`, and what that gives."""
    first, ahead, behind = s.numbers
    last = first + s.bias[0].shape[-1] - 1
    tokens, keys = q_at.shape[-1], k_at.shape[-1]
    given = [x for x in (s.query_positions, s.key_positions, s.document_starts, s.query_document_starts) if x is not None]
    if not given:
        within = min(keys, s.window) if s.window else keys
        far, near = within - 1, 0 if s.causal else 1 - (min(tokens, s.window) if s.window else tokens)
    elif all(host_reads(x) for x in given):
        begins, ends = seen
        k_at = k_at.expand(*begins.shape[:-1], keys)
        if s.kind == 3 and s.key_positions is not None:
            apart = k_at.diff() != 1
            if s.document_starts is not None:
                apart &= ~torch.isin(torch.arange(1, keys), s.document_starts)
            if apart.any():
                raise refuse("bias: key_positions: expected consecutive ones within a document, for Content")
        some = begins < ends
        if not some.any():
            return
        far = int((q_at - k_at.gather(-1, begins.clamp(max=keys - 1)))[some].max())
        near = int((q_at - k_at.gather(-1, (ends - 1).clamp(min=0)))[some].min())
    else:
        return
    if (far > last and not behind) or (near < first and not ahead):
        raise refuse(f"bias: knows distances {first} to {last}, and queries see keys at {near} to {far}")


def _both(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.maximum(a[0], b[0]), torch.minimum(a[1], b[1])


def _block_mask(begins: Tensor, ends: Tensor, keys: int) -> Any:
    """FlexAttention's mask of queries that see keys [begin, end), without one of all pairs, which `create_block_mask` makes."""
    from torch.nn.attention.flex_attention import BlockMask

    tokens = begins.shape[-1]
    some = begins < ends
    first, last = torch.where(some, begins, keys), torch.where(some, ends, 0)

    def blocks(x: Tensor, outside: int) -> Tensor:  # [1 or batch, 1, blocks of queries, 1, queries]
        x = torch.nn.functional.pad(x, (0, -tokens % _BLOCK), value=outside)
        return x.reshape(-1, 1, x.shape[-1] // _BLOCK, 1, _BLOCK)

    first, last = blocks(first, keys), blocks(last, 0)
    at = torch.arange(0, keys, _BLOCK, device=begins.device)
    whole = (first.amax(-1) <= at) & (last.amin(-1) >= at + _BLOCK)
    part = (first.amin(-1) < at + _BLOCK) & (last.amax(-1) > at) & ~whole

    def lists(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(torch.int32)
        return x.sum(-1, dtype=torch.int32), torch.argsort(x, dim=-1, descending=True, stable=True).to(torch.int32)

    begins, ends = begins.to(torch.int32), ends.to(torch.int32)

    def mask_mod(b, h, i, j):
        return (j >= _at(begins, b, i)) & (j < _at(ends, b, i))

    made = BlockMask.from_kv_blocks
    return made(*lists(part), *lists(whole), BLOCK_SIZE=_BLOCK, mask_mod=mask_mod, seq_lengths=(tokens, keys))


def _views(q: Tensor, k: Tensor, s: Settings, q_at: Tensor, k_at: Tensor) -> Any:
    """For each view of the map the rotated queries and keys, and the keys [begin, end) that it scores for each query."""
    if s.inv_freq is None:
        yield q, k, None, None
        return
    tokens, keys = q.shape[1], k.shape[1]
    factor = torch.full((), s.amplitude, dtype=torch.float64, device=q.device)
    for view in range(pointers.map_views(list(s.remap))) if s.remap[0] >= 0 else (None,):
        begins = ends = None
        f, qp, kp = s.inv_freq, q_at[:1], k_at[:1]
        if view is not None:
            filled = torch.empty(3 * tokens + keys, dtype=torch.int64)
            divisor = pointers.fill_map_view(list(s.remap), view, keys - tokens, tokens, keys, filled.data_ptr())
            qp, begins, ends, kp = filled.to(q.device).split((tokens, tokens, tokens, keys))
            f = s.inv_freq / divisor
        rotated = [rotate_frequencies_formula(x, None, f, factor, p, 0, s.layout, s.first_dim)[0] for x, p in ((q, qp), (k, kp))]
        yield *rotated, begins, ends


def _merged(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    each = torch.stack([lse for _, lse in parts])
    lse = torch.logsumexp(each, 0)
    weights = torch.where(lse.isneginf(), 0.0, torch.exp(each - torch.where(lse.isneginf(), 0.0, lse)))
    return sum(w[..., None].to(o.dtype) * o for w, (o, _) in zip(weights, parts)), lse


def _list(x: Tensor | None, start: int, count: int, device: torch.device) -> Tensor:
    """Positions of all sequences [count], or of each [batch, count]."""
    if x is None:
        return torch.arange(start, start + count, device=device)
    return x[0] if x.dim() == 2 and x.shape[0] == 1 else x


def plain_attention(q: Tensor, k: Tensor, v: Tensor, s: Settings) -> Tensor | None:
    """What PyTorch's own kernels compute, which are faster: attention without anything that ours add. None: it is not that."""
    settings = (s.window, s.soft_cap, s.temperatures, s.sinks, s.query_positions, s.key_positions, s.document_starts, s.inv_freq)
    if s.kind != 0 or any(x is not None and (torch.is_tensor(x) or x != 0) for x in settings):
        return None
    if q.shape[1] == 0 or (s.causal and q.shape[1] != k.shape[1]):  # SDPA's causal is aligned at the first key
        return None
    _check(q, k, v, s)
    views = (x.transpose(1, 2) for x in (q, k, v))
    settings = {"is_causal": s.causal, "scale": s.scale, "enable_gqa": q.shape[2] != k.shape[2]}
    return torch.nn.functional.scaled_dot_product_attention(*views, **settings).transpose(1, 2)


def flex_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """`attention_op` in plain PyTorch."""
    from torch.nn.attention.flex_attention import AuxRequest

    s = Settings(*rest)
    batch, tokens, heads, dim = q.shape
    keys, device = k.shape[1], q.device
    _check(q, k, v, s)
    s, _ = check_lists(s, q, k)
    if tokens == 0 or keys == 0 or batch == 0:
        empty = torch.full((batch, tokens, heads), -torch.inf, device=device)
        return q.new_zeros((*q.shape[:3], v.shape[3])), empty if s.sinks is None else s.sinks.float().expand_as(empty)
    scale = dim**-0.5 if s.scale is None else s.scale
    offset = keys - tokens
    s = s._replace(query_positions=query_places(s.query_positions, s.key_positions, tokens, keys))
    q_list, k_list = _list(s.query_positions, offset, tokens, device), _list(s.key_positions, 0, keys, device)
    q_at, k_at = q_list.expand(batch, tokens), k_list.expand(batch, keys)
    seen = _intervals(s, q_list, k_list)
    if s.kind in (2, 3):
        _check_distances(s, q_list, k_list, seen)
    add = None if s.kind in (0, 7) else score_mod_of(s, q, k, scale, q_at, k_at)
    content, temperatures, cap = s.kind == 3, s.temperatures, s.soft_cap
    places = None
    if s.kind == 7:  # products of positions are more elements of q and k
        of_query, of_key, add = tupe(s.bias, s.numbers, q_at, k_at)
        places = of_query * ((2 * dim) ** -0.5 / scale), of_key

    def widened(q, k, v):
        if places is None:
            return q, k, v
        if temperatures is not None:  # of the content alone
            q = q * temperatures[..., None, None]
        k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, v))
        return torch.cat((q.to(k.dtype), places[0].to(k.dtype)), -1), torch.cat((k, places[1].to(k.dtype)), -1), v

    if s.query_positions is None and s.key_positions is None:  # as numbers of 32 bits, and nothing to load

        def distance(b, i, j):
            return i + offset - j
    else:

        def distance(b, i, j):
            return _at(q_list, b, i) - _at(k_list, b, j)

    def score_mod(score, b, h, i, j):
        if add is not None and content:
            score = score + add(b, h, i, j, distance(b, i, j))
        if temperatures is not None and places is None:
            score = score * _at(temperatures, b, i)
        if add is not None and not content:
            score = score + add(b, h, i, j, distance(b, i, j))
        return cap * torch.tanh(score.float() / cap) if cap else score

    plain = add is None and temperatures is None and not cap
    call = _function("meta" if q.is_meta else s.kind if _compiles(q) else None)
    least = 16 if device.type == "cuda" else 0  # elements of a head, which a GPU's products of matrices have
    # The kernel for a few queries keeps all of a key head's in one block, and has none for more than 128: for one token alone.
    options = {"FORCE_USE_FLEX_ATTENTION": tokens > 1}
    if s.kind in (2, 3, 4, 7, 8):  # what they load for each pair does not fit in shared memory in several stages
        options["num_stages"] = 1
    parts = []
    for vq, vk, begins, ends in _views(q, k, s, q_at, k_at):
        out, aux = call(
            *(torch.nn.functional.pad(x, (0, max(0, least - x.shape[3]))).transpose(1, 2) for x in widened(vq, vk, v)),
            score_mod=None if plain else score_mod,
            block_mask=_block_mask(*(seen if begins is None else _both(seen, (begins, ends))), keys),
            scale=scale,
            enable_gqa=True,
            kernel_options=options,
            return_aux=AuxRequest(lse=True),
        )
        parts.append((out[..., : v.shape[3]].transpose(1, 2), aux.lse.transpose(1, 2)))
    out, lse = _merged(parts)
    if s.sinks is not None:
        out = out * torch.sigmoid(lse - s.sinks)[..., None].to(out.dtype)
        lse = torch.logaddexp(lse, s.sinks.expand_as(lse))
    return out, lse
