"""Score biases, and those that depend on the distance alone. Every relative encoding that is added to the scores of attention
is one, with its gradient; others are in _bias_content.py and _bias_pair.py.

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
    "Form",
    "Kerple",
    "Sandwich",
    "T5Bias",
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
        """Which of the forms it is."""
        return self._core.kind

    @property
    def heads(self) -> int:
        """Heads that it is for."""
        return self._core.heads

    @property
    def fields(self) -> dict[str, Any]:
        """Its arrays and numbers."""
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
