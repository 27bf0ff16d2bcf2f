"""scripts/gpu_check_python.sh on a machine without a GPU: every step in small, on the CPU."""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
import torch

import ropewalk as rw

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/gpu_check_python.sh"
PACKAGE = pathlib.Path(rw.__file__).parents[1]
STEPS = ["facts", "rotation", "attention", "model", "memory", "speed", "sweep"]


def check(tmp_path, *arguments, package=PACKAGE):
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path), "SECONDS_IN_ALL": "1500"}
    run = subprocess.run([SCRIPT, *arguments, package], capture_output=True, text=True, env=environment, timeout=1600)
    rows = tmp_path / "gpu-check-python.jsonl"
    return run, [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def test_every_step_runs_on_the_cpu(tmp_path):
    run, rows = check(tmp_path, "--dry-run")
    assert run.returncode == 0, run.stdout + run.stderr
    assert [row["step"] for row in rows if "result" in row] == STEPS
    assert all(row["result"] == "ok" for row in rows if "result" in row)
    for step in STEPS:
        assert any(row["step"] == step and "case" in row for row in rows), step
    assert all(row["right"] for row in rows if "right" in row)


def wheel(folder):
    """The package as a wheel, of which the script knows no more than pip does."""
    path, info = folder / "ropewalk-0-py3-none-any.whl", "ropewalk-0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        for source in (PACKAGE / "ropewalk").rglob("*"):
            if source.suffix in (".py", ".so"):
                file.write(source, source.relative_to(PACKAGE))
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ropewalk\nVersion: 0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return folder


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_wheels_are_installed_and_without_a_gpu_it_says_so(tmp_path):
    (tmp_path / "wheels").mkdir()
    run, rows = check(tmp_path, package=wheel(tmp_path / "wheels"))
    assert run.returncode == 77 and "no GPU" in run.stdout and not rows, run.stdout


def test_a_package_that_is_not_there(tmp_path):
    run, rows = check(tmp_path, package=tmp_path)
    assert run.returncode == 2 and not rows
