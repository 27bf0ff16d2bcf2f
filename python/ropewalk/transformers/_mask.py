"""The registered mask: SDPA's, with the places of queries and keys; and what it says as intervals of keys."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from transformers.masking_utils import causal_mask_function, sdpa_mask


def by_itself() -> bool:
    """Whether PyTorch computes as it is told, and does not record: only then values of tensors can be asked for, and
    kept for the next layer."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()
    return not recorded


def mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, **kwargs):
    """The mask as SDPA's (bool [batch, 1, tokens, keys]), with the slots of queries and keys. None, where the model
    takes that: causal, and the last query has the last key."""
    left_out = kwargs.pop("allow_is_causal_skip", True) and by_itself()
    cache_position = kwargs.get("cache_position")
    if left_out and kwargs.get("attention_mask") is None and kwargs.get("mask_function") is causal_mask_function:
        if _ends_together(q_length, kv_length, q_offset, kv_offset, cache_position):
            return None  # with long sequences it would not fit in memory
    if cache_position is None:
        arguments = {"q_length": q_length, "q_offset": q_offset}
    else:
        arguments = {"cache_position": cache_position, "allow_torch_fix": False}
    kwargs.update(arguments)
    made = sdpa_mask(batch_size, kv_length=kv_length, kv_offset=kv_offset, allow_is_causal_skip=False, **kwargs)
    if made is None:
        return None
    if cache_position is None:
        queries = torch.arange(q_length, device=made.device) + q_offset
    else:
        queries = cache_position.to(made.device)
    made._ropewalk_slots = (queries, torch.arange(kv_length, device=made.device) + kv_offset)
    made._ropewalk_causal = kwargs.get("attention_mask") is None and kwargs.get("mask_function") is causal_mask_function
    return made


def _ends_together(q_length, kv_length, q_offset, kv_offset, cache_position) -> bool:
    """Whether keys begin at slot 0 and queries are the last of them."""
    if int(kv_offset) != 0:
        return False
    if cache_position is None:
        return int(q_offset) + q_length == kv_length
    tokens = cache_position.shape[0]
    last = torch.arange(kv_length - tokens, kv_length, device=cache_position.device)
    return torch.equal(cache_position, last.to(cache_position.dtype))


def slots(mask: torch.Tensor | None, tokens: int, keys: int, device: torch.device):
    """The places of queries and keys in the sequence: [tokens] and [keys]."""
    known = getattr(mask, "_ropewalk_slots", None)
    if known is not None and known[0].shape[0] == tokens and known[1].shape[0] >= keys:
        return known[0].to(device), known[1][:keys].to(device)
    every = torch.arange(keys, device=device)
    return every[keys - tokens :], every


def positions(mask: Any, tokens: int, keys: int, device: torch.device, given: Any, noted: torch.Tensor | None):
    """Positions of queries [batch or 1, tokens] and keys [batch or 1, keys], from position_ids as the attention
    function got them or as the rotary modules did.

    transformers does not say the positions of cached keys. They follow from their slots: within a sequence both count
    by one, so that the distance between them (padding on the left, an offset) is that of the new tokens.
    """
    query_slots, key_slots = slots(mask, tokens, keys, device)
    if not (isinstance(given, torch.Tensor) and given.ndim == 2 and given.shape[1] == tokens):
        given = noted
    if given is None or given.shape[1] != tokens:
        given = query_slots[None]
    queries = given.to(device)
    if keys == tokens:
        return queries, queries
    shift = queries - query_slots
    if isinstance(mask, torch.Tensor) and mask.ndim == 4 and mask.dtype == torch.bool:
        own = (query_slots - key_slots[0]).clamp(0, keys - 1)
        seen = mask[:, 0, :, :keys].gather(2, own[None, :, None].expand(mask.shape[0], -1, 1))[..., 0]
        # Tokens of padding have any position; the others have one shift.
        lowest = torch.iinfo(shift.dtype).min
        shift = torch.where(seen, shift, lowest).amax(dim=1, keepdim=True)
        shift = torch.where(shift == lowest, 0, shift)
    elif mask is None:
        shift = shift.amax(dim=1, keepdim=True)
    else:
        shift = shift[:, -1:]
    index = key_slots - query_slots[0]
    new = queries[:, index.clamp(0, tokens - 1)]
    return queries, torch.where((index >= 0) & (index < tokens), new, key_slots + shift)


