"""model.config while a method is applied, so that save_pretrained keeps it where its format can say it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from ropewalk import Error
from ropewalk.transformers._frequencies import Frequencies, text_config
from ropewalk.transformers._reading import ROPE_SETTINGS, compare, parse_config, same_amplitude
from ropewalk.transformers._state import State

_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")
_V5 = int(transformers.__version__.split(".")[0]) >= 5


def _rope_dictionary(method: Any, factor: float | None, plan: Any, old: dict[str, Any]) -> dict[str, Any] | None:
    """How transformers writes a method, None where it cannot."""
    if isinstance(method, dict):
        kind = method.get("rope_type", method.get("type", "default"))  # "type": the key before transformers 4.43
        return {"rope_type": kind, **{k: v for k, v in method.items() if k not in ("rope_type", "type")}}
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


def _alike(one: Any, other: Any) -> bool:
    """Whether two plans are the same: also at other lengths than that of the second, where they depend on it."""
    lengths = [other.length, *(n * other.trained_length + more for n in (1, 2, 8) for more in (0, 1))]
    return all(one.at(length).hash == other.at(length).hash for length in dict.fromkeys(lengths) if length > 0)


def _holders(config: Any, keys: dict[str, Any]) -> list[tuple[Any, str]]:
    """Where a model's configuration has the rope keys of its text: one with these at its top too (Qwen2-VL, 4.57) is
    saved with both."""
    text = config.get_text_config(decoder=True)
    outer = [config] if config is not text else []
    return [(holder, key) for holder in [text, *outer] for key in keys if holder is text or key in holder.__dict__]


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Without what transformers says about a configuration that is only tried, in this thread."""
    own = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    logger = logging.getLogger("transformers.modeling_rope_utils")
    logger.addFilter(of_others)
    try:
        yield
    finally:
        logger.removeFilter(of_others)


@torch.no_grad()
def _loads(config: Any, plan: Any, state: State) -> bool:
    """Whether transformers itself writes and reads the configuration, and makes rotary modules by it that have the
    frequencies of the plan."""
    lengths = [plan.length]
    follows = any(layer.rotation is not None and layer.rotation.length_dependent for layer in plan.layers)
    if follows:
        trained = max(1, plan.trained_length)
        lengths = [trained, trained + 1, 2 * trained + 1]
    layers: dict[tuple[type, str], list[int]] = {}  # that have frequencies of such a module
    for index, found in enumerate(state.layers):
        for f in found:
            layers.setdefault((type(f.module), f.prefix), []).append(index)
    try:
        with _without_messages(), torch.device("cpu"):
            if hasattr(config, "validate"):  # 5: as save_pretrained does
                config.validate()
            again = type(config).from_dict(json.loads(config.to_json_string())).get_text_config(decoder=True)
            for (kind, prefix), own in layers.items():
                first, *rest = inspect.signature(kind).parameters.values()
                if first.name != "config" or any(p.default is p.empty for p in rest):
                    continue
                made = Frequencies(kind(again), "", prefix)
                for length in lengths:
                    if follows:
                        made.answer(torch.tensor([[length - 1]]))
                    rotations = [plan.at(length).layers[index].rotation for index in own]
                    # Modules of one class may be made by other arguments than the configuration alone (Gemma 3, 4.57).
                    if not any(compare(made.inv_freq, r.inv_freq_f32) == "equal" and same_amplitude(made, r) for r in rotations):
                        return False
    except Exception:  # of transformers and of the model's own code, whatever they raise
        return False
    return True


def set_config(model: PreTrainedModel, plan: Any, method: Any, factor: float | None, state: State) -> bool:
    """Writes the method into the configuration if the library reads the same plan from it and transformers loads it.
    False: it cannot be said."""
    if _alike(state.base, plan):
        return True
    if state.attention:
        return False
    for keys in _settings(text_config(model), plan, method, factor):
        trial = copy.deepcopy(model.config)
        for holder, key in _holders(trial, keys):
            holder.__dict__[key] = copy.deepcopy(keys[key])
        try:
            read = parse_config(trial.get_text_config(decoder=True), allow_unknown=True)
        except Error:  # the reader refuses the setting in this family, or does not know the family
            continue
        if _alike(read, plan) and _loads(trial, plan, state):
            for holder, key in _holders(model.config, keys):
                state.set(holder, key, keys[key])
            return True
    return False


def _settings(config: Any, plan: Any, method: Any, factor: float | None) -> list[dict[str, Any]]:
    """What may say the method, as rope keys of the configuration, in the order in which it is tried."""
    old = {key: config.__dict__.get(key) for key in _ROPE_KEYS}
    flat = old["rope_parameters"] if isinstance(old["rope_parameters"], dict) else {}
    typed = {key: value for key, value in flat.items() if isinstance(value, dict)}
    before = next(iter(typed.values()), flat) if flat else {"rope_theta": getattr(config, "rope_theta", None)}
    said = _rope_dictionary(method, factor, plan, {k: v for k, v in before.items() if v is not None})
    if said is None:
        return []
    if said["rope_type"] == "linear" and any(d.get("rope_type") == "proportional" for d in typed.values()):
        said["rope_type"] = "proportional"  # which has a factor of its own
    tries, trained = [], "original_max_position_embeddings"
    for new in (said, {trained: plan.trained_length, **said}):  # some types have to say it
        # A length at the top of the configuration goes first; LongRoPE of 4.57 reads it there alone.
        alone = not _V5 and new["rope_type"] == "longrope"
        top = {trained: new[trained]} if trained in new and (alone or config.__dict__.get(trained)) else {}
        if _V5 and typed:  # the layers with the slower base alone, or all
            slow = max(typed, key=lambda key: (typed[key].get("rope_theta") or 0, key == "full_attention"))
            keep = {k: _not_scaling(v) for k, v in typed.items()}
            tries.append({"rope_parameters": {**flat, slow: {**keep[slow], **new}}, **top})
            tries.append({"rope_parameters": {k: {**keep[k], **new} for k in typed}, **top})
        elif _V5:
            tries.append({"rope_parameters": {**_not_scaling(flat), **new}, **top})
        else:
            theta = new.get("rope_theta")
            scaling = old["rope_scaling"] if isinstance(old["rope_scaling"], dict) else {}
            new = {**_not_scaling(scaling), **{k: v for k, v in new.items() if k != "rope_theta"}}
            if alone and top and new.get("factor") not in (None, config.max_position_embeddings / new[trained]):
                # It takes the factor from the two lengths.
                rotation = next(layer.rotation for layer in plan.layers if layer.rotation is not None)
                new.setdefault("attention_factor", rotation.amplitude)
            keys = {"rope_scaling": None if new == {"rope_type": "default"} else new, **top}
            tries.append(keys if theta is None else {**keys, "rope_theta": theta})
    return tries
