"""Score biases with learned parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk import torch as ops
from ropewalk.torch._shared import choice


class Bias(nn.Module):
    """What the biases below have in common."""

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, np.ndarray] = {}

    def _hold(self, name: str, numbers: np.ndarray) -> None:
        """A constant of the method, as a buffer that is in no state_dict. It has its numbers also where a model is made on
        "meta", and keeps them through `to_empty` and `half`."""
        self._constants[name] = np.array(numbers)
        self.register_buffer(name, torch.from_numpy(np.array(numbers)), persistent=False)

    def _apply(self, fn, recurse=True):
        before = {name: getattr(self, name) for name in self._constants}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            device = getattr(self, name).device
            if getattr(self, name) is not buffer and device.type != "meta":
                setattr(self, name, torch.from_numpy(self._constants[name].copy()).to(device))
        return self

    def form(self, queries: int, keys: int) -> Any:
        """What `ropewalk.torch.attention` reads, for `queries` tokens and `keys` keys: of the call, or as many as its positions
        lie apart. Differentiable."""
        raise NotImplementedError

    def default_scale(self, head_dim: int) -> float | None:
        """The scale of q . k that belongs to the method; None: head_dim ** -0.5."""
        return None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        """`ropewalk.torch.attention(q, k, v, bias=self, ..)`; causal where the method is."""
        settings.setdefault("scale", self.default_scale(q.shape[-1]))
        settings.setdefault("causal", getattr(self, "causal", True))
        return ops.attention(q, k, v, bias=self, **settings)


def _distances(like: Tensor, queries: int, keys: int, causal: bool) -> tuple[Tensor, int]:
    """float64 distances of all pairs, and the first of them."""
    far = max(queries, keys, 1)
    first = 0 if causal else 1 - far
    return torch.arange(first, far, device=like.device, dtype=torch.float64), first


class Alibi(Bias):
    """ALiBi: -slope d, a slope for each head (Press et al. 2021, arXiv 2108.12409). `learned`: the slopes are parameters.
    causal=False: -slope |d| on both sides."""

    def __init__(self, heads: int, *, learned: bool = False, causal: bool = True):
        super().__init__()
        slopes = rw.Alibi(heads).lower(0).fields["behind"]
        self.causal = causal
        if learned:
            self.slopes = nn.Parameter(torch.tensor(slopes))
        else:
            self._hold("slopes", slopes)

    def form(self, queries: int, keys: int) -> ops.Slopes:
        return ops.Slopes(self.slopes, None if self.causal else self.slopes)


class T5Bias(Bias):
    """T5's buckets: a learned value per head and bucket of distances (Raffel et al. 2019, arXiv 1910.10683). T5 does not
    scale q . k. `bidirectional`: half of the buckets for keys after the query (encoders)."""

    def __init__(self, heads: int, *, buckets: int = 32, last_distance: int = 128, bidirectional: bool = False):
        super().__init__()
        self.causal = not bidirectional
        # The library's buckets, exact where a float32 logarithm is not: a table whose values are their indices.
        indices = np.arange(buckets, dtype=np.float32)[:, None]
        fields = (
            rw.T5Bias(1, buckets=buckets, last_distance=last_distance, bidirectional=bidirectional, embedding=indices)
            .lower(last_distance)
            .fields
        )
        self.first = int(fields["first"])
        self._hold("bucket", fields["values"][0].astype(np.int64))
        self.embedding = nn.Parameter(torch.randn(buckets, heads) * 0.02)

    def form(self, queries: int, keys: int) -> ops.Distances:
        return ops.Distances(self.embedding.t()[:, self.bucket], self.first, True, True)

    def default_scale(self, head_dim: int) -> float:
        return 1.0


class Kerple(Bias):
    """KERPLE: -r1 ln(1 + r2 |d|) ("log") or -r1 |d|^r2 ("power") (Chi et al. 2022, arXiv 2205.09921). r1 and r2 count as at
    least 0.01, as in the authors' program, and r2 of "power" as at most 2."""

    def __init__(self, heads: int, *, kernel: str = "log", causal: bool = True):
        super().__init__()
        self.power, self.causal = choice("kernel", kernel, {"log": 0, "power": 1}) == 1, causal
        self.r1, self.r2 = nn.Parameter(torch.rand(heads) * 2), nn.Parameter(torch.rand(heads))

    def form(self, queries: int, keys: int) -> ops.Distances:
        d, first = _distances(self.r1, queries, keys, self.causal)
        r1 = self.r1.double().clamp(min=0.01)[:, None]
        r2 = self.r2.double().clamp(min=0.01, max=2.0 if self.power else None)[:, None]
        if self.power:
            # 0^r2 has no derivative by r2 that PyTorch knows; it is 0, as the power is.
            values = torch.where(d == 0, 0.0, -r1 * torch.where(d == 0, 1.0, d.abs()) ** r2)
        else:
            values = -r1 * torch.log1p(r2 * d.abs())
        return ops.Distances(values.float(), first)


