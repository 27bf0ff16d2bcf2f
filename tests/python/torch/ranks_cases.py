"""Starts processes as torchrun does, on this machine, so that none of them outlives its test."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 240


def environment(**more):
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "support"), os.environ.get("PYTHONPATH", "")])
    ours = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return {**os.environ, **ours, **more}


def start(*command, ranks=2, **more):
    """torchrun with a command: a script and its arguments, or -m and a module."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", f"--nproc-per-node={ranks}"]
    return subprocess.Popen(
        [sys.executable, *launcher, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        start_new_session=True,
    )


def finish(process, seconds=SECONDS):
    """(exit code, stdout, stderr); a job that hangs is ended, and fails."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"the job hangs:\n{out}\n{err}") from None
    return process.returncode, out, err


def run(*command, ranks=2, **more):
    return finish(start(*command, ranks=ranks, **more))


def tell(name, rank, **row):
    """On a rank: a row for `found`."""
    with open(pathlib.Path(os.environ["ROPEWALK_TEST_ROWS"]) / f"{rank}.jsonl", "a") as file:
        file.write(json.dumps({"name": name, "rank": rank, **row}) + "\n")


def rows_of(folder):
    rows = [json.loads(line) for path in sorted(pathlib.Path(folder).glob("*.jsonl")) for line in path.read_text().splitlines()]
    return {(row.pop("name"), row.pop("rank")): row for row in rows}


def found(*command, ranks=2, **more):
    """What the ranks of a script tell, by name and rank."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder:
        code, out, err = run(*command, ranks=ranks, ROPEWALK_TEST_ROWS=folder, **more)
        assert code == 0, f"{out}\n{err}"
        return rows_of(folder)


def rank_pid(process, rank):
    """Of a rank that torchrun has started, or None."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        if parent == process.pid and f"RANK={rank}".encode() in variables:
            return int(entry.name)
    return None
