"""What a rank of test_ring.py does: attention over ranks beside attention of one process. Rank 0 tells how far apart they are."""

import sys

import torch
import torch.distributed as dist
from ranks_cases import tell

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn
from ropewalk.torch import _ring

HEADS, KV_HEADS, DIM, TOKENS = 4, 2, 32, 500
FAR = 10**6
ROTATION = rw.rotation(DIM, layout="half")
MAPS = [
    rw.ReRoPE(64),
    rw.LeakyReRoPE(64, 4),
    rw.SelfExtend(64, 4),
    rw.DualChunk(96, 128),
    rw.AttentionSinks(4, 60),
    rw.STRING(64, 16),
    rw.LaMPE(64, 150, 32, TOKENS),
    rw.DPE(64),
]
CASES = {
    "plain": {},
    "plain far": {"first": FAR},
    "short": {"tokens": 70},  # some ranks have one run, or none
    "one token": {"tokens": 1},
    "both directions": {"causal": False},
    "narrow values": {"value_dim": 24},
    "window": {"window": 100},
    "window, both directions": {"window": 100, "causal": False},
    "soft cap": {"soft_cap": 5.0},
    "sinks": {"sinks": True},
    "log-n": {"temperatures": rw.Temperature("log-n", period=50)},
    "rotation": {"rotation": ROTATION},
    "rotation far": {"rotation": ROTATION, "first": FAR},
    "frequencies": {"rotation": rt.frequencies(ROTATION)},
    "alibi": {"bias": lambda: nn.Alibi(HEADS, learned=True)},
    "alibi far": {"bias": lambda: nn.Alibi(HEADS), "first": FAR},
    "alibi of arrays": {"bias": lambda: rw.Alibi(HEADS)},
    "t5": {"bias": lambda: nn.T5Bias(HEADS)},
    "t5, both directions": {"bias": lambda: nn.T5Bias(HEADS, bidirectional=True), "causal": False},
    "kerple": {"bias": lambda: nn.Kerple(HEADS)},
    "kerple far": {"bias": lambda: nn.Kerple(HEADS), "first": FAR},
    "kerple of arrays": {"bias": lambda: rw.Kerple(HEADS, r1=[1] * HEADS, r2=[1] * HEADS), "first": FAR},
    "sandwich": {"bias": lambda: nn.Sandwich(HEADS)},
    "fire": {"bias": lambda: nn.Fire(HEADS)},
    "fire far": {"bias": lambda: nn.Fire(HEADS), "first": FAR},
    "shaw": {"bias": lambda: nn.Shaw(HEADS, DIM, left=16, causal=True)},
    "transformer-xl": {"bias": lambda: nn.TransformerXL(HEADS, DIM, 16)},
    "deberta": {"bias": lambda: nn.DebertaBias(HEADS, DIM, 16), "causal": False},
    "tupe": {"bias": lambda: nn.Tupe(HEADS, DIM, 16, TOKENS, relative=True), "causal": False},
    **{m.name: {"rotation": ROTATION, "remap": m} for m in MAPS},
    "rerope far": {"rotation": ROTATION, "remap": rw.ReRoPE(64), "first": FAR},
    "rerope with alibi": {"rotation": ROTATION, "remap": rw.ReRoPE(64), "bias": lambda: nn.Alibi(HEADS, learned=True)},
    "flex": {"flex": True, "rotation": ROTATION, "sinks": True, "bias": lambda: nn.Kerple(HEADS)},
    "flex, window": {"flex": True, "window": 100},
}


def distance(a, b, size=None):
    return float((a - b).abs().max() / (b if size is None else size).abs().max().clamp_min(1e-30))


