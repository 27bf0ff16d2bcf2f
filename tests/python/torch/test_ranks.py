"""The PyTorch engine over two processes that torchrun starts (gloo): the numbers of one process, and no end that hangs."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import transformers
from engine_cases import MODEL, TEXT, embedded_ids, make_text
from engine_on_ranks import METHODS, SMALL, scores
from ranks_cases import HERE, environment, finish, found, rank_pid, run, start
from tiny_models import build

import ropewalk as rw
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine

SCRIPT = HERE / "engine_on_ranks.py"
DEALT = ["llama", "qwen3", "mistral", "gemma3_text", "gpt_oss", "mixtral"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "text.txt").write_text(TEXT)
    np.save(folder / "ids.npy", np.asarray(embedded_ids(), np.int32))
    return folder


@pytest.fixture(scope="module")
def engine(files):
    return found(SCRIPT, "engine", MODEL, files / "ids.npy")


@pytest.fixture(scope="module")
def sweeps(files):
    return found(SCRIPT, "sweeps", MODEL, files / "text.txt", files / "out")


@pytest.fixture(scope="module")
def alone(files):
    return scores(TorchEngine(MODEL), MODEL, np.load(files / "ids.npy"))


@pytest.mark.parametrize("method", METHODS)
def test_losses_are_those_of_one_process(engine, alone, method):
    for rank in (0, 1):
        for ours, theirs in zip(engine["scores", rank][method], alone[method], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=5e-5)
    assert engine["scores", 0][method] == engine["scores", 1][method]


def test_each_rank_has_a_part(engine):
    for rank in (0, 1):
        assert engine["sharded", rank] == {"whole": [192, 192], "here": [96, 192]}
        facts = engine["facts", rank]
        versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
        assert facts["compute"] == f"{versions}, 2 ranks of cpu, float32"
        assert facts["threads"] == 2 and facts["engine"] == "PyTorch over 2 ranks"


def test_other_calls_of_an_engine(engine, files):
    one = TorchEngine(MODEL)
    ids = np.load(files / "ids.npy")
    made = one.generate(rw.plan(MODEL).with_method("none", None, length=512), [GenerateRequest(ids=ids[:50], max_tokens=5)])
    for rank in (0, 1):
        assert engine["generated", rank]["ids"] == made[0][0].tolist()
        assert engine["hash", rank]["hash"] == one.model_hash()


def test_what_rank_0_refuses_or_ends_all_do_and_go_on(engine):
    for rank in (0, 1):
        assert 'has angles="float32" alone' in engine["refused", rank]["angles"]
        assert engine["stopped", rank]["error"] == "that is enough"
        assert engine["again", rank]["same"]
        assert engine["again", rank]["caches"] <= 4  # told with the next message


def test_no_thread_of_gloo_is_left_to_abort_the_end(engine):
    for rank in (0, 1):
        before, after = engine["closed", rank]["threads"]
        assert after <= before - 2  # those of the model's own group go with the model


# ---- Sweeps


def same_rows(ours, theirs):
    changing = {"seconds", "identity", "threads", "compute", "mean_nll", "perplexity", "window_nll", "standard_error"}
    changing |= {"bits_per_byte", "bucket_nll", "tasks"}
    for row, wanted in zip(ours, theirs, strict=True):
        assert {key for key in wanted if row[key] != wanted[key]} <= changing
        np.testing.assert_allclose(row["window_nll"], wanted["window_nll"], atol=2e-5)
        assert row["mean_nll"] == pytest.approx(wanted["mean_nll"], abs=2e-5)
        for a, b in zip(row["tasks"], wanted["tasks"], strict=True):
            assert a["exact"] == b["exact"] and a["mean_nll"] == pytest.approx(b["mean_nll"], abs=1e-4)


@pytest.fixture(scope="module")
def one_process(files):
    return rw.sweep(MODEL, text=files / "text.txt", engine="torch", **SMALL)


def test_a_sweep_in_a_script(sweeps, one_process, files):
    for rank in (0, 1):
        same_rows(sweeps["sweep", rank]["rows"], one_process.rows)
        assert (files / "out" / f"report-{rank}.html").stat().st_size > 10000
    assert sweeps["sweep", 0]["rows"] == sweeps["sweep", 1]["rows"]
    assert {row["compute"].split(", ")[2] for row in sweeps["sweep", 0]["rows"]} == {"2 ranks of cpu"}
    assert sweeps["sweep", 0]["folder"] == str(files / "out") != sweeps["sweep", 1]["folder"]


def test_what_a_sweep_refuses_is_refused_on_every_rank(sweeps):
    assert sweeps["wrong", 0]["error"] == sweeps["wrong", 1]["error"] != ""


def test_processes_may_work_each_for_itself(sweeps):
    assert all("ranks" not in sweeps["alone", rank]["compute"] for rank in (0, 1))


def test_a_model_that_the_script_has_dealt(sweeps, one_process):
    wanted = [row for row in one_process.rows if row["method"] == "none"]
    for row, one in zip(sweeps["given", 0]["rows"], wanted, strict=True):
        np.testing.assert_allclose(row["window_nll"], one["window_nll"], atol=2e-5)
    assert sweeps["given", 0]["rows"] == sweeps["given", 1]["rows"]
    for rank in (0, 1):
        assert "device: over ranks each has a device of its own" in sweeps["refused sizes", rank]["device"]


def arguments(text, out, **more):
    settings = {"methods": "none,yarn,rerope", "lengths": "128,512", "anchors": 2, "passkey-trials": 1, **more}
    return [
        "-m",
        "ropewalk",
        "sweep",
        MODEL,
        "--text",
        text,
        "--engine",
        "torch",
        "-o",
        out,
        *[word for name, value in settings.items() for word in (f"--{name}", value)],
    ]


def test_the_program(files, one_process, tmp_path):
    code, out, err = run(*arguments(files / "text.txt", tmp_path / "out"), "--json")
    assert code == 0, err
    same_rows(json.loads(out)["sweeps"][0]["cells"], one_process.rows)
    assert (tmp_path / "out/report.html").exists()
    assert err.count("none at 128") == 1 and "rank 1" not in err


def test_rows_of_other_numbers_of_ranks_do_not_mix(files, sweeps):
    command = [sys.executable, *arguments(files / "text.txt", files / "out")]
    one = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment(), timeout=240)
    assert one.returncode == 1 and "2 ranks of cpu" in one.stderr and "compute" in one.stderr


def test_shards_have_a_model_each(files, tmp_path):
    few = {"methods": "none", "lengths": "128", "shard": "auto", "tasks": "perplexity"}
    command = [a for a in arguments(files / "text.txt", tmp_path / "out", **few) if a not in ("--passkey-trials", 1)]
    code, _, err = run(*command)
    assert code == 0, err
    assert {f.name for f in (tmp_path / "out").glob("results.*.jsonl")} >= {"results.1-of-2.jsonl"}
    assert {row["compute"].split(", ")[2] for row in rw.Sweep(tmp_path / "out").rows} == {"cpu"}


def test_wrong_usage_ends_all(files, tmp_path):
    code, _, err = run(*arguments(files / "text.txt", tmp_path / "out", angles="exact"))
    assert code != 0 and err.count("--angles does not go with --engine torch") == 1


# ---- Ends


def test_a_rank_that_is_killed_ends_the_job(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(make_text(60000))
    long = {"methods": "none", "lengths": "16,3000", "tasks": "perplexity", "protocol": "windows", "anchors": 40}
    command = [a for a in arguments(text, out, **long) if a not in ("--passkey-trials", 1)]
    job = start(*command)
    results = out / "results.jsonl"
    deadline = time.monotonic() + 200
    while not (results.exists() and results.read_text().count("\n") >= 1):
        assert time.monotonic() < deadline and job.poll() is None, finish(job, 5)
        time.sleep(0.2)
    os.kill(rank_pid(job, 1), signal.SIGKILL)
    code, _, err = finish(job, 120)
    assert code != 0 and "Signal 9" in err, err
    assert all(json.loads(line) for line in results.read_text().splitlines())
    assert not (out / "report.html").exists()  # it was in the middle of it


def test_a_rank_that_fails_ends_the_job(files):
    code, out, err = run(SCRIPT, "failing", MODEL, files / "ids.npy")
    assert code != 0 and "a layer of rank 1 gives up" in err


def test_ranks_that_make_other_calls_end_the_job(files):
    code, out, err = run(SCRIPT, "other_calls", MODEL, files / "ids.npy")
    assert code != 0 and "all ranks make the same calls" in err


# ---- Models


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in (*DEALT, "odd"):
        settings = {"num_key_value_heads": 1} if name == "odd" else {}
        torch.manual_seed(5)
        build("llama" if name == "odd" else name, **settings).save_pretrained(folder / name)
    config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64, n_positions=64)
    assert not config.base_model_tp_plan
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "gpt2")
    return folder


@pytest.fixture(scope="module")
def of_ranks(models):
    return found(SCRIPT, "families", models)


@pytest.mark.parametrize("family", DEALT)
def test_families(of_ranks, models, family):
    one = TorchEngine(models / family)
    rows = of_ranks[family, 0]
    if not one.model.config.base_model_tp_plan:  # gpt_oss of transformers 5, which deals experts alone
        assert "has no tensor parallel plan" in rows["error"]
        return
    assert rows == of_ranks[family, 1] and "error" not in rows, rows
    for method, found_there in rows.items():
        plan = one.model_plan().with_method(method, None if method == "none" else 2.0, length=200)
        ids = np.arange(3, 90, dtype=np.int32)
        alone = one.score(plan, [ScoreRequest(ids=ids, positions=np.arange(1, 87))]).tokens[0][0]
        np.testing.assert_allclose(found_there, alone, atol=1e-4, err_msg=method)


def test_models_that_cannot_be_dealt(of_ranks):
    for rank in (0, 1):
        assert "its 1 key-value heads cannot be dealt to 2 ranks" in of_ranks["odd", rank]["error"]


def test_a_model_without_a_plan_is_refused(of_ranks):
    for rank in (0, 1):
        assert "has no tensor parallel plan for gpt2 models" in of_ranks["gpt2", rank]["error"]
        assert "start it without torchrun" in of_ranks["gpt2", rank]["error"]


def test_ranks_without_torchrun_are_refused():
    with pytest.raises(rw.Error, match="torchrun"):
        TorchEngine(MODEL, ranks=True)
