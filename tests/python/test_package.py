"""The package as it is installed: what importing it brings, and the program in it."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import ropewalk
from ropewalk import _core
from short_model import short_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = short_model()  # 256 tokens
NATIVE = os.environ.get("ROPEWALK_PROGRAM")
needs_native = pytest.mark.skipif(NATIVE is None, reason="ROPEWALK_PROGRAM names no native program")


def python(code, **more):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300, **more).stdout


def run(program, *arguments, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([*program, *map(str, arguments)], capture_output=True, check=False, timeout=300, **more)


def program(*arguments, **more):
    return run([sys.executable, "-m", "ropewalk"], *arguments, **more)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("In the beginning the king saw the river, and the people of the land spake unto him.\n" * 2000)
    return path


def test_importing_it_loads_neither_pytorch_nor_transformers():
    loaded = python("import sys, ropewalk; print(*sorted(name.partition('.')[0] for name in sys.modules))").split()
    assert "ropewalk" in loaded and "numpy" in loaded
    assert not {"torch", "transformers", "tqdm", "pandas", "matplotlib"} & set(loaded)


def test_there_is_one_version():
    declared = re.search(r"project\(ropewalk VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert ropewalk.__version__ == declared
    assert program("--version").stdout.decode() == f"ropewalk {declared}\n"


def test_type_checkers_find_types():
    folder = pathlib.Path(ropewalk.__file__).parent
    assert (folder / "py.typed").is_file()
    stub = (folder / "_core.pyi").read_text()
    public = [name for name in vars(_core) if not name.startswith("__")]
    assert len(public) > 5
    assert [name for name in public if not re.search(rf"\b{name}\b", stub)] == []


PROGRAM = """
import numpy as np
import ropewalk as rw

plan = rw.plan("config.json", "yarn", factor=4)
frequencies: list[float] = plan.rotations[0].inv_freq.tolist()
table: rw.Table = plan.rotations[0].table(plan.length)
q, k = rw.rotate(np.ones((4, 2, 64), np.float32), None, table, 7)
bias: rw.Bias = rw.Alibi(heads=8)
out = rw.attention(q, q, q, bias=bias, remap=rw.ReRoPE(window=512), causal=True)
sweep = rw.sweep("model", text="text", methods=["none", {"rope_type": "yarn", "factor": 2.0}], lengths=["8k", 32768])
method: str | None = sweep.recommendation("32k").method
rw.set_num_threads(rw.num_cores())
try:
    rw.rotation(64, layout="half", base=1e4)
except rw.Error as error:
    print(error)
