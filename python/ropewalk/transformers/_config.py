"""model.config while a method is applied, so that save_pretrained keeps it where its format can say it."""

from __future__ import annotations

import copy
from typing import Any

import transformers
from transformers import PreTrainedModel

from ropewalk import Error
from ropewalk.transformers._frequencies import text_config
from ropewalk.transformers._reading import ROPE_SETTINGS, parse_config
from ropewalk.transformers._state import ABSENT, State

_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")
_V5 = int(transformers.__version__.split(".")[0]) >= 5


def _rope_dictionary(method: Any, factor: float | None, plan: Any, old: dict[str, Any]) -> dict[str, Any] | None:
    """How transformers writes a method, None where it cannot."""
    if isinstance(method, dict):
        return dict(method)
    if not isinstance(method, str):
        return None
    # Of which layers, is tried below.
    name, _, setting = method.replace("+all-layers", "").partition(":")
    if setting:
        factor = float(setting.removeprefix("factor="))
    if name == "none":
        return {"rope_type": "default"}
    if factor is None:
        return None
    trained = {"original_max_position_embeddings": plan.trained_length}
    if name == "linear":
        return {"rope_type": "linear", "factor": float(factor)}
    if name == "dynamic":
        return {"rope_type": "dynamic", "factor": float(factor), **trained}
    if name == "yarn":
        return {"rope_type": "yarn", "factor": float(factor), **trained}
    if name in ("llama3", "by-parts"):
        high = 4.0 if name == "llama3" else 32.0
        return {
            "rope_type": "llama3",
            "factor": float(factor),
            "low_freq_factor": 1.0,
            "high_freq_factor": high,
            **trained,
        }
    if name == "ntk":
        rotation = next(layer.rotation for layer in plan.layers if layer.rotation is not None)
        pairs = len(rotation.inv_freq)
        theta = old.get("rope_theta", rotation.base)
        return {"rope_type": "default", "rope_theta": theta * factor ** (pairs / (pairs - 1))}
    return None


def _not_scaling(rope: dict[str, Any]) -> dict[str, Any]:
    """What stays of a rope dictionary when its scaling is replaced: base, share, sections, temperature."""
    return {k: v for k, v in rope.items() if k == "partial_rotary_factor" or k not in {*ROPE_SETTINGS, "type"}}


def set_config(model: PreTrainedModel, plan: Any, method: Any, factor: float | None, state: State) -> bool:
    """Writes the method into the configuration if the library reads the same plan from it. False: it cannot be said."""
    config = text_config(model)
    if plan.hash == state.base.at(plan.length).hash:
        return True
    if state.attention:
        return False
    old = {key: config.__dict__.get(key, ABSENT) for key in _ROPE_KEYS}
    flat = old["rope_parameters"] if isinstance(old["rope_parameters"], dict) else {}
    typed = {key: value for key, value in flat.items() if isinstance(value, dict)}
    before = next(iter(typed.values()), flat) if flat else {"rope_theta": getattr(config, "rope_theta", None)}
    new = _rope_dictionary(method, factor, plan, {k: v for k, v in before.items() if v is not None})
    if new is None:
        return False
    if new["rope_type"] == "linear" and any(d.get("rope_type") == "proportional" for d in typed.values()):
        new["rope_type"] = "proportional"  # which has a factor of its own
    tries = []
    if _V5 and typed:  # the layers with the slower base alone, or all
        slow = max(typed, key=lambda key: (typed[key].get("rope_theta") or 0, key == "full_attention"))
        keep = {k: _not_scaling(v) for k, v in typed.items()}
        tries.append({"rope_parameters": {**flat, slow: {**keep[slow], **new}}})
        tries.append({"rope_parameters": {k: {**keep[k], **new} for k in typed}})
    elif _V5:
        tries.append({"rope_parameters": {**_not_scaling(flat), **new}})
    else:
        theta = new.pop("rope_theta", None)
        scaling = old["rope_scaling"] if isinstance(old["rope_scaling"], dict) else {}
        new = {**_not_scaling(scaling), **new}
        keys = {"rope_scaling": None if new == {"rope_type": "default"} else new}
        tries.append(keys if theta is None else {**keys, "rope_theta": theta})
    for keys in tries:
        trial = copy.deepcopy(config)
        trial.__dict__.update(keys)
        try:
            read = parse_config(trial, allow_unknown=True)
        except Error:  # the reader refuses the setting in this family, or does not know the family
            continue
        if read.at(plan.length).hash == plan.hash:
            # A configuration with the text's keys at its top too (Qwen2-VL, 4.57) is saved with both.
            outer = [model.config] if model.config is not config else []
            for holder in [config, *outer]:
                for key, value in keys.items():
                    if holder is config or key in holder.__dict__:
                        state.config.append((holder, key, holder.__dict__.get(key, ABSENT)))
                        holder.__dict__[key] = value
            return True
    return False
