"""How each layer rotates, found by two forward passes over eight tokens: with the rotation and without."""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from ropewalk import Error
from ropewalk.transformers._frequencies import Frequencies, device_of, refuse, text_config
from ropewalk.transformers._mask import mask, sees_ahead
from ropewalk.transformers._state import State, switch_attention

_PROBE = "ropewalk_probe"
_POSITIONS = (0, 1, 2, 5, 13, 40, 101, 200)
# What changes scores or masks in ways that this package's attention does not have.
_UNKNOWN = ("position_bias", "indices", "block_indices", "sinks", "alibi", "rel_logits", "head_mask")


def unsupported(family: str, why: str) -> Error:
    return refuse(f"{family}: position maps and temperatures cannot be put on this model: {why}", "unsupported")


def not_causal(module: torch.nn.Module, position_map: Any) -> Error:
    family = getattr(getattr(module, "config", None), "model_type", type(module).__name__)
    return refuse(
        f"{family}: the position map {position_map} cannot be put on this model: its attention is not causal, and maps "
        "have no distances to keys ahead of a token",
        "unsupported",
    )


@dataclasses.dataclass
class _Call:
    module: torch.nn.Module
    query: torch.Tensor
    key: torch.Tensor
    ahead: bool  # tokens attend to keys ahead of them
    extra: list[str]


_local = threading.local()  # .calls: of the probe that runs in this thread


def _probe_attention(module, query, key, value, attention_mask=None, **kwargs):
    extra = [name for name in _UNKNOWN if kwargs.get(name) is not None]
    ahead = sees_ahead(attention_mask, query.shape[2], key.shape[2], getattr(module, "is_causal", True))
    _local.calls.append(_Call(module, query.detach().clone(), key.detach().clone(), ahead, extra))
    batch, heads, tokens, _ = query.shape
    return query.new_zeros(batch, tokens, heads, value.shape[-1]), None


AttentionInterface.register(_PROBE, _probe_attention)
AttentionMaskInterface.register(_PROBE, mask)


def _probe(model: PreTrainedModel) -> list[_Call]:
    """What every attention layer gets as q and k, where attention adds nothing to the residual stream."""
    _local.calls = calls = []
    training = [module for module in model.modules() if module.training]
    device = device_of(model)
    positions = torch.tensor([_POSITIONS], device=device)
    vocabulary = int(getattr(text_config(model), "vocab_size", 64) or 64)
    ids = torch.arange(len(_POSITIONS), device=device)[None] % max(1, vocabulary - 4) + 3
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            model(input_ids=ids % vocabulary, position_ids=positions, use_cache=False)
        return calls
    except Exception as error:  # of the model's own code, whatever it raises
        family = text_config(model).model_type
        raise unsupported(family, f"it cannot be probed: {type(error).__name__}: {error}") from error
    finally:
        _local.calls = []
        for module in training:
            module.training = True


@dataclasses.dataclass
class Layout:
    """Which elements of a head a layer rotates."""

    interleaved: bool
    first_dim: int
    pairs: int
    direction: int = 1  # -1: by the negative angle (NanoChat)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: Layout) -> torch.Tensor:
    """x [..., tokens, head_dim] rotated in float32; cos and sin [..., tokens, pairs]."""
    first, width = layout.first_dim, 2 * layout.pairs
    if layout.direction < 0:
        sin = -sin
    rotated = x[..., first : first + width]
    if rotated.dtype not in (torch.bfloat16, torch.float16) or cos.dtype != torch.float32:
        rotated = rotated.float()  # otherwise each product does so, without a copy
    if layout.interleaved:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = rotated[..., : layout.pairs], rotated[..., layout.pairs :]
        rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    if width == x.shape[-1]:
        return rotated.to(x.dtype)
    return torch.cat((x[..., :first], rotated.to(x.dtype), x[..., first + width :]), dim=-1)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))


def _classify(rotated: _Call, plain: _Call, frequencies: list[tuple[torch.Tensor, float]]) -> tuple[Layout | None, str]:
    """The layout by which `plain` becomes `rotated` (None: nothing rotates), or the reason why there is none."""
    limit = {torch.float32: 1e-4, torch.float64: 1e-4}.get(plain.query.dtype, 4e-2)
    pairs = ((plain.query, rotated.query), (plain.key, rotated.key))
    still = max(_distance(a, b) for a, b in pairs)
    best, best_error = None, math.inf
    for inv_freq, amplitude in frequencies:
        inv_freq = inv_freq.to(plain.query.device)
        n, dim = inv_freq.numel(), plain.query.shape[-1]
        angles = torch.tensor(_POSITIONS, device=inv_freq.device).float()[:, None] * inv_freq
        cos, sin = angles.cos() * amplitude, angles.sin() * amplitude
        for first in sorted({0, dim - 2 * n}) if dim >= 2 * n else ():
            for interleaved, direction in ((False, 1), (True, 1), (False, -1), (True, -1)):
                layout = Layout(interleaved, first, n, direction)
                error = max(_distance(turn(a, cos, sin, layout), b) for a, b in pairs)
                if error < best_error:
                    best, best_error = layout, error
    if still < limit / 100 or (still < limit and still <= best_error):
        return None, ""
    if best_error > limit:
        return None, f"its queries and keys are rotated in a way that was not found (nearest: off by {best_error:.2g})"
    return best, ""


def probe_layouts(
    model: PreTrainedModel, frequencies: list[Frequencies], by_layer: list[list[Frequencies]], state: State
) -> dict[int, Layout | None]:
    """How each layer rotates (None: it does not), by index. Leaves the identity in the rotary modules, the probe as the
    model's attention, and the attention modules in `state.attention`. Refuses maps of the plan on layers that are not
    causal."""
    family = text_config(model).model_type
    switch_attention(model, _PROBE, state)
    live = {}
    for f in frequencies:  # as they are: dynamic types must not recompute them while the probe runs
        live[id(f)] = f.inv_freq.detach().float(), 1.0 if f.amplitude is None else f.amplitude
        state.frequencies.append((f, f.save()))
        f.write(*live[id(f)])
    rotated = _probe(model)
    for f in frequencies:
        f.write(torch.zeros(f.inv_freq.numel(), device="cpu"), 1.0)
    plain = _probe(model)
    if not plain or len(plain) != len(rotated) or any(a.module is not b.module for a, b in zip(plain, rotated)):
        raise unsupported(family, "its attention does not go through transformers' AttentionInterface")
    layouts: dict[int, Layout | None] = {}
    modules: dict[int, torch.nn.Module] = {}
    for order, (before, now) in enumerate(zip(rotated, plain)):
        index = getattr(now.module, "layer_idx", None)
        index = order if not isinstance(index, int) else index
        if now.extra:
            raise unsupported(family, f"layer {index}: its attention takes {', '.join(now.extra)}")
        if index >= len(by_layer) or modules.setdefault(index, now.module) is not now.module:
            raise unsupported(family, f"its attention modules cannot be told apart at layer {index}")
        if now.ahead and state.plan is not None and state.plan.layers[index].map is not None:
            raise not_causal(now.module, state.plan.layers[index].map)
        one = id(frequencies[0])
        near = [live[id(f)] for f in by_layer[index]] or [live.get(id(f), live[one]) for f in frequencies]
        layout, why = _classify(before, now, near)
        if why:
            raise unsupported(family, f"layer {index}: {why}")
        if layouts.setdefault(index, layout) != layout:
            raise unsupported(family, f"layer {index} rotates in two ways")
    state.attention = list(modules.values())
    state.indices = list(modules)
    return layouts
