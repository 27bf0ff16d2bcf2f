"""The biases of attention as tensors, and how the kernel takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ropewalk._attention import farthest
from ropewalk.torch._shared import functorch, refuse


class Slopes(NamedTuple):
    """bias = -behind[head] distance; for keys after the query -ahead[head] |distance| (not needed when causal)."""

    behind: Tensor  # [heads]
    ahead: Tensor | None = None


class Distances(NamedTuple):
    """bias = values[head][distance - first]; beyond an end that repeats, that end's value."""

    values: Tensor  # [heads, columns]
    first: int = 0
    repeats_ahead: bool = False  # below `first`
    repeats_behind: bool = False


class Content(NamedTuple):
    """Products with rows that the distance selects, r = row_of[distance - first]:

    bias = scale ((q_i + query_bias) . query_rows[r] + k_j . key_rows[r] + key_bias . k_j), and
    out_i += sum of weight(i, j) value_rows[r]. A row list that is None has no term.
    """

    row_of: Tensor  # int32 [columns]
    first: int
    query_rows: Tensor | None = None  # [1 or heads, rows, head_dim], as all rows
    key_rows: Tensor | None = None
    value_rows: Tensor | None = None
    query_bias: Tensor | None = None  # [heads, head_dim]
    key_bias: Tensor | None = None  # [heads, head_dim]
    repeats_ahead: bool = False
    repeats_behind: bool = False


class Gates(NamedTuple):
    """bias = sum of log_gates over the tokens after the key up to the query (forgetting gate). Causal."""

    log_gates: Tensor  # [batch, keys, heads], or [keys, heads] where queries have no batch


class Contextual(NamedTuple):
    """CoPE: position_rows at the sum of gates between key and query, times the query. Causal."""

    position_rows: Tensor  # [1 or heads, rows, head_dim]


class Fire(NamedTuple):
    """FIRE (arXiv 2310.04418): f(ln(c d + 1) / ln(c max(threshold, query) + 1)) with f a network of one layer."""

    w1: Tensor  # [width]
    b1: Tensor  # [width]
    w2: Tensor  # [heads, width]
    b2: Tensor  # [heads]
    c: Tensor  # above 0, one number
    threshold: Tensor  # above 0, one number


class Tupe(NamedTuple):
    """TUPE (arXiv 2006.15595): products of projected positions, a T5 table (TUPE-R) and values of the first token."""

    embedding: Tensor  # [positions, model_dim]
    query_projection: Tensor  # [heads, head_dim, model_dim]
    key_projection: Tensor
    query_projection_bias: Tensor | None = None  # [heads, head_dim]
    key_projection_bias: Tensor | None = None
    relative: Tensor | None = None  # [buckets, heads]
    from_cls: Tensor | None = None  # [heads]
    to_cls: Tensor | None = None
    last_distance: int = 128
    bidirectional: bool = True


class Swin(NamedTuple):
    """Swin V2's continuous bias (arXiv 2111.09883) of a window of height x width positions."""

    w1: Tensor  # [hidden, 2]
    b1: Tensor  # [hidden]
    w2: Tensor  # [heads, hidden]
    height: int
    width: int
    pretrained_height: int = 0  # 0: as height
    pretrained_width: int = 0


# The numbers of BiasKind in bias_pointers.cc.
KINDS = {Slopes: 1, Distances: 2, Content: 3, Gates: 4, Contextual: 5, Fire: 6, Tupe: 7, Swin: 8}


def lower(bias: Any) -> tuple[int, list[Tensor | None], list[int]]:
    """Kind, tensors in the order of the kernel's struct, and whole numbers (never none: pytrees want one)."""
    match bias:
        case None:
            return 0, [], [0]
        case Slopes():
            return 1, [bias.behind, bias.ahead], [0]
        case Distances():
            return 2, [bias.values], [bias.first, int(bias.repeats_ahead), int(bias.repeats_behind)]
        case Content():
            return (
                3,
                [bias.row_of, bias.query_rows, bias.key_rows, bias.value_rows, bias.query_bias, bias.key_bias],
                [bias.first, int(bias.repeats_ahead), int(bias.repeats_behind)],
            )
        case Gates():
            return 4, [bias.log_gates], [0]
        case Contextual():
            return 5, [bias.position_rows], [0]
        case Fire():
            return 6, [bias.w1, bias.b1, bias.w2, bias.b2, bias.c, bias.threshold], [0]
        case Tupe():
            return (
                7,
                [
                    bias.embedding,
                    bias.query_projection,
                    bias.query_projection_bias,
                    bias.key_projection,
                    bias.key_projection_bias,
                    bias.relative,
                    bias.from_cls,
                    bias.to_cls,
                ],
                [bias.last_distance, int(bias.bidirectional)],
            )
        case Swin():
            return (
                8,
                [bias.w1, bias.b1, bias.w2],
                [bias.height, bias.width, bias.pretrained_height, bias.pretrained_width],
            )
    raise refuse(
        f"bias: expected one of {', '.join(k.__name__ for k in KINDS)} of ropewalk.torch, or a module of "
        f"ropewalk.nn, got {type(bias).__name__}"
    )


