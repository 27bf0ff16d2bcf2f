#!/usr/bin/env python3
"""One sequence over ranks of MPI against one process: time, taking turns, and the largest peak of memory of a rank.

    bench/ranks_bench.py PROGRAM MODEL --length 32k --ranks 1,2 [--method none] [--repeat 3] [--text FILE]

Every process has one thread. 1 is the program without mpirun. The result is JSON: for each number of ranks the seconds of
each turn as the program says them (loading is not counted), their median, the peak of the resident memory of the largest
process, and the loss, which is to be the same. Only ratios inside one run mean anything.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time


def peak_of(found, name, stop):
    """Keeps the largest VmHWM of any process of this name that this process started."""
    while not stop.is_set():
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                if found["marker"] not in (status.parent / "environ").read_text(errors="ignore"):
                    continue
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                if fields["Name"].strip() == name and "VmHWM" in fields:
                    found["peak"] = max(found["peak"], int(fields["VmHWM"].split()[0]) * 1024)
            except OSError:
                continue
        time.sleep(0.5)  # a peak stays; to look costs time on a core that a rank has


def measure(program, arguments, ranks):
    marker = f"ROPEWALK_RANKS_BENCH={os.getpid()}-{time.monotonic_ns()}"
    key, value = marker.split("=")
    command = [program, *arguments]
    if ranks > 1:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    found, stop = {"peak": 0, "marker": marker}, threading.Event()
    watch = threading.Thread(target=peak_of, args=(found, pathlib.Path(program).name, stop))
    watch.start()
    try:
        result = subprocess.run(command, capture_output=True, check=True,
                                env={**os.environ, key: value, "OMP_NUM_THREADS": "1"})
    finally:
        stop.set()
        watch.join()
    return json.loads(result.stdout), found["peak"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--length", default="32k")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--method", default="none")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--text", help="default: numbered sentences, as many as are needed")
    options = parser.parse_args()
    ranks = [int(n) for n in options.ranks.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        text = options.text
        if text is None:
            text = f"{folder}/text.txt"
            tokens = int(options.length[:-1]) * 1024 if options.length.endswith("k") else int(options.length)
            with open(text, "w") as out:
                for i in range(tokens // 8):
                    out.write(f"And the king {i} went unto city {i * 7 % 101}, and he spake of day {i * 13 % 53}.\n")
        arguments = ["perplexity", options.model, "--text", text, "--length", options.length, "--method", options.method,
                     "--protocol", "aligned:256", "--anchors", "1", "--threads", "1", "--json"]
        rows = {n: {"ranks": n, "seconds": [], "peak_bytes": 0} for n in ranks}
        for _ in range(options.repeat):
            for n in ranks:
                cell, peak = measure(options.program, arguments, n)
                row = rows[n]
                row["seconds"].append(cell["seconds"])
                row["peak_bytes"] = max(row["peak_bytes"], peak)
                row["mean_nll"] = cell["mean_nll"]
    first = rows[ranks[0]]
    for row in rows.values():
        row["median_seconds"] = statistics.median(row["seconds"])
        row["times_as_fast"] = statistics.median(first["seconds"]) / row["median_seconds"]
        row["peak_share"] = row["peak_bytes"] / first["peak_bytes"]
    print(json.dumps({"model": options.model, "length": options.length, "method": options.method,
                      "rows": list(rows.values())}, indent=2))


if __name__ == "__main__":
    main()
