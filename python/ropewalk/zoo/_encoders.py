"""The encodings of a model, made of its config out of ropewalk.nn."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import ropewalk as rw
from ropewalk import nn as rn
from ropewalk._maps import _MAPS
from ropewalk.torch._rotate import decay_of
from ropewalk.zoo._settings import ROTATION

# Types of a rope dictionary of transformers (and "ntk" as vLLM reads it).
_DICTIONARY = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "su", "proportional", "ntk")

# What `ropewalk.rotation` takes besides the settings of a method; factor is one of these.
_NOT_SETTINGS = set(inspect.signature(rw.rotation).parameters) - {"factor", "settings"}


class CausalConvolution(rn.PositionConvolution):
    """A position convolution whose last tap reads the token itself, so that nothing ahead is read."""

    def forward(self, x: Tensor, sizes: Any = None) -> Tensor:
        taps = self.v.shape[-1]
        padded = functional.pad(x.transpose(1, 2), (taps - 1, 0))
        y = functional.conv1d(padded, self.v, self.bias, groups=x.shape[-1] // self.v.shape[1]).transpose(1, 2)
        y = functional.gelu(y) if self.settings["gelu"] else y
        return x + y if self.settings["residual"] else y


class RecurrentLayer(nn.Module):
    """A recurrent layer over the tokens, from a state of zeros: torch.nn.RNN or torch.nn.GRU, parameters without `_l0`."""

    def __init__(self, dim: int, cell: str):
        super().__init__()
        self.gru, rows = cell == "gru", dim * (3 if cell == "gru" else 1)
        for name, shape in (("weight_ih", (rows, dim)), ("weight_hh", (rows, dim)), ("bias_ih", (rows,)), ("bias_hh", (rows,))):
            self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-(dim**-0.5), dim**-0.5)))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, tokens, dim] -> [batch, tokens, dim]."""
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        run = torch.gru if self.gru else torch.rnn_tanh
        return run(x, x.new_zeros(1, x.shape[0], x.shape[2]), weights, True, 1, 0.0, self.training, False, True)[0]


def absolute(config: dict[str, Any]) -> nn.Module | None:
    """What stands in front of the layers, or None."""
    own = dict(config["positions"].get("absolute", {}))
    kind, d = own.pop("type", None), config["hidden_size"]
    if kind is None:
        return None
    if kind == "convolutional":
        made = rn.PositionConvolution if config["bidirectional"] else CausalConvolution
        return made(d, own.pop("kernel"), **own)
    if kind == "complex_order":
        return rn.ComplexOrder(config["vocab_size"], d // 2, **own)
    if kind == "digits":
        return rn.Digits(d, rw.Digits(**own))
    makers = {
        "sinusoidal": rn.Sinusoidal,
        "recurrent": rn.RecurrentRows,
        "floater": rn.Floater,
        "learned": rn.LearnedRows,
        "hierarchical": rn.HierarchicalRows,
        "multiplicative": rn.MultiplicativeRows,
    }
    return makers[kind](own.pop("rows"), d, **own) if "rows" in own else makers[kind](d, **own)


def bias(config: dict[str, Any]) -> nn.Module | None:
    """The score bias of a layer, or None."""
    own = dict(config["positions"].get("bias", {}))
    kind, twin = own.pop("type", None), config["bidirectional"]
    heads, dim, d = config["num_attention_heads"], config["head_dim"], config["hidden_size"]
    match kind:
        case None:
            return None
        case "t5":
            return rn.T5Bias(heads, bidirectional=twin, **own)
        case "gate":
            return rn.ForgettingGate(heads, d)
        case "cope":
            return rn.CoPE(heads, dim, own.pop("rows"), **own)
        case "shaw":
            return rn.Shaw(heads, dim, causal=not twin, **own)
        case "transformer_xl":
            return rn.TransformerXL(heads, dim, d, causal=not twin, **own)
        case "deberta":
            return rn.DebertaBias(heads, dim, d, **own)
        case "tupe":
            return rn.Tupe(heads, dim, d, own.pop("positions"), **own)
        case "fire":  # the threshold of the paper is a quarter of its trained length
            return rn.Fire(heads, causal=not twin, threshold=max(1.0, config["max_position_embeddings"] / 4), **own)
    return {"alibi": rn.Alibi, "kerple": rn.Kerple, "sandwich": rn.Sandwich}[kind](heads, causal=not twin, **own)


def _own_rotation(rope: dict[str, Any], dim: int, trained: int, length: int) -> Any:
    """Of a method of `ropewalk.scaling_methods` that no engine's dictionary has, with its settings as keys."""
    known = [m["name"] for m in rw.scaling_methods() if m["name"] not in (*_DICTIONARY, "base")]  # rope_theta is the base
    if rope["rope_type"] not in known:
        types = ", ".join((*_DICTIONARY, *ROTATION, *known))
        raise rw.Error(f"config.positions.rotation.rope_type: expected one of {types}, got {rope['rope_type']!r}")
    rope = {key: value for key, value in rope.items() if value is not None}
    for key in _NOT_SETTINGS & rope.keys():
        raise rw.Error(f"config.positions.rotation.{key}: {rope['rope_type']} has no such setting")
    share, base = rope.pop("partial_rotary_factor", 1), rope.pop("rope_theta", 10000.0)
    own = {"base": base, "rotary_dim": int(dim * share), "trained_length": trained, "length": length}
    return rw.rotation(dim, layout="half", method=rope.pop("rope_type"), **own, **rope)


def rotation_at(config: dict[str, Any], length: int) -> Any:
    """The ropewalk.Rotation of a rope dictionary for a sequence of `length` tokens."""
    rope = {k: v for k, v in config["positions"]["rotation"].items() if k not in ("xpos", "values")}
    trained, dim = config["max_position_embeddings"], config["head_dim"]
    if rope["rope_type"] not in _DICTIONARY:
        return _own_rotation(rope, dim, trained, length)
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "intermediate_size", "vocab_size")
    sizes = {name: config[name] for name in (*names, "max_position_embeddings")}
    # Of transformers' models, llama reads a share of each head in "proportional" alone; glm4_moe in the other types.
    family = "glm4_moe" if "partial_rotary_factor" in rope and rope["rope_type"] != "proportional" else "llama"
    layer = rw.plan({"model_type": family, **sizes, "num_hidden_layers": 1, "rope_parameters": rope}, length=length).layers[0]
    if layer.temperature is not None:
        raise rw.Error("config.positions.rotation: it has a temperature, which is said by config.positions.temperature")
    return layer.rotation


