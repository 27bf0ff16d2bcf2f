"""The registered attention function: rotates queries and keys when it reads them, once per view of a position map."""

from __future__ import annotations

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from ropewalk.transformers import _dense, _kernel
from ropewalk.transformers._mask import by_itself, mask, sees_ahead, slots, visible
from ropewalk.transformers._parts import attend, parts_of, works
from ropewalk.transformers._pass import Attention, Pass, Shared, begin, temperatures
from ropewalk.transformers._probe import not_causal, turn
from ropewalk.transformers._state import ATTENTION, STATE
from ropewalk.transformers._views import view_cos_sin


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
    now = begin(info.shared, attention_mask, tokens, keys, query.device, kwargs.get("position_ids"))
    temperature = None if info.temperature is None else temperatures(info.temperature, now)
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
    if _kernel.fits(info, query, key, value, causal or attention_mask is not None, wants_weights) and not dropout:
        rows = visible(attention_mask, tokens, keys, sliding_window)
        if rows is not None and _kernel.counts_up(info, rows, now.at, now.to):
            rest = scaling, temperature, softcap, s_aux
            return _kernel.attend(info, query, key, value, rows, now.at, now.to, *rest), None
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
    return _dense.attend(info, query, key, value, attention_mask, now, causal_alone, *rest)


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
            cos, sin = (c[:, :, first:end] for c in view_cos_sin(info, view, side, now))
            x = turn(x, cos, sin, info.layout)
        return x.to(query.dtype)

    return attend(parts, turned, value, scaling, s_aux)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, mask)
