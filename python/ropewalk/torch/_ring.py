"""Attention over the ranks of a `torch.distributed` group: ring attention (Liu et al. 2023, arXiv 2310.01889) with the zig-zag
deal of causal work (Brandon et al. 2023, arXiv 2311.09431), as `ropewalk/ranks/ring.h` has it. docs/ranks.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ropewalk.torch._attention import prepared
from ropewalk.torch._attention_op import Settings, attention_op
from ropewalk.torch._flex import flex_attention
from ropewalk.torch._shared import refuse

_UNIT = 64  # tokens; kRotatedBlock of attention.h
_ALONE = {  # kinds of a bias whose scores depend on what lies between query and key, or on a window of two axes
    4: "Gates (the forgetting gate) sums over the tokens between query and key",
    5: "Contextual (CoPE) sums over the tokens between query and key",
    8: "Swin has a window of pixels",
}


class Ring:
    """A sequence of `tokens` tokens dealt over the ranks of a group, for `ring_attention`.

    It is cut into 2 N runs, multiples of 64 tokens long but for the last one, and rank r of N has runs r and 2 N - 1 - r, in
    this order: causal work is the same on all ranks. A rank may have one run, or none, where the sequence is short.

    group: of torch.distributed; None: all ranks. positions: int64 [tokens], the same on every rank and not decreasing; by
        default 0, 1, .. They are those of the whole sequence. Position maps want consecutive ones from a multiple of 64 on.
    """

    def __init__(self, tokens: int, *, group: Any = None, positions: Tensor | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise refuse("Ring: expected torch.distributed with ranks; call torch.distributed.init_process_group first")
        if tokens < 1:
            raise refuse(f"Ring: tokens: expected 1 or more, got {tokens}")
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise refuse("Ring: group: this process is no rank of it")
        self.tokens = int(tokens)
        each = -(-self.tokens // (2 * self.size * _UNIT)) * _UNIT
        ends = [min(self.tokens, i * each) for i in range(2 * self.size + 1)]
        self._runs = list(zip(ends, ends[1:]))
        if positions is None:
            positions = torch.arange(self.tokens)
        elif positions.dtype != torch.int64 or positions.shape != (self.tokens,):
            raise refuse(f"Ring: positions: expected int64 [{self.tokens}], got {positions.dtype} {list(positions.shape)}")
        elif bool((positions.diff() < 0).any()):
            raise refuse("Ring: positions: expected numbers that do not decrease")
        self._all = positions.cpu()
        self.reach = int(self._all[-1]) - int(self._all[0]) + 1  # one more than the largest distance

    def runs(self, rank: int | None = None) -> list[tuple[int, int]]:
        """The tokens [begin, end) that a rank has, by default this one: two runs, of which either may be empty."""
        rank = self.rank if rank is None else rank
        return [self._runs[rank], self._runs[2 * self.size - 1 - rank]]

    def count(self, rank: int | None = None) -> int:
        """How many tokens a rank has, by default this one."""
        return sum(end - begin for begin, end in self.runs(rank))

    @property
    def positions(self) -> Tensor:
        """Of this rank's tokens, int64 on the CPU."""
        return self.deal(self._all, dim=0)

    def deal(self, x: Tensor, dim: int = 1) -> Tensor:
        """This rank's part of a tensor that has all tokens in dimension `dim`."""
        if x.shape[dim] != self.tokens:
            raise refuse(f"Ring: deal: expected {self.tokens} tokens in dimension {dim}, got {list(x.shape)}")
        return torch.cat([x.narrow(dim, begin, end - begin) for begin, end in self.runs()], dim)

    def gather(self, x: Tensor, dim: int = 1) -> Tensor:
        """The whole tensor on every rank, from the part of each; without gradient."""
        if x.shape[dim] != self.count():
            raise refuse(f"Ring: gather: expected {self.count()} tokens in dimension {dim}, got {list(x.shape)}")
        mine = x.detach().movedim(dim, 0)
        most = max(self.count(r) for r in range(self.size))
        padded = mine.new_zeros((most, *mine.shape[1:]))
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self.group)
        whole = mine.new_empty((self.tokens, *mine.shape[1:]))
        for rank, part in enumerate(parts):
            at = 0
            for begin, end in self.runs(rank):
                whole[begin:end] = part[at : at + end - begin]
                at += end - begin
        return whole.movedim(0, dim)

    def shift(self, out: Tensor, into: Tensor, tag: int) -> list[Any]:
        """Begins to send `out` to the next rank and to receive `into` from the one before."""

        def peer(step: int) -> int:
            rank = (self.rank + step) % self.size
            return rank if self.group is None else dist.get_global_rank(self.group, rank)

        both = [(dist.isend, out, 1), (dist.irecv, into, -1)]
        ops = [dist.P2POp(op, x, peer(step), self.group, tag) for op, x, step in both if x.numel()]
        return dist.batch_isend_irecv(ops) if ops else []


