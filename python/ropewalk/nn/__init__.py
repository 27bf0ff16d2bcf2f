"""Position encodings as torch.nn.Modules, with learnable parameters: every encoding of the library.

What encodes queries and keys (RotaryEmbedding, LearnedRotaryEmbedding, PoPE, FoPE) returns them:

    rotary = ropewalk.nn.RotaryEmbedding(ropewalk.plan("config.json"))
    q, k = rotary(q, k, positions)

A bias is an attention layer without projections; its `form` goes to `ropewalk.torch.attention`:

    bias = ropewalk.nn.T5Bias(heads=8)
    out = bias(q, k, v)            # ropewalk.torch.attention(q, k, v, bias=bias, scale=1.0)

An absolute encoding takes token embeddings [(batch,) tokens, dim] and gives them back with rows added or multiplied:

    x = ropewalk.nn.Sinusoidal(512)(embeddings)

Queries, keys and values are [batch, tokens, heads, head_dim]. d is the position of the query minus that of the key.
Parameters have the shapes and names that the encodings of ropewalk have for arrays.
"""

from ropewalk.nn._absolute import (
    Absolute,
    ComplexOrder,
    Digits,
    Floater,
    HierarchicalRows,
    LearnedRows,
    MultiplicativeRows,
    PositionConvolution,
    RecurrentRows,
    Sinusoidal,
    SinusoidalGrid,
)
from ropewalk.nn._biases import (
    Alibi,
    Bias,
    CoPE,
    DebertaBias,
    Fire,
    ForgettingGate,
    Kerple,
    Sandwich,
    Shaw,
    SwinBias,
    T5Bias,
    TransformerXL,
    Tupe,
)
from ropewalk.nn._rotary import FoPE, LearnedRotaryEmbedding, PoPE, QueryTemperature, RemappedAttention, RotaryEmbedding

__all__ = [
    "Absolute",
    "Alibi",
    "Bias",
    "CoPE",
    "ComplexOrder",
    "DebertaBias",
    "Digits",
    "Fire",
    "Floater",
    "FoPE",
    "ForgettingGate",
    "HierarchicalRows",
    "Kerple",
    "LearnedRotaryEmbedding",
    "LearnedRows",
    "MultiplicativeRows",
    "PoPE",
    "PositionConvolution",
    "QueryTemperature",
    "RecurrentRows",
    "RemappedAttention",
    "RotaryEmbedding",
    "Sandwich",
    "Shaw",
    "Sinusoidal",
    "SinusoidalGrid",
    "SwinBias",
    "T5Bias",
    "TransformerXL",
    "Tupe",
]
