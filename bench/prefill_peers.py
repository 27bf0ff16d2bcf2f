#!/usr/bin/env python3
"""Prefill of SmolLM2-135M against transformers and llama.cpp, in turns, in one run.

    bench/prefill_peers.py --bench build/bench/prefill_bench --gguf FILE [--rounds 3] [--smoke]

Needs a virtual environment with torch (CPU), transformers and llama-cpp-python; a peer that cannot be
imported is named and left out. transformers runs the same architecture and sizes in float32 with random
weights (speed does not depend on their values); llama.cpp runs the file itself, all logits on.
Prints one JSON line per length with tokens/s of each and our ratio to the faster peer.
--smoke: 16 tokens, one round and a small model of transformers, to see that it runs.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np

LENGTHS = (512, 2048)


def ours(args, tokens):
    command = [args.bench, args.gguf, "--tokens", str(tokens), "--rounds", "1",
               "--threads", str(args.threads), "--compute", "float32"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(line)["tokens_per_s"]


def transformers_peer(args):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(args.threads)
    config = LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=1 if args.smoke else 30,
                         num_attention_heads=9, num_key_value_heads=3, vocab_size=49152,
                         max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True)
    model = LlamaForCausalLM(config).float().eval()

    def run(tokens):
        ids = torch.randint(0, 49152, (1, tokens))
        with torch.inference_mode():
            start = time.perf_counter()
            model(ids)
            return tokens / (time.perf_counter() - start)

    return run


def llamacpp_peer(args):
    from llama_cpp import Llama

    def run(tokens):
        llama = run.cache.get(tokens)
        if llama is None:
            llama = Llama(args.gguf, n_ctx=tokens, n_batch=512, n_threads=args.threads,
                          n_threads_batch=args.threads, logits_all=True, verbose=False)
            run.cache[tokens] = llama
        ids = np.random.default_rng(1).integers(0, 49152, tokens).tolist()
        llama.reset()
        start = time.perf_counter()
        llama.eval(ids)
        return tokens / (time.perf_counter() - start)

    run.cache = {}
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.rounds = 1

    peers = {}
    for name, make in (("transformers", transformers_peer), ("llama.cpp", llamacpp_peer)):
        try:
            peers[name] = make(args)
        except ImportError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    for tokens in (16,) if args.smoke else LENGTHS:
        for run in peers.values():
            run(tokens)  # warm up
        speeds = {"ropewalk": [], **{name: [] for name in peers}}
        for _ in range(args.rounds):
            speeds["ropewalk"].append(ours(args, tokens))
            for name, run in peers.items():
                speeds[name].append(run(tokens))
        medians = {name: round(statistics.median(s), 1) for name, s in speeds.items()}
        row = {"bench": "prefill_peers", "tokens": tokens, "threads": args.threads,
               "tokens_per_s": medians}
        if peers:
            best = max(medians[name] for name in peers)
            row["ratio_to_faster_peer"] = round(medians["ropewalk"] / best, 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