class _Block(NamedTuple):
    """The keys and values of a rank, in the memory in which they travel."""

    owner: int
    memory: Tensor
    k: Tensor
    v: Tensor


def _block(owner: int, tokens: int, k: Tensor, v: Tensor) -> _Block:
    """Memory for the keys and values of a rank with so many tokens, as k and v are otherwise."""
    shapes = [(x.shape[0], tokens, *x.shape[2:]) for x in (k, v)]
    of_k, of_v = (torch.Size(shape).numel() for shape in shapes)
    memory = k.new_empty(of_k + of_v)
    return _Block(owner, memory, memory[:of_k].view(shapes[0]), memory[of_k:].view(shapes[1]))


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()


@contextlib.contextmanager
def _round(ring: Ring, k: Tensor, v: Tensor) -> Iterator[Iterator[_Block]]:
    """The block of each rank, own first and then those of the ranks before, the next one on its way meanwhile. What is on its
    way when a rank gives up arrives, so that the next call finds the ranks as they were."""
    with contextlib.closing(_blocks(ring, k, v)) as blocks:
        yield blocks


def _blocks(ring: Ring, k: Tensor, v: Tensor) -> Iterator[_Block]:
    here = _block(ring.rank, k.shape[1], k, v)
    here.k.copy_(k)
    here.v.copy_(v)
    for step in range(ring.size):
        works = []
        if step + 1 < ring.size:
            owner = (here.owner - 1) % ring.size
            coming = _block(owner, ring.count(owner), k, v)
            works = ring.shift(here.memory, coming.memory, 0)
        try:
            yield here
        finally:
            _wait(works)
        if step + 1 < ring.size:
            here = coming


class _Piece(NamedTuple):
    """A run of queries and a run of keys that meet."""

    q: slice
    k: slice
    settings: Settings


def _pieces(ring: Ring, owner: int, s: Settings) -> Any:
    q_at = 0
    for q_begin, q_end in ring.runs():
        queries, q = ring._all[q_begin:q_end], slice(q_at, q_at + q_end - q_begin)
        q_at = q.stop
        k_at = 0
        for k_begin, k_end in ring.runs(owner):
            keys, k = ring._all[k_begin:k_end], slice(k_at, k_at + k_end - k_begin)
            k_at = k.stop
            if q_begin == q_end or k_begin == k_end or not _meet(queries, keys, s):
                continue
            at = s.inv_freq if s.inv_freq is not None else s.bias[0] if s.bias else None
            device = ring._all.device if at is None else at.device
            hot = None if s.temperatures is None else s.temperatures[..., q]
            yield _Piece(
                q,
                k,
                s._replace(query_positions=queries.to(device), key_positions=keys.to(device), temperatures=hot, sinks=None),
            )


def _meet(queries: Tensor, keys: Tensor, s: Settings) -> bool:
    """Whether any of the queries sees any of the keys."""
    if s.causal and keys[0] > queries[-1]:
        return False
    return not s.window or bool(queries[0] - keys[-1] < s.window and keys[0] - queries[-1] < s.window)


def _has_kernels(x: Tensor) -> bool:
    return x.is_cpu


def _score(q: Tensor, k: Tensor, v: Tensor, s: Settings) -> tuple[Tensor, Tensor]:
    return attention_op(q, k, v, *s) if _has_kernels(q) else flex_attention(q, k, v, *s)


