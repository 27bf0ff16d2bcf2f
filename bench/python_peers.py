#!/usr/bin/env python3
"""ropewalk.torch against PyTorch on a CPU, in turns, in one process, on the same tensors.

    bench/python_peers.py [--json FILE] [--rounds 9] [--threads 2] [--only attention] [--smoke]

Needs ropewalk and torch. Rotation: q of 32 and k of 8 heads of 128, [1, tokens, heads, 128].

  ropewalk, in place   ropewalk.torch.rotate with a table that is there
  module               ropewalk.nn.RotaryEmbedding
  eager, compiled      what transformers does (apply_rotary_pos_emb), on [1, heads, tokens, 128] views of the same tensors, with
                       the cosines and sines of these tokens there; as it is and by torch.compile

Attention, forward and backward, causal, float32, 8 heads of 128: plain, with ALiBi's slopes, and with T5's learned
buckets, whose gradient is wanted.

  ropewalk             ropewalk.torch.attention
  sdpa                 scaled_dot_product_attention: is_causal=True, or the bias of all pairs as attn_mask, which is ready
                       before the clock starts for ALiBi and is gathered from its parameters for T5

Results are compared before anything is timed. Times are medians of rounds in which each takes its turn. Prints a table
and writes one JSON line a case. --smoke: small sizes, one round, to see that it runs.
"""

import argparse
import json
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import ropewalk as rw
import ropewalk.torch as rt

HEADS, KV_HEADS, DIM = 32, 8, 128
ATTENTION_HEADS = 8


def rotate_half(x):
    return torch.cat((-x[..., DIM // 2 :], x[..., : DIM // 2]), -1)


def apply_rotary_pos_emb(q, k, cos, sin):  # as transformers has it
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def rotation_calls(tokens, dtype):
    torch.manual_seed(3)
    rotation = rw.rotation(DIM, layout="half")
    q, k = torch.randn(1, tokens, HEADS, DIM).to(dtype), torch.randn(1, tokens, KV_HEADS, DIM).to(dtype)
    start = 17
    rows = rt.table(rotation.inv_freq, start + tokens)
    module = rw.nn.RotaryEmbedding(rotation, start + tokens)
    cos, sin = (x.repeat(1, 2)[None].to(dtype) for x in rows[start:].unbind(1))
    views = q.transpose(1, 2), k.transpose(1, 2)
    compiled = torch.compile(apply_rotary_pos_emb, dynamic=False)
    scratch = q.clone(), k.clone()
    calls = {
        "ropewalk": lambda: rt.rotate(q, k, rows, start, layout="half"),
        "in place": lambda: rt.rotate(*scratch, rows, start, layout="half", inplace=True),
        "module": lambda: module(q, k, start),
        "eager": lambda: apply_rotary_pos_emb(*views, cos, sin),
        "compiled": lambda: compiled(*views, cos, sin),
    }
    want = calls["eager"]()
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    for name, call in calls.items():
        got = call()
        if name in ("ropewalk", "in place", "module"):
            got = [x.transpose(1, 2) for x in got]
        for x, y in zip(got, want):
            torch.testing.assert_close(x, y, rtol=0, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")
    return calls


def attention_calls(tokens, bias):
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, tokens, ATTENTION_HEADS, DIM).requires_grad_() for _ in range(3))
    upstream = torch.randn(1, tokens, ATTENTION_HEADS, DIM)
    peers = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    peer_upstream = upstream.transpose(1, 2).contiguous()
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    ahead = (distance < 0)[None]
    module, parameters, mask = None, [], None
    if bias == "alibi":
        module = rw.nn.Alibi(ATTENTION_HEADS)
        mask = (-module.slopes[:, None, None] * distance).masked_fill(ahead, -torch.inf)[None]
    elif bias == "t5":
        module = rw.nn.T5Bias(ATTENTION_HEADS)
        parameters = [module.embedding]
        columns = module.bucket[distance.clamp(0, module.bucket.shape[0] - 1)]

    def ours():
        out = rt.attention(q, k, v, bias=module)
        return out, torch.autograd.grad(out, [q, k, v, *parameters], upstream)

    def sdpa():
        m = mask
        if bias == "t5":
            m = module.embedding[columns].permute(2, 0, 1).masked_fill(ahead, -torch.inf)[None]
        out = scaled_dot_product_attention(*peers, attn_mask=m, is_causal=m is None)
        return out, torch.autograd.grad(out, [*peers, *parameters], peer_upstream)

    (x, grads), (y, peer_grads) = ours(), sdpa()
    torch.testing.assert_close(x.transpose(1, 2), y, rtol=1e-3, atol=1e-4)
    for x, y in zip(grads, peer_grads):
        torch.testing.assert_close(x.transpose(1, 2) if x.dim() == 4 else x, y, rtol=1e-2, atol=1e-3)
    return {"ropewalk": ours, "sdpa": sdpa}


def medians(calls, rounds, seconds):
    """us of one call, each call in its turn."""
    counts = {}
    for name, call in calls.items():
        call()
        began = time.perf_counter()
        call()
        counts[name] = max(1, int(seconds / max(time.perf_counter() - began, 1e-9)))
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - began) / counts[name] * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("rotation", "attention"))
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rw.set_num_threads(args.threads)
    rounds, seconds = (1, 1e-4) if args.smoke else (args.rounds, 0.02)
    lines = []

    def report(what, tokens, calls):
        times = medians(calls, rounds, seconds)
        lines.append(
            {
                "case": what,
                "tokens": tokens,
                "threads": args.threads,
                "torch": torch.__version__,
                "us": {name: round(t, 2) for name, t in times.items()},
            }
        )
        ours = times["ropewalk"]
        print(
            f"{what:22} {tokens:5}  "
            + "  ".join(f"{name} {t:.1f} us" + ("" if name == "ropewalk" else f" ({t / ours:.2f})") for name, t in times.items()),
            flush=True,
        )

    with torch.no_grad():
        for dtype in () if args.only == "attention" else (torch.float32, torch.bfloat16):
            for tokens in (1, 8) if args.smoke else (1, 512, 4096):
                report(f"rotate {str(dtype)[6:]}", tokens, rotation_calls(tokens, dtype))
    for bias in () if args.only == "rotation" else ("plain", "alibi", "t5"):
        for tokens in (64,) if args.smoke else (1024, 2048):
            report(f"attention {bias}", tokens, attention_calls(tokens, bias))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
