"""apply, restore, applied and plan_of: what a user calls, and what is verified."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

import ropewalk
from ropewalk import Error, _core
from ropewalk._arrays import number
from ropewalk.transformers import _attention  # noqa: F401 - registers itself
from ropewalk.transformers._config import set_config
from ropewalk.transformers._follow import Follower
from ropewalk.transformers._frequencies import Frequencies, decoder_of, find_frequencies, refuse, text_config
from ropewalk.transformers._pass import Attention, Hook, Shared
from ropewalk.transformers._probe import probe_layouts, unsupported
from ropewalk.transformers._reading import Reading, read, shown
from ropewalk.transformers._state import ATTENTION, STATE, State, switch_attention, undo


def plan_of(model: PreTrainedModel) -> Any:
    """The plan of a loaded model: that of its configuration, held against the live buffers of its rotary modules.

    Where a method is applied it is that method's plan, read back from what was installed. Raises `ropewalk.Error` for
    a model without rotary buffers, and with code "mismatch" where configuration and buffers contradict each other (a
    configuration that was changed after the model was loaded has no effect on what the model computes).
    """
    state = model.__dict__.get(STATE) if isinstance(model, torch.nn.Module) else None
    if state is None:
        reading = read(model)
        _warn(reading, stacklevel=3)
        return reading.plan
    _verify(model, state)
    return state.plan


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
        factor: target length over trained length, 1 or more, for methods by name that take one.
        length: final length of the sequence in tokens, for methods that depend on it (dynamic, longrope): their
            frequencies are computed for it once and stay, as those of a Plan do. Without it they follow the longest
            position that the model has seen, as transformers' own do.
        trained_length: tokens that the model was trained at, where its configuration does not say.

    The configuration of the model gets the setting where its format can say it, so that `save_pretrained` keeps it; a
    warning says so where it cannot. Frequencies that `model.to(torch.bfloat16)` has rounded are computed anew, with a
    warning. Raises `ropewalk.Error`, and changes nothing, for models and methods that do not go together and where the
    plan read back from the model differs.
    """
    return _apply(model, method, factor, length, trained_length, stays=True)


def restore(model: PreTrainedModel) -> None:
    """Gives the model back as it was before `apply`, bit for bit. Does nothing where no method is applied."""
    state = model.__dict__.pop(STATE, None)
    if state is not None:
        undo(model, state)


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


def _warn(reading: Reading, stacklevel: int) -> None:
    for note in reading.notes:
        warnings.warn(note, stacklevel=stacklevel + 1)


def _checked_factor(method: Any, factor: float | None) -> float | None:
    if factor is None:
        return None
    if not isinstance(method, str):
        raise Error(f"factor: expected none, because a {type(method).__name__} has its own, got {factor!r}")
    checked = number("factor", factor)
    if not (math.isfinite(checked) and checked >= 1):
        raise Error(f"factor: expected a finite number of 1 or more, got {factor!r}")
    return checked


def _of_dictionary(reading: Reading, rope: dict[str, Any], trained_length: int) -> Any:
    """The plan that transformers computes by a rope dictionary."""
    base, key = reading.plan, "original_max_position_embeddings"
    if rope.get("rope_type", rope.get("type")) == "dynamic" and "alpha" not in rope and not trained_length:
        trained_length = base.configured_length
        if trained_length and rope.get(key) not in (None, trained_length):
            reading.notes.append(
                f"{key} = {rope[key]}: transformers does not read it for dynamic scaling, which counts from "
                f"max_position_embeddings, {trained_length}; ignored"
            )
            rope = {k: v for k, v in rope.items() if k != key}
    try:
        return base.with_rope(rope, trained_length)
    except Error as error:  # there is nothing here to allow them with
        raise refuse(str(error).replace(", or allow unknown keys (--allow-unknown)", ""), error.code) from None


def _new_plan(reading: Reading, method: Any, factor: float | None, length: int | None, trained_length: int) -> Any:
    base = reading.plan
    if isinstance(method, ropewalk.Plan):
        plan = method
    elif isinstance(method, dict):
        plan = _of_dictionary(reading, method, trained_length)
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
                raise refuse(
                    f"layer {index}: this model was trained with {old.rotation.method}, which the method would "
                    f"replace by {new.rotation.method}; expected a plan that keeps it",
                    "unsupported",
                )
    return plan