def _add(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Merges normalised rows into normalised rows, in place; lse is float64."""
    whole = torch.logaddexp(lse, more_lse.double())
    seen = whole.isneginf().logical_not()
    old = torch.where(seen, (lse - whole).exp(), 0.0)
    new = torch.where(seen, (more_lse - whole).exp(), 0.0)
    out.mul_(old[..., None].to(out.dtype)).add_(more.to(out.dtype) * new[..., None].to(out.dtype))
    lse.copy_(whole)


def _forward(ring: Ring, q: Tensor, k: Tensor, v: Tensor, s: Settings) -> tuple[Tensor, Tensor]:
    out = q.new_zeros((*q.shape[:3], v.shape[3]), dtype=torch.float32)
    lse = q.new_full(q.shape[:3], -torch.inf, dtype=torch.float64)
    with _round(ring, k, v) as blocks:
        for block in blocks:
            for piece in _pieces(ring, block.owner, s):
                more = _score(q[:, piece.q], block.k[:, piece.k], block.v[:, piece.k], piece.settings)
                _add(out[:, piece.q], lse[:, piece.q], *more)
    if s.sinks is not None:
        whole = torch.logaddexp(lse, s.sinks.double().expand_as(lse))
        out *= (lse - whole).exp()[..., None].to(out.dtype)
        lse = whole
    return out, lse.float()


def _piece_backward(d_out, out, lse, q, k, v, s: Settings, bias_wanted: bool) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """What a piece adds to the gradients; `out` and `lse` are those of all keys, by which the weights are known."""
    if _has_kernels(q):
        d_q, d_k, d_v, _, d_bias = torch.ops.ropewalk.attention_backward(d_out, out, lse, q, k, v, *s, bias_wanted)
        return d_q, d_k, d_v, d_bias
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        bias = [b.detach().requires_grad_(bias_wanted and b.is_floating_point()) for b in s.bias]
        part, part_lse = flex_attention(*leaves, *s._replace(bias=bias))
    weight = torch.where(lse.isneginf(), 0.0, (part_lse.detach() - lse).exp())
    d_part = d_out * weight[..., None]
    d_lse = weight * (d_out * (part.detach() - out)).sum(-1)
    known = [*leaves, *(b for b in bias if b.requires_grad and b.numel())]
    found = torch.autograd.grad((part, part_lse), known, (d_part.to(part.dtype), d_lse), allow_unused=True)
    found = [torch.zeros_like(x) if g is None else g for x, g in zip(known, found)]
    rest = iter(found[3:])
    return *found[:3], [next(rest) if b.requires_grad and b.numel() else b.new_empty(0) for b in bias]


def _backward(ring: Ring, d_out, out, lse, q, k, v, s: Settings, bias_wanted: bool):
    """Gradients of k and v go round with them, and one step further, home."""
    d_q = torch.zeros_like(q)
    d_bias = [torch.zeros_like(b, dtype=torch.float64) if bias_wanted and b.is_floating_point() else None for b in s.bias]
    coming, works = None, []
    with _round(ring, k, v) as blocks:
        for block in blocks:
            mine = _block(block.owner, block.k.shape[1], k, v)
            mine.memory.zero_()
            for piece in _pieces(ring, block.owner, s):
                rows = [x[:, piece.q] for x in (d_out, out, lse, q)]
                more = _piece_backward(*rows, block.k[:, piece.k], block.v[:, piece.k], piece.settings, bias_wanted)
                d_q[:, piece.q] += more[0]
                mine.k[:, piece.k] += more[1]
                mine.v[:, piece.k] += more[2]
                for total, one in zip(d_bias, more[3]):
                    if total is not None and one.numel():
                        total += one
            if coming is not None:  # what the ranks before found for this block
                _wait(works)
                mine.memory.add_(coming.memory)
            if ring.size == 1:
                return d_q, mine.k, mine.v, d_bias
            owner = (block.owner - 1) % ring.size
            sent = mine  # kept until it has gone
            coming = _block(owner, ring.count(owner), k, v)
            works = ring.shift(sent.memory, coming.memory, 1)
    _wait(works)
    return d_q, coming.k, coming.v, d_bias


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: Ring, s: Settings, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *bias: Tensor) -> Any:
        s = s._replace(sinks=sinks, bias=list(bias))
        out, lse = _forward(ring, q, k, v, s)
        ctx.save_for_backward(q, k, v, out, lse, sinks, *bias)
        ctx.ring, ctx.settings = ring, s._replace(sinks=None, bias=None)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _of_lse: Any) -> Any:
        q, k, v, out, lse, sinks, *bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad[6:]
        s = ctx.settings._replace(bias=bias)
        d_out = d_out.float()
        d_q, d_k, d_v, d_bias = _backward(ctx.ring, d_out, out, lse, q, k, v, s, any(wanted))
        d_sinks = None
        if sinks is not None:
            share = (sinks - lse).exp() * (d_out * out).sum(-1)
            d_sinks = -share.double().sum((0, 1)).float()
        d_bias = [d.to(b.dtype) if w and d is not None else None for d, b, w in zip(d_bias, bias, wanted)]
        return None, None, d_q, d_k, d_v, d_sinks, *d_bias


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ring: Ring,
    *,
    causal: bool = True,
    bias: Any = None,
    remap: Any = None,
    rotation: Any = None,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
    temperatures: Any = None,
    return_lse: bool = False,
) -> Any:
    """`attention` of one sequence whose tokens are dealt over ranks: q, k and v are this rank's (`Ring.deal`), and so is what
    it returns. All ranks make the same calls in the same order.

    Keys and values go round in a ring, each block on its way to the next rank while it is scored; what a query finds in the
    blocks is merged by log-sum-exp, own keys first, then those of the rank before, and so on. So the result is that of
    `attention` up to rounding, and the same bits from run to run. In the backward pass gradients of k and v travel with them.
    Those of what all ranks have alike (bias, sinks) are of this rank's queries: add them over ranks, as of any such parameter.

    ring: how the sequence is dealt, and its positions, which the bias, the window, the rotation and the map read.
    bias: as of `attention`, where scores depend on positions or on the two tokens alone. Gates, Contextual and Swin are refused
        ("unsupported"). temperatures: [tokens] or [batch, tokens] of this rank, or a `ropewalk.Temperature`.
    Other arguments are those of `attention`. Tensors may be on any device that the group's backend sends; off the CPU blocks
    are scored by FlexAttention, without position maps. `torch.compile` breaks its graph here.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() not in (3, 4) or x.shape[-3] != ring.count():
            raise refuse(
                f"ring_attention: {name}: expected [batch, {ring.count()}, heads, head_dim], the tokens of rank {ring.rank} of "
                f"{ring.size}, or all without batch, got {list(x.shape)}"
            )
    positions = ring.positions.to(q.device)
    p = prepared(
        q,
        k,
        v,
        causal=causal,
        bias=bias,
        remap=remap,
        rotation=rotation,
        scale=scale,
        window=window,
        soft_cap=soft_cap,
        sinks=sinks,
        temperatures=temperatures,
        query_positions=positions,
        key_positions=positions,
        reach=ring.reach,
    )
    if p.settings.kind in _ALONE:
        raise refuse(f"ring_attention: bias: {_ALONE[p.settings.kind]}, which is not exchanged between ranks", "unsupported")
    if p.settings.inv_freq is not None and p.settings.inv_freq.requires_grad:
        raise refuse("ring_attention: frequencies have no gradient through a position map; detach them", "unsupported")
    if remap is not None and not _has_kernels(q):
        raise refuse("ring_attention: remap: position maps over ranks are computed on the CPU alone", "unsupported")
    s = p.settings._replace(bias=None, sinks=None)
    if _has_kernels(q):
        q, k, v = p.q.float(), p.k.float(), p.v.float()
    else:
        q, k, v = p.q, p.k.to(p.q.dtype), p.v.to(p.q.dtype)
    out, lse = _RingAttention.apply(ring, s, q, k, v, sinks, *p.settings.bias)
    results = [out.to(p.dtype), lse.detach()]
    if p.single:
        results = [x.squeeze(0) for x in results]
    return tuple(results) if return_lse else results[0]
