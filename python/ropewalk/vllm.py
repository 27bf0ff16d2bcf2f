"""A plan as the rotary embedding of vLLM, which finds this plugin by its entry point `vllm.general_plugins`.

    VLLM_ROPEWALK_PLAN='{"method": "yarn", "factor": 4, "trained_length": 8192}' \\
      vllm serve MODEL --max-model-len 32768 --hf-overrides '{"max_position_embeddings": 32768}'

The variable holds the arguments of `ropewalk.plan`, or the name of a method alone; without it the plugin does nothing.
`config` among them is a path that the plan is read from, in place of the configuration that vLLM has loaded.

vLLM keeps its kernels, and the shape and dtype of its table of cosines and sines; the values are those of
`Rotation.table`. Whatever a table cannot say (position maps, log-n), and whatever contradicts what vLLM builds, is a
`ropewalk.Error` when the model is made. Tested against a stub of the classes of vLLM 0.33, never run in vLLM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import ropewalk as rw

__all__ = ["register"]

_VARIABLE = "VLLM_ROPEWALK_PLAN"
_ARGUMENTS = ("config", "method", "factor", "trained_length", "length", "allow_unknown")
# Classes whose forward reads one row of `cos_sin_cache` a token and rotates the first rotary_dim elements of a head by it.
_REPLACED = (
    "RotaryEmbedding",
    "LinearScalingRotaryEmbedding",
    "NTKScalingRotaryEmbedding",
    "DynamicNTKScalingRotaryEmbedding",
    "DynamicNTKAlphaRotaryEmbedding",
    "YaRNScalingRotaryEmbedding",
    "Llama3RotaryEmbedding",
)


def _refuse(message: str, code: str = "invalid_argument") -> rw.Error:
    error = rw.Error(f"{_VARIABLE}: {message}")
    error.code = code
    return error


def _settings(value: str) -> dict[str, Any]:
    if not value.lstrip().startswith("{"):
        return {"method": value.strip()}
    try:
        settings = json.loads(value)
    except ValueError as error:
        raise _refuse(f"expected the name of a method, or a JSON object: {error}") from None
    unknown = [key for key in settings if key not in _ARGUMENTS]
    if unknown:
        raise _refuse(f"unknown key {unknown[0]!r}; expected {', '.join(_ARGUMENTS)}")
    return settings


def register() -> None:
    """What vLLM calls in each of its processes: with the variable VLLM_ROPEWALK_PLAN set, its rotary classes are replaced
    by `CustomOp.register_oot`; calling it again changes nothing.

    Raises:
        Error: the variable cannot be read, or another plugin has replaced a class of vLLM already.
    """
    value = os.environ.get(_VARIABLE, "")
    if not value:
        return
    settings = _settings(value)
    from vllm.model_executor.custom_op import CustomOp, op_registry_oot
    from vllm.model_executor.layers import rotary_embedding

    missing = [name for name in _REPLACED if not hasattr(rotary_embedding, name)]
    if missing:
        raise _refuse(f"this version of vLLM has no {missing[0]}; the plugin is for vLLM 0.33", "unsupported")
    for name, base in list(vars(rotary_embedding).items()):
        if not isinstance(base, type) or "RotaryEmbedding" not in name or hasattr(base, "_ropewalk"):
            continue
        there = op_registry_oot.get(name)
        if there is not None and not hasattr(there, "_ropewalk"):
            raise _refuse(f"{name} of vLLM is replaced by {there.__module__} already", "unsupported")
        if there is not None:
            continue
        replacement = _planned(base, settings) if name in _REPLACED else _refused(base)
        if issubclass(base, CustomOp):
            base.register_oot(replacement, name=name)
            # register_oot names it by the class; vLLM chooses between its kernel and its formula by the op's name.
            replacement.name = base.name
        else:
            setattr(rotary_embedding, name, replacement)  # get_rope looks it up there


def _planned(base: type, settings: Mapping[str, Any]) -> type:
    """The class of vLLM with the plan's table."""

    def _compute_cos_sin_cache(self: Any) -> Any:
        return _table(self, base._compute_cos_sin_cache(self), settings)

    return type("Ropewalk" + base.__name__, (base,), {"_compute_cos_sin_cache": _compute_cos_sin_cache, "_ropewalk": True})