"""
WRONG = {
    "layout": "rw.rotation(64)",
    "Table": "rw.rotation(64, layout='half').table('8')",
    "int": "rw.plan('config.json').length.upper()",
    "lenght": "rw.sweep('model', text='text', lenghts=[1])",
}


def checked(path):
    environment = {**os.environ, "MYPYPATH": str(pathlib.Path(ropewalk.__file__).parents[1])}
    return run([sys.executable, "-m", "mypy"], "--strict", "--follow-imports=silent", "--cache-dir", path.parent / "cache", path,
               env=environment)


def test_a_strict_type_checker_accepts_a_program_and_finds_its_mistakes(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    result = checked(path)
    assert result.returncode == 0, result.stdout.decode()
    path.write_text(PROGRAM + "\n".join(WRONG.values()) + "\n")
    lines = checked(path).stdout.decode().splitlines()
    assert len({line.split(":")[1] for line in lines if ": error:" in line}) == len(WRONG), lines


COMMAND_LINES = {
    "help": ["--help"],
    "help of a command": ["sweep", "--help"],
    "version": ["--version"],
    "info": ["info", "--json"],
    "no command": [],
    "unknown command": ["sweeep"],
    "unknown option": ["inspect", MODEL, "--lenght", 512],
    "inspect": ["inspect", MODEL],
    "inspect as json": ["inspect", MODEL, "--json", "--length", "4k"],
    "no such file": ["inspect", "nope"],
    "a name that is no text": ["inspect", os.fsdecode(b"n\xffpe")],
    "tokenize": ["tokenize", MODEL, "--text", "TEXT", "--pieces"],
    "generate": ["generate", MODEL, "--prompt", "And the", "--max-tokens", 8],
    "perplexity": ["perplexity", MODEL, "--text", "TEXT", "--length", 256, "--method", "yarn:factor=2", "--anchors", 2],
    "sweep without a text": ["sweep", MODEL],
    "dry run": ["sweep", MODEL, "--text", "TEXT", "--lengths", "256,512", "--dry-run"],
    "completion": ["completion", "bash"],
    "manual": ["manual", "sweep"],
}


@needs_native
@pytest.mark.parametrize("name", COMMAND_LINES)
def test_output_and_exit_code_are_those_of_the_native_program(name, text):
    arguments = [text if word == "TEXT" else word for word in COMMAND_LINES[name]]
    native, ours = run([NATIVE], *arguments), program(*arguments)
    # Times of a run, and what is guessed from them.
    time_of = re.compile(rb"[\d.]+ (?=tokens/s)|\d+:\d\d(:\d\d)?( to \d+:\d\d(:\d\d)?)?|[\d.]+ (?=seconds|minutes|hours|s\b)")
    assert ours.returncode == native.returncode
    assert time_of.sub(b"", ours.stdout) == time_of.sub(b"", native.stdout)
    assert time_of.sub(b"", ours.stderr) == time_of.sub(b"", native.stderr)
    assert ours.stdout or ours.stderr


@needs_native
def test_a_sweep_writes_the_same_rows(text, tmp_path):
    arguments = ["sweep", MODEL, "--text", text, "--methods", "none,yarn", "--lengths", "256,512", "--anchors", 2,
                 "--passkey-trials", 1, "--threads", 1]
    rows = []
    for name, runs in (("native", [NATIVE]), ("python", [sys.executable, "-m", "ropewalk"])):
        result = run(runs, *arguments, "-o", tmp_path / name)
        assert result.returncode == 0, result.stderr.decode()
        lines = [json.loads(line) for line in (tmp_path / name / "results.jsonl").read_text().splitlines()]
        rows.append([{k: v for k, v in line.items() if k not in ("seconds", "command")} for line in lines])
    assert len(rows[0]) == 5 and rows[0] == rows[1]


def test_exit_codes():
    assert program("--help").returncode == 0
    assert program("inspect", "nope").returncode == 1
    assert program("nonsense").returncode == 2
    with open("/dev/full", "wb") as full:
        result = subprocess.run([sys.executable, "-m", "ropewalk", "info"], stdout=full, stderr=subprocess.PIPE, check=False,
                                timeout=300)
    assert (result.returncode, result.stderr) == (1, b"ropewalk: error: cannot write to stdout\n")


def test_the_console_script_is_the_program():
    result = python("import sys; from ropewalk._program import main\n"
                    "sys.argv[1:] = ['completion', 'bash']; sys.exit(main())")
    assert result == program("completion", "bash").stdout.decode()


@pytest.mark.parametrize("variables", [{}, {"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "active"}])
def test_ctrl_c_ends_a_measurement_that_does_not_spin_for_long(variables, text):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    env = {**{k: v for k, v in os.environ.items() if k not in names}, **variables}
    process = subprocess.Popen([sys.executable, "-m", "ropewalk", "perplexity", str(MODEL), "--text", str(text), "--length",
                                "2048", "--protocol", "windows"], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        expected = variables or {"GOMP_SPINCOUNT": "10000"}
        seen, until = None, time.monotonic() + 60
        while seen != expected and time.monotonic() < until:
            lines = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
            seen = {k: v for k, _, v in (line.partition("=") for line in lines) if k in names}
        assert seen == expected
        # It reads the model: Python's handler has been replaced by its own.
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        while "model.safetensors" not in maps.read_text() and time.monotonic() < until:
            time.sleep(0.005)
        assert "model.safetensors" in maps.read_text()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    # Not a word where it came before the measurement.
    assert errors.decode().splitlines()[-1:] in (["ropewalk: interrupted"], [])


def test_ctrl_c_is_pythons_again_afterwards(capfd):
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
    try:
        assert _core.main(["ropewalk", "--version"]) == 0
        assert capfd.readouterr().out == f"ropewalk {ropewalk.__version__}\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
    finally:
        signal.signal(signal.SIGINT, outside)


def test_main_takes_a_command_line():
    with pytest.raises(ValueError, match="argv: expected the program's name at least"):
        _core.main([])
    with pytest.raises(TypeError):
        _core.main("ropewalk")
    with pytest.raises(TypeError):
        _core.main(["ropewalk", 1])
