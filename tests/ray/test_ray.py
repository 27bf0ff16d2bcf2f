"""examples/sweep_ray.py on one machine: the rows are those of one process, also when a worker is killed half way."""

import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/sweep_ray.py"
MODEL, TEXT = ROOT / "models", pathlib.Path(os.environ["ROPEWALK_TEXT"])


def start(out, workers, tmp_path):
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    # A shorter text, so that the default lengths are few.
    text = tmp_path / "text.txt"
    text.write_text(TEXT.read_text()[:24000])
    command = [sys.executable, EXAMPLE, MODEL, text, out, str(workers)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), text


def timeless(sweep):
    rows = [{key: value for key, value in row.items() if key not in ("seconds", "place")} for row in sweep.rows]
    return sorted(rows, key=lambda row: row["identity"])


def lines(out):
    return sum(path.read_text().count("\n") for path in out.glob("units*.jsonl"))


def worker_of(shard, out):
    """The process that writes the files of a shard."""
    wanted = str(out / f"units.{shard}.jsonl")
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) == wanted for fd in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


def test_ray(tmp_path):
    import ropewalk as rw

    out = tmp_path / "out"
    process, text = start(out, 2, tmp_path)
    deadline = time.monotonic() + 240
    while lines(out) < 8 or worker_of("2-of-2", out) is None:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.05)
    os.kill(worker_of("2-of-2", out), signal.SIGKILL)
    printed, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    found = rw.Sweep(out)
    assert str(found) in printed
    assert {path.name for path in out.glob("results*")} == {"results.1-of-2.jsonl", "results.2-of-2.jsonl"}
    whole = rw.sweep(str(MODEL), text=text, output=tmp_path / "whole", threads=1, progress=False)
    assert timeless(found) == timeless(whole)
    assert [str(r) for r in found.recommendations] == [str(r) for r in whole.recommendations]
