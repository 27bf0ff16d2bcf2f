#!/usr/bin/env python3
"""PyTorch and Ropewalk in one process, by turns: what each loses to the other's threads, in both orders of import.

Each call takes a millisecond or so and uses all threads. One round times calls of PyTorch alone, of Ropewalk alone, and both
by turns, one call each, in a few milliseconds; `lost` is the median over the rounds of turns / (alone + alone) - 1. It needs a
quiet machine: where other programs want the cores, a call takes a time slice of the scheduler. With two OpenMP runtimes in the
process it was 4 to 47 times (docs/python.md). Prints JSON and fails where more than 10 % is lost.

usage: openmp_alternation.py [--threads N] [--rounds N] [--calls N]      with ropewalk, torch and numpy importable
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

MOST = 0.10


def measure(first, threads, rounds, calls):
    """One order of import, in this process."""
    if first == "torch":
        import torch
        import ropewalk as rw
    else:
        import ropewalk as rw
        import torch
    import numpy as np

    torch.set_num_threads(threads)
    rw.set_num_threads(threads)
    rng = np.random.default_rng(1)
    table = rw.rotation(64, layout="half").table(2048)
    q = rng.standard_normal((2048, 16, 64), dtype=np.float32)
    k = rng.standard_normal((1024, 8, 64), dtype=np.float32)
    a, b = torch.randn(384, 512), torch.randn(512, 512)
    x = torch.randn(1 << 20)
    torchs = {"matmul": lambda: torch.mm(a, b), "gelu": lambda: torch.nn.functional.gelu(x)}
    ours = {"rotate": lambda: rw.rotate(q, None, table, 0, inplace=True),
            "attention": lambda: rw.attention(k[:256], k[:256], k[:256])}

    def timed(*functions):
        begin = time.perf_counter()
        for _ in range(calls):
            for function in functions:
                function()
        return time.perf_counter() - begin

    rows = []
    for torch_name, torch_call in torchs.items():
        for our_name, our_call in ours.items():
            timed(torch_call, our_call)  # threads and memory are there
            taken = []
            for _ in range(rounds):
                alone = timed(torch_call), timed(our_call)
                taken.append((*alone, timed(torch_call, our_call)))
            t, o, both = (statistics.median(times) / calls * 1e6 for times in zip(*taken))
            lost = statistics.median(both / (t + o) for t, o, both in taken) - 1
            rows.append({"first": first, "torch": torch_name, "ropewalk": our_name, "threads": threads, "torch_us": round(t, 1),
                         "ropewalk_us": round(o, 1), "turns_us": round(both, 1), "lost": round(lost, 3)})
    with open("/proc/self/maps", encoding="utf-8") as maps:
        runtimes = sorted(set(re.findall(r"/\S*lib(?:g|i)?omp\S*", maps.read())))
    return {"runtimes": [os.path.basename(path) for path in runtimes], "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--first", choices=("torch", "ropewalk"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first:
        print(json.dumps(measure(given.first, given.threads, given.rounds, given.calls)))
        return
    numbers = ["--threads", str(given.threads), "--rounds", str(given.rounds), "--calls", str(given.calls)]
    results = [json.loads(subprocess.run([sys.executable, __file__, "--first", first, *numbers], check=True,
                                         stdout=subprocess.PIPE).stdout) for first in ("torch", "ropewalk")]
    print(json.dumps(results, indent=1))
    worst = max(row["lost"] for result in results for row in result["rows"])
    if worst > MOST:
        sys.exit(f"openmp_alternation.py: {worst:.0%} is lost by turns, at most {MOST:.0%} is allowed")


if __name__ == "__main__":
    main()