class Sandwich(Bias):
    """Sandwich: H / (8 h) sum of cos(d base^(-2 i / dim)), h = 1 .. H (Chi et al. 2022, arXiv 2212.10356). Not learned."""

    def __init__(self, heads: int, *, dim: int = 128, base: float = 10000.0, causal: bool = True):
        super().__init__()
        self.heads, self.dim, self.base, self.causal = heads, dim, base, causal
        rw.Sandwich(heads, dim=dim, base=base).lower(0)  # refuses what is not a bias
        self._hold("device_of", np.zeros(0, np.float32))

    def form(self, queries: int, keys: int) -> ops.Distances:
        d, first = _distances(self.device_of, queries, keys, self.causal)
        f = self.base ** (-torch.arange(0, self.dim, 2, dtype=torch.float64, device=d.device) / self.dim)
        h = torch.arange(1, self.heads + 1, dtype=torch.float64, device=d.device)
        return ops.Distances((self.heads / (8 * h[:, None]) * torch.cos(d[:, None] * f).sum(-1)).float(), first)


class Fire(Bias):
    """FIRE: a learned function of ln(c d + 1) / ln(c max(threshold, i) + 1), i the query's position, with one hidden layer
    (Li et al. 2023, arXiv 2310.04418). c and threshold are learned and must stay above 0."""

    def __init__(self, heads: int, *, width: int = 32, c: float = 0.1, threshold: float = 512.0, causal: bool = True):
        super().__init__()
        self.causal = causal
        self.w1, self.b1 = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.w2, self.b2 = nn.Parameter(torch.randn(heads, width) * width**-0.5), nn.Parameter(torch.zeros(heads))
        self.c, self.threshold = nn.Parameter(torch.tensor(c)), nn.Parameter(torch.tensor(threshold))

    def form(self, queries: int, keys: int) -> ops.Fire:
        return ops.Fire(self.w1, self.b1, self.w2, self.b2, self.c, self.threshold)


class Shaw(Bias):
    """Shaw's relative positions: a learned row per distance, clipped to left and right, is added to keys and, unless
    values=False, to values (Shaw et al. 2018, arXiv 1803.02155). `per_head`: each head has rows of its own."""

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        left: int,
        right: int = 0,
        values: bool = True,
        per_head: bool = False,
        causal: bool = False,
    ):
        super().__init__()
        self.causal, shape = causal, (heads if per_head else 1, left + right + 1, head_dim)
        zeros = np.zeros(shape[1:], np.float32)
        fields = rw.Shaw(heads, left=left, right=right, key_rows=zeros).lower(0).fields
        self.first = int(fields["first"])
        self._hold("row_of", fields["row_of"])
        self.key_rows = nn.Parameter(torch.randn(shape) * head_dim**-0.5)
        self.value_rows = nn.Parameter(torch.randn(shape) * head_dim**-0.5) if values else None

    def form(self, queries: int, keys: int) -> ops.Content:
        return ops.Content(
            self.row_of,
            self.first,
            query_rows=self.key_rows,
            value_rows=self.value_rows,
            repeats_ahead=True,
            repeats_behind=True,
        )


