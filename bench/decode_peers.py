#!/usr/bin/env python3
"""Decoding of single tokens with the weights in their file against llama.cpp on the same file, in turns, in one run.

    bench/decode_peers.py --bench build/bench/decode_bench GGUF [TYPE ..] [--rounds 5] [--threads 2] [--tokens 16]

Needs llama-cpp-python. For each TYPE (FTYPES below) llama.cpp quantizes the file again, beside it in a
temporary folder; without any, the file is taken as it is. Both decode behind 16 tokens, with the logits of each token.
llama.cpp runs as it does by default, weights repacked at load included. Prints one JSON line a type: tokens/s by the clock
and by the processor's time (which other programs disturb less; a thread that waits counts there too), medians, and ours
over llama.cpp's, the median of the rounds.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time

import llama_cpp as lc

# LLAMA_FTYPE_MOSTLY_*, pure
FTYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18,
          "IQ4_NL": 25, "IQ4_XS": 30}
BEHIND = 16


@lc.llama_log_callback
def _quiet(_level, _text, _data):
    pass


def requantized(path, kind, folder):
    out = os.path.join(folder, f"{kind}.gguf")
    params = lc.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure, params.nthread = FTYPES[kind], True, True, 2
    if lc.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"decode_peers: llama.cpp does not quantize {path} to {kind}")
    return out


class LlamaCpp:
    def __init__(self, path, args):
        params = lc.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lc.llama_model_load_from_file(path.encode(), params)
        context = lc.llama_context_default_params()
        context.n_ctx, context.n_batch = 512, 512
        context.n_threads = context.n_threads_batch = args.threads
        self.context = lc.llama_init_from_model(self.model, context)
        self.batch = lc.llama_batch_init(BEHIND, 0, 1)
        self.tokens = args.tokens

    def decode(self, ids, first):
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, first + i
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, 0
            self.batch.logits[i] = i + 1 == len(ids)
        if lc.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("decode_peers: llama_decode failed")

    def run(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)
        self.decode([7] * BEHIND, 0)
        start, cpu = time.perf_counter(), time.process_time()
        for i in range(self.tokens):
            self.decode([300 + i], BEHIND + i)
        return time.perf_counter() - start, time.process_time() - cpu

    def close(self):
        lc.llama_batch_free(self.batch)
        lc.llama_free(self.context)
        lc.llama_model_free(self.model)


def compare(path, name, args):
    command = [args.bench, path, "--tokens", str(args.tokens), "--threads", str(args.threads)]
    peer = LlamaCpp(path, args)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:

        def run_ours():
            ours.stdin.write("\n")
            ours.stdin.flush()
            row = json.loads(ours.stdout.readline())
            return row["seconds"], row["cpu_seconds"]

        run_ours(), peer.run()  # warm up
        rounds = [(run_ours(), peer.run()) for _ in range(args.rounds)]
        ours.stdin.close()
    peer.close()
    row = {"bench": "decode_peers", "type": name, "threads": args.threads, "rounds": args.rounds, "file_mib": os.path.getsize(path) >> 20}
    for at, clock in enumerate(("clock", "cpu")):
        for who, label in enumerate(("ropewalk", "llamacpp")):
            rate = args.tokens / statistics.median(r[who][at] for r in rounds)
            row[f"{label}_tokens_per_s_{clock}"] = round(rate, 2)
        row[f"ratio_{clock}"] = round(statistics.median(r[1][at] / r[0][at] for r in rounds), 3)
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("gguf")
    parser.add_argument("types", nargs="*", choices=[*FTYPES, []])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16)
    args = parser.parse_args()
    lc.llama_log_set(_quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder:
        for kind in args.types:
            path = requantized(args.gguf, kind, folder)
            compare(path, kind, args)
            os.remove(path)
        if not args.types:
            compare(args.gguf, "as it is", args)


if __name__ == "__main__":
    main()
