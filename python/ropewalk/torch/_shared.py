"""What all ops share: errors, names of choices, memory as kernels read it, and the library they are defined in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ropewalk._core import Error

DTYPES = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
LAYOUTS = {"half": 0, "interleaved": 1}
DIRECTIONS = {"forward": 0, "adjoint": 1, "inverse": 2}

library = torch.library.Library("ropewalk", "DEF")
contiguous = torch.contiguous_format
below_autograd = torch._C._AutoDispatchBelowAutograd
functorch = torch._C._functorch.peek_interpreter_stack


def define(name: str, schema: str) -> None:
    library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)


def refuse(message: str, code: str = "invalid_argument") -> Error:
    error = Error(message)
    error.code = code
    return error


def choice(name: str, value: str, choices: dict[str, int]) -> int:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise refuse(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}") from None


def beside(x: Tensor, **others: Any) -> None:
    """Refuses tensors on another device than x, which the dispatcher would send to the formula of neither."""
    device = x.device
    for name, other in others.items():
        if isinstance(other, Tensor) and other.device != device:
            raise refuse(f"{name}: expected a tensor on {x.device} as the first, got {other.device}")


def transformed(*tensors: Tensor | None) -> bool:
    """Whether torch.func.grad, jvp or a forward-mode derivative is under way, which ops of a library do not have: they go
    through formulas."""
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        return True
    return functorch() is not None and torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def host_reads(x: Tensor) -> bool:
    """Whether a look at its values costs nothing and is possible: not of a device, nor while something else is traced."""
    return x.is_cpu and type(x) is Tensor and not torch.compiler.is_compiling() and functorch() is None


def check_whole(positions: Tensor) -> None:
    if positions.dtype not in (torch.int64, torch.int32):
        raise refuse(f"positions: expected int64 or int32, got {positions.dtype}")


def ready(x: Tensor) -> Tensor:
    """What a kernel reads: any strides but for the last, which is 1. Gradients arrive expanded."""
    if x.stride(-1) == 1 or x.shape[-1] <= 1:
        return x
    return x.contiguous() if x.numel() else x.new_empty(x.shape)  # to PyTorch anything empty is contiguous


def empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=contiguous)


def check_heads(name: str, x: Tensor) -> None:
    if x.dtype not in DTYPES:
        raise refuse(f"{name}: expected float64, float32, float16 or bfloat16, got {x.dtype}")
    if x.dim() not in (3, 4):
        raise refuse(f"{name}: expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got {list(x.shape)}")


def fold(x: Tensor | None, dim: int | None, size: int, rank: int) -> Tensor | None:
    """With the dimension that vmap maps in front and a batch after it, of 1 where there is none: `rank` are without both."""
    if x is None:
        return None
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.unsqueeze(1) if x.dim() == rank + 1 else x
