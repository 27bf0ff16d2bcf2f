"""Sweeps with PyTorch as the engine: rows and recommendations beside the native ones, threads, the program, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
import transformers

import ropewalk as rw
from engine_cases import MODEL, TEXT, embedded_ids, loaded, make_text
from ropewalk import _core

SMALL = {"methods": "none,yarn,linear", "lengths": [128, 512], "anchors": 2, "passkey_trials": 1, "progress": False}


@pytest.fixture(scope="module")
def sweep():
    return rw.sweep(MODEL, text=TEXT, engine="torch", **SMALL)


@pytest.fixture(scope="module")
def native():
    return rw.sweep(MODEL, text=TEXT, angles="float32", **SMALL)


def test_rows_name_the_engine(sweep):
    (compute,) = {row["compute"] for row in sweep.rows}
    assert compute == f"PyTorch {torch.__version__}, transformers {transformers.__version__}, cpu, float32"
    assert {row["angles"] for row in sweep.rows} == {"float32; under position maps and log-n exact"}
    assert {row["threads"] for row in sweep.rows} == {torch.get_num_threads()}


def test_a_model_in_training_is_measured_without_dropout_and_stays_in_training():
    """Its modules are each in the mode that they were in."""
    more = {**SMALL, "methods": "none", "lengths": [128], "tasks": "perplexity"}
    model = loaded(attention_dropout=0.5).train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    ids = embedded_ids()
    of_training = rw.sweep(model, text=ids, **more)
    assert [module.training for module in model.modules()] == before and not all(before)
    for row, other in zip(of_training.rows, rw.sweep(model.eval(), text=ids, **more).rows):
        assert row["window_nll"] == other["window_nll"]


def test_the_sweep_recommends_what_the_native_one_does(sweep, native):
    assert [(r["method"], r["factor"], r["length"], r["plan_hash"]) for r in sweep.rows] == [
        (r["method"], r["factor"], r["length"], r["plan_hash"]) for r in native.rows
    ]
    for ours, theirs in zip(sweep.rows, native.rows):
        assert ours["mean_nll"] == pytest.approx(theirs["mean_nll"], abs=2e-5)
        np.testing.assert_allclose(ours["window_nll"], theirs["window_nll"], atol=2e-5)
        assert [t["exact"] for t in ours["tasks"]] == [t["exact"] for t in theirs["tasks"]]
        assert ours["model_hash"] == theirs["model_hash"] and ours["text_hash"] == theirs["text_hash"]
        assert ours["entropy"] is None and theirs["entropy"] is not None
    assert [(r.length, r.method, r.factor, r.longest_usable) for r in sweep.recommendations] == [
        (r.length, r.method, r.factor, r.longest_usable) for r in native.recommendations
    ]


def test_rows_of_other_engines_never_mix(sweep, native, tmp_path):
    """Nor those of another type, or of other versions: nothing is measured, and the folder stays as it was."""
    sweep.save(tmp_path / "torch")
    native.save(tmp_path / "native")
    sweep.save(tmp_path / "older")
    older = tmp_path / "older/results.jsonl"
    older.write_text(older.read_text().replace(f"transformers {transformers.__version__}", "transformers 4.0.1"))
    for folder, more, says in [
        ("torch", {"angles": "float32"}, "compute there PyTorch .*, here float32"),
        (
            "native",
            {"engine": "torch"},
            "compute there float32, here PyTorch .*angles there float32, here float32; under",
        ),
        ("torch", {"engine": "torch", "dtype": "bfloat16"}, "compute there PyTorch .*float32, here PyTorch .*bfloat16"),
        ("older", {"engine": "torch"}, "compute there PyTorch .*4.0.1.*, here PyTorch"),
    ]:
        before = (tmp_path / folder / "results.jsonl").read_bytes()
        with pytest.raises(rw.Error, match=says) as raised:
            rw.sweep(MODEL, text=TEXT, output=tmp_path / folder, **more, **SMALL)
        assert raised.value.code == "mismatch"
        assert (tmp_path / folder / "results.jsonl").read_bytes() == before


def test_two_threads_sweep_two_models_with_two_engines(sweep, native):
    """Each has the rows that it has alone."""
    found, errors = {}, []

    def run(name, model, **more):
        try:
            found[name] = rw.sweep(model, text=TEXT, **more, **SMALL)
        except BaseException as error:
            errors.append(error)

    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    threads = [
        threading.Thread(target=run, args=("torch", MODEL), kwargs={"engine": "torch"}),
        threading.Thread(target=run, args=("native", MODEL), kwargs={"angles": "float32"}),
        threading.Thread(target=run, args=("loaded", loaded()), kwargs={"tokenizer": tokenizer}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    changing = {"seconds", "identity", "tokenizer", "tokenizer_hash", "model_hash", "threads"}
    for name, alone in (("torch", sweep), ("native", native), ("loaded", sweep)):
        for row, wanted in zip(found[name].rows, alone.rows, strict=True):
            different = {key for key in wanted if row[key] != wanted[key]}
            assert different <= changing, (name, different)


def test_bfloat16_measures_about_the_same(sweep):
    rows = rw.sweep(MODEL, text=TEXT, engine="torch", dtype="bfloat16", **SMALL).rows
    for row, exact in zip(rows, sweep.rows, strict=True):
        assert row["compute"].endswith("cpu, bfloat16")
        assert 0 < abs(row["mean_nll"] - exact["mean_nll"]) < 0.03, (row["method"], row["length"])


def test_key_tokens_within_a_budget(tmp_path):
    """Found by PyTorch they are those that the decoder finds, and have its losses."""
    draw, text = np.random.default_rng(2), ""
    for _ in range(40):
        names = ["".join(draw.choice("za ra ba bel shi mon dan gad le vi na ph ta li".split(), 3)).capitalize() for _ in range(8)]
        text += 2 * "".join(f"And {names[i]} begat {names[i - 7]}, the son of {names[i - 5]}.\n" for i in range(8))
    small = {"methods": "none,yarn", "lengths": [256, 512], "anchors": 6, "tasks": "perplexity,key-tokens", "budget": "1h"}
    ours = rw.sweep(MODEL, text=text, engine="torch", output=tmp_path / "torch", progress=False, **small)
    theirs = rw.sweep(MODEL, text=text, angles="float32", output=tmp_path / "native", progress=False, **small)
    spans = [json.loads((tmp_path / name / "key-tokens.json").read_text())["spans"] for name in ("torch", "native")]
    assert spans[0] == spans[1] and len(spans[0]) > 2
    for a, b in zip(ours.rows, theirs.rows, strict=True):
        assert a["tasks"][0]["mean_nll"] == pytest.approx(b["tasks"][0]["mean_nll"], abs=2e-5)
        assert not a["unfinished"]


def test_a_loaded_model_and_its_tokenizer(sweep):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    ours = rw.sweep(loaded(), text=TEXT, tokenizer=tokenizer, **SMALL)
    for row, wanted in zip(ours.rows, sweep.rows, strict=True):
        for key in (
            "method",
            "length",
            "plan_hash",
            "text_hash",
            "window_nll",
            "bits_per_byte",
            "tasks_protocol",
            "bos",
        ):
            assert row[key] == wanted[key], key
        assert "transformers" in row["tokenizer"]
    with pytest.raises(rw.Error, match="tokenizer"):
        rw.sweep(loaded(), text=TEXT, **SMALL)
    with pytest.raises(rw.Error, match="path"):
        rw.sweep(loaded(), text=TEXT, tokenizer=tokenizer, engine="native", **SMALL)


# ---- Progress and Ctrl-C


def test_a_bar_of_tqdm(capsys):
    pytest.importorskip("tqdm")
    rw.sweep(MODEL, text=TEXT, engine="torch", **{**SMALL, "methods": "none", "tasks": "perplexity", "progress": True})
    shown = capsys.readouterr().err
    assert "100%" in shown and "none at 512" in shown and "perplexity" in shown


LONG = """
import sys, ropewalk as rw
try:
    rw.sweep({model!r}, text=open({text!r}).read(), engine="torch", methods="none,yarn", lengths=[16, 2048, 3000],
             protocol="windows", anchors=40, tasks="perplexity", output={out!r})