def _expect(name: str, tensor: Tensor, shape: Sequence[int | None]) -> None:
    if tensor.dim() != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
        wanted = ", ".join("*" if n is None else str(n) for n in shape)
        raise refuse(f"bias: {name}: expected [{wanted}], got {list(tensor.shape)}")


def check_bias(kind: int, tensors: list[Tensor], q: Tensor, k: Tensor) -> None:
    """Shapes, so that the kernel may trust them. Absent tensors have no elements."""
    batch, _, heads, dim = q.shape

    def optional(name, tensor, shape):
        if tensor.numel():
            _expect(name, tensor, shape)

    counts = (0, 2, 1, 6, 1, 1, 6, 8, 3)
    if not 0 <= kind < len(counts) or len(tensors) != counts[kind]:
        raise refuse(f"bias: kind {kind} does not have {len(tensors)} tensors")
    for i, t in enumerate(tensors):
        if t.dtype != (torch.int32 if kind == 3 and i == 0 else torch.float32):
            raise refuse(f"bias: tensor {i}: expected float32, or int32 for row_of, got {t.dtype}")
    match kind:
        case 1:
            _expect("behind", tensors[0], (heads,))
            optional("ahead", tensors[1], (heads,))
        case 2:
            _expect("values", tensors[0], (heads, None))
        case 3:
            _expect("row_of", tensors[0], (None,))
            names = ("query_rows", "key_rows", "value_rows")
            known = [t for t in tensors[1:4] if t.numel()]
            for name, t in zip(names, tensors[1:4]):
                optional(name, t, (known[0].shape[0], known[0].shape[1], dim) if known else ())
            if known and known[0].shape[0] not in (1, heads):
                raise refuse(f"bias: rows: expected 1 or {heads} tables, got {known[0].shape[0]}")
            optional("query_bias", tensors[4], (heads, dim))
            optional("key_bias", tensors[5], (heads, dim))
        case 4:
            _expect("log_gates", tensors[0], (batch, k.shape[1], heads))
        case 5:
            _expect("position_rows", tensors[0], (None, None, dim))
            if tensors[0].shape[0] not in (1, heads):
                raise refuse(f"bias: position_rows: expected 1 or {heads} tables, got {tensors[0].shape[0]}")
        case 6:
            width = tensors[0].shape[0] if tensors[0].dim() == 1 else None
            for name, t, shape in zip(("w1", "b1", "w2", "b2"), tensors, ((width,), (width,), (heads, width), (heads,))):
                _expect(name, t, shape)
            if tensors[4].numel() != 1 or tensors[5].numel() != 1:
                raise refuse("bias: c and threshold: expected one number each")
        case 7:
            model = tensors[0].shape[-1]
            _expect("embedding", tensors[0], (None, model))
            for name, i in (("query_projection", 1), ("key_projection", 3)):
                _expect(name, tensors[i], (heads, dim, model))
                optional(name + "_bias", tensors[i + 1], (heads, dim))
            optional("relative", tensors[5], (None, heads))
            optional("from_cls", tensors[6], (heads,))
            optional("to_cls", tensors[7], (heads,))
        case 8:
            _expect("w1", tensors[0], (None, 2))
            _expect("b1", tensors[1], (tensors[0].shape[0],))
            _expect("w2", tensors[2], (heads, tensors[0].shape[0]))


