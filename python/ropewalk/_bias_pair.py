"""Score biases that are functions of the positions of query and key."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropewalk._arrays import float32, number, whole
from ropewalk._bias import Bias, Form, T5Bias, _gradient
from ropewalk._core import Error

__all__ = ["Fire", "SwinBias", "Tupe"]


class Fire(Bias):
    """FIRE: f(psi(d) / psi(max(threshold, i))) with psi(x) = ln(c x + 1), i the position of the query, and
    f(x) = b2 + sum of w2 relu(w1 x + b1) (Li et al. 2023, arXiv 2310.04418, section 3).

    Args:
        w1, b1: [width]; w2: [heads, width]; b2: [heads].
        c, threshold: above 0, learned too.
    """

    _kind = "fire"

    def __init__(self, heads: int, *, w1: Any, b1: Any, w2: Any, b2: Any, c: float = 0.1, threshold: float = 512.0):
        parameters = {
            "w1": float32("w1", w1, (None,)),
            "b1": float32("b1", b1, (None,)),
            "w2": float32("w2", w2, (heads, None)),
            "b2": float32("b2", b2, (heads,)),
        }
        super().__init__(heads, {"c": number("c", c), "threshold": number("threshold", threshold)}, parameters)

    def backward(self, form: Form, gradient: dict[str, Any]) -> dict[str, np.ndarray]:
        """As of every bias, with "c" and "threshold" (float64 of shape [])."""
        flat = self._bias().backward(form._core, _gradient(gradient), None)
        return {**self._shaped(flat), "c": np.float64(flat["c"]), "threshold": np.float64(flat["threshold"])}


class Tupe(Bias):
    """TUPE: score = scale q . k + reset(scale (p_i U_Q) . (p_j U_K) + b[bucket(d)]), scale = 1 / sqrt(2 head_dim); the
    position terms of the first token are learned values (Ke et al. 2020, arXiv 2006.15595, section 3).

    Args:
        embedding: p, [positions, model_dim], after its norm.
        query_projection, key_projection: [heads, head_dim, model_dim]; their biases [heads, head_dim] or None.
        relative: T5Bias (TUPE-R) or None (TUPE-A).
        from_cls, to_cls: [heads], or both None: no reset.
    """

    _kind = "tupe"

    def __init__(
        self,
        heads: int,
        *,
        embedding: Any,
        query_projection: Any,
        key_projection: Any,
        query_projection_bias: Any = None,
        key_projection_bias: Any = None,
        relative: T5Bias | None = None,
        from_cls: Any = None,
        to_cls: Any = None,
    ):
        table = float32("embedding", embedding, (None, None))
        queries = float32("query_projection", query_projection, (heads, None, None))
        if table is None or queries is None:
            raise Error("embedding and query_projection: expected arrays, got None")
        head_dim, model_dim = queries.shape[1:]
        if relative is not None and (not isinstance(relative, T5Bias) or relative.heads != heads):
            raise Error(f"relative: expected a T5Bias of {heads} heads or None, got {relative!r}")
        settings = {"positions": table.shape[0], "model_dim": model_dim, "head_dim": head_dim}
        parameters = {
            "embedding": float32("embedding", table, (None, model_dim)),
            "query_projection": queries,
            "query_projection_bias": float32("query_projection_bias", query_projection_bias, (heads, head_dim)),
            "key_projection": float32("key_projection", key_projection, (heads, head_dim, model_dim)),
            "key_projection_bias": float32("key_projection_bias", key_projection_bias, (heads, head_dim)),
            "from_cls": float32("from_cls", from_cls, (heads,)),
            "to_cls": float32("to_cls", to_cls, (heads,)),
        }
        self.relative = relative
        super().__init__(heads, settings, parameters)

    def _numbers(self) -> dict[str, Any]:
        t5 = self.relative
        if t5 is None:
            return self._settings
        held = {} if t5.embedding is None else {"embedding": t5.embedding}
        return {**self._settings, "relative": {**t5._numbers(), **held}}

    def backward(self, form: Form, gradient: dict[str, Any]) -> dict[str, np.ndarray]:
        """As of every bias, with "relative", the gradient of the T5Bias's embedding."""
        flat = self._bias().backward(form._core, _gradient(gradient), None)
        out = self._shaped(flat)
        if self.relative is not None:
            out["relative"] = np.reshape(flat["relative"], self.relative.embedding.shape)
        return out

    def default_scale(self, head_dim: int) -> float:
        return float(1 / np.sqrt(2 * head_dim))


class SwinBias(Bias):
    """Swin V2's continuous bias: 16 sigmoid(w2 relu(w1 (y, x) + b1)) of the log-spaced offset of two patches of a window
    (Liu et al. 2021, arXiv 2111.09883, section 3.3). Position p of a window is row p // width, column p % width.

    Args:
        height, width: of the window, in patches; pretrained_height, pretrained_width: 0: the same.
        w1: [hidden, 2], columns for y and x; b1: [hidden]; w2: [heads, hidden].
    """

    _kind = "swin"

    def __init__(
        self,
        heads: int,
        *,
        height: int,
        width: int,
        w1: Any,
        b1: Any,
        w2: Any,
        pretrained_height: int = 0,
        pretrained_width: int = 0,
    ):
        sizes = {
            "height": height,
            "width": width,
            "pretrained_height": pretrained_height,
            "pretrained_width": pretrained_width,
        }
        parameters = {
            "w1": float32("w1", w1, (None, 2)),
            "b1": float32("b1", b1, (None,)),
            "w2": float32("w2", w2, (heads, None)),
        }
        super().__init__(heads, {name: whole(name, n, 0) for name, n in sizes.items()}, parameters)
