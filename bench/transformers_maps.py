"""One attention layer of ropewalk.transformers under methods that need their own attention, on the CPU: by the
library's kernel and by the formula, beside PyTorch's SDPA, which sees each pair of rotated tokens once. Checks that kernel and
formula agree, then prints milliseconds of a prefill, one line a case.

    PYTHONPATH=BUILD/python python bench/transformers_maps.py [--threads 2]
"""

import argparse
import time

import torch

import ropewalk as rw
from ropewalk.transformers import _kernel, _probe
from ropewalk.transformers._attention import attention
from ropewalk.transformers._pass import Attention, Shared
from ropewalk.transformers._state import STATE

HEADS, KV_HEADS, DIM = 8, 2, 64


def best(call, seconds=2.0):
    times, end = [], time.perf_counter() + seconds
    while not times or (time.perf_counter() < end and len(times) < 20):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, nargs="*", default=[2048, 8192])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rotation = rw.rotation(DIM, layout="half")
    module = torch.nn.Module()
    fits = _kernel.fits
    for tokens in options.tokens:
        q, k, v = (torch.randn(1, heads, tokens, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
        window = tokens // 4
        cases = {
            "log-n": (None, rw.plan({**LLAMA, "max_position_embeddings": window}, "log-n").layers[0].temperature),
            "rerope": (rw.ReRoPE(window=window), None),
            "self-extend": (rw.SelfExtend(window=window, group=8), None),
            "dual-chunk": (rw.DualChunk(chunk=window, limit=window + window // 4), None),
        }
        sdpa = best(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        print(f"{tokens} sdpa {sdpa:.1f}")
        for name, (position_map, temperature) in cases.items():
            layout = _probe.Layout(False, 0, DIM // 2)
            module.__dict__[STATE] = Attention(Shared(), layout, rotation, position_map, temperature, 1.0)

            def call():
                return attention(module, q, k, v)[0]

            kernel, ours = call(), best(call)
            _kernel.fits = lambda *_: False
            formula, theirs = call(), best(call)
            _kernel.fits = fits
            assert (kernel - formula).abs().max() < 1e-4
            print(f"{tokens} {name} kernel {ours:.1f} formula {theirs:.1f}")


LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1}
LLAMA |= {"intermediate_size": 64, "vocab_size": 100}

if __name__ == "__main__":
    with torch.no_grad():
        main()