class Rope(nn.Module):
    """The rotation of a rope dictionary, with xPos and rotated values where it says so. No parameters."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.config, self.own = config, config["positions"]["rotation"]
        self.rotation = rotation_at(config, config["max_position_embeddings"])
        self._made: dict[int, tuple[Any, rn.RotaryEmbedding, rn.RotaryEmbedding]] = {}
        self.at(config["max_position_embeddings"])

    def at(self, length: int) -> tuple[Any, rn.RotaryEmbedding, rn.RotaryEmbedding]:
        """The rotation, that of queries and keys, and that of values, for sequences of `length` tokens."""
        trained = self.config["max_position_embeddings"]
        length = max(length, trained) if self.rotation.length_dependent else trained
        if length not in self._made:
            rotation = rotation_at(self.config, length)
            both = [rn.RotaryEmbedding(rotation, trained) for _ in range(2)]
            if xpos := self.own.get("xpos"):
                settings = {"rotary_dim": rotation.rotary_dim, "xpos_scale_base": xpos["scale_base"], "xpos_gamma": xpos["gamma"]}
                both[0]._decay = decay_of(rw.rotation(rotation.head_dim, layout="half", **settings))
            self._made[length] = (rotation, *both)
        return self._made[length]


def rotation(config: dict[str, Any]) -> nn.Module | None:
    """PoPE or FoPE of one layer, whose parameters are its own; None where it has neither."""
    own = dict(config["positions"].get("rotation", {}))
    name, base = own.pop("rope_type", None), own.get("rope_theta")
    if name == "pope":
        return rn.PoPE(config["num_key_value_heads"], config["head_dim"], base=base)
    if name == "fope":
        lengths = {"trained_length": config["max_position_embeddings"], "frequencies": own["frequencies"]}
        if not rw.FoPE.kept(config["head_dim"], base=base, **lengths):
            where, trained = "config.positions.rotation.frequencies", lengths["trained_length"]
            raise rw.Error(f"{where}: none makes a whole rotation within {trained} tokens; give a number")
        return rn.FoPE(config["head_dim"], base=base, **lengths)
    return None


def position_map(config: dict[str, Any]) -> Any:
    """A ropewalk map, or None."""
    own = dict(config["positions"].get("map", {}))
    return _MAPS[own.pop("type")](**own) if own else None


def temperature(config: dict[str, Any]) -> rn.QueryTemperature | None:
    """The temperature of queries, or None."""
    own = dict(config["positions"].get("temperature", {}))
    return rn.QueryTemperature(own.pop("type"), **own) if own else None


def scale(config: dict[str, Any]) -> float:
    """That of q . k, which DeBERTa and TUPE share among their terms."""
    terms = {"deberta": 3, "tupe": 2}.get(config["positions"].get("bias", {}).get("type"), 1)
    return (terms * config["head_dim"]) ** -0.5
