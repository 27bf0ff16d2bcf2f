"""Models and tokenizers of transformers from paths, and what PyTorch calls their devices and types."""

from __future__ import annotations

import os
from typing import Any

from ropewalk._core import Error

_DTYPES = {
    "float32": ("float32", "f32"),
    "bfloat16": ("bfloat16", "bf16"),
    "float16": ("float16", "f16", "fp16", "half"),
    "float64": ("float64", "double"),
}


def dtype_named(given: Any) -> Any:
    import torch

    name = str(given).removeprefix("torch.")
    for known, names in _DTYPES.items():
        if name in names:
            return getattr(torch, known)
    raise Error(f"dtype: expected {', '.join(_DTYPES)}, got {given!r}")


def dtype_of(model: Any) -> Any:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), None)


def check_device(device: Any) -> None:
    """Raises Error for a device that PyTorch does not have here."""
    import torch

    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise Error(f"device: PyTorch sees no GPU here, got {str(device)!r}")
    try:
        torch.empty(1, device=device).add(1).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise Error(f"device: PyTorch cannot use {str(device)!r} here: {_first_line(error)}") from None


def load(path: str, device: Any, dtype: Any) -> Any:
    """A causal model; device None: the CPU, "auto": over all devices; dtype None: the files' own, on a CPU float32."""
    import torch
    from transformers import AutoModelForCausalLM

    place = "cpu" if device is None else str(device)
    options: dict[str, Any] = {}
    if dtype is not None:
        options["dtype"] = dtype_named(dtype)
    else:
        options["dtype"] = torch.float32 if place == "cpu" else "auto"
    if place == "auto":
        options["device_map"] = "auto"
    else:
        check_device(place)
    folder = path
    if path.endswith(".gguf"):
        folder, options["gguf_file"] = os.path.split(path)
    if not os.path.isdir(folder or ".") or not os.path.exists(path):
        raise Error(f"{path}: expected a folder with config.json and weights, or a GGUF file")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder or ".", local_files_only=True, **options)
    except (ImportError, OSError, ValueError, KeyError) as error:  # accelerate or gguf is missing, a family, a file
        raise Error(f"{path}: transformers does not load it: {_first_line(error)}") from error
    return model if place == "auto" else model.to(place)


def load_tokenizer(path: str) -> Any:
    """The tokenizer of transformers for a model's path."""
    from transformers import AutoTokenizer

    if path.endswith(".gguf"):
        return AutoTokenizer.from_pretrained(os.path.dirname(path) or ".", gguf_file=os.path.basename(path))
    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, Error):
        return False
    known = getattr(torch, "OutOfMemoryError", MemoryError)
    said = any(text in str(error) for text in ("can't allocate memory", "backend out of memory"))  # of the CPU, of MPS
    return isinstance(error, (known, MemoryError)) or said


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
