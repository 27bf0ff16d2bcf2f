"""What a model has while a method is applied, and how it gets back what it had."""

from __future__ import annotations

import copy
import dataclasses
import gc
import itertools
import threading
import weakref
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.transformers._frequencies import Frequencies, decoder_of, text_config

STATE = "_ropewalk"  # attribute of a model, and of its attention modules
ATTENTION = "ropewalk"  # name of the registered attention function and of its mask
_IMPLEMENTATION = "_attn_implementation_internal"  # where a configuration names its attention


class ABSENT:
    """What a configuration had where it had nothing: a class, which is the same in copies."""


@dataclasses.dataclass(eq=False)
class Change:
    """Of one attribute of a configuration."""

    config: Any
    key: str
    before: Any  # what the configuration had before any model had a method; ABSENT: nothing
    now: Any
    order: int = dataclasses.field(default_factory=itertools.count().__next__)

    def holds(self) -> bool:
        return getattr(self.config, self.key, None) == self.now


# Of models that have a method. Models may share a configuration, and then give it back together.
_states: weakref.WeakSet = weakref.WeakSet()
_lock = threading.Lock()


@dataclasses.dataclass(eq=False)
class State:
    """What `restore` needs, and what the model has now."""

    plan: Any
    frequencies: list[tuple[Frequencies, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )  # with what they were
    changes: list[Change] = dataclasses.field(default_factory=list)  # of configurations
    scalings: list[tuple[torch.nn.Module, float, float]] = dataclasses.field(default_factory=list)  # before and now
    hooks: list[Any] = dataclasses.field(default_factory=list)
    attention: list[torch.nn.Module] = dataclasses.field(default_factory=list)
    indices: list[int] = dataclasses.field(default_factory=list)  # their layers
    layers: list[list[Frequencies]] = dataclasses.field(default_factory=list)  # that each layer rotates by
    base: Any = None  # the model's own plan
    follower: Any = None  # Follower, of a method that follows the length

    def __post_init__(self):
        with _lock:
            _states.add(self)

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        self.__post_init__()

    def set(self, config: Any, key: str, value: Any) -> None:
        """Changes a configuration until `undo`."""
        change = next((c for c in self.changes if c.config is config and c.key == key), None)
        if change is None:
            before = config.__dict__.get(key, ABSENT)
            made_so = [other.before for other in _others(self, config, key) if other.now == before]
            change = Change(config, key, made_so[0] if made_so else before, value)
            self.changes.append(change)
        change.now = config.__dict__[key] = value

    def attention_changes(self) -> list[Change]:
        return [change for change in self.changes if change.key == _IMPLEMENTATION]

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
    for frequencies, saved in reversed(state.frequencies):
        frequencies.load(saved)
        frequencies.expected = None
    for module, before, _ in state.scalings:
        module.scaling = before
    for change in reversed(state.changes):
        _give_back(change, state)
    state.changes.clear()


def _others(state: State, config: Any, key: str) -> list[Change]:
    """Changes by other models of the same attribute of the same configuration, the latest first."""

    def found() -> list[Change]:
        with _lock:
            states = [other for other in _states if other is not state]
        return [c for other in states for c in list(other.changes) if c.config is config and c.key == key]

    if found():
        gc.collect()  # perhaps of models that are gone
    return sorted(found(), key=lambda change: -change.order)


def _give_back(change: Change, state: State) -> None:
    values = change.config.__dict__
    others = _others(state, change.config, change.key)
    if others:
        if values.get(change.key, ABSENT) == change.now:
            values[change.key] = others[0].now
    elif change.before is ABSENT:
        values.pop(change.key, None)
    else:
        values[change.key] = change.before


def switch_attention(model: PreTrainedModel, name: str, state: State) -> None:
    """Makes every configuration in the decoder name this attention. set_attn_implementation does not reach all."""
    configs = {id(text_config(model)): text_config(model)}
    for module in decoder_of(model).modules():
        config = getattr(module, "config", None)
        if hasattr(config, _IMPLEMENTATION):
            configs[id(config)] = config
    for config in configs.values():
        state.set(config, _IMPLEMENTATION, name)