class TransformerXL(Bias):
    """Transformer-XL's four terms: scale (q . k + q . W R_d + u . k + v . W R_d) with sinusoidal R_d (Dai et al. 2019, arXiv
    1901.02860). projection: W, [heads, head_dim, model_dim]; content_bias: u; position_bias: v, [heads, head_dim].
    clamp_distance: larger distances count as it; 0: none."""

    def __init__(self, heads: int, head_dim: int, model_dim: int, *, clamp_distance: int = 0, causal: bool = True):
        super().__init__()
        self.causal, self.clamp_distance = causal, clamp_distance
        self.projection = nn.Parameter(torch.randn(heads, head_dim, model_dim) * model_dim**-0.5)
        self.content_bias = nn.Parameter(torch.zeros(heads, head_dim))
        self.position_bias = nn.Parameter(torch.zeros(heads, head_dim))

    def form(self, queries: int, keys: int) -> ops.Content:
        d, first = _distances(self.projection, queries, keys, self.causal)
        if self.clamp_distance:
            d = d.clamp(-self.clamp_distance, self.clamp_distance)
        model_dim = self.projection.shape[-1]
        f = 10000.0 ** (-torch.arange(0, model_dim, 2, dtype=torch.float64, device=d.device) / model_dim)
        rows = torch.cat((torch.sin(d[:, None] * f), torch.cos(d[:, None] * f)), -1).float()
        rows = torch.einsum("hdm,rm->hrd", self.projection.float(), rows)
        row_of = torch.arange(rows.shape[1], dtype=torch.int32, device=rows.device)
        return ops.Content(row_of, first, query_rows=rows, query_bias=self.position_bias, key_bias=self.content_bias)


class DebertaBias(Bias):
    """DeBERTa's disentangled attention: q . P_K[r] + k . P_Q[r] with r the bucket of the distance (He et al. 2020, arXiv
    2006.03654). embedding: [2 span, model_dim], after its norm; the projections are those of its layer, [heads, head_dim,
    model_dim] with biases [heads, head_dim]. buckets: position_buckets of v2 and v3; 0: one per distance (v1)."""

    causal = False

    def __init__(self, heads: int, head_dim: int, model_dim: int, *, buckets: int = 256, max_position: int = 512):
        super().__init__()
        span = buckets or max_position
        fields = (
            rw.DebertaBias(
                heads,
                buckets=buckets,
                max_position=max_position,
                embedding=np.zeros((2 * span, 2), np.float32),
                key_projection=np.zeros((heads, 2, 2), np.float32),
                query_projection=np.zeros((heads, 2, 2), np.float32),
            )
            .lower(max_position)
            .fields
        )
        self.first = int(fields["first"])
        self._hold("row_of", fields["row_of"])
        self.repeats = bool(fields["repeats_ahead"]), bool(fields["repeats_behind"])
        self.embedding = nn.Parameter(torch.randn(2 * span, model_dim) * 0.02)
        for name in ("key", "query"):
            weight = torch.randn(heads, head_dim, model_dim) * model_dim**-0.5
            self.register_parameter(f"{name}_projection", nn.Parameter(weight))
            self.register_parameter(f"{name}_projection_bias", nn.Parameter(torch.zeros(heads, head_dim)))

    def form(self, queries: int, keys: int) -> ops.Content:
        def rows(weight: Tensor, bias: Tensor) -> Tensor:
            return torch.einsum("rm,hdm->hrd", self.embedding, weight) + bias[:, None]

        return ops.Content(
            self.row_of,
            self.first,
            query_rows=rows(self.key_projection, self.key_projection_bias),
            key_rows=rows(self.query_projection, self.query_projection_bias),
            repeats_ahead=self.repeats[0],
            repeats_behind=self.repeats[1],
        )

    def default_scale(self, head_dim: int) -> float:
        return (3 * head_dim) ** -0.5


