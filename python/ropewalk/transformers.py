"""One line puts any method of this library on a causal model of Hugging Face transformers (4.57 and 5).

    with ropewalk.transformers.applied(model, "yarn", factor=4):
        model.generate(...)
    plan = ropewalk.transformers.apply(model, "rerope+log-n", factor=8)
    ropewalk.transformers.restore(model)

Methods that change frequencies alone overwrite the buffers of the model's rotary modules. Position-remapping methods
(ReRoPE, leaky ReRoPE, Self-Extend, dual chunk attention, attention sinks) and log-n attention make the rotation of the
modules the identity, so that the cache holds unrotated keys, and register an attention function that rotates queries
and keys when it reads them, once per view of the map.

Nothing here changes weights, and `restore` gives the model back bit for bit. docs/python-transformers.md has the
families and what is refused.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import ropewalk
from ropewalk import Error

__all__ = ["applied", "apply", "plan_of", "restore"]

_ATTENTION = "ropewalk"  # name of the registered attention function and of its mask
_PROBE = "ropewalk_probe"
_STATE = "_ropewalk"  # attribute of a model, and of its attention modules
_V5 = int(transformers.__version__.split(".")[0]) >= 5

# Families whose code rotates without the buffers that this module sets.
_OTHER_ROTATION = {
    "gptj": "a table of sines made in each layer",
    "codegen": "a table of sines made in each layer",
    "roformer": "sinusoidal embeddings in its encoder",
    "phimoe": "frequencies that it computes anew in every call",
    "open-llama": "a table of cosines and sines that it keeps",
    "deepseek_v4": "two sets of frequencies, of queries and of compressed keys",
}


# ---------------------------------------------------------------------------------------------------------------------
# What a model has


@dataclasses.dataclass(eq=False)
class _Frequencies:
    """One set of frequencies in a rotary module: its buffer `<prefix>inv_freq` and what goes with it."""

    module: torch.nn.Module
    path: str  # of the module in the decoder
    prefix: str  # "" or a layer type and "_"
    expected: tuple[torch.Tensor, float] | None = None  # what was written

    @property
    def name(self) -> str:
        return f"{self.path}.{self.prefix}inv_freq"

    @property
    def inv_freq(self) -> torch.Tensor:
        return getattr(self.module, self.prefix + "inv_freq")

    @property
    def amplitude(self) -> float | None:
        """The factor of cos and sin; None where the module has none."""
        value = getattr(self.module, self.prefix + "attention_scaling", None)
        if value is None:
            value = getattr(self.module, "attention_scaling", None)
        return None if value is None else float(value)

    def _amplitude_name(self) -> str:
        own = self.prefix + "attention_scaling"
        return own if hasattr(self.module, own) else "attention_scaling"

    def save(self) -> dict[str, Any]:
        """Everything that `write` changes."""
        names = [self.prefix + "inv_freq", self.prefix + "original_inv_freq", self._amplitude_name(), "rope_type"]
        saved = {}
        for name in names:
            if name in self.module._buffers:
                saved[name] = self.module._buffers[name]
            elif name in self.module.__dict__:
                saved[name] = self.module.__dict__[name]
        return saved

    def load(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            if name in self.module._buffers:
                self.module._buffers[name] = value
            else:
                setattr(self.module, name, value)

    def write(self, inv_freq: torch.Tensor, amplitude: float) -> None:
        """Sets the frequencies for good: transformers no longer recomputes them from a length."""
        self.expected = inv_freq, amplitude
        inv_freq = inv_freq.to(device=self.inv_freq.device, dtype=torch.float32)
        for name in ("inv_freq", "original_inv_freq"):
            name = self.prefix + name
            if name in self.module._buffers:
                self.module._buffers[name] = inv_freq.clone()
            elif hasattr(self.module, name):
                setattr(self.module, name, inv_freq.clone())
        if self.amplitude is not None:
            setattr(self.module, self._amplitude_name(), amplitude)
        elif amplitude != 1:
            raise Error(f"{self.name}: expected an attention factor of 1, got {amplitude}; this module has none")
        rope_type = getattr(self.module, "rope_type", None)
        if isinstance(rope_type, dict):
            self.module.rope_type = {**rope_type, self.prefix[:-1]: "default"}
        elif rope_type is not None:
            self.module.rope_type = "default"


def _decoder(model: PreTrainedModel) -> torch.nn.Module:
    """The part that holds the rotary modules of the text, without towers for images and sound."""
    with contextlib.suppress(Exception):
        decoder = model.get_decoder()
        if any(name.endswith("inv_freq") for name, _ in decoder.named_buffers()):
            return decoder
    return model


def _text_config(model: PreTrainedModel) -> Any:
    return model.config.get_text_config(decoder=True)


def _find_frequencies(model: PreTrainedModel) -> list[_Frequencies]:
    found = []
    for path, module in _decoder(model).named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            prefix = name[: -len("inv_freq")]
            if name.endswith("inv_freq") and not prefix.endswith(("original_", "long_", "short_")) and buffer.ndim == 1:
                found.append(_Frequencies(module, path, prefix))
    if any(f.inv_freq.is_meta for f in found):
        raise Error(f"{type(model).__name__}: expected a loaded model, got one on the meta device")
    return found


def _require_frequencies(model: PreTrainedModel) -> list[_Frequencies]:
    if not isinstance(model, PreTrainedModel):
        raise Error(f"model: expected a PreTrainedModel of transformers, got {type(model).__name__}")
    found = _find_frequencies(model)
    family = _text_config(model).model_type
    if found and family not in _OTHER_ROTATION:
        return found
    if family in _OTHER_ROTATION:
        raise Error(
            f"{family}: its code rotates by {_OTHER_ROTATION[family]}, which cannot be replaced from outside; "
            "expected a model whose rotary modules have a buffer inv_freq"
        )
    raise Error(f"{family}: no module of this model has a buffer inv_freq: it does not rotate, or in a way of its own")


def _layer_count(config: Any) -> int:
    for name in ("num_hidden_layers", "n_layers", "n_layer", "num_layers"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    raise Error(f"{config.model_type}: its configuration has no number of layers")


def _layer_types(config: Any, layers: int) -> list[str | None]:
    """The label under which a layer finds its frequencies where there are several."""
    types = getattr(config, "layer_types", None)
    if isinstance(types, (list, tuple)) and len(types) >= layers:
        return list(types[:layers])
    return [None] * layers


def _candidates(found: list[_Frequencies], layer: int, layer_type: str | None) -> list[_Frequencies]:
    """The frequencies that a layer may rotate by: its own module's and the model's (some models of transformers 4.57
    have both and use one), of these those of its type."""
    numbers = {id(f): [part for part in f.path.split(".") if part.isdigit()] for f in found}
    near = [f for f in found if not numbers[id(f)] or numbers[id(f)][0] == str(layer)]
    if layer_type is not None:
        typed = [f for f in near if f.prefix == layer_type + "_" or f.path.endswith(layer_type)]
        if typed:
            return typed
    return [f for f in near if not f.prefix] or near


# ---------------------------------------------------------------------------------------------------------------------
# The plan of a model


def _finite(value: Any) -> Any:
    """Without infinities (Mamba's time_step_limit), which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _config_dict(config: Any) -> dict[str, Any]:
    """What config.json would hold, without what transformers fills in for its own code."""
    values = _finite(config.to_dict())
    return {key: value for key, value in values.items() if not key.startswith("_") or key == "_sliding_window_pattern"}


def _family_plan(config: Any) -> Any:
    """The plan as the library's reader of config.json has it, None where it does not know the family."""
    try:
        return ropewalk.plan(_config_dict(config))
    except Error as error:
        if "is not supported" not in str(error) and "model_type" not in str(error):
            with contextlib.suppress(Error):
                return ropewalk.plan(_config_dict(config), allow_unknown=True)
        return None


def _same(live: torch.Tensor, expected: np.ndarray) -> str:
    """How buffers compare with expected frequencies: "equal", "rounded" (to a 16-bit type) or "different"."""
    ours = torch.from_numpy(np.array(expected, dtype=np.float32))
    theirs = live.detach().to(device="cpu", dtype=torch.float32)
    if theirs.shape != ours.shape:
        return "different"
    if live.dtype == torch.float32 and torch.allclose(theirs, ours, rtol=5e-7, atol=1e-30):
        return "equal"  # up to the last bit, in which devices differ
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(theirs, ours.to(dtype).float()):
            return "rounded"
    return "different"


def _live_lengths(plan: Any) -> list[int]:
    """Lengths at which the buffers of a loaded model may stand: dynamic ones start from the trained length."""
    return [n for n in dict.fromkeys([plan.length, plan.trained_length, plan.configured_length, 1]) if n > 0]


@dataclasses.dataclass(eq=False)
class _Reading:
    """A model's plan beside its buffers."""

    plan: Any  # ropewalk.Plan of the model as it is now
    layers: list[list[_Frequencies]]  # that each layer may rotate by
    rounded: list[_Frequencies]  # whose frequencies were rounded to 16 bits


def _read(model: PreTrainedModel) -> _Reading:
    found = _require_frequencies(model)
    config = _text_config(model)
    count = _layer_count(config)
    types = _layer_types(config, count)
    by_layer = [_candidates(found, i, types[i]) for i in range(count)]
    plan = _family_plan(config)
    if plan is None or len(plan.layers) != count:
        plan = _plan_of_buffers(model, config, found, by_layer, types)
    differences: list[str] = []
    for length in _live_lengths(plan):
        at = plan.at(length)
        differences, rounded = [], {}
        matched: list[list[_Frequencies]] = []
        for index, layer in enumerate(at.layers):
            if layer.rotation is None:
                matched.append([])
                continue
            kinds = {id(f): _same(f.inv_freq, layer.rotation.inv_freq_f32) for f in by_layer[index]}
            same = [f for f in by_layer[index] if kinds[id(f)] != "different" and _same_amplitude(f, layer.rotation)]
            matched.append(same)
            rounded.update({id(f): f for f in same if kinds[id(f)] == "rounded"})
            if not same:
                f = by_layer[index][0]
                differences.append(
                    f"layer {index}: {f.name} has {_shown(f.inv_freq)} and attention factor {f.amplitude}, the "
                    f"configuration says {_shown(layer.rotation.inv_freq_f32)} and {layer.rotation.amplitude}"
                )
        claimed = {id(f) for own in matched for f in own}
        spare = [f for f in found if id(f) not in claimed]
        if not differences and spare and any(matched):
            differences.append(f"{spare[0].name} has {_shown(spare[0].inv_freq)}, which is of no layer of the plan")
        if not differences:
            return _Reading(at, matched, list(rounded.values()))
    error = Error(f"{config.model_type}: the configuration contradicts the buffers of the model. {differences[0]}")
    error.code = "mismatch"
    raise error


def _shown(values: Any) -> str:
    values = [float(v) for v in values[:3]]
    return "[" + ", ".join(f"{v:.9g}" for v in values) + ", ..]"


def _same_amplitude(live: _Frequencies, rotation: Any) -> bool:
    return math.isclose(1 if live.amplitude is None else live.amplitude, rotation.amplitude, rel_tol=1e-6)


def plan_of(model: PreTrainedModel) -> Any:
    """The plan of a loaded model: that of its configuration, held against the live buffers of its rotary modules.

    Where a method is applied it is that method's plan, read back from what was installed. Raises `ropewalk.Error` for
    a model without rotary buffers, and with code "mismatch" where configuration and buffers contradict each other (a
    configuration that was changed after the model was loaded has no effect on what the model computes).
    """
    state = model.__dict__.get(_STATE) if isinstance(model, torch.nn.Module) else None
    if state is None:
        return _read(model).plan
    _verify(model, state)
    return state.plan


# ---------------------------------------------------------------------------------------------------------------------
# Apply and restore


@dataclasses.dataclass(eq=False)
class _State:
    """What `restore` needs, and what the model has now."""

    plan: Any
    frequencies: list[tuple[_Frequencies, dict[str, Any]]]  # with what they were
    config: dict[str, Any]  # rope keys as they were; absent ones are _ABSENT
    scalings: list[tuple[torch.nn.Module, float]]  # of attention modules
    implementations: list[tuple[Any, Any]]  # configurations with their attention
    hooks: list[Any]
    attention: list[torch.nn.Module]
    indices: list[int] = dataclasses.field(default_factory=list)  # their layers

    def __deepcopy__(self, memo: dict) -> _State:
        memo[id(self.plan)] = self.plan  # it does not change
        return _State(**{f.name: copy.deepcopy(getattr(self, f.name), memo) for f in dataclasses.fields(self)})


_ABSENT = object()
_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")


def apply(
    model: PreTrainedModel,
    method: Any,
    factor: float | None = None,
    *,
    length: int | None = None,
    trained_length: int = 0,
) -> Any:
    """Puts a method on a loaded model and returns the plan that it computes from now on.

    Args:
        model: a causal model of transformers, on any device and of any floating point type.
        method: a method by name ("yarn", "rerope+log-n", "self-extend:window=1024,group=8", "none" for the model as it
            was trained), a rope dictionary of transformers ({"rope_type": "yarn", "factor": 4}), or a `ropewalk.Plan`.
        factor: target length over trained length, for methods that take one.
        length: final length of the sequence in tokens, for methods that depend on it (dynamic, longrope): their
            frequencies are computed for it once and stay. Default: that of the plan.
        trained_length: tokens that the model was trained at, where its configuration does not say.

    The configuration of the model gets the setting where its format can say it, so that `save_pretrained` keeps it; a
    warning says so where it cannot. Frequencies that `model.to(torch.bfloat16)` has rounded are computed anew, with a
    warning. Raises `ropewalk.Error`, and changes nothing, for models and methods that do not go together and where the
    plan read back from the model differs.
    """
    return _apply(model, method, factor, length, trained_length, stays=True)


def restore(model: PreTrainedModel) -> None:
    """Gives the model back as it was before `apply`, bit for bit. Does nothing where no method is applied."""
    state = model.__dict__.pop(_STATE, None)
    if state is not None:
        _undo(model, state)


@contextlib.contextmanager
def applied(
    model: PreTrainedModel,
    method: Any,
    factor: float | None = None,
    *,
    length: int | None = None,
    trained_length: int = 0,
) -> Iterator[Any]:
    """`apply` for the length of a `with` block, `restore` after it. Yields the plan."""
    plan = _apply(model, method, factor, length, trained_length, stays=False)
    try:
        yield plan
    finally:
        restore(model)


def _new_plan(base: Any, method: Any, factor: float | None, length: int | None, trained_length: int) -> Any:
    if isinstance(method, ropewalk.Plan):
        plan = method
    elif isinstance(method, dict):
        plan = base.with_rope(method)
    elif isinstance(method, str):
        plan = base.with_method(method, factor, trained_length)
    else:
        raise Error(f"method: expected a name, a rope dictionary or a Plan, got {type(method).__name__}")
    if length is not None:
        plan = plan.at(length)
    if len(plan.layers) != len(base.layers):
        raise Error(f"plan: expected {len(base.layers)} layers as the model has, got {len(plan.layers)}")
    for index, (old, new) in enumerate(zip(base.layers, plan.layers)):
        if (old.rotation is None) != (new.rotation is None):
            raise Error(f"plan: layer {index} of the model {'does not rotate' if old.rotation is None else 'rotates'}")
        if (old.window, old.chunk) != (new.window, new.chunk):
            raise Error(f"plan: layer {index}: windows and chunks are the model's own, and cannot be replaced")
        if new.bias is not None and old.bias is None:
            raise Error(f"plan: layer {index}: a bias cannot be put on a model that was trained without")
        if old.rotation is not None and "proportional" in old.rotation.method:
            if "proportional" not in new.rotation.method:
                error = Error(
                    f"layer {index}: this model was trained with {old.rotation.method}, which the method would "
                    "replace by "
                    f"{new.rotation.method}; expected a plan that keeps it"
                )
                error.code = "unsupported"
                raise error
    return plan


def _apply(
    model: PreTrainedModel, method: Any, factor: float | None, length: int | None, trained_length: int, stays: bool
) -> Any:
    if isinstance(model, torch.nn.Module) and _STATE in model.__dict__:
        raise Error("the model has a method already: call ropewalk.transformers.restore(model) first")
    reading = _read(model)
    plan = _new_plan(reading.plan, method, factor, length, trained_length)
    remapped = any(
        new.map is not None or _text(new.temperature) != _text(old.temperature)
        for old, new in zip(reading.plan.layers, plan.layers)
    )
    state = _State(plan, [], {}, [], [], [], [])
    try:
        if remapped:
            _install_attention(model, reading, plan, state)
        else:
            _install_frequencies(model, reading, plan, state)
        kept = _set_config(model, reading.plan, plan, method, factor, state)
        _verify(model, state)
    except BaseException:
        _undo(model, state)
        raise
    model.__dict__[_STATE] = state
    if reading.rounded:
        names = ", ".join(f"{f.name} ({f.inv_freq.dtype})" for f in reading.rounded[:2])
        warnings.warn(
            f"the frequencies of this model were rounded to 16 bits (model.to(bfloat16) and model.half() do that; "
            f"from_pretrained(dtype=...) does not): they are float32 again while this method is applied: {names}",
            stacklevel=3,
        )
    if stays and not kept:
        warnings.warn(
            f"config.json cannot say {_text(method)}: save_pretrained writes the positions that the model had before",
            stacklevel=3,
        )
    return plan


def _undo(model: PreTrainedModel, state: _State) -> None:
    for hook in state.hooks:
        hook.remove()
    for module in state.attention:
        module.__dict__.pop(_STATE, None)
    for config, implementation in state.implementations:
        config._attn_implementation_internal = implementation
    for frequencies, saved in reversed(state.frequencies):
        frequencies.load(saved)
        frequencies.expected = None
    for module, scaling in state.scalings:
        module.scaling = scaling
    config = _text_config(model)
    for key, value in state.config.items():
        if value is _ABSENT:
            config.__dict__.pop(key, None)
        else:
            config.__dict__[key] = value


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _overwrite(frequencies: _Frequencies, inv_freq: torch.Tensor, amplitude: float, state: _State) -> None:
    known = frequencies.expected
    if known is not None:
        if known[0].shape != inv_freq.shape or not torch.equal(known[0], inv_freq) or known[1] != amplitude:
            raise Error(f"{frequencies.name} serves layers to which the plan gives different frequencies")
        return
    state.frequencies.append((frequencies, frequencies.save()))
    frequencies.write(inv_freq, amplitude)


def _install_frequencies(model: PreTrainedModel, reading: _Reading, plan: Any, state: _State) -> None:
    """Methods that scale the rotation: the buffers of the rotary modules."""
    for index, layer in enumerate(plan.layers):
        if layer.rotation is None:
            continue
        inv_freq = torch.from_numpy(np.array(layer.rotation.inv_freq_f32, dtype=np.float32))
        for frequencies in reading.layers[index]:
            if frequencies.inv_freq.shape != inv_freq.shape:
                raise Error(
                    f"layer {index}: {frequencies.name} has {frequencies.inv_freq.numel()} frequencies, the plan "
                    f"{inv_freq.numel()}; how many elements rotate cannot be changed"
                )
            _overwrite(frequencies, inv_freq, layer.rotation.amplitude, state)
    for frequencies, _ in state.frequencies:
        _check_output(frequencies, *frequencies.expected)
    # DeepSeek's YaRN multiplies the scores in the attention modules.
    factors = {
        index: new.rotation.softmax_multiplier / old.rotation.softmax_multiplier
        for index, (old, new) in enumerate(zip(reading.plan.layers, plan.layers))
        if new.rotation is not None and new.rotation.softmax_multiplier != old.rotation.softmax_multiplier
    }
    for module in _decoder(model).modules():
        index = getattr(module, "layer_idx", None)
        if index in factors and isinstance(getattr(module, "scaling", None), float):
            state.scalings.append((module, module.scaling))
            module.scaling = module.scaling * factors.pop(index)
    if factors:
        raise Error(f"layer {min(factors)}: its scores have a multiplier that this model keeps out of reach")


@torch.no_grad()
def _check_output(frequencies: _Frequencies, inv_freq: torch.Tensor, amplitude: float) -> None:
    """Calls the rotary module: what it returns has to follow from the buffers (some compute anew from the
    configuration)."""
    device = frequencies.inv_freq.device
    positions = torch.tensor([[0, 1, 5, 40]], device=device)
    x = torch.zeros(1, 4, 2 * inv_freq.numel(), device=device)
    label = (frequencies.prefix[:-1],) if frequencies.prefix else ()
    answer = None
    for ids in (positions, positions.expand(3, 1, -1)):
        with contextlib.suppress(TypeError, ValueError, IndexError, RuntimeError):
            answer = frequencies.module(x, ids, *label)
            break
    cos = answer[0] if isinstance(answer, tuple) and answer else answer
    expected = (positions.cpu()[0, :, None].float() * inv_freq).cos() * amplitude
    if isinstance(cos, torch.Tensor) and cos.numel() % 4 == 0:
        cos = cos.real if cos.is_complex() else cos
        rows = cos.detach().cpu().float().reshape(-1, 4, cos.shape[-1])[0]
        pairs = inv_freq.numel()
        forms = (rows[:, :pairs], rows[:, ::2]) if rows.shape[1] >= pairs else ()
        if any(form.shape == expected.shape and torch.allclose(form, expected, atol=1e-4) for form in forms):
            return
    raise Error(
        f"{frequencies.name}: the module {type(frequencies.module).__name__} does not answer with the cosines of its "
        "frequencies; a model that computes them in another way cannot be changed from outside"
    )


def _verify(model: PreTrainedModel, state: _State) -> None:
    """Reads the live buffers back: they have to be the plan's, bit for bit."""
    live = {(id(f.module), f.prefix): f for f in _find_frequencies(model)}
    for frequencies, _ in state.frequencies:
        inv_freq, amplitude = frequencies.expected
        now = live.get((id(frequencies.module), frequencies.prefix))
        what = None
        if now is None:
            what = "is gone"
        elif now.inv_freq.dtype != torch.float32:
            what = f"is {now.inv_freq.dtype}, so that its frequencies are rounded"
        elif not torch.equal(now.inv_freq.detach().cpu(), inv_freq):
            what = f"has {_shown(now.inv_freq)}, the plan {_shown(inv_freq)}"
        elif (1.0 if now.amplitude is None else now.amplitude) != amplitude:
            what = f"has the attention factor {now.amplitude}, the plan {amplitude}"
        if what is not None:
            error = Error(f"{frequencies.name} {what}; restore(model) and apply the method again")
            error.code = "mismatch"
            raise error
    for module in state.attention:
        if module.config._attn_implementation != _ATTENTION:
            error = Error(f"the attention of the model is {module.config._attn_implementation}, not {_ATTENTION}")
            error.code = "mismatch"
            raise error


# ---------------------------------------------------------------------------------------------------------------------
# The configuration


def _rope_dictionary(method: Any, factor: float | None, plan: Any, old: dict[str, Any]) -> dict[str, Any] | None:
    """How transformers writes a method, None where it cannot."""
    if isinstance(method, dict):
        return dict(method)
    if not isinstance(method, str):
        return None
    name, _, setting = method.partition(":")
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
    return {k: v for k, v in rope.items() if k == "partial_rotary_factor" or k not in {*_ROPE_SETTINGS, "type"}}


def _set_config(model: PreTrainedModel, base: Any, plan: Any, method: Any, factor: float | None, state: _State) -> bool:
    """Writes the method into the configuration if the library reads the same plan from it. False: it cannot be said."""
    config = _text_config(model)
    if plan.hash == base.hash:
        return True
    if state.attention:
        return False
    old = {key: config.__dict__.get(key, _ABSENT) for key in _ROPE_KEYS}
    flat = old["rope_parameters"] if isinstance(old["rope_parameters"], dict) else {}
    typed = {key: value for key, value in flat.items() if isinstance(value, dict)}
    before = next(iter(typed.values()), flat) if flat else {"rope_theta": getattr(config, "rope_theta", None)}
    new = _rope_dictionary(method, factor, plan, {k: v for k, v in before.items() if v is not None})
    if new is None:
        return False
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
        keys = {"rope_scaling": None if new["rope_type"] == "default" else new}
        tries.append(keys if theta is None else {**keys, "rope_theta": theta})
    for keys in tries:
        trial = copy.deepcopy(config)
        trial.__dict__.update(keys)
        with contextlib.suppress(Exception):
            read = ropewalk.plan(_config_dict(trial), allow_unknown=True)
            if read.at(plan.length).hash == plan.hash:
                state.config = {key: old[key] for key in keys}
                config.__dict__.update(keys)
                return True
    return False


# ---------------------------------------------------------------------------------------------------------------------
# Families that the library's reader does not know


def _plan_of_buffers(
    model: PreTrainedModel,
    config: Any,
    found: list[_Frequencies],
    by_layer: list[list[_Frequencies]],
    types: list[str | None],
) -> Any:
    """A plan from the rope dictionaries of a configuration, the sizes of the rotary buffers, and a probe of which
    layers rotate (all, where they cannot be probed)."""
    state = _State(None, [], {}, [], [], [], [])
    try:
        layouts = _probe_layouts(model, found, by_layer, state)
    except Error:
        layouts = {}
    finally:
        _undo(model, state)
    layers = []
    kinds = getattr(config, "layer_types", None) or [None] * len(by_layer)
    window = getattr(config, "sliding_window", None) or 0
    if getattr(config, "use_sliding_window", True) is False:
        window = 0
    for index, own in enumerate(by_layer):
        kind = kinds[index] if index < len(kinds) else None
        sliding = kind in ("sliding_attention", "hybrid_sliding") or (kind is None and window > 0)
        layer = {
            "window": int(window) if sliding else 0,
            "chunk": int(getattr(config, "attention_chunk_size", None) or 0) if kind == "chunked_attention" else 0,
            "recurrent": kind in ("linear_attention", "mamba", "conv", "recurrent"),
        }
        if own and not layer["recurrent"] and layouts.get(index, ()) is not None:
            dims = 2 * own[0].inv_freq.numel()
            rope, base = _rope_of(config, types[index])
            rope = {k: v for k, v in rope.items() if k in _ROPE_SETTINGS}
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
    given = {"trained_length": int(trained or length), "configured_length": length, "layers": layers}
    return ropewalk.Plan(ropewalk._core.plan_of_layers(json.dumps(given)))


# Keys of a rope dictionary that say how frequencies follow from the base.
_ROPE_SETTINGS = {
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


def _rope_of(config: Any, label: str | None) -> tuple[dict[str, Any], float]:
    """The rope dictionary of a layer, and its base."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if label is not None and isinstance(rope.get(label), dict):
        rope = rope[label]
    elif any(isinstance(value, dict) for value in rope.values()):
        rope = next((value for value in rope.values() if isinstance(value, dict)), {})
    base = rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    return {k: v for k, v in rope.items() if v is not None}, float(base)


# ---------------------------------------------------------------------------------------------------------------------
# How a layer rotates: probed


_PROBE_POSITIONS = (0, 1, 2, 5, 13, 40, 101, 200)
# What changes scores or masks in ways that this module's attention does not have.
_UNKNOWN = ("position_bias", "indices", "block_indices", "sinks", "alibi", "rel_logits", "head_mask")


@dataclasses.dataclass
class _Call:
    module: torch.nn.Module
    query: torch.Tensor
    key: torch.Tensor
    extra: list[str]


_local = threading.local()  # .calls: of the probe that runs in this thread


def _probe_attention(module, query, key, value, attention_mask=None, **kwargs):
    extra = [name for name in _UNKNOWN if kwargs.get(name) is not None]
    _local.calls.append(_Call(module, query.detach().clone(), key.detach().clone(), extra))
    batch, heads, tokens, _ = query.shape
    return query.new_zeros(batch, tokens, heads, value.shape[-1]), None


def _probe(model: PreTrainedModel) -> list[_Call]:
    """What every attention layer gets as q and k, where attention adds nothing to the residual stream."""
    _local.calls = calls = []
    training = [module for module in model.modules() if module.training]
    device = next(model.get_input_embeddings().parameters()).device
    positions = torch.tensor([_PROBE_POSITIONS], device=device)
    vocabulary = int(getattr(_text_config(model), "vocab_size", 64) or 64)
    ids = torch.arange(len(_PROBE_POSITIONS), device=device)[None] % max(1, vocabulary - 4) + 3
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            model(input_ids=ids % vocabulary, position_ids=positions, use_cache=False)
        return calls
    except Exception as error:
        family = _text_config(model).model_type
        raise _unsupported(family, f"it cannot be probed: {type(error).__name__}: {error}") from error
    finally:
        _local.calls = []
        for module in training:
            module.training = True


@dataclasses.dataclass
class _Layout:
    """Which elements of a head a layer rotates."""

    interleaved: bool
    first_dim: int
    pairs: int
    direction: int = 1  # -1: by the negative angle (NanoChat)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: _Layout) -> torch.Tensor:
    """x [..., tokens, head_dim] rotated in float32; cos and sin [..., tokens, pairs]."""
    first, width = layout.first_dim, 2 * layout.pairs
    if layout.direction < 0:
        sin = -sin
    rotated = x[..., first : first + width].float()
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


def _classify(
    rotated: _Call, plain: _Call, frequencies: list[tuple[torch.Tensor, float]]
) -> tuple[_Layout | None, str]:
    """The layout by which `plain` becomes `rotated` (None: nothing rotates), or the reason why there is none."""
    limit = {torch.float32: 1e-4, torch.float64: 1e-4}.get(plain.query.dtype, 4e-2)
    pairs = ((plain.query, rotated.query), (plain.key, rotated.key))
    still = max(_distance(a, b) for a, b in pairs)
    best, best_error = None, math.inf
    for inv_freq, amplitude in frequencies:
        inv_freq = inv_freq.to(plain.query.device)
        n, dim = inv_freq.numel(), plain.query.shape[-1]
        angles = torch.tensor(_PROBE_POSITIONS, device=inv_freq.device).float()[:, None] * inv_freq
        cos, sin = angles.cos() * amplitude, angles.sin() * amplitude
        for first in sorted({0, dim - 2 * n}) if dim >= 2 * n else ():
            for interleaved, direction in ((False, 1), (True, 1), (False, -1), (True, -1)):
                layout = _Layout(interleaved, first, n, direction)
                error = max(_distance(_turn(a, cos, sin, layout), b) for a, b in pairs)
                if error < best_error:
                    best, best_error = layout, error
    if still < limit / 100 or (still < limit and still <= best_error):
        return None, ""
    if best_error > limit:
        return None, f"its queries and keys are rotated in a way that was not found (nearest: off by {best_error:.2g})"
    return best, ""


# ---------------------------------------------------------------------------------------------------------------------
# Attention that rotates on load


@dataclasses.dataclass(eq=False)
class _Shared:
    """What the layers of a model have in common during a forward pass."""

    positions: torch.Tensor | None = None  # [batch or 1, tokens]: what the rotary modules were called with
    tables: dict[tuple, torch.Tensor] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class _Attention:
    """What a layer's attention does, kept on its module."""

    shared: _Shared
    layout: _Layout | None
    rotation: Any  # ropewalk.Rotation
    map: Any  # ropewalk.PositionMap or None
    temperature: Any  # ropewalk.Temperature, where the model's own code does not apply it; or None
    multiplier: float  # of the scores

    def __deepcopy__(self, memo: dict) -> _Attention:
        return dataclasses.replace(self, shared=copy.deepcopy(self.shared, memo))  # the rest does not change


class _Hook:
    """Remembers the positions that a rotary module is called with."""

    def __init__(self, shared: _Shared):
        self.shared = shared

    def __call__(self, module, args, kwargs):
        positions = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if isinstance(positions, torch.Tensor) and not positions.is_floating_point():
            if positions.ndim == 3:  # axes of M-RoPE, equal for text
                positions = positions[0]
            self.shared.positions = positions if positions.ndim == 2 else positions.reshape(1, -1)


def _mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, **kwargs):
    """The mask as SDPA's (bool [batch, 1, tokens, keys], never left out), with the slots of queries and keys."""
    kwargs.pop("allow_is_causal_skip", None)
    cache_position = kwargs.get("cache_position")
    if cache_position is None:
        arguments = {"q_length": q_length, "q_offset": q_offset}
    else:
        arguments = {"cache_position": cache_position, "allow_torch_fix": False}
    kwargs.update(arguments)
    mask = sdpa_mask(batch_size, kv_length=kv_length, kv_offset=kv_offset, allow_is_causal_skip=False, **kwargs)
    if mask is None:
        return None
    if cache_position is None:
        queries = torch.arange(q_length, device=mask.device) + q_offset
    else:
        queries = cache_position.to(mask.device)
    mask._ropewalk_slots = (queries, torch.arange(kv_length, device=mask.device) + kv_offset)
    return mask


def _slots(mask: torch.Tensor | None, tokens: int, keys: int, device: torch.device):
    """The places of queries and keys in the sequence: [tokens] and [keys]."""
    slots = getattr(mask, "_ropewalk_slots", None)
    if slots is not None and slots[0].shape[0] == tokens and slots[1].shape[0] >= keys:
        return slots[0].to(device), slots[1][:keys].to(device)
    every = torch.arange(keys, device=device)
    return every[keys - tokens :], every


def _positions(info: _Attention, mask, tokens: int, keys: int, device: torch.device, given: Any):
    """Positions of queries [batch or 1, tokens] and keys [batch or 1, keys].

    transformers does not say the positions of cached keys. They follow from their slots: within a sequence both count
    by one, so that the distance between them (padding on the left, an offset) is that of the new tokens.
    """
    query_slots, key_slots = _slots(mask, tokens, keys, device)
    if not (isinstance(given, torch.Tensor) and given.ndim == 2 and given.shape[1] == tokens):
        given = info.shared.positions
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
    else:
        shift = shift[:, -1:]
    index = key_slots - query_slots[0]
    new = queries[:, index.clamp(0, tokens - 1)]
    cached = (key_slots + shift).clamp_min(0)
    return queries, torch.where((index >= 0) & (index < tokens), new, cached)


def _mapped(formula: dict, positions: torch.Tensor) -> torch.Tensor:
    if formula["modulus"] is not None:
        positions = positions % formula["modulus"]
    positions = formula["slope"] * (positions // formula["divisor"]) + formula["offset"]
    return positions if formula["limit"] is None else positions.clamp_max(formula["limit"])


def _cos_sin(info: _Attention, positions: torch.Tensor, divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [batch or 1, 1, tokens, pairs], times the amplitude."""
    rows = int(positions.max()) + 1
    key = (info.rotation.inv_freq.tobytes(), info.rotation.amplitude, divisor, positions.device)
    table = info.shared.tables.get(key)
    if table is None or table.shape[0] < rows:
        count = max(256, 1 << (rows - 1).bit_length())
        if divisor == 1:
            values = np.array(info.rotation.table(count).rows, dtype=np.float32)
        else:
            angles = np.arange(count, dtype=np.float64)[:, None] * info.rotation.inv_freq / divisor
            values = np.stack((np.cos(angles), np.sin(angles)), axis=1) * info.rotation.amplitude
        table = torch.from_numpy(values.astype(np.float32)).to(positions.device)
        info.shared.tables[key] = table
    chosen = table[positions.clamp_min(0)]
    return chosen[:, None, :, 0], chosen[:, None, :, 1]


def _views_of(position_map: Any, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """The view that scores each pair, [batch or 1, tokens, keys]; -1: masked. Keys ahead of their query, which the
    causal mask hides, get the first."""
    q, k = queries[:, :, None], keys[:, None, :]
    s = position_map.settings
    if position_map.name == "dual-chunk":
        return (q // s["chunk"] - k // s["chunk"]).clamp(0, 2)
    far = (q - k >= s["window"]).long()
    if position_map.name == "sinks":
        return torch.where(k < s["sinks"], 1, -far)
    return far


def _temperature(temperature: Any, positions: torch.Tensor) -> torch.Tensor:
    """Float32 [batch or 1, 1, 1, tokens, 1]."""
    values = torch.from_numpy(temperature(positions.cpu().numpy())).to(device=positions.device, dtype=torch.float32)
    return values[:, None, None, :, None]


_SCORES = 1 << 25  # elements of a block of scores: 128 MiB


def _rotated(info: _Attention, query, key, queries, keys) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Queries [batch, kv_heads, group, tokens, dim] and keys [batch, kv_heads, 1, dim, keys] of every view."""
    batch, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    pairs = []
    for view in info.map.views if info.map is not None else (None,):
        q, k = query, key
        if info.layout is not None:
            at, to, divisor = queries, keys, 1
            if view is not None:
                at, to, divisor = _mapped(view.query, queries), _mapped(view.key, keys), view.frequency_divisor
            q = _turn(query, *_cos_sin(info, at, divisor), info.layout)
            k = _turn(key, *_cos_sin(info, to, divisor), info.layout)
        pairs.append((q.reshape(batch, kv_heads, heads // kv_heads, tokens, dim), k[:, :, None].transpose(-1, -2)))
    return pairs


def _scores(info: _Attention, rotated, rows: slice, queries, keys, scaling):
    """Scores of some queries, float32 [batch, kv_heads, group, tokens, keys], and the pairs that the map masks, or
    None."""
    if info.map is None:
        ((q, k),) = rotated
        return torch.matmul(q[..., rows, :], k).float() * scaling, None
    chosen = _views_of(info.map, queries[:, rows], keys)[:, None, None]
    scores = None
    for view, (q, k) in enumerate(rotated):
        mine = chosen == view
        if view > 0 and mine.device.type == "cpu" and not mine.any():
            continue
        these = torch.matmul(q[..., rows, :], k).float() * scaling
        scores = these if scores is None else torch.where(mine, these, scores)
    return scores, chosen < 0 if info.map.name == "sinks" else None


def _attention(
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
    """The registered attention function: query [batch, heads, tokens, dim], key and value [batch, kv_heads, keys, dim],
    unrotated. Returns [batch, tokens, heads, dim] and the weights where they are asked for."""
    info = module.__dict__.get(_STATE)
    if info is None:  # of another part of the model, which keeps its rotation
        info = _Attention(_Shared(), None, None, None, None, 1.0)
    batch, heads, tokens, dim = query.shape
    keys, kv_heads = key.shape[2], key.shape[1]
    scaling = (dim**-0.5 if scaling is None else scaling) * info.multiplier
    at, to = _positions(info, attention_mask, tokens, keys, query.device, kwargs.get("position_ids"))
    temperature = None if info.temperature is None else _temperature(info.temperature, at)
    mask = attention_mask
    if mask is None and (tokens > 1 or sliding_window is not None) and getattr(module, "is_causal", True):
        query_slots, key_slots = _slots(None, tokens, keys, query.device)
        mask = key_slots <= query_slots[:, None]
        if sliding_window is not None:
            mask &= key_slots > query_slots[:, None] - sliding_window
        mask = mask[None, None]
    weighted = []
    outputs = []
    lowest = torch.finfo(torch.float32).min
    step = max(1, _SCORES // max(1, batch * heads * keys))
    rotated = _rotated(info, query, key, at, to)
    for first in range(0, tokens, step):
        rows = slice(first, first + step)
        scores, hidden = _scores(info, rotated, rows, at, to, scaling)
        if temperature is not None:
            scores = scores * temperature[:, :, :, rows]
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None:
            part = mask[:, :, rows, :keys] if mask.shape[2] > 1 else mask[..., :keys]
            if part.shape[1] == 1:  # of all heads
                part = part[:, :, None]
            else:
                part = part.reshape(part.shape[0], kv_heads, heads // kv_heads, *part.shape[2:])
            scores = scores.masked_fill(~part, lowest) if part.dtype == torch.bool else scores + part.float()
        if hidden is not None:
            scores = scores.masked_fill(hidden, lowest)
        if s_aux is not None:
            sinks = (
                s_aux.float().reshape(1, kv_heads, heads // kv_heads, 1, 1).expand(batch, -1, -1, scores.shape[3], 1)
            )
            scores = torch.cat((scores, sinks), dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., :keys].to(value.dtype)
        weights = torch.nn.functional.dropout(weights, p=dropout, training=module.training)
        outputs.append(torch.matmul(weights, value[:, :, None]).reshape(batch, heads, -1, value.shape[-1]))
        if kwargs.get("output_attentions"):
            weighted.append(weights.reshape(batch, heads, -1, keys))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return output.transpose(1, 2).contiguous(), torch.cat(weighted, dim=2) if weighted else None


AttentionInterface.register(_ATTENTION, _attention)
AttentionMaskInterface.register(_ATTENTION, _mask)
AttentionInterface.register(_PROBE, _probe_attention)
AttentionMaskInterface.register(_PROBE, _mask)


def _switch(model: PreTrainedModel, name: str, state: _State) -> None:
    """Makes every configuration in the decoder name this attention. set_attn_implementation does not reach all."""
    configs = {id(_text_config(model)): _text_config(model)}
    for module in _decoder(model).modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            configs[id(config)] = config
    known = {id(config) for config, _ in state.implementations}
    for key, config in configs.items():
        if key not in known:
            state.implementations.append((config, config._attn_implementation_internal))
        config._attn_implementation_internal = name


def _probe_layouts(
    model: PreTrainedModel, frequencies: list[_Frequencies], by_layer: list[list[_Frequencies]], state: _State
) -> dict[int, _Layout | None]:
    """How each layer rotates (None: it does not), by index. Leaves the identity in the rotary modules, the probe as the
    model's attention, and the attention modules in `state.attention`."""
    family = _text_config(model).model_type
    _switch(model, _PROBE, state)
    live = {}
    for f in frequencies:  # as they are: dynamic types must not recompute them while the probe runs
        live[id(f)] = f.inv_freq.detach().float(), 1.0 if f.amplitude is None else f.amplitude
        state.frequencies.append((f, f.save()))
        f.write(*live[id(f)])
    rotated = _probe(model)
    for f in frequencies:
        f.write(torch.zeros(f.inv_freq.numel()), 1.0)
    plain = _probe(model)
    if not plain or len(plain) != len(rotated) or any(a.module is not b.module for a, b in zip(plain, rotated)):
        raise _unsupported(family, "its attention does not go through transformers' AttentionInterface")
    layouts: dict[int, _Layout | None] = {}
    modules: dict[int, torch.nn.Module] = {}
    for order, (before, now) in enumerate(zip(rotated, plain)):
        index = getattr(now.module, "layer_idx", None)
        index = order if not isinstance(index, int) else index
        if now.extra:
            raise _unsupported(family, f"layer {index}: its attention takes {', '.join(now.extra)}")
        if index >= len(by_layer) or modules.setdefault(index, now.module) is not now.module:
            raise _unsupported(family, f"its attention modules cannot be told apart at layer {index}")
        one = id(frequencies[0])
        candidates = [live[id(f)] for f in by_layer[index]] or [live.get(id(f), live[one]) for f in frequencies]
        layout, why = _classify(before, now, candidates)
        if why:
            raise _unsupported(family, f"layer {index}: {why}")
        if layouts.setdefault(index, layout) != layout:
            raise _unsupported(family, f"layer {index} rotates in two ways")
    state.attention = list(modules.values())
    state.indices = list(modules)
    return layouts


def _install_attention(model: PreTrainedModel, reading: _Reading, plan: Any, state: _State) -> None:
    """Methods that need their own attention: identity rotation in the modules, rotation when keys are read."""
    family = _text_config(model).model_type
    frequencies = _find_frequencies(model)
    by_layer = [
        [f for f in frequencies if any(f.module is g.module and f.prefix == g.prefix for g in found)]
        for found in reading.layers
    ]
    layouts = _probe_layouts(model, frequencies, by_layer, state)
    shared = _Shared()
    for index, module in zip(state.indices, state.attention):
        old, layer, layout = reading.plan.layers[index], plan.layers[index], layouts[index]
        if (layout is None) != (layer.rotation is None):
            raise _unsupported(
                family,
                f"layer {index}: it {'does not rotate' if layout is None else 'rotates'}, its plan says otherwise",
            )
        if layout is not None and layout.pairs != len(layer.rotation.inv_freq):
            raise _unsupported(family, f"layer {index}: {layout.pairs} pairs rotate, the plan has another number")
        new_temperature = _text(layer.temperature) != _text(old.temperature)
        if new_temperature and old.temperature is not None:
            raise _unsupported(family, f"layer {index}: its own code has a temperature, which cannot be replaced")
        multiplier = 1.0
        if layer.rotation is not None:
            multiplier = layer.rotation.softmax_multiplier / old.rotation.softmax_multiplier
        module.__dict__[_STATE] = _Attention(
            shared, layout, layer.rotation, layer.map, layer.temperature if new_temperature else None, multiplier
        )
    missing = [i for i, layer in enumerate(plan.layers) if layer.rotation is not None and i not in layouts]
    if missing:
        raise _unsupported(family, f"layer {missing[0]}: its attention does not go through AttentionInterface")
    for module in {id(f.module): f.module for f in frequencies}.values():
        state.hooks.append(module.register_forward_pre_hook(_Hook(shared), with_kwargs=True))
    _switch(model, _ATTENTION, state)


def _unsupported(family: str, why: str) -> Error:
    error = Error(f"{family}: position maps and temperatures cannot be put on this model: {why}")
    error.code = "unsupported"
    return error
