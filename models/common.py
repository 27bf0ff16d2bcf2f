"""The embedded model in PyTorch and its text: shared by train.py and evaluate.py."""

import pathlib
import subprocess

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
HELD_OUT_SCRIPT = HERE.parent / "scripts" / "heldout_text.sh"

# Judges, Ruth and 1 Samuel are held out for evaluation (the default of heldout_text.sh); Esther is
# watched during training. The weights and the tokenizer see only these ranges.
TRAIN_RANGES = ["gen1:1-josh24:33", "2sam1:1-neh13:31", "job1:1-rev22:21"]
DEV_RANGE = "est1:1-est10:3"

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 192,
    "intermediate_size": 480,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": None,
    "torch_dtype": "bfloat16",
}
BOS = CONFIG["bos_token_id"]
BLOCK = 256  # queries, for training
# Products of training: bf16 where a CPU has it. Emulated, a step took 20 times as long (Zen 3).
CAN = torch.cpu.get_capabilities()
PRODUCTS = torch.bfloat16 if CAN.get("avx512_bf16") or CAN.get("amx_bf16") else torch.float32


def read_text(verses=None):
    """The held-out text, or a range of verses; one verse a line."""
    command = ["sh", str(HELD_OUT_SCRIPT)] + ([verses] if verses else [])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Llama(torch.nn.Module):
    """LLaMA with transformers' tensor names (half layout), empty until it is loaded.

    cos and sin are [tokens, head_dim].
    """

    def __init__(self):
        super().__init__()
        c = CONFIG
        width, kv = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"]
        heads, wide = c["num_attention_heads"] * c["head_dim"], c["intermediate_size"]
        shapes = {"model.embed_tokens.weight": (c["vocab_size"], width)}
        for i in range(c["num_hidden_layers"]):
            layer = {"input_layernorm": (width,), "self_attn.q_proj": (heads, width),
                     "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
                     "self_attn.o_proj": (width, heads), "post_attention_layernorm": (width,),
                     "mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width),
                     "mlp.down_proj": (width, wide)}
            shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
        shapes["model.norm.weight"] = (width,)
        self.names = list(shapes)
        for name, shape in shapes.items():
            self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(torch.empty(shape)))

    def load(self, weights):
        """From tensors by name: as many as there are here, of the same shapes."""
        assert set(weights) == set(self.names), set(weights) ^ set(self.names)
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                assert tensor.shape == weights[name].shape, name
                tensor.copy_(weights[name])
        return self

    def tensors(self):
        return {name: getattr(self, name.replace(".", "/")) for name in self.names}

    def forward(self, ids, cos, sin, last=None, mask=None):
        """ids [batch, tokens] -> logits [batch, tokens or last, vocabulary].

        `mask` [tokens, tokens], or with a batch and 1 in front, says which keys a query sees;
        without it those up to itself.
        """
        w = self.tensors()
        batch, tokens = ids.shape
        heads, kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
        dim = CONFIG["head_dim"]
        width, eps = CONFIG["hidden_size"], CONFIG["rms_norm_eps"]
        x = F.embedding(ids, w["model.embed_tokens.weight"])
        for i in range(CONFIG["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = F.rms_norm(x, (width,), w[p + "input_layernorm.weight"], eps)

            def project(name, n):
                y = F.linear(h, w[p + f"self_attn.{name}_proj.weight"])
                return y.view(batch, tokens, n, dim).transpose(1, 2)

            q, k, v = project("q", heads), project("k", kv_heads), project("v", kv_heads)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            k = k.repeat_interleave(heads // kv_heads, dim=1)
            v = v.repeat_interleave(heads // kv_heads, dim=1)
            a = attend(q, k, v, mask)
            a = a.transpose(1, 2).reshape(batch, tokens, width)
            x = x + F.linear(a, w[p + "self_attn.o_proj.weight"])
            h = F.rms_norm(x, (width,), w[p + "post_attention_layernorm.weight"], eps)
            gate = F.silu(F.linear(h, w[p + "mlp.gate_proj.weight"]))
            h = gate * F.linear(h, w[p + "mlp.up_proj.weight"])
            x = x + F.linear(h, w[p + "mlp.down_proj.weight"])
        if last is not None:
            x = x[:, -last:]
        x = F.rms_norm(x, (width,), w["model.norm.weight"], eps)
        return F.linear(x, w["model.embed_tokens.weight"])


def attend(q, k, v, mask):
    """Attention; for training in products of blocks, with which a step takes a CPU less time than
    with PyTorch's operator: 0.77 of it with rows of 64 tokens, 0.9 with 1024."""
    if not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
    q, out = q * q.shape[-1] ** -0.5, []
    for begin in range(0, q.shape[-2], BLOCK):
        rows = q[..., begin:begin + BLOCK, :]
        end = begin + rows.shape[-2]
        hidden = torch.full((rows.shape[-2], end), float("-inf"), dtype=q.dtype).triu(begin + 1)
        if mask is not None:
            hidden = hidden.masked_fill(~mask[..., begin:begin + BLOCK, :end], float("-inf"))
        weights = (rows @ k[..., :end, :].mT + hidden).softmax(-1, dtype=q.dtype)
        out.append(weights.to(v.dtype) @ v[..., :end, :])
    return torch.cat(out, dim=-2)


def questions_apart(owners):
    """Mask [.., tokens, tokens] of owners [.., tokens] (Prompt.apart): all see the context, and a
    question itself."""
    keys, queries = owners[..., None, :], owners[..., :, None]
    return ((keys == 0) | (keys == queries)).tril()


def rotate(x, cos, sin):
    """Half layout (rotate_half); x [batch, heads, tokens, head_dim]."""
    a, b = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-b, a), dim=-1) * sin.to(x.dtype)


def plain_frequencies():
    dim, base = CONFIG["head_dim"], CONFIG["rope_theta"]
    return base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def cos_sin(frequencies, positions, magnitude=1.0):
    """cos and sin at each of `positions`, or at that many from 0 on."""
    if np.ndim(positions) == 0:
        positions = np.arange(positions)
    angle = np.asarray(positions, dtype=np.float64)[:, None] * np.asarray(frequencies)[None, :]
    angle = np.concatenate((angle, angle), axis=1)
    return (torch.tensor(np.cos(angle) * magnitude, dtype=torch.float32),
            torch.tensor(np.sin(angle) * magnitude, dtype=torch.float32))