class Tupe(Bias):
    """TUPE: products of projected absolute positions, separate from content, whose terms of the first token are learned
    (Ke et al. 2020, arXiv 2006.15595). `relative`: also T5's buckets (TUPE-R)."""

    causal = False

    def __init__(
        self,
        heads: int,
        head_dim: int,
        model_dim: int,
        positions: int,
        *,
        reset: bool = True,
        relative: bool = False,
        buckets: int = 32,
        last_distance: int = 128,
    ):
        super().__init__()
        self.last_distance = last_distance
        self.embedding = nn.Parameter(torch.randn(positions, model_dim) * 0.02)
        for name in ("query", "key"):
            weight = torch.randn(heads, head_dim, model_dim) * model_dim**-0.5
            self.register_parameter(f"{name}_projection", nn.Parameter(weight))
            self.register_parameter(f"{name}_projection_bias", nn.Parameter(torch.zeros(heads, head_dim)))
        self.relative = nn.Parameter(torch.randn(buckets, heads) * 0.02) if relative else None
        self.from_cls = nn.Parameter(torch.zeros(heads)) if reset else None
        self.to_cls = nn.Parameter(torch.zeros(heads)) if reset else None

    def form(self, queries: int, keys: int) -> ops.Tupe:
        return ops.Tupe(
            self.embedding,
            self.query_projection,
            self.key_projection,
            self.query_projection_bias,
            self.key_projection_bias,
            self.relative,
            self.from_cls,
            self.to_cls,
            self.last_distance,
        )

    def default_scale(self, head_dim: int) -> float:
        return (2 * head_dim) ** -0.5


class SwinBias(Bias):
    """Swin V2's continuous bias of a window of height x width patches: 16 sigmoid of a network of the log-spaced offset
    (Liu et al. 2021, arXiv 2111.09883)."""

    causal = False

    def __init__(
        self,
        heads: int,
        *,
        height: int,
        width: int,
        pretrained_height: int = 0,
        pretrained_width: int = 0,
        hidden: int = 512,
    ):
        super().__init__()
        self.window = height, width, pretrained_height, pretrained_width
        self.w1, self.b1 = nn.Parameter(torch.randn(hidden, 2)), nn.Parameter(torch.zeros(hidden))
        self.w2 = nn.Parameter(torch.randn(heads, hidden) * hidden**-0.5)

    def form(self, queries: int, keys: int) -> ops.Swin:
        return ops.Swin(self.w1, self.b1, self.w2, *self.window)


class ForgettingGate(nn.Module):
    """Forgetting gate, or data-dependent ALiBi: the sum over the tokens after the key, to the query, of
    ln sigmoid(weight . x + bias) (Lin et al. 2025, arXiv 2503.02130).

        out = ropewalk.torch.attention(q, k, v, bias=gate(x))    # x [batch, keys, model_dim], the layer's input
    """

    def __init__(self, heads: int, model_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, model_dim) * model_dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads))

    def forward(self, x: Tensor) -> ops.Gates:
        """x: [batch, tokens, model_dim], the inputs of the layer."""
        return ops.Gates(nn.functional.logsigmoid(nn.functional.linear(x, self.weight, self.bias).float()))


class CoPE(Bias):
    """CoPE: the position of a key is the sum of gates between key and query, which depend on the query (Golovneva et al.
    2024, arXiv 2405.18719). `rows` positions; `per_head`: each head has rows of its own."""

    def __init__(self, heads: int, head_dim: int, rows: int, *, per_head: bool = False):
        super().__init__()
        self.position_rows = nn.Parameter(torch.zeros(heads if per_head else 1, rows, head_dim))

    def form(self, queries: int, keys: int) -> ops.Contextual:
        return ops.Contextual(self.position_rows)
