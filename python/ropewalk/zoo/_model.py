"""The model of this family as a torch.nn.Module, its file and its forward."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk import nn as rn
from ropewalk import torch as ops
from ropewalk._core import Error
from ropewalk.zoo import _encoders as encoders
from ropewalk.zoo._config import read_config

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_SCALARS = ("bias.c", "bias.threshold")  # of FIRE: shape [1] in the file


def _linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(made.weight, std=inputs**-0.5)
    return made


class _Attention(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        d, dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads, self.dim = config["num_attention_heads"], config["num_key_value_heads"], dim
        self.q_proj, self.k_proj = _linear(d, self.heads * dim), _linear(d, self.kv_heads * dim)
        self.v_proj, self.o_proj = _linear(d, self.kv_heads * dim), _linear(self.heads * dim, d)
        self.rotation, self.bias = encoders.rotation(config), encoders.bias(config)
        self.remap, self.scale, self.causal = encoders.position_map(config), encoders.scale(config), not config["bidirectional"]
        self.values = config["positions"].get("rotation", {}).get("values", False)

    def forward(self, x: Tensor, rope: Any, temperatures: Tensor | None) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (-1, self.dim)) for p in (self.q_proj, self.k_proj, self.v_proj))
        settings: dict[str, Any] = {"causal": self.causal, "scale": self.scale, "temperatures": temperatures}
        if rope is not None:
            settings["scale"] *= rope[0].softmax_multiplier
            if self.remap is None:
                q, k = rope[1](q, k)
            else:
                settings |= {"rotation": ops.frequencies(rope[0]), "remap": self.remap}
            v = rope[2](v)[0] if self.values else v
        elif self.rotation is not None:
            q, k = self.rotation(q, k)
        if isinstance(self.bias, rn.ForgettingGate):
            settings["bias"] = self.bias(x)
        elif self.bias is not None:
            settings["bias"] = self.bias.form(q.shape[1], k.shape[1])
        out = ops.attention(q, k, v, **settings)
        if self.values:
            out = rope[2](out, direction="inverse")[0]
        return self.o_proj(out.flatten(-2))


class _Mlp(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        d, wide = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = _linear(d, wide), _linear(d, wide), _linear(wide, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        d, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(d, eps), nn.RMSNorm(d, eps)
        self.self_attn, self.mlp = _Attention(config), _Mlp(config)

    def forward(self, x: Tensor, rope: Any, temperatures: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, temperatures)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Body(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        d, positions = config["hidden_size"], config["positions"]
        self.positions = encoders.absolute(config)
        self.embed_tokens = None
        if not isinstance(self.positions, rn.ComplexOrder):
            self.embed_tokens = nn.Embedding(config["vocab_size"], d)
            nn.init.normal_(self.embed_tokens.weight, std=d**-0.5)
        recurrent = positions.get("recurrent_layer")
        self.recurrent_layer = encoders.RecurrentLayer(d, recurrent["cell"]) if recurrent else None
        has_rope = "rotation" in positions and positions["rotation"]["rope_type"] not in ("pope", "fope")
        self.rope = encoders.Rope(config) if has_rope else None
        self.temperature = encoders.temperature(config)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(d, config["rms_norm_eps"])

    def embedded(self, ids: Tensor) -> Tensor:
        if self.embed_tokens is None:
            words = self.positions(ids)
            return torch.cat((words.real, words.imag), -1)
        x = self.embed_tokens(ids)
        return x if self.positions is None else self.positions(x)

    def forward(self, ids: Tensor, length: int) -> Tensor:
        x = self.embedded(ids)
        x = x if self.recurrent_layer is None else self.recurrent_layer(x)
        rope = None if self.rope is None else self.rope.at(length)
        temperatures = None
        if self.temperature is not None:
            temperatures = self.temperature.factors(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x, rope, temperatures)
        return self.norm(x)


class Model(nn.Module):
    """A small transformer whose position encoding is any combination that its config names (docs/zoo.md): a causal decoder,
    or its bidirectional twin. Weights are drawn from PyTorch's generator.

    config: the content of a config.json; ropewalk.Error names a key that is wrong and what it may be.
    """

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.config = read_config(config)
        self.model = _Body(self.config)
        tied = self.config["tie_word_embeddings"]
        self.lm_head = None if tied else _linear(self.config["hidden_size"], self.config["vocab_size"])

    def forward(self, ids: Tensor, *, length: int | None = None) -> Tensor:
        """ids int64 [batch, tokens], the first at position 0 -> logits [batch, tokens, vocab_size].

        length: final length of the sequence, which length-dependent rotations read (dynamic, longrope). Default: its tokens.
        """
        x = self.model(ids, ids.shape[1] if length is None else length)
        return functional.linear(x, self.model.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file by their names."""
        return {
            name: t.detach().reshape(1) if name.endswith(_SCALARS) and t.dim() == 0 else t.detach()
            for name, t in self.named_parameters()
        }

    def save_pretrained(self, folder: str | pathlib.Path, tokenizer: str | pathlib.Path | None = None) -> None:
        """Writes config.json and model.safetensors, and copies the tokenizer's files of the folder `tokenizer`."""
        from safetensors.torch import save_file

        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")
        tensors = {name: t.float().cpu().contiguous() for name, t in self.tensors().items()}
        save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
        for name in _TOKENIZER if tokenizer is not None else ():
            shutil.copyfile(pathlib.Path(tokenizer) / name, folder / name)


def read_tensors(model: Model, folder: str | pathlib.Path) -> None:
    """Fills a model from the model.safetensors of a folder. Every tensor has to be there, of its shape, and no other."""
    from safetensors.torch import load_file

    held, wanted = load_file(str(pathlib.Path(folder) / "model.safetensors")), model.tensors()
    if held.keys() != wanted.keys():
        missing, other = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
        raise Error(f"{folder}/model.safetensors: missing tensors {missing or 'none'}, unknown ones {other or 'none'}")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if held[name].shape != wanted[name].shape:
                raise Error(f"{folder}: {name}: expected {list(wanted[name].shape)}, got {list(held[name].shape)}")
            parameter.copy_(held[name].reshape(parameter.shape))


def load(folder: str | pathlib.Path, device: str = "cpu") -> Model:
    """The model of a folder that `Model.save_pretrained` wrote."""
    folder = pathlib.Path(folder)
    model = Model(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    read_tensors(model, folder)
    return model.to(device)
