"""What a model has while a method is applied, and how it gets back what it had."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.transformers._frequencies import Frequencies, decoder_of, text_config

STATE = "_ropewalk"  # attribute of a model, and of its attention modules
ATTENTION = "ropewalk"  # name of the registered attention function and of its mask
ABSENT = object()


@dataclasses.dataclass(eq=False)
class State:
    """What `restore` needs, and what the model has now."""

    plan: Any
    frequencies: list[tuple[Frequencies, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )  # with what they were
    # Configurations, rope keys, and what they were; absent ones are ABSENT.
    config: list[tuple[Any, str, Any]] = dataclasses.field(default_factory=list)
    scalings: list[tuple[torch.nn.Module, float, float]] = dataclasses.field(default_factory=list)  # before and now
    implementations: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)  # configurations, their attention
    hooks: list[Any] = dataclasses.field(default_factory=list)
    attention: list[torch.nn.Module] = dataclasses.field(default_factory=list)
    indices: list[int] = dataclasses.field(default_factory=list)  # their layers
    layers: list[list[Frequencies]] = dataclasses.field(default_factory=list)  # that each layer rotates by
    base: Any = None  # the model's own plan
    follower: Any = None  # Follower, of a method that follows the length

    def __deepcopy__(self, memo: dict) -> State:
        for plan in (self.plan, self.base):
            memo[id(plan)] = plan  # they do not change
        made = State(None)
        memo[id(self)] = made  # a follower refers to it
        for field in dataclasses.fields(self):
            setattr(made, field.name, copy.deepcopy(getattr(self, field.name), memo))
        return made


def undo(model: PreTrainedModel, state: State) -> None:
    for hook in state.hooks:
        hook.remove()
    for module in state.attention:
        module.__dict__.pop(STATE, None)
    for config, implementation in state.implementations:
        config._attn_implementation_internal = implementation
    for frequencies, saved in reversed(state.frequencies):
        frequencies.load(saved)
        frequencies.expected = None
    for module, before, _ in state.scalings:
        module.scaling = before
    for config, key, value in state.config:
        if value is ABSENT:
            config.__dict__.pop(key, None)
        else:
            config.__dict__[key] = value


def switch_attention(model: PreTrainedModel, name: str, state: State) -> None:
    """Makes every configuration in the decoder name this attention. set_attn_implementation does not reach all."""
    configs = {id(text_config(model)): text_config(model)}
    for module in decoder_of(model).modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            configs[id(config)] = config
    known = {id(config) for config, _ in state.implementations}
    for key, config in configs.items():
        if key not in known:
            state.implementations.append((config, config._attn_implementation_internal))
        config._attn_implementation_internal = name
