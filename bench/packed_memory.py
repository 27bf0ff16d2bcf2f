#!/usr/bin/env python3
"""The largest resident size of the program with weights in the file, on a made-up Q4_K model of the shape of Llama 3.2 1B
(--shape 8b: Llama 3.1 8B, a window of 8192 takes 12 minutes on 2 cores): inspect, one window of perplexity, a passkey.
Pages of the mapped file count. Fails where one exceeds file + KV cache + 1 GiB; the test packed_memory does so with 1b and a
window of 8192. Python's standard library only.

usage: packed_memory.py PROGRAM [--shape 1b|8b] [--window 2048] [--passkey 512] [--folder DIR]
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from made_up_gguf import parser, write  # noqa: E402

SHAPES = {"1b": [], "8b": ["--layers", "32", "--hidden", "4096", "--feed-forward", "14336", "--untied"]}


def measure(program, *arguments):
    """(peak bytes, seconds, seconds of the CPU)"""
    begin = time.monotonic()
    with subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"packed_memory: {arguments}: exit code {process.returncode}")
    return usage.ru_maxrss * 1024, time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("program")
    options.add_argument("--shape", choices=SHAPES, default="1b")
    options.add_argument("--window", type=int, default=2048)
    options.add_argument("--passkey", type=int, default=512)
    options.add_argument("--folder", help="where the model is written; by default one that is removed")
    given = options.parse_args()
    shape = parser().parse_args(SHAPES[given.shape])
    with tempfile.TemporaryDirectory(prefix="ropewalk-", dir=given.folder) as folder:
        model, ids = os.path.join(folder, "made-up.gguf"), os.path.join(folder, "ids.json")
        write(model, shape)
        rng = random.Random(1)
        pathlib.Path(ids).write_text(json.dumps([rng.randrange(259, shape.vocab) for _ in range(given.window)]), "utf-8")
        packed = ["--weights", "packed"]
        runs = {
            "inspect": (0, ["inspect", model]),
            "perplexity": (
                given.window,
                ["perplexity", model, "--ids", ids, "--length", given.window, "--protocol", "windows", "--no-bos", *packed],
            ),
            "passkey": (given.passkey, ["passkey", model, "--length", given.passkey, "--passkey-trials", 1, *packed]),
        }
        over = False
        for name, (tokens, arguments) in runs.items():
            peak, seconds, cpu = measure(given.program, *arguments)
            cache = tokens * 2 * shape.layers * shape.kv_heads * (shape.hidden // shape.heads) * 4
            file = os.path.getsize(model)
            over |= peak > file + cache + (1 << 30)
            sizes = {"file": file, "cache": cache, "peak": peak, "beside": peak - file - cache}
            row = {"bench": "packed_memory", "shape": given.shape, "run": name, "tokens": tokens}
            row |= {f"{key}_mib": round(size / (1 << 20)) for key, size in sizes.items()}
            print(json.dumps({**row, "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1)}), flush=True)
    if over:
        raise SystemExit("packed_memory: more than file + KV cache + 1 GiB")


if __name__ == "__main__":
    main()
