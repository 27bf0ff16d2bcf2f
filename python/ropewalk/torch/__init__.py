"""Ropewalk's ops for PyTorch: rotation, attention and absolute rows with gradients, `torch.compile` and `torch.export`.

Tensors of the CPU go to ropewalk's kernels, without a copy. On every other device the same functions are plain
PyTorch with the same exact tables (rotation) and FlexAttention (attention), so that a compiler fuses them.

Everything here takes tensors: tables of cosines and sines are rows, float32 [count, 2, pairs] (cosines, then sines,
both times the attention factor), which `table` makes. Modules that keep them are in `ropewalk.nn`.

Under autocast rotation keeps the dtype of its inputs (it computes in float32 and rounds once), and attention casts to
float32. `torch.func.vmap` maps over queries, keys, values and positions; over tables and biases it is refused.
`torch.func.grad`, `jvp` and forward-mode derivatives of rotation go through its formula; of attention they are refused.
Second derivatives exist for rotation with a table alone, and for what is plain PyTorch.
"""

from ropewalk.torch._absolute import (
    add_rows,
    complex_attention,
    complex_order,
    digit_rows,
    hierarchical_rows,
    learned_rows,
    multiply_rows,
    position_convolution,
    resize_table,
    sinusoidal_rows,
)
from ropewalk.torch._attention import Frequencies, attention, frequencies
from ropewalk.torch._bias import Content, Contextual, Distances, Fire, Gates, Slopes, Swin, Tupe
from ropewalk.torch._encodings import fope, pope
from ropewalk.torch._paths import floater_rows, recurrent_rows
from ropewalk.torch._ring import Ring, ring_attention
from ropewalk.torch._rotate import rotate, rotate_frequencies, table

__all__ = [
    "Content",
    "Contextual",
    "Distances",
    "Fire",
    "Frequencies",
    "Gates",
    "Ring",
    "Slopes",
    "Swin",
    "Tupe",
    "add_rows",
    "attention",
    "complex_attention",
    "complex_order",
    "digit_rows",
    "floater_rows",
    "fope",
    "frequencies",
    "hierarchical_rows",
    "learned_rows",
    "multiply_rows",
    "pope",
    "position_convolution",
    "recurrent_rows",
    "resize_table",
    "ring_attention",
    "rotate",
    "rotate_frequencies",
    "sinusoidal_rows",
    "table",
]