def _refused(base: type) -> type:
    """A class that vLLM builds for models whose rotation is more than one table."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise _refuse(f"vLLM rotates this model by {base.__name__}, which a plan cannot replace", "unsupported")

    return type(base.__name__, (base,), {"__init__": __init__, "_ropewalk": True})


def _table(module: Any, theirs: Any, settings: Mapping[str, Any]) -> Any:
    """The table of a rotary module of vLLM.

    Args:
        module: a RotaryEmbedding of vLLM whose head_size, rotary_dim, base and is_neox_style are set.
        theirs: the table that vLLM would use, float32 [positions, rotary_dim], cosines before sines.
        settings: arguments of `ropewalk.plan`, and `config`.

    Returns:
        A tensor of the shape, dtype and device of `theirs`: for each position the exact cosines, then sines, of the plan,
        times its attention factor.

    Raises:
        Error: the plan contradicts what vLLM asks for, is for shorter sequences than vLLM serves, or is more than
            frequencies and an attention factor.
    """
    import torch
    from vllm.config import get_current_vllm_config

    config = get_current_vllm_config()
    served = config.model_config.max_model_len
    if list(theirs.shape[1:]) != [module.rotary_dim]:
        raise _refuse(f"vLLM has a table of shape {list(theirs.shape)}; the plugin is for vLLM 0.33", "unsupported")
    if theirs.shape[0] < served:
        raise _refuse(
            f"vLLM makes a table of {theirs.shape[0]} positions for sequences of {served}; override "
            "max_position_embeddings (--hf-overrides) and give trained_length"
        )
    rotation = _rotation(module, config, settings)
    rows = rotation.table(theirs.shape[0]).rows.reshape(theirs.shape)
    return torch.tensor(rows, dtype=theirs.dtype, device=theirs.device)


def _rotation(module: Any, config: Any, settings: Mapping[str, Any]) -> rw.Rotation:
    model = config.model_config
    draft = getattr(getattr(config, "speculative_config", None), "draft_model_config", None)
    if draft is not None and draft.model != model.model:
        raise _refuse("speculative decoding with a draft model has two models, and the plan is of one", "unsupported")
    arguments = dict(settings)
    source = arguments.pop("config", model.hf_config)
    overrides = model.hf_overrides if isinstance(model.hf_overrides, dict) else {}
    if source is model.hf_config and "max_position_embeddings" in overrides and "trained_length" not in arguments:
        raise _refuse("max_position_embeddings is overridden, so the configuration does not say the trained length any more; "
                      "give trained_length")
    if arguments.get("factor") is None and not isinstance(arguments.get("method"), dict):
        arguments.setdefault("length", model.max_model_len)
    shipped = rw.plan(source, allow_unknown=arguments.pop("allow_unknown", False))
    plan = rw.plan(shipped, **arguments)
    if plan.length < model.max_model_len:
        raise _refuse(f"the plan is for {plan.length} tokens, but vLLM serves {model.max_model_len} (--max-model-len)")

    found: list[rw.Rotation] = []
    for before, after in zip(shipped.layers, plan.layers):
        if (after.map, after.temperature) != (before.map, before.temperature):
            raise _refuse("the plan has a position map or log-n, and vLLM takes frequencies alone", "unsupported")
        if before.rotation is not None and _asked(module, before.rotation) and after.rotation not in found:
            found.append(after.rotation)
    if not found:
        rotations = "; ".join(map(repr, shipped.rotations)) or "none"
        raise _refuse(
            f"vLLM asks for head_size {module.head_size}, rotary_dim {module.rotary_dim}, base {module.base:g}, "
            f"is_neox_style {module.is_neox_style}; the rotations of the configuration are: {rotations}"
        )
    if len(found) > 1:
        raise _refuse("layers of this model differ in ways that vLLM does not tell when it makes their tables", "unsupported")
    rotation = found[0]
    before = next(layer.rotation for layer in shipped.layers if layer.rotation is not None and _asked(module, layer.rotation))
    if rotation.softmax_multiplier != before.softmax_multiplier:
        raise _refuse("the method changes the scale of the scores, and vLLM takes frequencies alone", "unsupported")
    if rotation.axes != 1 or rotation.first_dim or rotation.rotated_heads or rotation._core.decays:
        raise _refuse(f"{rotation!r} is more than a table of one row a position", "unsupported")
    return rotation


def _asked(module: Any, rotation: rw.Rotation) -> bool:
    """Whether vLLM makes the table of this rotation of the configuration."""
    return (rotation.head_dim, rotation.rotary_dim, rotation.layout, rotation.base) == (
        module.head_size,
        module.rotary_dim,
        "half" if module.is_neox_style else "interleaved",
        module.base,
    )
