"""Attention with biases and position maps, and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ropewalk import _core
from ropewalk._arrays import array, float32, int64, number, truth, whole
from ropewalk._bias import Bias, Form
from ropewalk._core import Error
from ropewalk._maps import PositionMap
from ropewalk._rotary import Rotation, _is_torch

__all__ = ["AttentionGradient", "attention", "attention_backward"]


def _floats(name: str, given: Any, rank: int | None = None) -> np.ndarray:
    """float32 [..., tokens, heads, head_dim] whose heads are contiguous; smaller types are widened."""
    x = array(name, given)
    if x.dtype != np.float32:
        if x.dtype != np.float16 and x.dtype.name != "bfloat16":
            raise Error(f"{name}: expected float32, float16 or bfloat16, got {x.dtype}; attention computes in float32")
        x = x.astype(np.float32)
    if x.ndim not in (3, 4) or (rank is not None and x.ndim != rank):
        wanted = {3: "[tokens, heads, head_dim]", 4: "[batch, tokens, heads, head_dim]"}
        known = wanted[rank] if rank is not None else f"{wanted[3]} or {wanted[4]}"
        raise Error(f"{name}: expected {known}, got shape {list(x.shape)}")
    item = x.itemsize
    if any(s % item for s in x.strides) or not x.dtype.isnative or (x.shape[-1] > 1 and x.strides[-1] != item):
        x = np.ascontiguousarray(x, np.float32)
    return x


def _per_token(name: str, given: Any, batch: int, tokens: int, make: Any) -> list[np.ndarray | None]:
    """One list of `tokens` for each sequence of the batch, from [tokens] or [batch, tokens]."""
    if given is None:
        return [None] * batch
    made = make(name, given)
    if made.shape == (tokens,):
        return [made] * batch
    if made.shape == (batch, tokens):
        return list(made)
    raise Error(f"{name}: expected [tokens] or [batch, tokens] with {tokens} tokens, got shape {list(made.shape)}")


class _Settings(NamedTuple):
    """The arguments that `attention` and its gradient share."""

    causal: bool
    bias: Bias | Form | None
    remap: PositionMap | None
    rotation: Rotation | None
    scale: float | None
    window: int
    soft_cap: float
    sinks: Any
    temperatures: Any
    query_positions: Any
    key_positions: Any
    document_starts: Any
    query_document_starts: Any

    @staticmethod
    def of(arguments: dict[str, Any]) -> _Settings:
        """From the locals() of a function that has them."""
        return _Settings(**{name: arguments[name] for name in _Settings._fields})


class _Call:
    """A checked call: views of each sequence, and what the compiled part takes."""

    def __init__(self, q: Any, k: Any, v: Any, given: _Settings):
        causal, bias, remap, rotation, scale, temperatures = (
            getattr(given, name) for name in ("causal", "bias", "remap", "rotation", "scale", "temperatures")
        )
        self.q = _floats("q", q)
        self.k, self.v = _floats("k", k, self.q.ndim), _floats("v", v, self.q.ndim)
        self.batched = self.q.ndim == 4
        if not self.batched:
            self.q, self.k, self.v = self.q[None], self.k[None], self.v[None]
        if self.k.shape[:3] != self.v.shape[:3]:
            raise Error(f"v: expected the batch, keys and heads of k, {list(self.k.shape[:3])}, got {list(self.v.shape)}")
        if self.v.shape[3] < 1:
            raise Error(f"v: expected elements in a head, got shape {list(self.v.shape)}")
        batch, tokens, heads, head_dim = self.q.shape
        keys = self.k.shape[1]
        if self.k.shape[0] != batch:
            raise Error(f"k: expected a batch of {batch} as q, got {self.k.shape[0]}")
        if self.k.shape[3] != head_dim:
            raise Error(f"k: expected heads of {head_dim} as q, got {self.k.shape[3]}")
        if self.k.shape[2] < 1 or head_dim < 1:
            raise Error(f"k: expected a head or more and elements in it, got shape {list(self.k.shape)}")
        causal = truth("causal", causal)
        options: dict[str, Any] = {"causal": causal}
        if scale is None and isinstance(bias, Bias):
            scale = bias.default_scale(head_dim)
        if scale is None:
            scale = 1 / np.sqrt(head_dim)
            if rotation is not None and isinstance(rotation, Rotation):
                scale = scale * rotation.softmax_multiplier
        options["scale"] = number("scale", scale)
        options["window"] = whole("window", given.window)
        options["soft_cap"] = number("soft_cap", given.soft_cap)
        if given.sinks is not None:
            options["sinks"] = float32("sinks", given.sinks, (heads,))
        if rotation is not None:
            if not isinstance(rotation, Rotation):
                raise Error(f"rotation: expected a Rotation, got {type(rotation).__name__}")
            if rotation.head_dim != head_dim:
                raise Error(f"rotation: expected heads of {head_dim} as q, got {rotation.head_dim}")
            options["rotation"] = rotation._core
        if remap is not None:
            if not isinstance(remap, PositionMap):
                raise Error(f"remap: expected a position map such as ReRoPE, got {type(remap).__name__}")
            if rotation is None:
                raise Error("remap: expected unrotated q and k, and the rotation that the map is for (rotation=)")
            if not causal:
                raise Error("remap: position maps are causal, expected causal=True")
            options["map"] = remap._core
        for name in ("document_starts", "query_document_starts"):
            starts = getattr(given, name)
            if starts is not None:
                options[name] = int64(name, starts)
                if options[name].ndim != 1:
                    raise Error(f"{name}: expected [documents], got shape {list(options[name].shape)}")
        q_at = _per_token("query_positions", given.query_positions, batch, tokens, int64)
        k_at = _per_token("key_positions", given.key_positions, batch, keys, int64)
        times = [None] * batch
        if callable(temperatures):
            if given.query_positions is not None:
                times = [np.ascontiguousarray(temperatures(p), np.float32) for p in q_at]
            else:
                last = [np.arange(keys) if p is None else p for p in k_at]
                times = [np.ascontiguousarray(temperatures(p[keys - tokens :]), np.float32) for p in last]
        elif temperatures is not None:
            times = _per_token("temperatures", temperatures, batch, tokens, float32)
        self.bias, self.form = None, None
        if isinstance(bias, Form):
            self.form = bias
        elif isinstance(bias, Bias):
            self.bias, self.form = bias, bias.lower(farthest(q_at, k_at, tokens, keys, causal))
        elif bias is not None:
            raise Error(f"bias: expected a bias such as Alibi, or its Form, got {type(bias).__name__}")
        if self.form is not None:
            if self.form.heads != heads:
                raise Error(f"bias: expected {heads} heads as q, got {self.form.heads}")
            options["form"] = self.form._core
        self.options = []
        for b in range(batch):
            own = {"query_positions": q_at[b], "key_positions": k_at[b], "temperatures": times[b]}
            self.options.append({**options, **{n: x for n, x in own.items() if x is not None}})

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (*self.q.shape[:3], self.v.shape[3])

    def forward(self, lse: bool, entropy: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        out = np.empty(self.out_shape, np.float32)
        sums = np.empty(self.q.shape[:3], np.float32) if lse else None
        nats = np.empty(self.q.shape[:3], np.float32) if entropy else None
        for b, options in enumerate(self.options):
            _core.attention(
                self.q[b],
                self.k[b],
                self.v[b],
                out[b],
                None if sums is None else sums[b],
                None if nats is None else nats[b],
                options,
            )
        return out, sums, nats

    def unbatched(self, x: np.ndarray | None) -> np.ndarray | None:
        return x if x is None or self.batched else x[0]


def farthest(q_at: list, k_at: list, tokens: int, keys: int, causal: bool) -> int:
    """The largest distance of a call, for which a bias is lowered."""
    most = 0
    for q, k in zip(q_at, k_at, strict=True):
        if tokens == 0 or keys == 0:
            continue
        k_low, k_high = (0, keys - 1) if k is None else (int(k.min()), int(k.max()))
        q_low, q_high = (k_low, k_high) if q is None else (int(q.min()), int(q.max()))
        most = max(most, q_high - k_low, 0 if causal else k_high - q_low)
    return most


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    bias: Bias | Form | None = None,
    remap: PositionMap | None = None,
    rotation: Rotation | None = None,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Any = None,
    temperatures: Any = None,
    query_positions: Any = None,
    key_positions: Any = None,
    document_starts: Any = None,
    query_document_starts: Any = None,
    return_lse: bool = False,
    return_entropy: bool = False,
) -> Any:
    """Attention with online softmax in tiles, in float32: memory linear in tokens, no N x N matrix (Milakov & Gimelshein 2018,
    arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135).

    score(i, j) = scale temperature_i q_i . k_j + bias(i, j); out_i = sum over unmasked j of weight(i, j) v_j,
    weight = exp(score) / (exp(sink) + sum of exp(score)). The distance of a pair is the position of its query minus that of
    its key.

    Args:
        q: [tokens, heads, head_dim] or [batch, tokens, heads, head_dim]; float32, or float16 and bfloat16, which are widened.
            Heads are a multiple of kv_heads. Tensors of PyTorch go to `ropewalk.torch.attention`.
        k, v: [keys, kv_heads, head_dim] or [batch, keys, ...]; heads of v may have another size (multi-head latent
            attention), which the result then has. The queries are the last `tokens` of the keys, unless query_positions
            are given. Keys are rotated already, unless `rotation` is given.
        causal: keys after their query are masked.
        bias: a Bias (Alibi, T5Bias, ...), or the Form that it was lowered to.
        rotation: q and k are unrotated, and are rotated as they are read; key j has position j.
        remap: a position map (ReRoPE, SelfExtend, ...); needs `rotation`.
        scale: default 1 / sqrt(head_dim), times the rotation's softmax_multiplier; DebertaBias and Tupe have their own.
        window: sliding window, |distance| < window; 0: none.
        soft_cap: score = cap tanh(score / cap), before the mask (Gemma 2); 0: none.
        sinks: [heads] logits that are added to the denominator alone (gpt-oss).
        temperatures: [tokens] or [batch, tokens] factors of the scale of each query, or a Temperature.
        query_positions, key_positions: [tokens] and [keys], or with a batch in front; nondecreasing within a document.
        document_starts: packed sequences: the index of the first key of each document, the first 0; a query attends to its
            own document alone. query_document_starts: the same for queries that are not the last tokens.
        return_lse: also the log-sum-exp of the scores, float32 [(batch,) tokens, heads].
        return_entropy: also the entropy of each query's weights in nats, of the same shape.

    Returns:
        float32 [(batch,) tokens, heads, head_dim of v], in the type of q; with return_lse or return_entropy a tuple.

    Raises:
        Error: for shapes, types and positions that do not fit, and what cannot be combined.
    """
    settings = _Settings.of(locals())
    if _is_torch(q, k, v):
        import ropewalk.torch as for_torch

        returned = {"return_lse": return_lse, "return_entropy": return_entropy}
        return for_torch.attention(q, k, v, **settings._asdict(), **returned)
    call = _Call(q, k, v, settings)
    out, lse, entropy = call.forward(return_lse, return_entropy)
    given = array("q", q).dtype
    results = [call.unbatched(out if given == np.float32 else out.astype(given))]
    if return_lse:
        results.append(call.unbatched(lse))
    if return_entropy:
        results.append(call.unbatched(entropy))
    return results[0] if len(results) == 1 else tuple(results)


class AttentionGradient:
    """What `attention_backward` returns.

    Attributes:
        q, k, v: float32, of the shapes of q, k and v.
        bias: dict, float64: of the bias's parameters by name (of the numbers of its form, where a Form was given); empty
            where nothing is learned.
        sinks: float32 [heads], or None.
    """

    __slots__ = ("bias", "k", "q", "sinks", "v")

    def __init__(self, q: Any, k: Any, v: Any, bias: dict[str, np.ndarray], sinks: np.ndarray | None):
        self.q, self.k, self.v, self.bias, self.sinks = q, k, v, bias, sinks


def attention_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    bias: Bias | Form | None = None,
    remap: PositionMap | None = None,
    rotation: Rotation | None = None,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Any = None,
    temperatures: Any = None,
    query_positions: Any = None,
    key_positions: Any = None,
    document_starts: Any = None,
    query_document_starts: Any = None,
) -> AttentionGradient:
    """The gradient of `attention`, from d_out = d(loss) / d(out); its other arguments are those of the call. The forward pass is
    computed again."""
    call = _Call(q, k, v, _Settings.of(locals()))
    d = _floats("d_out", d_out, 4 if call.batched else 3)
    d = d if call.batched else d[None]
    if d.shape != call.out_shape:
        raise Error(f"d_out: expected the shape of what attention gives, {list(call.out_shape)}, got {list(d.shape)}")
    out, lse, _ = call.forward(True, False)
    d_q, d_k, d_v = (np.empty(x.shape, np.float32) for x in (call.q, call.k, call.v))
    d_sinks = None if sinks is None else np.zeros(call.q.shape[2], np.float32)
    d_bias: dict[str, np.ndarray] = {}
    for b, options in enumerate(call.options):
        own = None if d_sinks is None else np.empty_like(d_sinks)
        numbers = _core.attention_backward(
            call.q[b], call.k[b], call.v[b], out[b], lse[b], d[b], d_q[b], d_k[b], d_v[b], own, options
        )
        if d_sinks is not None:
            d_sinks += own
        if call.bias is not None and numbers:
            numbers = call.bias.backward(call.form, numbers)
        for name, value in numbers.items():
            d_bias[name] = d_bias[name] + value if name in d_bias else np.asarray(value, np.float64)
    return AttentionGradient(*(call.unbatched(x) for x in (d_q, d_k, d_v)), d_bias, d_sinks)