def _apply(
    model: PreTrainedModel, method: Any, factor: float | None, length: int | None, trained_length: int, stays: bool
) -> Any:
    if isinstance(model, torch.nn.Module) and STATE in model.__dict__:
        raise Error("the model has a method already: call ropewalk.transformers.restore(model) first")
    factor = _checked_factor(method, factor)
    reading = read(model)
    plan = _new_plan(reading, method, factor, length, trained_length)
    follows = (
        length is None
        and not isinstance(method, ropewalk.Plan)
        and any(layer.rotation is not None and layer.rotation.length_dependent for layer in plan.layers)
    )
    state = State(plan, base=reading.plan, layers=reading.layers)
    if follows:
        state.follower = Follower(state)
        state.plan = state.follower.first()
    remapped = any(
        new.map is not None or _text(new.temperature) != _text(old.temperature)
        for old, new in zip(reading.plan.layers, plan.layers)
    )
    try:
        (_install_attention if remapped else _install_frequencies)(model, state)
        kept = set_config(model, plan, method, factor, state)
        _verify(model, state)
    except BaseException:
        undo(model, state)
        raise
    model.__dict__[STATE] = state
    _warn(reading, stacklevel=3)
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
    return state.plan


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# Methods that scale the rotation: the buffers of the rotary modules


def _overwrite(frequencies: Frequencies, inv_freq: torch.Tensor, amplitude: float, state: State) -> None:
    known = frequencies.expected
    if known is not None:
        if known[0].shape != inv_freq.shape or not torch.equal(known[0], inv_freq) or known[1] != amplitude:
            raise Error(f"{frequencies.name} serves layers to which the plan gives different frequencies")
        return
    state.frequencies.append((frequencies, frequencies.save()))
    frequencies.write(inv_freq, amplitude)


def _install_frequencies(model: PreTrainedModel, state: State) -> None:
    for index, layer in enumerate(state.plan.layers):
        if layer.rotation is None:
            continue
        inv_freq = torch.from_numpy(np.array(layer.rotation.inv_freq_f32, dtype=np.float32))
        for frequencies in state.layers[index]:
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
        for index, (old, new) in enumerate(zip(state.base.layers, state.plan.layers))
        if new.rotation is not None and new.rotation.softmax_multiplier != old.rotation.softmax_multiplier
    }
    for module in decoder_of(model).modules():
        index = getattr(module, "layer_idx", None)
        if index in factors and isinstance(getattr(module, "scaling", None), float):
            state.scalings.append((module, module.scaling, module.scaling * factors.pop(index)))
            module.scaling = state.scalings[-1][2]
    if factors:
        raise Error(f"layer {min(factors)}: its scores have a multiplier that this model keeps out of reach")
    if state.follower is not None:
        _hook(state, Shared())


def _hook(state: State, shared: Shared) -> None:
    shared.follower = state.follower
    for module in {id(f.module): f.module for f, _ in state.frequencies}.values():
        state.hooks.append(module.register_forward_pre_hook(Hook(shared), with_kwargs=True))


@torch.no_grad()
def _check_output(frequencies: Frequencies, inv_freq: torch.Tensor, amplitude: float) -> None:
    """Calls the rotary module: what it returns has to follow from the buffers (some compute anew from the
    configuration)."""
    positions = torch.tensor([[0, 1, 5, 40]], device=frequencies.inv_freq.device)
    answer = frequencies.answer(positions)
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


# ---------------------------------------------------------------------------------------------------------------------
# Methods that need their own attention: identity rotation in the modules, rotation when keys are read


