"""Methods whose frequencies depend on the length of the sequence (dynamic NTK, LongRoPE), where none is declared."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from ropewalk.transformers._state import STATE, State


class Follower:
    """Recomputes the frequencies when a rotary module is called, as transformers does: LongRoPE's by the last position
    of the call; the others' by the longest position so far, until a call ends below the trained length again."""

    def __init__(self, state: State):
        self.state = state
        self.plan = state.plan
        self.trained = max(1, state.plan.trained_length)
        self.length = self.trained
        methods = [layer.rotation.method for layer in state.plan.layers if layer.rotation is not None]
        self.by_call = any(method.startswith("longrope") for method in methods)

    def __deepcopy__(self, memo: dict) -> Follower:
        memo[id(self.plan)] = self.plan  # it does not change
        made = Follower.__new__(Follower)
        memo[id(self)] = made
        made.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return made

    def first(self) -> Any:
        return self.plan.at(self.length)

    def see(self, tokens: int) -> None:
        """A call whose last position is tokens - 1."""
        if self.by_call:
            length = max(tokens, self.trained)
            if length > self.trained:  # one set of frequencies for all of them
                length = self.trained + 1
        elif tokens < self.trained:
            length = self.trained
        else:
            length = max(tokens, self.length)
        if length == self.length:
            return
        self.length = length
        self.state.plan = plan = self.plan.at(length)
        if self.state.attention:
            for index, module in zip(self.state.indices, self.state.attention):
                module.__dict__[STATE].rotate_by(plan.layers[index].rotation)
            return
        made: dict[int, torch.Tensor] = {}  # of each rotation of the plan
        for index, layer in enumerate(plan.layers):
            if layer.rotation is None:
                continue
            key = id(layer.rotation)
            if key not in made:
                made[key] = torch.from_numpy(np.array(layer.rotation.inv_freq_f32, dtype=np.float32))
            for frequencies in self.state.layers[index]:
                if frequencies.expected[0] is not made[key]:
                    frequencies.write(made[key], layer.rotation.amplitude)
