"""Every way a transformer knows where a token stands: rotary embeddings with every context extension method, biases,
position maps and absolute encodings, exact and fast."""

from ropewalk._absolute import (
    Digits,
    Sinusoidal,
    add_rows,
    add_rows_backward,
    complex_attention,
    complex_order,
    complex_order_backward,
    floater_rows,
    floater_rows_backward,
    hierarchical_rows,
    hierarchical_rows_backward,
    learned_rows,
    learned_rows_backward,
    merge_weight_norm,
    multiply_rows,
    multiply_rows_backward,
    position_convolution,
    position_convolution_backward,
    recurrent_rows,
    recurrent_rows_backward,
    resize_table,
    resize_table_backward,
    sinusoidal_grid,
)
from ropewalk._attention import (
    AttentionGradient,
    attention,
    attention_backward,
)
from ropewalk._bias import (
    Alibi,
    Bias,
    CoPE,
    DebertaBias,
    Fire,
    ForgettingGate,
    Form,
    Kerple,
    Sandwich,
    Shaw,
    SwinBias,
    T5Bias,
    TransformerXL,
    Tupe,
)
from ropewalk._core import Error, num_cores, num_threads, set_num_threads
from ropewalk._core import version as __version__
from ropewalk._encodings import (
    FoPE,
    PoPE,
)
from ropewalk._maps import (
    AttentionSinks,
    DualChunk,
    LeakyReRoPE,
    PositionFormula,
    PositionMap,
    ReRoPE,
    SelfExtend,
    View,
)
from ropewalk._plan import (
    Layer,
    Plan,
    Temperature,
    plan,
)
from ropewalk._rotary import (
    Rotation,
    Table,
    frequency_gradient,
    rerotate,
    rotate,
    rotation,
)
from ropewalk._sweep import (
    Recommendation,
    Sweep,
    sweep,
)

__all__ = [
    "Alibi",
    "AttentionGradient",
    "AttentionSinks",
    "Bias",
    "CoPE",
    "DebertaBias",
    "Digits",
    "DualChunk",
    "Error",
    "Fire",
    "FoPE",
    "ForgettingGate",
    "Form",
    "Kerple",
    "Layer",
    "LeakyReRoPE",
    "Plan",
    "PoPE",
    "PositionFormula",
    "PositionMap",
    "ReRoPE",
    "Recommendation",
    "Rotation",
    "Sandwich",
    "SelfExtend",
    "Shaw",
    "Sinusoidal",
    "Sweep",
    "SwinBias",
    "T5Bias",
    "Table",
    "Temperature",
    "TransformerXL",
    "Tupe",
    "View",
    "add_rows",
    "add_rows_backward",
    "attention",
    "attention_backward",
    "complex_attention",
    "complex_order",
    "complex_order_backward",
    "floater_rows",
    "floater_rows_backward",
    "frequency_gradient",
    "hierarchical_rows",
    "hierarchical_rows_backward",
    "learned_rows",
    "learned_rows_backward",
    "merge_weight_norm",
    "multiply_rows",
    "multiply_rows_backward",
    "num_cores",
    "num_threads",
    "plan",
    "position_convolution",
    "position_convolution_backward",
    "recurrent_rows",
    "recurrent_rows_backward",
    "rerotate",
    "resize_table",
    "resize_table_backward",
    "rotate",
    "rotation",
    "set_num_threads",
    "sinusoidal_grid",
    "sweep",
]


def __getattr__(name: str):
    # Modules that import PyTorch or transformers are imported when they are used.
    if name in ("torch", "nn", "transformers", "engine"):
        import importlib

        return importlib.import_module(f"ropewalk.{name}")
    raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