def sees_ahead(mask: torch.Tensor | None, tokens: int, keys: int, causal: bool) -> bool:
    """Whether a token attends to keys ahead of its own. causal: whether it does not, where there is no mask."""
    if mask is None:
        return tokens > 1 and not causal
    query_slots, key_slots = slots(mask, tokens, keys, mask.device)
    seen = mask[..., :keys]
    seen = seen > torch.finfo(seen.dtype).min / 2 if seen.is_floating_point() else seen.bool()
    return bool((seen & (key_slots > query_slots[:, None])).any())


@dataclasses.dataclass(frozen=True)
class Visible:
    """What the tokens of a sequence see: each the keys of its document, at most `window`, up to its own."""

    keys: tuple[int, int]  # first, and one past the last, that any token sees
    queries: tuple[int, int]  # those that are tokens; the others are padding
    window: int = 0  # 0: all
    starts: tuple[int, ...] = ()  # of documents, counted from keys[0]; none: one document


def visible(mask: torch.Tensor | None, tokens: int, keys: int, window: int | None) -> list[Visible] | None:
    """The mask in those words, for each sequence of the batch (one for all where they are equal); None where it says
    something else. Without a mask: causal, and the window."""
    if mask is None:
        return [Visible((0, keys), (0, tokens), 0 if window is None or window >= keys else window)]
    known = getattr(mask, "_ropewalk_visible", None)
    if known is not None and known[0] == (tokens, keys):
        return known[1]
    found = _visible(mask, tokens, keys)
    mask._ropewalk_visible = (tokens, keys), found  # the layers of a model share it
    return found


def _visible(mask: torch.Tensor, tokens: int, keys: int) -> list[Visible] | None:
    if mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1] != 1 or mask.shape[2] != tokens:
        return None
    query_slots, key_slots = slots(mask, tokens, keys, mask.device)
    own = query_slots - key_slots[0]  # the index of each token's own key
    first, last = int(own[0]), int(own[-1])
    if first < 0 or last >= keys or last - first + 1 != tokens:
        return None
    if getattr(mask, "_ropewalk_causal", False):
        return [Visible((0, last + 1), (0, tokens))]
    seen = mask[:, 0, :, :keys]
    if seen.shape[0] > 1 and (seen.stride(0) == 0 or bool((seen == seen[:1]).all())):
        seen = seen[:1]
    seen = seen.contiguous()
    rows = seen.view(torch.uint8)
    begins = rows.argmax(-1)
    ends = keys - 1 - rows.flip(-1).argmax(-1)
    counts = seen.sum(-1)
    real = seen.gather(2, own[None, :, None].expand(seen.shape[0], -1, 1))[..., 0]
    found = []
    for row in range(seen.shape[0]):
        one = _intervals(begins[row], ends[row], counts[row], real[row], own)
        if one is None:
            return None
        found.append(one)
    return found


def _intervals(begins, ends, counts, real, own) -> Visible | None:
    """From the first and last key that each token sees, their number, and whether it sees itself."""
    tokens = real.nonzero()[:, 0]
    if tokens.numel() == 0:
        return Visible((0, 0), (0, 0))
    first, last = int(tokens[0]), int(tokens[-1]) + 1
    if last - first != tokens.numel():
        return None
    begins, ends, counts, own = (x[first:last] for x in (begins, ends, counts, own))
    if not bool(((ends == own) & (counts == own - begins + 1)).all()):
        return None  # gaps, or keys ahead
    offset = int(begins.min())
    begins, own = begins - offset, own - offset
    starts = torch.where(begins == own, own, 0)
    document = starts.cummax(0).values
    window = int((own - begins).max()) + 1
    if not torch.equal(begins, torch.maximum(document, own - window + 1)):
        return None
    if bool((own - document < window).all()):
        window = 0
    unique = tuple(int(s) for s in starts.unique() if s > 0)
    return Visible((offset, offset + int(own[-1]) + 1), (first, last), window, (0, *unique) if unique else ())