except KeyboardInterrupt:
    sys.exit(7)
"""


def take_sigint():
    """A shell starts what it puts in the background with SIGINT ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(command, results):
    """(exit code, stderr) of a sweep that gets Ctrl-C when its first row is there."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=take_sigint)
    deadline = time.monotonic() + 400
    while not (results.exists() and results.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=200)[1], process.returncode


def test_ctrl_c_in_python(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(make_text(60000))
    code = LONG.format(model=str(MODEL), text=str(text), out=str(out))
    stderr, code = interrupted([sys.executable, "-c", code], out / "results.jsonl")
    assert code == 7 and f"finished rows are kept: sweep(..., output={str(out)!r}) continues" in stderr, stderr
    assert all(json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())


# ---- The program


def program(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "ropewalk", *map(str, arguments)], capture_output=True, timeout=300, **more
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_the_program_has_the_engine(sweep, text, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    run = program(
        "sweep",
        MODEL,
        "--text",
        text,
        "-o",
        tmp_path / "out",
        "--methods",
        "none,yarn,linear",
        "--lengths",
        "128,512",
        "--anchors",
        2,
        "--passkey-trials",
        1,
        "--engine",
        "torch",
        "--dtype",
        "float32",
        "--json",
        env=environment,
    )
    assert run.returncode == 0, run.stderr.decode()
    rows = json.loads(run.stdout)["sweeps"][0]["cells"]
    for row, wanted in zip(rows, sweep.rows, strict=True):
        different = {key for key in wanted if row[key] != wanted[key]}
        assert different <= {"seconds", "threads", "identity"}
    assert f"PyTorch {torch.__version__}" in run.stderr.decode()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--device", "cpu"], "--device goes with --engine torch"),
        (["--engine", "torch", "--compute", "bf16"], "--compute does not go with --engine torch"),
        (["--engine", "torch", "--kv", "q8_0"], "--kv does not go with --engine torch: its KV cache has the type"),
        (["--engine", "jax"], "--engine"),
    ],
)
def test_the_program_refuses(text, tmp_path, more, says):
    run = program("sweep", MODEL, "--text", text, "-o", tmp_path / "out", *more)
    assert run.returncode == 2 and says in run.stderr.decode()


def test_ctrl_c_in_the_program(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(make_text(60000))
    arguments = [
        "sweep",
        MODEL,
        "--text",
        text,
        "-o",
        out,
        "--methods",
        "none,yarn",
        "--lengths",
        "16,2048,3000",
        "--tasks",
        "perplexity",
        "--protocol",
        "windows",
        "--anchors",
        40,
        "--engine",
        "torch",
    ]
    stderr, code = interrupted([sys.executable, "-m", "ropewalk", *map(str, arguments)], out / "results.jsonl")
    assert code == 130 and "what was measured is kept" in stderr, stderr


def test_a_tokenizer_of_transformers_counts_the_bytes_of_the_text():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    from ropewalk._engine_load import load_tokenizer
    from ropewalk._sweep import _as_tokenizer

    ours, theirs = _as_tokenizer(tokenizer), _core.ModelFiles(str(MODEL)).tokenizer
    np.testing.assert_array_equal(ours.encode(TEXT), theirs.encode(TEXT))
    assert (ours.bos_id, ours.adds_bos) == (theirs.bos_id, theirs.adds_bos)
    assert load_tokenizer(str(MODEL)).bos_token_id == ours.bos_id
