"""Score biases: every relative encoding that is added to the scores of attention, with its gradient.

The distance d of a pair is the position of the query minus that of the key. Learned values are numpy arrays (float32) that
the object holds; `Bias.lower` makes of it one of five forms that `attention` reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import float32, int64, number, whole
from ropewalk._core import Error

__all__ = [
    "Alibi",
    "Bias",
    "CoPE",
    "DebertaBias",
    "Fire",
    "ForgettingGate",
    "Form",
    "Kerple",
    "Sandwich",
    "Shaw",
    "SwinBias",
    "T5Bias",
    "TransformerXL",
    "Tupe",
]


def _choice(name: str, given: str, known: tuple[str, ...]) -> int:
    if given not in known:
        raise Error(f"{name}: expected {' or '.join(repr(k) for k in known)}, got {given!r}")
    return known.index(given)


class Form:
    """What a bias lowers to, for `attention`.

    Attributes:
        kind: "slope" -behind[h] |d| (ahead[h] for d < 0); "distance" values[h, d - first]; "content": products with the rows
            of a table that the distance selects, row_of[d - first]; "pair": a function of the positions of query and key;
            "gates": sums of log_gates between key and query; "contextual": CoPE.
        fields: dict of these arrays and numbers.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Form):
        self._core = core

    @property
    def kind(self) -> str:
        return self._core.kind

    @property
    def heads(self) -> int:
        return self._core.heads

    @property
    def fields(self) -> dict[str, Any]:
        return self._core.fields

    def bias(self, query_positions: Any, key_positions: Any) -> np.ndarray:
        """float32 [heads, queries, keys] at ascending positions, for forms that need no content ("slope", "distance",
        "pair")."""
        q, k = int64("query_positions", query_positions), int64("key_positions", key_positions)
        if q.ndim != 1 or k.ndim != 1:
            raise Error(f"positions: expected [queries] and [keys], got shapes {list(q.shape)} and {list(k.shape)}")
        return self._core.bias(q, k)

    def __repr__(self) -> str:
        return f"Form({self.kind!r}, heads={self.heads})"


