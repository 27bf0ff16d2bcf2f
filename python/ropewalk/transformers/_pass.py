"""A forward pass of a model: the positions it is at, and what its layers compute alike from them."""

from __future__ import annotations

import copy
import dataclasses
import threading
import weakref
from typing import Any

import numpy as np
import torch

from ropewalk import Error
from ropewalk.transformers._mask import by_itself, positions
from ropewalk.transformers._probe import Layout
from ropewalk.transformers._state import Change


class Pass:
    """What layers compute alike in a forward pass: positions, and what follows from them."""

    def __init__(self, of: tuple, at: torch.Tensor, to: torch.Tensor):
        self.of = tuple(x if x is None else weakref.ref(x) for x in of)
        self.at, self.to = at, to  # positions of queries [batch or 1, tokens] and of keys [batch or 1, keys]
        self.rows: dict[tuple, Any] = {}
        self._first: int | None = None

    def is_of(self, of: tuple) -> bool:
        return all(y is None if x is None else x is not None and x() is y for x, y in zip(self.of, of))

    def first(self) -> int:
        """The position of the first key, from which all count up by one; -1: they do not."""
        if self._first is None:
            tokens, keys = self.at.shape[1], self.to.shape[1]
            first = self.to[:1, :1]
            every = first + torch.arange(keys, device=self.to.device)
            counts = (self.to == every).all() & (self.at == every[:, keys - tokens :]).all()
            self._first = int(torch.where(counts, first[0, 0], -1))
        return self._first


class Running(threading.local):
    """The forward pass of a thread."""

    def __init__(self):
        self.positions: torch.Tensor | None = None  # as of Shared
        self.passes: dict[tuple, Pass] = {}  # by what they are of

    def __reduce__(self):
        return Running, ()  # a copy of the model finds its own


@dataclasses.dataclass(eq=False)
class Shared:
    """What the layers of a model have in common during a forward pass."""

    # [batch or 1, tokens]: what the rotary modules were called with, in any thread. For threads in which they were not
    # (those of autograd, where layers are computed again from checkpoints), and torch.compile, which loses what is of
    # a thread.
    positions: torch.Tensor | None = None
    recorded: bool = False  # by what was compiled
    tables: dict[tuple, torch.Tensor] = dataclasses.field(default_factory=dict)
    follower: Any = None
    attention: list[Change] = dataclasses.field(default_factory=list)  # where the rotary modules are the identity
    running: Running = dataclasses.field(default_factory=Running)

    def note(self, positions: torch.Tensor) -> None:
        """At the beginning of a forward pass."""
        self.positions, self.recorded = positions, not by_itself()
        if by_itself():
            self.running.positions = positions
            self.running.passes.clear()

    def noted(self) -> torch.Tensor | None:
        own = self.running.positions if by_itself() and not self.recorded else None
        return self.positions if own is None else own


@dataclasses.dataclass(eq=False)
class Attention:
    """What a layer's attention does, kept on its module."""

    shared: Shared
    layout: Layout | None
    rotation: Any  # ropewalk.Rotation
    map: Any  # ropewalk.PositionMap or None
    temperature: Any  # ropewalk.Temperature, where the model's own code does not apply it; or None
    multiplier: float  # of the scores

    def __post_init__(self):
        self.settings = None if self.map is None else self.map.settings
        self.rotate_by(self.rotation)

    def rotate_by(self, rotation: Any) -> None:
        """Also as plain data, which torch.compile takes."""
        self.rotation = rotation
        with torch.inference_mode(False):  # gradients may go through it later
            self.inv_freq = None if rotation is None else torch.tensor(rotation.inv_freq, device="cpu")
        self.amplitude = 1.0 if rotation is None else rotation.amplitude
        numbers = None if rotation is None else self.inv_freq.numpy().tobytes()
        views = None if self.map is None else (self.map.name, *self.settings.items())
        self.alike = numbers, self.amplitude, views  # layers that are equal in it rotate alike

    def __deepcopy__(self, memo: dict) -> Attention:
        return dataclasses.replace(self, shared=copy.deepcopy(self.shared, memo))  # the rest does not change


class Hook:
    """Before a rotary module runs: remembers the positions that it is called with."""

    def __init__(self, shared: Shared):
        self.shared = shared

    def __call__(self, module, args, kwargs):
        positions = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if not all(change.holds() for change in self.shared.attention):
            raise Error(
                "the attention of this model was changed (set_attn_implementation) while a method is applied that needs "
                "its own: its layers would not rotate; call ropewalk.transformers.restore(model) first"
            )
        if isinstance(positions, torch.Tensor) and not positions.is_floating_point():
            if positions.ndim == 3:
                if self.shared.attention and _axes_differ(positions):
                    raise Error(
                        "position_ids: expected axes that are equal, as those of text are; under log-n this model "
                        "rotates by one position for each token, which images and video do not have"
                    )
                positions = positions[0]
            self.shared.note(positions if positions.ndim == 2 else positions.reshape(1, -1))
            if self.shared.follower is not None:
                self.shared.follower.see(int(positions.max()) + 1)


def _axes_differ(positions: torch.Tensor) -> bool:
    """Whether positions [axes, batch, tokens] of M-RoPE are other than text's. Yes, where their values cannot be asked
    for and they are not one row that is seen several times."""
    if positions.shape[0] == 1 or positions.stride(0) == 0:
        return False
    return not by_itself() or bool((positions != positions[:1]).any())


def begin(shared: Shared, mask: Any, tokens: int, keys: int, device: torch.device, given: Any) -> Pass:
    noted = shared.noted()
    if not by_itself() or not (mask is None or isinstance(mask, torch.Tensor)):
        return Pass((), *positions(mask, tokens, keys, device, given, noted))
    of = (mask, given if isinstance(given, torch.Tensor) else None, noted)
    passes = shared.running.passes
    key = (tokens, keys, device, torch.is_inference_mode_enabled(), *map(id, of))
    found = passes.get(key)
    if found is None or not found.is_of(of):
        if len(passes) > 8:  # of a model whose rotary modules do not say when a pass begins
            passes.clear()
        found = Pass(of, *positions(mask, tokens, keys, device, given, noted))
        passes[key] = found
    return found


def temperatures(temperature: Any, now: Pass) -> torch.Tensor:
    """Float32 [batch or 1, tokens]: the formulas of ropewalk.Temperature, on the positions' device."""
    key = "temperature", str(temperature)
    if key not in now.rows:
        now.rows[key] = _temperature_at(temperature, now.at)
    return now.rows[key]


def _temperature_at(temperature: Any, positions: torch.Tensor) -> torch.Tensor:
    n = positions.clamp_min(0).double()  # before the first position as at it, so that padding may have any
    if temperature.kind == "log-n":
        values = (torch.log(n + 1) / np.log(temperature.period)).clamp_min(1)
    elif temperature.kind == "mscale":
        values = torch.full_like(n, (1 + temperature.beta * np.log(temperature.period)) ** 2)
    else:
        values = 1 + temperature.beta * torch.log1p(((n + temperature.offset) / temperature.period).floor())
    return values.float()