def kernel_numbers(kind: int, tensors: list[Tensor], numbers: list[int], q: Tensor, k: Tensor) -> list[int]:
    """The whole numbers of the kernel's struct, with the sizes that the tensors have."""
    if len(numbers) != (1, 1, 3, 3, 1, 1, 1, 2, 4)[kind]:
        raise refuse(f"bias: kind {kind} does not have {len(numbers)} numbers")
    match kind:
        case 2:
            return [numbers[0], tensors[0].shape[1], *numbers[1:]]
        case 3:
            rows = next((t for t in tensors[1:4] if t.numel()), None)
            tables, count = (1, 0) if rows is None else rows.shape[:2]
            return [numbers[0], count, q.shape[3], tables, *numbers[1:]]
        case 5:
            return [tensors[0].shape[1], tensors[0].shape[2], tensors[0].shape[0]]
        case 6:
            return [min(max(q.shape[1], k.shape[1]), 1 << 20)]
        case 7:
            return [*tensors[0].shape, q.shape[3], tensors[5].shape[0] if tensors[5].numel() else 0, *numbers]
        case _:
            return list(numbers)


def _distance_of(q: Tensor, k: Tensor, query_positions: Tensor | None, key_positions: Tensor | None, causal: bool) -> int:
    """The largest of a call, for which a bias is lowered."""
    tokens, keys = q.shape[1], k.shape[1]
    given = [None if x is None else x.detach().cpu() for x in (query_positions, key_positions)]
    known = [x for x in given if x is not None]
    if not known or any(x.numel() == 0 for x in known):
        return max(tokens, keys)
    count = max(len(x) if x.dim() == 2 else 1 for x in known)
    each = (list(x) if x is not None and x.dim() == 2 and len(x) == count else [x] * count for x in given)
    return farthest(*each, tokens, keys, causal)


def counts_of(
    q: Tensor, k: Tensor, query_positions: Tensor | None, key_positions: Tensor | None, causal: bool
) -> tuple[int, int]:
    """Tokens and keys for which a module makes its form: more than there are, where positions lie farther apart. A compiled
    call and vmap do not read them."""
    tokens, keys = q.shape[1], k.shape[1]
    given = [x for x in (query_positions, key_positions) if x is not None]
    recorded = torch.compiler.is_compiling() or functorch() is not None or any(type(x) is not Tensor or x.is_meta for x in given)
    if recorded or not given:
        return tokens, keys
    reach = _distance_of(q, k, query_positions, key_positions, causal) + 1
    if reach > 1 << 30:
        raise refuse(f"positions: expected distances below 2^30, got {reach - 1}")
    return max(tokens, reach), max(keys, reach)


def of_arrays(
    bias: Any,
    q: Tensor,
    k: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    causal: bool,
    reach: int = 0,
) -> Any:
    """A bias of ropewalk, which holds arrays, or its form. reach: of the distances, where it is known otherwise."""

    def tensor(x):
        return None if x is None else torch.tensor(np.asarray(x), device=q.device)

    if hasattr(bias, "lower"):
        if type(bias).__name__ == "Fire":
            parts = [tensor(bias.parameters[n]) for n in ("w1", "b1", "w2", "b2")]
            return Fire(*parts, *(torch.tensor([x], dtype=torch.float32, device=q.device) for x in (bias.c, bias.threshold)))
        if type(bias).__name__ == "SwinBias":
            return Swin(
                *(tensor(bias.parameters[n]) for n in ("w1", "b1", "w2")),
                bias.height,
                bias.width,
                bias.pretrained_height,
                bias.pretrained_width,
            )
        if type(bias).__name__ == "Tupe":
            names = ("embedding", "query_projection", "key_projection", "query_projection_bias", "key_projection_bias")
            made = Tupe(
                *(tensor(bias.parameters[n]) for n in names),
                None,
                tensor(bias.parameters["from_cls"]),
                tensor(bias.parameters["to_cls"]),
            )
            t5 = bias.relative
            return (
                made
                if t5 is None
                else made._replace(relative=tensor(t5.embedding), last_distance=t5.last_distance, bidirectional=t5.bidirectional)
            )
        bias = bias.lower(reach or _distance_of(q, k, query_positions, key_positions, causal))
    f = bias.fields
    match bias.kind:
        case "slope":
            return Slopes(tensor(f["behind"]), tensor(f["ahead"]))
        case "distance":
            return Distances(tensor(f["values"]), f["first"], f["repeats_ahead"], f["repeats_behind"])
        case "content":
            names = ("query_rows", "key_rows", "value_rows", "query_bias", "key_bias")
            return Content(
                tensor(f["row_of"]), f["first"], *(tensor(f[n]) for n in names), f["repeats_ahead"], f["repeats_behind"]
            )
        case "gates":
            return Gates(tensor(f["log_gates"]))
        case "contextual":
            return Contextual(tensor(f["position_rows"]))
    raise refuse(f"bias: {bias!r} has no form in ropewalk.torch", "unsupported")
