"""What all ops share: errors, names of choices, memory as kernels read it, and the library they are defined in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ropewalk._arrays import float32, int64, number, truth, whole
from ropewalk._core import Error

DTYPES = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
LAYOUTS = {"half": 0, "interleaved": 1}
DIRECTIONS = {"forward": 0, "adjoint": 1, "inverse": 2}

library = torch.library.Library("ropewalk", "DEF")
contiguous = torch.contiguous_format
below_autograd = torch._C._AutoDispatchBelowAutograd
functorch = torch._C._functorch.peek_interpreter_stack
_transforms = torch._C._functorch.get_interpreter_stack
_DERIVATIVES = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)


def define(name: str, schema: str) -> None:
    library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)


def first_derivatives_alone(name: str, instead: str = "") -> None:
    """For an op that computes gradients: those of its own are refused. Without any, PyTorch takes them for zeros."""

    def backward(ctx, *_gradients):
        raise refuse(f"{name.removesuffix('_backward')}: second derivatives are not computed{instead}", "unsupported")

    torch.library.register_autograd(f"ropewalk::{name}", backward, lib=library)


def refuse(message: str, code: str = "invalid_argument") -> Error:
    error = Error(message)
    error.code = code
    return error


def choice(name: str, value: str, choices: dict[str, int]) -> int:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise refuse(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}") from None


def check_tensors(**given: Any) -> None:
    """Refuses what is no tensor, such as an array of numpy beside tensors."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise refuse(f"{name}: expected a tensor of PyTorch, got {type(x).__name__}")


def list_of(name: str, x: Any, like: Tensor, floats: bool = False) -> Tensor | None:
    """A tensor or None as it is; lists and arrays of numpy as a tensor beside `like`: int64, or float32."""
    if x is None or isinstance(x, Tensor):
        return x
    return torch.from_numpy((float32 if floats else int64)(name, x).copy()).to(like.device)


def places_of(positions: Any, x: Tensor) -> int | Tensor:
    """Positions as a start or a tensor: lists and arrays of numpy as the latter."""
    if isinstance(positions, (int, Tensor, torch.SymInt)):
        return positions
    if hasattr(positions, "__index__") and not getattr(positions, "shape", ()):
        return whole("positions", positions)
    at = list_of("positions", positions, x)
    if at is None:
        raise refuse("positions: expected that of the first token, or those of all, got None")
    return at


def numbers_as_given(window: Any, causal: Any, soft_cap: Any, scale: Any) -> tuple[int, bool, float, float | None]:
    """Of the types that the op takes. A number without a value, which a compiler has, is one of them already."""
    if not isinstance(window, (int, torch.SymInt)):
        window = whole("window", window)
    if not isinstance(causal, bool):
        causal = truth("causal", causal)
    if not isinstance(soft_cap, (int, float, torch.SymFloat)):
        soft_cap = number("soft_cap", soft_cap)
    if scale is not None and not isinstance(scale, (int, float, torch.SymFloat)):
        scale = number("scale", scale)
    return window, causal, float(soft_cap), scale


def beside(x: Tensor, **others: Any) -> None:
    """Refuses tensors on another device than x, which the dispatcher would send to the formula of neither."""
    device = x.device
    for name, other in others.items():
        if isinstance(other, Tensor) and other.device != device:
            raise refuse(f"{name}: expected a tensor on {x.device} as the first, got {other.device}")


def transformed(*tensors: Tensor | None) -> bool:
    """Whether torch.func.grad, jvp or a forward-mode derivative is under way, which ops of a library do not have: they go
    through formulas. vmap alone is not: it has rules."""
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        return True
    if functorch() is None or not any(t.key() in _DERIVATIVES for t in _transforms()):
        return False
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def host_reads(x: Tensor) -> bool:
    """Whether a look at its values costs nothing and is possible: not of a device, nor while something else is traced."""
    return x.is_cpu and type(x) is Tensor and not torch.compiler.is_compiling() and functorch() is None


def check_whole(positions: Tensor) -> None:
    if positions.dtype not in (torch.int64, torch.int32):
        raise refuse(f"positions: expected int64 or int32, got {positions.dtype}")


def query_places(query_positions: Tensor | None, key_positions: Tensor | None, tokens: int, keys: int) -> Tensor | None:
    """Positions of the queries: as given, or those of the last keys. None: the keys' are 0, 1, .. and so are the last ones'."""
    if query_positions is not None or key_positions is None or tokens > keys:
        return query_positions
    return key_positions[..., keys - tokens :]


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
