"""The embedded model in PyTorch, its text, and the passkey prompt: shared by train.py and evaluate.py."""

import json
import math
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
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
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


def read_text(verses=None):
    """The held-out text, or a range of verses; one verse a line."""
    command = ["sh", str(HELD_OUT_SCRIPT)] + ([verses] if verses else [])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Llama(torch.nn.Module):
    """LLaMA with transformers' tensor names (half layout); cos and sin are [tokens, head_dim]."""

    def __init__(self, seed):
        super().__init__()
        c = CONFIG
        width, kv = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"]
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows, cols, std):
            return torch.nn.Parameter(torch.randn(rows, cols, generator=generator) * std)

        self.names = []

        def add(name, parameter):
            self.register_parameter(name.replace(".", "/"), parameter)
            self.names.append(name)

        add("model.embed_tokens.weight", matrix(c["vocab_size"], width, 0.02))
        residual = 0.02 / math.sqrt(2 * c["num_hidden_layers"])
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            add(p + "input_layernorm.weight", torch.nn.Parameter(torch.ones(width)))
            add(p + "self_attn.q_proj.weight", matrix(width, width, 0.05))
            add(p + "self_attn.k_proj.weight", matrix(kv, width, 0.05))
            add(p + "self_attn.v_proj.weight", matrix(kv, width, 0.05))
            add(p + "self_attn.o_proj.weight", matrix(width, width, residual))
            add(p + "post_attention_layernorm.weight", torch.nn.Parameter(torch.ones(width)))
            add(p + "mlp.gate_proj.weight", matrix(c["intermediate_size"], width, 0.05))
            add(p + "mlp.up_proj.weight", matrix(c["intermediate_size"], width, 0.05))
            add(p + "mlp.down_proj.weight", matrix(width, c["intermediate_size"], residual))
        add("model.norm.weight", torch.nn.Parameter(torch.ones(width)))

    def tensors(self):
        return {name: getattr(self, name.replace(".", "/")) for name in self.names}

    def forward(self, ids, cos, sin, last=None):
        """ids [batch, tokens] -> logits [batch, tokens or last, vocabulary]."""
        w = self.tensors()
        batch, tokens = ids.shape
        heads, kv_heads, dim = 6, 2, CONFIG["head_dim"]
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
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
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


def rotate(x, cos, sin):
    """Half layout (rotate_half); x [batch, heads, tokens, head_dim]."""
    a, b = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-b, a), dim=-1) * sin.to(x.dtype)


def plain_frequencies():
    dim, base = CONFIG["head_dim"], CONFIG["rope_theta"]
    return base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def cos_sin(frequencies, tokens, magnitude=1.0):
    angle = np.arange(tokens, dtype=np.float64)[:, None] * np.asarray(frequencies)[None, :]
    angle = np.concatenate((angle, angle), axis=1)
    return (torch.tensor(np.cos(angle) * magnitude, dtype=torch.float32),
            torch.tensor(np.sin(angle) * magnitude, dtype=torch.float32))


class Passkey:
    """Builds prompts of passkey.json from token ids. Every piece is encoded on its own."""

    def __init__(self, tokenizer):
        self.form = json.loads((HERE / "passkey.json").read_text())
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.question = self.encode(self.form["question"])

    def pieces(self, rng):
        """A new key: (needle ids, question ids, answer ids)."""
        n = self.form["digits"]
        key = str(int(rng.integers(10 ** (n - 1), 10**n)))
        needle = self.encode(self.form["needle"].replace("{key}", key))
        return needle, self.question, self.encode(self.form["answer"].replace("{key}", key))

    def prompt(self, rng, filler, length, depth, bos):
        """(ids of exactly `length` tokens, answer included; number of answer tokens).

        `filler(n)` gives n ids. The needle stands behind round(depth * n) filler tokens.
        """
        needle, question, answer = self.pieces(rng)
        n = length - int(bos) - len(needle) - len(question) - len(answer)
        assert n >= 0, "too short for a passkey prompt"
        text = filler(n)
        cut = int(math.floor(depth * n + 0.5))
        ids = [BOS] * int(bos) + text[:cut] + needle + text[cut:] + question + answer
        return ids, len(answer)
