"""The plan of a loaded model: that of its configuration, held against its live buffers."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

import ropewalk
from ropewalk import Error, _core
from ropewalk.transformers._frequencies import (
    Frequencies,
    by_layer,
    layer_types,
    refuse,
    require_frequencies,
    text_config,
)
from ropewalk.transformers._probe import probe_layouts
from ropewalk.transformers._state import State, undo

# Keys of a rope dictionary that say how frequencies follow from the base.
ROPE_SETTINGS = {
    "rope_type",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "truncate",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
    "partial_rotary_factor",
}

# Families that the library's reader does not know whose attention multiplies scores by YaRN's factor as DeepSeek's does.
_LATENT = {
    "axk1",
    "axk2",
    "bailing_hybrid",
    "deepseek_v32",
    "glm_moe_dsa",
    "hy_v4",
    "longcat_flash",
    "mistral_large4",
    "youtu",
}


@dataclasses.dataclass(eq=False)
class Reading:
    """A model's plan beside its buffers."""

    plan: Any  # ropewalk.Plan of the model as it is now
    layers: list[list[Frequencies]]  # that each layer rotates by
    rounded: list[Frequencies]  # whose frequencies were rounded to 16 bits
    notes: list[str]  # what of the configuration has no effect on the plan


def parse_config(config: Any, allow_unknown: bool) -> Any:
    """The plan as the library's reader of config.json has it, without what transformers keeps for its own code."""
    values = {k: v for k, v in config.to_dict().items() if not k.startswith("_") or k == "_sliding_window_pattern"}
    return ropewalk.Plan(_core.parse_plan(json.dumps(values, default=str), type(config).__name__, allow_unknown))


def _family_plan(config: Any) -> tuple[Any, list[str]]:
    """The reader's plan (None where it does not know the family), and what it read over."""
    try:
        plan = parse_config(config, allow_unknown=False)
    except Error as error:
        if error.code == "unsupported":
            return None, []
        try:
            plan = parse_config(config, allow_unknown=True)
        except Error:
            return None, [f"{error}; the plan is read from the buffers of the model"]
    return plan, plan.not_honoured


def compare(live: torch.Tensor, expected: np.ndarray) -> str:
    """How buffers compare with expected frequencies: "equal", "rounded" (to a 16-bit type) or "different"."""
    ours = torch.from_numpy(np.array(expected, dtype=np.float32))
    theirs = live.detach().to(device="cpu", dtype=torch.float32)
    if theirs.shape != ours.shape:
        return "different"
    # float64: model.double() keeps the values
    if live.dtype in (torch.float32, torch.float64) and torch.allclose(theirs, ours, rtol=5e-7, atol=1e-30):
        return "equal"  # up to the last bit, in which devices differ
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(theirs, ours.to(dtype).float()):
            return "rounded"
    return "different"


def _live_lengths(plan: Any, found: list[Frequencies]) -> list[int]:
    """Lengths at which the buffers of a loaded model may stand: dynamic ones start from the trained length and go to the
    longest that was read, LongRoPE's to its other divisors."""
    read = [int(f.longest) for f in found if f.longest is not None]
    lengths = [plan.length, plan.trained_length, plan.configured_length, 1, *read, plan.trained_length + 1]
    return [n for n in dict.fromkeys(lengths) if n > 0]


def shown(values: Any) -> str:
    return "[" + ", ".join(f"{float(v):.9g}" for v in values[:3]) + ", ..]"


def same_amplitude(live: Frequencies, rotation: Any) -> bool:
    return math.isclose(1 if live.amplitude is None else live.amplitude, rotation.amplitude, rel_tol=1e-6)


