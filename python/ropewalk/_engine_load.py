"""Models and tokenizers of transformers from paths, and what PyTorch calls their devices and types."""

from __future__ import annotations

import os
import sys
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


def _from_pretrained(folder: str, **options: Any) -> Any:
    """A causal model, or one that reads images too, whose text is causal. Weights that no file has are an error: transformers
    makes them up."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    from ropewalk.transformers._frequencies import decoder_of

    options["local_files_only"] = True
    kind = AutoModelForCausalLM
    if "gguf_file" not in options:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if type(config) not in kind._model_mapping and type(config) in AutoModelForImageTextToText._model_mapping:
            kind = AutoModelForImageTextToText
    model, found = kind.from_pretrained(folder, output_loading_info=True, **options)
    read = {id(p) for part in (decoder_of(model), model.get_output_embeddings()) if part is not None for p in part.parameters()}
    missing = sorted(name for name, p in model.named_parameters() if id(p) in read and name in found["missing_keys"])
    if missing:
        raise OSError(f"no file has {missing[0]} ({len(missing)} parameters without values)")
    return model


def load(path: str, device: Any, dtype: Any) -> Any:
    """A causal model; device None: the CPU, "auto": over all devices; dtype None: the files' own, on a CPU float32."""
    import torch

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
        model = _from_pretrained(folder or ".", **options)
    except (ImportError, OSError, ValueError, KeyError) as error:  # accelerate or gguf is missing, a family, a file
        raise Error(f"{path}: transformers does not load it: {_first_line(error)}") from error
    return model if place == "auto" else model.to(place)


def check_sharded(path: str, device: Any, dtype: Any, ranks: int) -> None:
    """Raises Error for a model that transformers cannot deal over so many ranks, with the reason and what to do."""
    from transformers import AutoConfig

    if dtype is not None:
        dtype_named(dtype)
    kind = _accelerator()
    if device is not None and str(device) not in ("auto", kind):
        raise Error(
            f"device: over ranks each has a device of its own, of type {kind!r} here, got {str(device)!r}; leave device out, or "
            "start one process"
        )
    alone = 'start it without torchrun (device="auto" spreads layers over the devices of one process)'
    if path.endswith(".gguf"):
        raise Error(f"{path}: transformers does not deal GGUF files over ranks; convert it to a folder, or {alone}")
    if not os.path.isdir(path):
        raise Error(f"{path}: expected a folder with config.json and weights")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True).get_text_config(decoder=True)
    except (OSError, ValueError, KeyError) as error:
        raise Error(f"{path}: transformers does not load it: {_first_line(error)}") from error
    plan = getattr(config, "base_model_tp_plan", None)
    if not plan:
        raise Error(
            f"{path}: transformers has no tensor parallel plan for {config.model_type} models, so ranks cannot share one; "
            f"{alone}, or give --shard auto, with which each process measures parts of a sweep with a model of its own"
        )
    if any("k_proj" in name or "qkv" in name for name in plan):
        heads = getattr(config, "num_attention_heads", ranks)
        for name, count in (("attention", heads), ("key-value", getattr(config, "num_key_value_heads", None) or heads)):
            if count % ranks:
                raise Error(f"{path}: its {count} {name} heads cannot be dealt to {ranks} ranks; start a divisor of {count}")


def load_sharded(path: str, dtype: Any) -> Any:
    """This rank's part of a causal model, dealt by the tensor parallel plan of transformers."""
    import torch

    options: dict[str, Any] = {"tp_plan": "auto"}
    try:
        from transformers.distributed import DistributedConfig

        options = {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):  # transformers 4 has the argument alone
        pass
    options["dtype"] = dtype_named(dtype) if dtype is not None else torch.float32 if _accelerator() == "cpu" else "auto"
    streams = sys.stdout, sys.stderr  # transformers 4 closes those of all ranks but the first
    try:
        return _from_pretrained(path, **options)
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise Error(f"{path}: transformers does not load it over ranks: {_first_line(error)}") from error
    finally:
        sys.stdout, sys.stderr = streams


def _accelerator() -> str:
    """Where transformers puts the part of a rank."""
    import torch

    kind = torch._C._get_accelerator().type
    return "cpu" if kind == "mps" else kind


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
