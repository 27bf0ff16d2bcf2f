#!/usr/bin/env python3
"""One sequence over ranks of MPI against one process: time, taking turns, and the largest peak of memory of a rank.

    bench/ranks_bench.py PROGRAM MODEL --length 32k --ranks 1,2 [--method none] [--repeat 3] [--text FILE] [--shape 135m]

Every process has one thread. 1 is the program without mpirun. The result is a line of JSON for each number of ranks: the
seconds of each turn as the program says them (loading is not counted), their median, the peak of the resident memory of the
largest process, the bytes that the rank which sends most has sent (where Open MPI counts them), and the loss, which is to be
the same. Only ratios inside one run mean anything. tools/scale_model.py --check reads these lines; --shape is the name under
which it knows the model, where the model has no config.json.
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

EMBEDDED = pathlib.Path(__file__).resolve().parent.parent / "models" / "config.json"


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


def sent_of(folder):
    """What the rank that sent most has sent to others, by Open MPI's own count; None: it keeps none."""
    sent = []
    for profile in pathlib.Path(folder).glob("sent.*.prof"):
        lines = [line.split() for line in profile.read_text().splitlines()]
        sent.append(sum(int(line[3]) for line in lines if line and line[0] == "E"))  # E: from, to, bytes
    return max(sent, default=None)


def measure(program, arguments, ranks, folder):
    marker = f"ROPEWALK_RANKS_BENCH={os.getpid()}-{time.monotonic_ns()}"
    key, value = marker.split("=")
    command = [program, *arguments]
    if ranks > 1:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    for profile in pathlib.Path(folder).glob("sent.*.prof"):
        profile.unlink()
    count = {"enable": "1", "enable_output": "3", "filename": f"{folder}/sent"}
    variables = {f"OMPI_MCA_pml_monitoring_{name}": to for name, to in count.items()}
    found, stop = {"peak": 0, "marker": marker}, threading.Event()
    watch = threading.Thread(target=peak_of, args=(found, pathlib.Path(program).name, stop))
    watch.start()
    try:
        result = subprocess.run(command, capture_output=True, check=True,
                                env={**os.environ, **variables, key: value, "OMP_NUM_THREADS": "1"})
    finally:
        stop.set()
        watch.join()
    return json.loads(result.stdout), found["peak"], sent_of(folder) if ranks > 1 else 0


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), "unknown")


def file_bytes(model):
    files = model.glob("*.safetensors") if model.is_dir() else [model]
    return sum(file.stat().st_size for file in files)


def first_row(options, tokens, ranks):
    config = pathlib.Path(options.model) / "config.json"
    shape = options.shape or ("embedded" if config.resolve() == EMBEDDED else str(config))
    return {"bench": "ranks", "model": pathlib.Path(options.model).name, "shape": shape,
            "file_bytes": file_bytes(pathlib.Path(options.model)), "processor": processor(),
            "cores": len(os.sched_getaffinity(0)), "length": tokens,
            "tokens": tokens - 1, "scored": tokens - 1,  # the last one is scored and not fed
            "method": options.method, "kv": "float32", "ranks": ranks, "threads": 1, "seconds": [], "peak_bytes": 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--length", default="32k")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--method", default="none")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--text", help="default: numbered sentences, as many as are needed")
    parser.add_argument("--shape", help="135m, 8b or 70b")
    options = parser.parse_args()
    units = {"k": 1 << 10, "m": 1 << 20}
    tokens = int(options.length.rstrip("km")) * units.get(options.length[-1], 1)
    ranks = [int(n) for n in options.ranks.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        text = options.text
        if text is None:
            text = f"{folder}/text.txt"
            with open(text, "w") as out:
                for i in range(tokens // 8):
                    out.write(f"And the king {i} went unto city {i * 7 % 101}, and he spake of day {i * 13 % 53}.\n")
        arguments = ["perplexity", options.model, "--text", text, "--length", options.length, "--method", options.method,
                     "--protocol", "aligned:256", "--anchors", "1", "--threads", "1", "--json"]
        rows = {n: first_row(options, tokens, n) for n in ranks}
        for _ in range(options.repeat):
            for n in ranks:
                cell, peak, sent = measure(options.program, arguments, n, folder)
                row = rows[n]
                row["seconds"].append(cell["seconds"])
                row["peak_bytes"] = max(row["peak_bytes"], peak)
                row["sent_bytes"] = sent
                row["mean_nll"] = cell["mean_nll"]
    first = rows[ranks[0]]
    for row in rows.values():
        row["median_seconds"] = statistics.median(row["seconds"])
        row["times_as_fast"] = statistics.median(first["seconds"]) / row["median_seconds"]
        row["peak_share"] = row["peak_bytes"] / first["peak_bytes"]
        print(json.dumps(row))


if __name__ == "__main__":
    main()
