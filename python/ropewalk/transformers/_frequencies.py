"""The sets of frequencies that a loaded model rotates by: the buffers of its rotary modules."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk import Error

# Families whose code rotates without the buffers that are set here.
_OTHER_ROTATION = {
    "gptj": "a table of sines made in each layer",
    "codegen": "a table of sines made in each layer",
    "roformer": "sinusoidal embeddings in its encoder",
    "phimoe": "frequencies that it computes anew in every call",
    "open-llama": "a table of cosines and sines that it keeps",
    "deepseek_v4": "two sets of frequencies, of queries and of compressed keys",
}


def refuse(message: str, code: str) -> Error:
    error = Error(message)
    error.code = code
    return error


@dataclasses.dataclass(eq=False)
class Frequencies:
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

    @property
    def longest(self) -> Any:
        """The length that dynamic frequencies are of; None where the module has none."""
        name = "max_seq_len_cached"
        return getattr(self.module, self.prefix + name, getattr(self.module, name, None))

    def _amplitude_name(self) -> str:
        own = self.prefix + "attention_scaling"
        return own if hasattr(self.module, own) else "attention_scaling"

    def answer(self, positions: torch.Tensor) -> Any:
        """What the module returns for positions [1, tokens]; None where it does not take them."""
        x = torch.zeros(1, positions.shape[1], 2 * self.inv_freq.numel(), device=positions.device)
        label = (self.prefix[:-1],) if self.prefix else ()
        for ids in (positions, positions.expand(3, 1, -1)):
            with contextlib.suppress(TypeError, ValueError, IndexError, RuntimeError):
                return self.module(x, ids, *label)
        return None

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
        with torch.inference_mode(False):  # they are kept, and gradients may go through them later
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


def decoder_of(model: PreTrainedModel) -> torch.nn.Module:
    """The part that holds the rotary modules of the text, without towers for images and sound."""
    try:
        decoder = model.get_decoder()
    except (AttributeError, NotImplementedError):  # the model names no such part
        return model
    if isinstance(decoder, torch.nn.Module) and any(name.endswith("inv_freq") for name, _ in decoder.named_buffers()):
        return decoder
    return model


def text_config(model: PreTrainedModel) -> Any:
    return model.config.get_text_config(decoder=True)


def find_frequencies(model: PreTrainedModel) -> list[Frequencies]:
    found = []
    for path, module in decoder_of(model).named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            prefix = name[: -len("inv_freq")]
            if name.endswith("inv_freq") and not prefix.endswith(("original_", "long_", "short_")) and buffer.ndim == 1:
                found.append(Frequencies(module, path, prefix))
    if any(f.inv_freq.is_meta for f in found):
        raise Error(f"{type(model).__name__}: expected a loaded model, got one on the meta device")
    return found


def require_frequencies(model: PreTrainedModel) -> list[Frequencies]:
    if not isinstance(model, PreTrainedModel):
        raise Error(f"model: expected a PreTrainedModel of transformers, got {type(model).__name__}")
    found = find_frequencies(model)
    family = text_config(model).model_type
    if found and family not in _OTHER_ROTATION:
        return found
    if family in _OTHER_ROTATION:
        raise Error(
            f"{family}: its code rotates by {_OTHER_ROTATION[family]}, which cannot be replaced from outside; "
            "expected a model whose rotary modules have a buffer inv_freq"
        )
    raise Error(f"{family}: no module of this model has a buffer inv_freq: it does not rotate, or in a way of its own")


def layer_count(config: Any) -> int:
    for name in ("num_hidden_layers", "n_layers", "n_layer", "num_layers"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    raise Error(f"{config.model_type}: its configuration has no number of layers")


def layer_types(config: Any, layers: int) -> list[str | None]:
    """The label under which a layer finds its frequencies where there are several."""
    types = getattr(config, "layer_types", None)
    if isinstance(types, (list, tuple)) and len(types) >= layers:
        return list(types[:layers])
    return [None] * layers


def candidates(found: list[Frequencies], layer: int, layer_type: str | None) -> list[Frequencies]:
    """The frequencies that a layer may rotate by: its own module's and the model's (some models of transformers 4.57
    have both and use one), of these those of its type."""
    numbers = {id(f): [part for part in f.path.split(".") if part.isdigit()] for f in found}
    near = [f for f in found if not numbers[id(f)] or numbers[id(f)][0] == str(layer)]
    if layer_type is not None:
        typed = [f for f in near if f.prefix == layer_type + "_" or f.path.endswith(layer_type)]
        if typed:
            return typed
    return [f for f in near if not f.prefix] or near


def by_layer(found: list[Frequencies], config: Any) -> list[list[Frequencies]]:
    count = layer_count(config)
    return [candidates(found, i, kind) for i, kind in enumerate(layer_types(config, count))]


def device_of(model: PreTrainedModel) -> torch.device:
    """Where the model takes its tokens."""
    embeddings = model.get_input_embeddings()
    device = next(embeddings.parameters()).device
    if device.type == "meta":  # offloaded by accelerate, which says where it computes
        device = getattr(getattr(embeddings, "_hf_hook", None), "execution_device", None) or torch.device("cpu")
    return torch.device(device)