class Bias:
    """What all biases have in common.

    Attributes:
        heads: query heads.
        parameters: dict of its learned arrays by name; None where it has none.
    """

    _kind: str

    def __init__(self, heads: int, settings: dict[str, Any], parameters: dict[str, Any]):
        self.heads = whole("heads", heads, 1)
        self._settings = settings
        self.parameters: dict[str, np.ndarray | None] = parameters

    def __getattr__(self, name: str) -> Any:
        for fields in ("parameters", "_settings"):
            held = self.__dict__.get(fields, {})
            if name in held:
                return held[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _numbers(self) -> dict[str, Any]:
        """The settings as the compiled part takes them."""
        return self._settings

    def _bias(self) -> _core.Bias:
        given = {name: value for name, value in self.parameters.items() if value is not None}
        return _core.make_bias(self._kind, self.heads, {**self._numbers(), **given})

    def default_scale(self, head_dim: int) -> float | None:
        """The scale of q . k that belongs to the method; None: 1 / sqrt(head_dim) or the model's own."""
        return None

    def lower(self, max_distance: int) -> Form:
        """The form for distances up to max_distance. Raises Error for parameters that do not fit, or are missing."""
        return Form(self._bias().lower(whole("max_distance", max_distance, 0)))

    def __call__(self, query_positions: Any, key_positions: Any) -> np.ndarray:
        """The bias itself, float32 [heads, queries, keys], at ascending positions; Error where it depends on content."""
        q, k = int64("query_positions", query_positions), int64("key_positions", key_positions)
        farthest = int(max(abs(q.max() - k.min()), abs(q.min() - k.max()))) if q.size and k.size else 0
        return self.lower(farthest).bias(q, k)

    def backward(self, form: Form, gradient: dict[str, Any]) -> dict[str, np.ndarray]:
        """d(loss) / d(parameters), float64 of their shapes, from the gradient of the numbers of a form that this bias was
        lowered to (`attention_backward`): arrays by the names of its fields, "parameters" (float64) for a "pair" form."""
        return self._shaped(self._bias().backward(form._core, _gradient(gradient), None))

    def _shaped(self, flat: dict[str, Any]) -> dict[str, np.ndarray]:
        out = {}
        for name, value in flat.items():
            held = self.parameters.get(name)
            if held is not None:
                out[name] = np.reshape(np.asarray(value, np.float64), held.shape)
        return out

    def __repr__(self) -> str:
        learned = [name for name, value in self.parameters.items() if value is not None]
        settings = [f"{name}={value!r}" for name, value in self._settings.items()]
        return f"{type(self).__name__}({', '.join([f'heads={self.heads}', *settings, *(f'{n}=...' for n in learned)])})"


def _gradient(given: dict[str, Any]) -> dict[str, np.ndarray]:
    out = {}
    for name, value in given.items():
        if value is not None:
            out[name] = np.ascontiguousarray(value, np.float64 if name == "parameters" else np.float32)
    return out


class Alibi(Bias):
    """ALiBi: -slope d, each head with its own slope (Press et al. 2021, arXiv 2108.12409, section 3).

    Args:
        slopes: [heads], learned; None: those of `rule`.
        rule: "powers-of-two": 2^(-max_bias k / heads), k = 1 .. heads, and the authors' interpolation where heads is no
            power of two (BLOOM, MPT, llama.cpp). "geometric": the same formula for any number (attention-gym).
        ahead: keys after their query: "causal" none (for causal attention), "symmetric" -slope |d|, "signed" -slope d,
            "zero" 0.
        scale: multiplies the slopes; 1 / sqrt(head_dim) for Falcon, which adds the bias before the scale.
        bfloat16: slopes are rounded to bfloat16 before the scale (Falcon).
    """

    _kind = "alibi"
    _RULES = ("powers-of-two", "geometric")
    _AHEAD = ("causal", "symmetric", "signed", "zero")

    def __init__(
        self,
        heads: int,
        *,
        slopes: Any = None,
        rule: str = "powers-of-two",
        ahead: str = "causal",
        max_bias: float = 8.0,
        scale: float = 1.0,
        bfloat16: bool = False,
    ):
        _choice("rule", rule, self._RULES), _choice("ahead", ahead, self._AHEAD)
        settings = {
            "rule": rule,
            "ahead": ahead,
            "max_bias": number("max_bias", max_bias),
            "scale": number("scale", scale),
            "bfloat16": bool(bfloat16),
        }
        super().__init__(heads, settings, {"slopes": float32("slopes", slopes, (heads,))})

    def _numbers(self) -> dict[str, Any]:
        s = self._settings
        return {**s, "rule": self._RULES.index(s["rule"]), "ahead": self._AHEAD.index(s["ahead"])}


class T5Bias(Bias):
    """One learned value per head and bucket of distances (Raffel et al. 2019, arXiv 1910.10683, section 2.1). T5 itself does
    not scale q . k: give `attention` scale=1.

    Args:
        embedding: [buckets, heads], as in checkpoints.
        last_distance: all distances from here on share the last bucket (`relative_attention_max_distance`).
        bidirectional: half of the buckets for keys after the query (encoder), or all for keys before it (decoder).
    """

    _kind = "t5"

    def __init__(
        self,
        heads: int,
        *,
        embedding: Any = None,
        buckets: int = 32,
        last_distance: int = 128,
        bidirectional: bool = True,
    ):
        settings = {
            "buckets": whole("buckets", buckets),
            "last_distance": whole("last_distance", last_distance),
            "bidirectional": bool(bidirectional),
        }
        super().__init__(heads, settings, {"embedding": float32("embedding", embedding, (buckets, heads))})

    def bucket(self, distances: Any) -> np.ndarray:
        """The bucket of each distance, int64 of their shape; exact, not by a float32 logarithm."""
        d = int64("distances", distances)
        return _core.t5_bucket(self._settings, d).reshape(d.shape)


class Kerple(Bias):
    """KERPLE: -r1 ln(1 + r2 |d|) with kernel "log", -r1 |d|^r2 with "power" (Chi et al. 2022, arXiv 2205.09921, section 4).

    Args:
        r1, r2: [heads], above 0; r2 at most 2 with "power".
        causal: False: keys after the query too.
    """

    _kind = "kerple"
    _KERNELS = ("power", "log")

    def __init__(self, heads: int, *, r1: Any = None, r2: Any = None, kernel: str = "log", causal: bool = True):
        _choice("kernel", kernel, self._KERNELS)
        parameters = {"r1": float32("r1", r1, (heads,)), "r2": float32("r2", r2, (heads,))}
        super().__init__(heads, {"kernel": kernel, "causal": bool(causal)}, parameters)

    def _numbers(self) -> dict[str, Any]:
        return {**self._settings, "kernel": self._KERNELS.index(self._settings["kernel"])}


class Sandwich(Bias):
    """heads / (8 h) sum over i < dim / 2 of cos(d base^(-2 i / dim)), h = 1 .. heads (Chi et al. 2022, arXiv 2212.10356).
    Nothing is learned."""

    _kind = "sandwich"

    def __init__(self, heads: int, *, dim: int = 128, base: float = 10000.0, causal: bool = True):
        settings = {"dim": whole("dim", dim), "base": number("base", base), "causal": bool(causal)}
        super().__init__(heads, settings, {})


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


_OF_PLANS = {b._kind: b for b in (Alibi, T5Bias, DebertaBias, TransformerXL)}


def _bias_of(kind: str, fields: dict[str, Any]) -> Bias:
    """The bias of a plan's layer, without its learned values."""
    return _OF_PLANS[kind](**fields)
