"""What the kernels for NVIDIA GPUs find; `ropewalk.torch` calls them."""

from __future__ import annotations

from typing import Any

from ropewalk import _core
from ropewalk._arrays import whole

__all__ = ["cuda_synchronize", "find_cuda"]


def find_cuda() -> dict[str, Any]:
    """What this build and this machine have of CUDA: "toolkit" that the kernels were built with (empty: there are none),
    "targets", "driver" (newest CUDA that it supports), "devices" with their name, capability, memory_bytes and multiprocessors,
    and "why_none", the reason where there is no device. Loads the kernels onto the GPU."""
    return _core.cuda.find()


def cuda_synchronize(device: int = 0, stream: int = 0) -> None:
    """Waits for a stream of a GPU (`torch.cuda.current_stream().cuda_stream`; 0: the default one).

    Raises:
        Error: where a kernel has met a position outside its table since the last call; the first of them is named. Its token
            became NaN. And where there is no GPU ("unsupported").
    """
    _core.cuda.synchronize(whole("device", device), whole("stream", stream))
