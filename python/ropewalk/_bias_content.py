"""Score biases that depend on queries and keys or on the input of the layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import float32, int64, whole
from ropewalk._bias import Alibi, Bias, Form, Kerple, Sandwich, T5Bias, _gradient
from ropewalk._core import Error

__all__ = ["CoPE", "DebertaBias", "ForgettingGate", "Shaw", "TransformerXL"]


def _rows(name: str, given: Any, heads: int, rows: int | None) -> tuple[np.ndarray | None, int]:
    """A table [rows, head_dim] or [heads, rows, head_dim], and how many heads it has."""
    made = float32(name, given)
    if made is None:
        return None, 1
    sizes = (rows, None) if made.ndim == 2 else (heads, rows, None)
    return float32(name, made, sizes), 1 if made.ndim == 2 else heads


class Shaw(Bias):
    """A learned row per clipped distance is added to keys and to values (Shaw et al. 2018, arXiv 1803.02155, eq. 3 to 5):
    score = scale q . (k + key_rows[r]), out = sum of weight (v + value_rows[r]), r = clip(-d, -left, right) + left.

    Args:
        left, right: clipping distances before and after the query.
        key_rows, value_rows: [left + right + 1, head_dim], or [heads, left + right + 1, head_dim]; either may be None.
            `Shaw.sinusoidal_rows` gives NEZHA's.
    """

    _kind = "shaw"

    def __init__(self, heads: int, *, left: int, right: int, key_rows: Any = None, value_rows: Any = None):
        rows = whole("left", left, 0) + whole("right", right, 0) + 1
        keys, table = _rows("key_rows", key_rows, heads, rows)
        values, value_table = _rows("value_rows", value_rows, heads, rows)
        either = keys if keys is not None else values
        if either is None:
            raise Error("key_rows and value_rows: expected one of the two at least")
        if keys is not None and values is not None and (table, keys.shape) != (value_table, values.shape):
            raise Error(f"value_rows: expected the shape of key_rows, {list(keys.shape)}, got {list(values.shape)}")
        settings = {
            "left": left,
            "right": right,
            "head_dim": either.shape[-1],
            "table_heads": table if keys is not None else value_table,
        }
        super().__init__(heads, settings, {"key_rows": keys, "value_rows": values})

    @staticmethod
    def sinusoidal_rows(left: int, right: int, head_dim: int) -> np.ndarray:
        """Rows of sines and cosines in place of learned ones (NEZHA, Wei et al. 2019, arXiv 1909.00204): float32
        [left + right + 1, head_dim]."""
        return _core.shaw_sinusoidal_rows(whole("left", left), whole("right", right), whole("head_dim", head_dim))


class TransformerXL(Bias):
    """score = scale (q . k + q . W R_d + u . k + v . W R_d), R_d the sines and then cosines of the distance (Dai et al.
    2019, arXiv 1901.02860, section 3.3; XLNet, arXiv 1906.08237).

    Args:
        projection: W, [heads, head_dim, model_dim] (r_net.weight).
        content_bias, position_bias: u and v, [heads, head_dim] (r_w_bias, r_r_bias).
        causal: False: keys after the query too (XLNet).
        clamp_distance: larger distances are clamped to it; 0: none.
        model_dim, head_dim: without a projection, as a plan has it.
    """

    _kind = "transformer-xl"

    def __init__(
        self,
        heads: int,
        *,
        projection: Any = None,
        content_bias: Any = None,
        position_bias: Any = None,
        causal: bool = True,
        clamp_distance: int = 0,
        model_dim: int = 0,
        head_dim: int = 0,
    ):
        made = float32("projection", projection, (heads, None, None))
        if made is not None:
            head_dim, model_dim = made.shape[1:]
        settings = {
            "model_dim": whole("model_dim", model_dim),
            "head_dim": whole("head_dim", head_dim),
            "causal": bool(causal),
            "clamp_distance": whole("clamp_distance", clamp_distance, 0),
        }
        parameters = {
            "projection": made,
            "content_bias": float32("content_bias", content_bias, (heads, head_dim)),
            "position_bias": float32("position_bias", position_bias, (heads, head_dim)),
        }
        super().__init__(heads, settings, parameters)


class DebertaBias(Bias):
    """DeBERTa's disentangled attention: score = (q . k + q . P_K[r] + k . P_Q[r]) / sqrt(terms head_dim), with the
    logarithmic buckets and shared matrices of versions 2 and 3 (He et al. 2020, arXiv 2006.03654, eq. 4; arXiv 2111.09543).

    Args:
        embedding: [2 span, model_dim], after its norm; span is buckets, or max_position where that is 0.
        key_projection, query_projection: [heads, head_dim, model_dim], as in nn.Linear; with share_att_key those of the
            layer's own k and q. Without a weight the model does not have the term (content to position, and position to
            content).
        key_projection_bias, query_projection_bias: [heads, head_dim] or None.
        buckets: position_buckets; 0: one row per distance (version 1).
        max_position: max_relative_positions.
        content_to_position, position_to_content: which terms a model has whose matrices are not given (a plan).
    """

    _kind = "deberta"

    def __init__(
        self,
        heads: int,
        *,
        embedding: Any = None,
        key_projection: Any = None,
        key_projection_bias: Any = None,
        query_projection: Any = None,
        query_projection_bias: Any = None,
        buckets: int = 0,
        max_position: int = 512,
        content_to_position: bool | None = None,
        position_to_content: bool | None = None,
    ):
        span = whole("buckets", buckets, 0) or whole("max_position", max_position, 1)
        table = float32("embedding", embedding, (2 * span, None))
        keys = float32("key_projection", key_projection, (heads, None, None))
        queries = float32("query_projection", query_projection, (heads, None, None))
        either = keys if keys is not None else queries
        head_dim = 0 if either is None else either.shape[1]
        self.content_to_position = keys is not None if content_to_position is None else bool(content_to_position)
        self.position_to_content = queries is not None if position_to_content is None else bool(position_to_content)
        settings = {
            "buckets": buckets,
            "max_position": max_position,
            "model_dim": 0 if table is None else table.shape[1],
            "head_dim": head_dim,
        }
        parameters = {
            "embedding": table,
            "key_projection": keys,
            "key_projection_bias": float32("key_projection_bias", key_projection_bias, (heads, head_dim)),
            "query_projection": queries,
            "query_projection_bias": float32("query_projection_bias", query_projection_bias, (heads, head_dim)),
        }
        super().__init__(heads, settings, parameters)

    def default_scale(self, head_dim: int) -> float:
        terms = 1 + self.content_to_position + self.position_to_content
        return float(1 / np.sqrt(terms * head_dim))

    def row(self, distances: Any) -> np.ndarray:
        """The row of each distance, int64 of their shape; exact, not by a float32 logarithm."""
        d = int64("distances", distances)
        return _core.deberta_row(self._settings, d).reshape(d.shape)


class ForgettingGate(Bias):
    """Forgetting gate, or data-dependent ALiBi: the sum over the tokens after the key, to the query, of
    ln sigmoid(weight[h] . x + bias[h]) (Lin et al. 2025, arXiv 2503.02130, section 3). Causal. It depends on the input of
    the layer: `attention(..., bias=gate.of(x))`.

    Args:
        weight: [heads, model_dim]; bias: [heads].
    """

    _kind = "forgetting-gate"

    def __init__(self, heads: int, *, weight: Any, bias: Any):
        made = float32("weight", weight, (heads, None))
        if made is None:
            raise Error("weight: expected an array, got None")
        parameters = {"weight": made, "bias": float32("bias", bias, (heads,))}
        super().__init__(heads, {"model_dim": made.shape[1]}, parameters)

    def of(self, x: Any) -> _Gated:
        """The bias for this input, float32 [tokens of the keys, model_dim]."""
        return _Gated(self, x)

    def lower(self, max_distance: int) -> Form:
        raise Error("a forgetting gate depends on the input of the layer: give gate.of(x)")


class _Gated(Bias):
    """A forgetting gate with its input."""

    def __init__(self, gate: ForgettingGate, x: Any):
        self.gate = gate
        super().__init__(gate.heads, {}, {**gate.parameters, "x": float32("x", x, (None, gate.model_dim))})

    def lower(self, max_distance: int) -> Form:
        return Form(self.gate._bias().lower_with(self.parameters["x"]))

    def backward(self, form: Form, gradient: dict[str, Any]) -> dict[str, np.ndarray]:
        """Of weight, bias and x."""
        return self._shaped(self.gate._bias().backward(form._core, _gradient(gradient), self.parameters["x"]))


class CoPE(Bias):
    """CoPE: the position of a key is the sum of sigmoid(scale q . k) from the key to the query, at most rows - 1; the bias is
    q . position_rows there, interpolated between whole positions (Golovneva et al. 2024, arXiv 2405.18719, section 4).
    Causal.

    Args:
        position_rows: [rows, head_dim], or [heads, rows, head_dim].
    """

    _kind = "cope"

    def __init__(self, heads: int, *, position_rows: Any):
        rows, table = _rows("position_rows", position_rows, heads, None)
        if rows is None:
            raise Error("position_rows: expected an array, got None")
        settings = {"rows": rows.shape[-2], "head_dim": rows.shape[-1], "table_heads": table}
        super().__init__(heads, settings, {"position_rows": rows})


class ModelBias(Bias):
    """A bias of a plan whose values are tensors of the model (the family `ropewalk`).

    Attributes:
        type, settings: as `positions.bias` of the configuration says them.
    """

    def __init__(self, heads: int, *, type: str, settings: dict[str, Any]):
        super().__init__(heads, {"type": type, "settings": settings}, {})

    def _bias(self) -> Any:
        raise Error(f"a bias of type {self.type}: its values are tensors of the model, and a plan has none of them")


_OF_PLANS = {b._kind: b for b in (Alibi, T5Bias, DebertaBias, TransformerXL, Shaw, Kerple, Sandwich)} | {"model": ModelBias}


def _bias_of(kind: str, fields: dict[str, Any]) -> Bias:
    """The bias of a plan's layer, without its learned values (NEZHA's rows are computed, and there)."""
    return _OF_PLANS[kind](**fields)
