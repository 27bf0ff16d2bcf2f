"""Every way a transformer knows where a token stands: rotary embeddings with every context extension method, biases,
position maps and absolute encodings, exact and fast."""

from typing import TYPE_CHECKING, Any

from ropewalk._absolute import (
    Digits,
    Sinusoidal,
    add_rows,
    add_rows_backward,
    hierarchical_rows,
    hierarchical_rows_backward,
    learned_rows,
    learned_rows_backward,
    multiply_rows,
    multiply_rows_backward,
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
    Form,
    Kerple,
    Sandwich,
    T5Bias,
)
from ropewalk._bias_content import (
    CoPE,
    DebertaBias,
    ForgettingGate,
    Shaw,
    TransformerXL,
)
from ropewalk._bias_pair import (
    Fire,
    SwinBias,
    Tupe,
)
from ropewalk._complex import (
    complex_attention,
    complex_attention_backward,
    complex_linear,
    complex_linear_backward,
    complex_order,
    complex_order_backward,
)
from ropewalk._core import Error, num_cores, num_threads, set_num_threads
from ropewalk._core import version as __version__
from ropewalk._cuda import (
    cuda_synchronize,
    find_cuda,
)
from ropewalk._encodings import (
    FoPE,
    PoPE,
)
from ropewalk._maps import (
    DPE,
    STRING,
    AttentionSinks,
    DualChunk,
    LaMPE,
    LeakyReRoPE,
    PositionFormula,
    PositionMap,
    ReRoPE,
    SelfExtend,
    View,
)
from ropewalk._paths import (
    floater_rows,
    floater_rows_backward,
    merge_weight_norm,
    merge_weight_norm_backward,
    position_convolution,
    position_convolution_backward,
    recurrent_rows,
    recurrent_rows_backward,
)
from ropewalk._plan import (
    Layer,
    Plan,
    Temperature,
    plan,
)
from ropewalk._positions import (
    Generators,
    PositionBuilder,
    TokenPositions,
    vision_positions,
)
from ropewalk._rotary import (
    Rotation,
    Table,
    base_bounds,
    rotation,
    scaling_methods,
)
from ropewalk._rotate import (
    block_table_slots,
    frequency_gradient,
    rerotate,
    ring_slots,
    rotate,
)
from ropewalk._sweep import (
    Recommendation,
    Sweep,
    sweep,
)

__all__ = [
    "DPE",
    "STRING",
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
    "Generators",
    "Kerple",
    "LaMPE",
    "Layer",
    "LeakyReRoPE",
    "Plan",
    "PoPE",
    "PositionBuilder",
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
    "TokenPositions",
    "TransformerXL",
    "Tupe",
    "View",
    "add_rows",
    "add_rows_backward",
    "attention",
    "attention_backward",
    "base_bounds",
    "block_table_slots",
    "complex_attention",
    "complex_attention_backward",
    "complex_linear",
    "complex_linear_backward",
    "complex_order",
    "complex_order_backward",
    "cuda_synchronize",
    "find_cuda",
    "floater_rows",
    "floater_rows_backward",
    "frequency_gradient",
    "hierarchical_rows",
    "hierarchical_rows_backward",
    "learned_rows",
    "learned_rows_backward",
    "merge_weight_norm",
    "merge_weight_norm_backward",
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
    "ring_slots",
    "rotate",
    "rotation",
    "scaling_methods",
    "set_num_threads",
    "sinusoidal_grid",
    "sweep",
    "vision_positions",
]


if TYPE_CHECKING:
    from ropewalk import engine, nn, torch, transformers


def __getattr__(name: str) -> Any:
    # Modules that import PyTorch or transformers are imported when they are used.
    if name in ("torch", "nn", "transformers", "engine"):
        import importlib

        return importlib.import_module(f"ropewalk.{name}")
    raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