def compute(tokens, first, value_dim, bias, sinks, causal, flex, **settings):
    """(what one process finds, what the ranks find): outputs, gradients of q, k, v, and of what is learned."""
    torch.manual_seed(1)
    whole = [
        torch.randn(1, tokens, heads, dim).requires_grad_()
        for heads, dim in ((HEADS, DIM), (KV_HEADS, DIM), (KV_HEADS, value_dim))
    ]
    upstream = torch.randn(1, tokens, HEADS, value_dim)
    made = bias() if bias else None
    learned = list(made.parameters()) if isinstance(made, torch.nn.Module) else []
    settings["sinks"] = torch.randn(HEADS).requires_grad_() if sinks else None
    learned += [settings["sinks"]] if sinks else []
    settings |= {"causal": causal, "scale": made.default_scale(DIM) if made is not None else None}
    ring = rt.Ring(tokens, positions=torch.arange(tokens) + first)
    at = ring._all
    form = made.form(tokens, tokens) if isinstance(made, torch.nn.Module) else made
    one = rt.attention(*whole, bias=form, query_positions=at, key_positions=at, **settings)
    wanted = torch.autograd.grad((one * upstream).sum(), whole + learned)
    mine = [ring.deal(x.detach()).clone().requires_grad_() for x in whole]
    _ring._has_kernels = (lambda _: False) if flex else (lambda x: x.is_cpu)
    out, lse = rt.ring_attention(*mine, ring, bias=made, return_lse=True, **settings)
    got = torch.autograd.grad((out * ring.deal(upstream)).sum(), mine + learned)
    parts = [ring.gather(x) for x in (out, *got[:3])]
    for gradient in got[3:]:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        parts.append(gradient)
    return (one, *wanted), parts, lse


def measure(name, tokens=TOKENS, first=0, value_dim=DIM, bias=None, sinks=False, causal=True, flex=False, **settings):
    given = {"tokens": tokens, "first": first, "value_dim": value_dim, "bias": bias, "sinks": sinks, "causal": causal}
    wanted, got, lse = compute(**given, flex=flex, **settings)
    _, again, lse_again = compute(**given, flex=flex, **settings)
    # What moves all scores of a query alike has no gradient: noise is measured by the largest of all learned numbers.
    size = torch.cat([x.flatten() for x in wanted[4:]]) if len(wanted) > 4 else None
    errors = [distance(a, b, size if i > 3 else None) for i, (a, b) in enumerate(zip(got, wanted, strict=True))]
    same = all(torch.equal(a, b) for a, b in zip((*got, lse), (*again, lse_again)))
    if dist.get_rank() == 0:
        row = {"forward": errors[0], "backward": max(errors[1:]), "same_bits": same}
        tell(name, 0, **row, largest=float(wanted[0].abs().max()))


def refusals():
    _ring._has_kernels = lambda x: x.is_cpu
    ring = rt.Ring(256)
    q = torch.randn(ring.count(), HEADS, DIM)
    pieces = {
        "gates": {"bias": rt.Gates(torch.zeros(ring.count(), HEADS))},
        "cope": {"bias": nn.CoPE(HEADS, DIM, 16)},
        "swin": {"bias": nn.SwinBias(HEADS, height=4, width=4)},
        "map of content": {"bias": nn.TransformerXL(HEADS, DIM, 16), "rotation": ROTATION, "remap": rw.ReRoPE(64)},
        "tokens": {"q": q[:-1]},
    }
    told = {}
    for name, settings in pieces.items():
        try:
            rt.ring_attention(settings.pop("q", q), q, q, ring, **settings)
            told[name] = "nothing"
        except rw.Error as error:
            told[name] = str(error)
    # The ranks are as they were.
    out = rt.ring_attention(q, q, q, ring)
    told["after"] = bool(out.isfinite().all())
    tell("refused", dist.get_rank(), **told)


def deal():
    ring = rt.Ring(500)
    x = torch.arange(500 * 3).reshape(1, 500, 3)
    whole = ring.gather(ring.deal(x))
    halves = [dist.new_group([r]) for r in range(dist.get_world_size())]
    alone = rt.Ring(10, group=halves[dist.get_rank()])  # a group of one rank
    q = torch.randn(10, 1, 8)
    one = torch.equal(rt.ring_attention(q, q, q, alone), rt.attention(q, q, q))
    row = {"runs": ring.runs(), "whole": torch.equal(whole, x), "positions": ring.positions.tolist(), "alone": one}
    tell("deal", dist.get_rank(), **row)


if __name__ == "__main__":
    import torch.nn.attention.flex_attention as module

    module._validate_device = lambda *_: None  # PyTorch has its backward pass on a CPU too, and does not offer it
    dist.init_process_group("gloo")
    deal()
    names = sys.argv[1:] or list(CASES)
    for case in names:
        measure(case, **CASES[case])
    refusals()
    dist.barrier()
    dist.destroy_process_group()
