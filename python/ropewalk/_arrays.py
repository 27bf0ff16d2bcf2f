"""Arguments as numpy arrays and whole numbers, with messages that name them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ropewalk._core import Error

__all__ = ["NOTHING", "array", "float32", "float64", "int64", "like", "needed", "number", "sizes_of", "truth", "whole"]

NOTHING = np.zeros(0, np.float32)  # as the compiled part takes an array that is not given


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A Python int from anything that is a whole number of 64 bits."""
    try:
        n = operator.index(value)
    except TypeError:
        raise Error(f"{name}: expected a whole number, got {value!r}") from None
    if not -(2**63) <= n < 2**63:
        raise Error(f"{name}: expected a number of 64 bits, got {n}")
    if least is not None and n < least:
        raise Error(f"{name}: expected {least} or more, got {n}")
    return n


def truth(name: str, value: Any) -> bool:
    """A Python bool, from one of any library or from 0 and 1: a word such as "no" is not false."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return truth(name, value.item())
    n = whole(name, value) if hasattr(value, "__index__") else None
    if n not in (0, 1):
        raise Error(f"{name}: expected True or False, got {value!r}")
    return n == 1


def number(name: str, value: Any) -> float:
    """A Python float."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Error(f"{name}: expected a number, got {value!r}") from None


def array(name: str, value: Any) -> np.ndarray:
    """The array itself, or a view of the memory of another library's array on the CPU (DLPack)."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        raise Error(f"{name}: expected a numpy array or one with DLPack, got {type(value).__name__}")
    device = getattr(value, "__dlpack_device__", lambda: (1, 0))()[0]
    if int(device) != 1:
        raise Error(
            f"{name}: expected memory of the CPU, got device type {int(device)} of DLPack; for other devices use ropewalk.torch"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        pass
    try:  # a type that numpy alone does not have, such as the bfloat16 of ml_dtypes
        made = np.asarray(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise Error(f"{name}: numpy cannot read it ({e})") from None
    if made.dtype == object:
        raise Error(f"{name}: expected numbers, got {type(value).__name__}")
    return made


def like(x: np.ndarray) -> np.ndarray:
    """A new array without gaps, of the shape and type of x."""
    return np.empty(x.shape, x.dtype)


def _check_size(name: str, value: np.ndarray) -> None:
    """Strides of 0 make an array of any size that takes no memory, until it is copied."""
    if value.size > 2**40:
        raise Error(f"{name}: expected at most {2**40} numbers, got shape {list(value.shape)}")


def _of_anything(name: str, value: Any) -> np.ndarray:
    """Of an array, or of lists of numbers."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return array(name, value)
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Error(f"{name}: expected numbers ({error})") from None


def int64(name: str, value: Any) -> np.ndarray:
    """Whole numbers as int64 without gaps."""
    value = _of_anything(name, value)
    if value.dtype == np.int64 and value.flags.c_contiguous:
        return value
    _check_size(name, value)
    if value.size == 0 and value.ndim == 1:
        return np.zeros(0, np.int64)
    if value.dtype.kind not in "iu" or (value.dtype == np.uint64 and value.size and value.max() >= 2**63):
        raise Error(f"{name}: expected whole numbers, got {value.dtype}")
    return np.ascontiguousarray(value, np.int64)


def float32(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> np.ndarray | None:
    """float32 numbers without gaps, of this shape (None: any size); None stays None."""
    return None if value is None else _floats(name, value, np.float32, shape)


def float64(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
    """The same in float64, of what must be there."""
    return _floats(name, value, np.float64, shape)


def _floats(name: str, value: Any, dtype: Any, shape: tuple[int | None, ...] | None) -> np.ndarray:
    value = _of_anything(name, value)
    if value.dtype.kind not in "fiu" and value.dtype.name != "bfloat16":
        raise Error(f"{name}: expected numbers, got {value.dtype}")
    _check_size(name, value)
    out = np.ascontiguousarray(value, dtype)
    if shape is not None and (
        out.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, out.shape, strict=True))
    ):
        sizes = ", ".join("any" if n is None else str(n) for n in shape)
        raise Error(f"{name}: expected shape [{sizes}], got {list(out.shape)}")
    return out


def needed(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
    """As `float32`, of what must be there."""
    made = float32(name, value, shape)
    if made is None:
        raise Error(f"{name}: expected an array, got None")
    return made


def sizes_of(name: str, given: Any) -> list[int]:
    """A size, or several of them."""
    return [whole(name, n) for n in (given if isinstance(given, (tuple, list, np.ndarray)) else (given,))]