def _install_attention(model: PreTrainedModel, state: State) -> None:
    family = text_config(model).model_type
    frequencies = find_frequencies(model)
    by_layer = [
        [f for f in frequencies if any(f.module is g.module and f.prefix == g.prefix for g in found)]
        for found in state.layers
    ]
    layouts = probe_layouts(model, frequencies, by_layer, state)
    shared = Shared()
    plan = state.plan
    for index, module in zip(state.indices, state.attention):
        old, layer, layout = state.base.layers[index], plan.layers[index], layouts[index]
        if (layout is None) != (layer.rotation is None):
            raise unsupported(
                family,
                f"layer {index}: it {'does not rotate' if layout is None else 'rotates'}, its plan says otherwise",
            )
        if layout is not None and layout.pairs != len(layer.rotation.inv_freq):
            raise unsupported(family, f"layer {index}: {layout.pairs} pairs rotate, the plan has another number")
        new_temperature = _text(layer.temperature) != _text(old.temperature)
        if new_temperature and old.temperature is not None:
            raise unsupported(family, f"layer {index}: its own code has a temperature, which cannot be replaced")
        multiplier = 1.0
        if layer.rotation is not None:
            multiplier = layer.rotation.softmax_multiplier / old.rotation.softmax_multiplier
        module.__dict__[STATE] = Attention(
            shared, layout, layer.rotation, layer.map, layer.temperature if new_temperature else None, multiplier
        )
    missing = [i for i, layer in enumerate(plan.layers) if layer.rotation is not None and i not in layouts]
    if missing:
        raise unsupported(family, f"layer {missing[0]}: its attention does not go through AttentionInterface")
    _hook(state, shared)
    switch_attention(model, ATTENTION, state)
    shared.attention = state.attention_changes()


# ---------------------------------------------------------------------------------------------------------------------
# The plan read back


def _verify(model: PreTrainedModel, state: State) -> None:
    """Reads the plan back from the live model: it has to have the plan's hash."""
    live = {(id(f.module), f.prefix): f for f in find_frequencies(model)}
    for frequencies, _ in state.frequencies:
        inv_freq, amplitude = frequencies.expected
        now = live.get((id(frequencies.module), frequencies.prefix))
        what = None
        if now is None:
            what = "is gone"
        elif now.inv_freq.dtype not in (torch.float32, torch.float64):
            what = f"is {now.inv_freq.dtype}, so that its frequencies are rounded"
        elif not torch.equal(now.inv_freq.detach().cpu().double(), inv_freq.double()):
            what = f"has {shown(now.inv_freq)}, the plan {shown(inv_freq)}"
        elif (1.0 if now.amplitude is None else now.amplitude) != amplitude:
            what = f"has the attention factor {now.amplitude}, the plan {amplitude}"
        if what is not None:
            raise refuse(f"{frequencies.name} {what}; restore(model) and apply the method again", "mismatch")
    for module, _, scaling in state.scalings:
        if module.scaling != scaling:
            raise refuse(
                f"{type(module).__name__}: its scores are multiplied by {module.scaling}, not {scaling}", "mismatch"
            )
    for module in state.attention:
        if module.config._attn_implementation != ATTENTION:
            raise refuse(
                f"the attention of the model is {module.config._attn_implementation}, not {ATTENTION}", "mismatch"
            )
    found = _read_back(state)
    if found != state.plan.hash:
        raise refuse(f"the plan read back from the model has the hash {found}, expected {state.plan.hash}", "mismatch")


def _read_back(state: State) -> str:
    """The hash of what the layers rotate by now: the buffers of the rotary modules, or, where these are the identity,
    what the attention modules hold."""
    rows: list[tuple[list[float], float] | None] = [None] * len(state.plan.layers)
    held = {index: module.__dict__.get(STATE) for index, module in zip(state.indices, state.attention)}
    for index, layer in enumerate(state.plan.layers):
        own = held.get(index)
        if layer.rotation is None:
            continue
        if state.attention:
            if own is not None and own.map == layer.map and own.rotation is not None:
                rows[index] = own.rotation.inv_freq_f32.tolist(), own.rotation.amplitude
        else:
            first = state.layers[index][0]
            amplitude = 1.0 if first.amplitude is None else first.amplitude
            rows[index] = first.inv_freq.detach().float().cpu().tolist(), amplitude
    return _core.hash_of_buffers(state.plan._core, rows)