def read(model: PreTrainedModel) -> Reading:
    found = require_frequencies(model)
    config = text_config(model)
    near = by_layer(found, config)
    plan, notes = _family_plan(config)
    if plan is None or len(plan.layers) != len(near):
        plan = _plan_of_buffers(model, config, found, near)
    differences: list[str] = []
    for length in _live_lengths(plan, found):
        at = plan.at(length)
        differences, rounded = [], {}
        matched: list[list[Frequencies]] = []
        for index, layer in enumerate(at.layers):
            if layer.rotation is None:
                matched.append([])
                continue
            kinds = {id(f): compare(f.inv_freq, layer.rotation.inv_freq_f32) for f in near[index]}
            same = [f for f in near[index] if kinds[id(f)] != "different" and same_amplitude(f, layer.rotation)]
            matched.append(same)
            rounded.update({id(f): f for f in same if kinds[id(f)] == "rounded"})
            if not same:
                f = near[index][0]
                differences.append(
                    f"layer {index}: {f.name} has {shown(f.inv_freq)} and attention factor {f.amplitude}, the "
                    f"configuration says {shown(layer.rotation.inv_freq_f32)} and {layer.rotation.amplitude}"
                )
        claimed = {id(f) for own in matched for f in own}
        spare = [f for f in found if id(f) not in claimed]
        if not differences and spare and any(matched):
            differences.append(f"{spare[0].name} has {shown(spare[0].inv_freq)}, which is of no layer of the plan")
        if not differences:
            return Reading(at, matched, list(rounded.values()), notes)
    raise refuse(
        f"{config.model_type}: the configuration contradicts the buffers of the model. {differences[0]}", "mismatch"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Families that the library's reader does not know


def _plan_of_buffers(
    model: PreTrainedModel, config: Any, found: list[Frequencies], near: list[list[Frequencies]]
) -> Any:
    """A plan from the rope dictionaries of a configuration, the sizes of the rotary buffers, and a probe of which
    layers rotate (all, where they cannot be probed)."""
    state = State(None)
    try:
        layouts = probe_layouts(model, found, near, state)
    except Error:
        layouts = {}
    finally:
        undo(model, state)
    layers = []
    types = layer_types(config, len(near))
    window = getattr(config, "sliding_window", None) or 0
    if getattr(config, "use_sliding_window", True) is False:
        window = 0
    for index, own in enumerate(near):
        kind = types[index]
        sliding = kind in ("sliding_attention", "hybrid_sliding") or (kind is None and window > 0)
        layer = {
            "window": int(window) if sliding else 0,
            "chunk": int(getattr(config, "attention_chunk_size", None) or 0) if kind == "chunked_attention" else 0,
            "recurrent": kind in ("linear_attention", "mamba", "conv", "recurrent"),
        }
        if own and not layer["recurrent"] and layouts.get(index, ()) is not None:
            dims = 2 * own[0].inv_freq.numel()
            rope, base = _rope_of(config, kind)
            rope = {k: v for k, v in rope.items() if k in ROPE_SETTINGS}
            if rope.get("rope_type") != "proportional":
                rope.pop("partial_rotary_factor", None)
            layer["rotation"] = {
                "name": config.model_type,
                "head_dim": dims,
                "rotary_dim": dims,
                "base": float(base),
                "rope": {"rope_type": "default", **rope},
            }
        layers.append(layer)
    length = int(getattr(config, "max_position_embeddings", None) or 0)
    dictionary, _ = _rope_of(config, next((t for t in types if t is not None), None))
    trained = dictionary.get("original_max_position_embeddings") or getattr(
        config, "original_max_position_embeddings", None
    )
    given = {
        "trained_length": int(trained or length),
        "configured_length": length,
        "latent": config.model_type in _LATENT,
        "layers": layers,
    }
    return ropewalk.Plan(_core.plan_of_layers(json.dumps(given)))


def _rope_of(config: Any, label: str | None) -> tuple[dict[str, Any], float]:
    """The rope dictionary of a layer, and its base."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if label is not None and isinstance(rope.get(label), dict):
        rope = rope[label]
    elif any(isinstance(value, dict) for value in rope.values()):
        rope = next((value for value in rope.values() if isinstance(value, dict)), {})
    base = rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    return {k: v for k, v in rope.items() if v is not None}, float(base)
