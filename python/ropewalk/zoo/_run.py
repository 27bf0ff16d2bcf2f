"""A run of gradient descent that can be ended and goes on with the same bits, from a file."""

from __future__ import annotations

import csv
import pathlib
from typing import Any

import torch
from torch import Tensor

from ropewalk._core import Error
from ropewalk.zoo._model import Model

_PROJECTION = "_proj.weight"  # how names of matrices of layers end


def matrices_and_others(model: Model) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The matrices of layers, and all other parameters."""
    named = list(model.named_parameters())
    return [p for n, p in named if n.endswith(_PROJECTION)], [p for n, p in named if not n.endswith(_PROJECTION)]


class Run:
    """A model and its optimizers at step `done` of a `recipe`, with a `log` of lines and what else is `held` between steps, all
    of which `keep` writes to `out`/state.pt; made again with the recipe it was kept with, it goes on from there."""

    def __init__(
        self, model: Model, optimizers: list[torch.optim.Optimizer], recipe: dict[str, Any], out: pathlib.Path, **held: Any
    ) -> None:
        self.model, self.recipe, self.path = model, recipe, out / "state.pt"
        self.done, self.held = 0, held
        self.log: list[list[Any]] = []
        self._optimizers = optimizers
        self._rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
        if self.path.exists():
            self._go_on()

    def _go_on(self) -> None:
        kept = torch.load(self.path, map_location=next(self.model.parameters()).device)
        if kept["recipe"] != self.recipe:
            raise Error(f"{self.path}: is of another recipe; give another folder, or remove it")
        self.model.load_state_dict(kept["model"])
        for optimizer, state in zip(self._optimizers, kept["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.done, self.log, self.held = kept["done"], kept["log"], kept["held"]

    def keep(self) -> None:
        parts = {"recipe": self.recipe, "done": self.done, "log": self.log, "held": self.held}
        parts |= {"model": self.model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in self._optimizers]}
        new = self.path.with_suffix(".new")
        torch.save(parts, new)
        new.replace(self.path)

    def descend(self, loss: Tensor, share: float) -> None:
        """One step down the gradient of the loss, with that share of the optimizers' rates; the gradient's norm is at most 1."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"] = rate * share
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.done += 1

    def write_log(self, name: str, columns: list[str]) -> None:
        with open(self.path.with_name(name), "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *self.log])
