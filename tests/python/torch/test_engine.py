"""PyTorch as an engine against the library's decoder, on the embedded model; chunks, batches, prefixes, memory."""

import json
import os
import pathlib
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
from ropewalk import _core
from ropewalk import engine as engines
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine, native_engine

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "models"
TRAINED = 256
NATS = 1e-4  # by which the loss of a token may differ

NOUNS = "king man house people land city son day word hand priest field river stone".split()
VERBS = "went spake came saw took gave made said built heard sent found kept brought".split()


def make_text(words):
    draw = np.random.default_rng(1)
    return "".join(
        f"And the {NOUNS[draw.integers(14)]} {VERBS[draw.integers(14)]} unto the {NOUNS[draw.integers(14)]}"
        + (".\n" if i % 3 == 0 else ", ")
        for i in range(words // 6)
    )


TEXT = make_text(6000)
SMALL = {"methods": "none,yarn,linear", "lengths": [128, 512], "anchors": 2, "passkey_trials": 1, "progress": False}


@pytest.fixture(scope="module")
def native():
    return native_engine(MODEL)


@pytest.fixture(scope="module")
def engine():
    return TorchEngine(MODEL)


@pytest.fixture(scope="module")
def ids():
    return _core.ModelFiles(str(MODEL)).tokenizer.encode(TEXT)


def loaded():
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


def plan_of(method, length):
    factor = max(1.0, length / TRAINED)
    return rw.plan(MODEL).with_method(method, None if method == "none" else factor, length=length)


def requests_of(ids, length):
    """Windows that run together, and sequences that share a prefix: twice the same, then a part of it."""
    half = length // 2
    requests = [ScoreRequest(ids=ids[100 * i : 100 * i + length], positions=np.arange(1, length)) for i in range(3)]
    for first in (700, 900):
        requests.append(
            ScoreRequest(prefix=ids[:half], ids=ids[first : first + length - half], positions=np.arange(half, length))
        )
    third = length // 3
    requests.append(ScoreRequest(prefix=ids[:third], ids=ids[50 : 60 + third], positions=[third + 3, third + 9]))
    requests.append(ScoreRequest(ids=ids[:5], positions=[]))
    return requests


def difference(a, b):
    assert [len(x[0]) for x in a.tokens] == [len(x[0]) for x in b.tokens]
    return max(float(np.abs(x[0] - y[0]).max()) for x, y in zip(a.tokens, b.tokens) if len(x[0]))


def usual_methods():
    """Those of a sweep without `methods`."""
    ids = _core.ModelFiles(str(MODEL)).tokenizer.encode(TEXT)
    core = _core.Sweep(
        rw.plan(MODEL), None, None, ids, [], [], [], [], 0, "aligned", None, 1, False, False, 1, "exact", False
    )
    return sorted({task[0] for task in core.tasks})


MAPS = ["rerope", "leaky-rerope", "self-extend", "dual-chunk", "sinks", "log-n", "rerope+log-n"]


@pytest.mark.parametrize("method", sorted({*usual_methods(), *MAPS}))
def test_losses_of_tokens_are_the_native_ones(native, engine, ids, method):
    for length in (100, TRAINED, 2 * TRAINED, 4 * TRAINED):
        plan, requests = plan_of(method, length), requests_of(ids, length)
        remapped = any(layer.map is not None or layer.temperature is not None for layer in plan.layers)
        # Under these ropewalk.transformers rotates, with exact tables; else transformers itself, in float32.
        theirs = native.score(plan, requests, angles="exact" if remapped else "float32")
        ours = engine.score(plan, requests)
        assert difference(ours, theirs) <= NATS, (method, length)
        same = np.concatenate([x[1] == y[1] for x, y in zip(ours.tokens, theirs.tokens)])
        assert same.mean() > 0.999, (method, length)
        assert np.isnan(ours.entropy)


def test_the_comparison_sees_a_wrong_plan(native, engine, ids):
    requests = requests_of(ids, 512)
    assert difference(engine.score(plan_of("yarn", 512), requests), native.score(plan_of("linear", 512), requests)) > 0.1


@pytest.mark.parametrize("method", ["dynamic", "yarn"])
def test_chunks_change_rounding_alone(engine, ids, method, monkeypatch):
    """Frequencies that depend on the length are those of the final one from the first chunk on."""
    plan, requests = plan_of(method, 512), requests_of(ids, 512)
    whole = engine.score(plan, requests)
    monkeypatch.setattr(engine, "_most_tokens", 64)
    assert difference(engine.score(plan, requests), whole) < 3e-5


def test_alone_together_and_behind_a_prefix_the_scores_are_the_same(engine, ids):
    plan = plan_of("yarn", 300)
    requests = requests_of(ids, 300)
    together = engine.score(plan, requests)
    for request, row in zip(requests, together.tokens):
        whole = ScoreRequest(ids=np.concatenate([request.prefix, request.ids]), positions=request.positions)
        alone = engine.score(plan, [whole]).tokens[0]
        np.testing.assert_allclose(row[0], alone[0], atol=3e-5)


def test_a_shared_prefix_is_computed_once(engine, ids):
    """By the number of tokens that the model is fed."""
    fed = []
    hook = engine.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    ticks = []
    try:
        prefixes = [(200, 40), (200, 60), (230, 30)]  # tokens of prefix, of the rest
        requests = [ScoreRequest(prefix=ids[:p], ids=ids[500 : 500 + n], positions=[p + n - 1]) for p, n in prefixes]
        engine.score(plan_of("none", 300), requests, tick=ticks.append)
    finally:
        hook.remove()
    assert sum(fed) == 200 + 39 + 59 + 30 + 29
    assert sum(ticks) == sum(p + n - 1 for p, n in prefixes)


def test_generated_tokens_are_the_native_ones(native, engine, ids):
    prompts = [GenerateRequest(ids=ids[:40], max_tokens=8), GenerateRequest(prefix=ids[:9], ids=ids[9:30], max_tokens=0)]
    plan = plan_of("yarn", 512)
    ours, theirs = engine.generate(plan, prompts), native.generate(plan, prompts)
    assert [(list(a), b) for a, b in ours] == [(list(a), b) for a, b in theirs]
    stop = GenerateRequest(ids=ids[:40], max_tokens=8, stop=[int(ours[0][0][4])])
    (made, stopped), = engine.generate(plan, [stop])
    assert stopped and list(made) == list(ours[0][0][: list(ours[0][0]).index(ours[0][0][4])])


# ---- Memory


class Scarce:
    """Refuses more than `tokens` tokens at a time, as a GPU does whose memory is full."""

    def __init__(self, engine, tokens):
        self.tokens, self.refused, self.largest = tokens, 0, 0
        self.hook = engine.model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, module, args, kwargs):
        tokens = kwargs["input_ids"].numel()
        if tokens > self.tokens:
            self.refused += 1
            raise torch.OutOfMemoryError("out of memory. Tried to allocate 20.00 GiB.\nand more lines")
        self.largest = max(self.largest, tokens)


@pytest.mark.parametrize("tokens", [600, 300, 70])
def test_less_at_a_time_where_memory_runs_out(ids, tokens):
    engine = TorchEngine(MODEL)
    plan, requests, ticks = plan_of("yarn", 300), requests_of(ids, 300), []
    whole = engine.score(plan, requests)
    scarce = Scarce(engine, tokens)
    scores = engine.score(plan, requests, tick=ticks.append)
    assert difference(scores, whole) < 3e-5
    assert scarce.refused > 0 and scarce.largest <= tokens
    assert sum(ticks) == sum(len(r.prefix) + int(r.positions[-1] - len(r.prefix)) for r in requests if len(r.positions))


def test_no_memory_at_all_is_an_error(ids):
    engine = TorchEngine(MODEL)
    Scarce(engine, 10)
    with pytest.raises(rw.Error, match="not enough memory on cpu for one sequence of 300 tokens.*20.00 GiB"):
        engine.score(plan_of("yarn", 300), requests_of(ids, 300))


# ---- The model


def test_the_model_is_given_back_as_it_was(engine, ids):
    before = {name: buffer.clone() for name, buffer in engine.model.named_buffers()}
    engine.score(plan_of("yarn", 512), requests_of(ids, 512))
    with pytest.raises(LookupError):
        engine.score(plan_of("linear", 512), requests_of(ids, 512), tick=lambda tokens: {}[tokens])
    after = dict(engine.model.named_buffers())
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_exact_angles_are_refused(engine, ids):
    with pytest.raises(rw.Error, match="float32"):
        engine.score(plan_of("none", 64), [ScoreRequest(ids=ids[:9], positions=[1])], angles="exact")


def test_the_hash_is_that_of_the_weights():
    model = loaded()
    first, same = TorchEngine(model).model_hash(), TorchEngine(loaded()).model_hash()
    assert first == same
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] += 1
    assert TorchEngine(model).model_hash() != first


def test_what_it_refuses():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(MODEL))
    for given, more, says in [
        (model, {}, "meta device"),
        (3, {}, "expected a causal model"),
        ("no-such-folder", {}, "no-such-folder"),
        (MODEL, {"dtype": "int8"}, "int8"),
        (loaded(), {"dtype": "bfloat16"}, "load it with dtype"),
    ]:
        with pytest.raises(rw.Error, match=says):
            TorchEngine(given, **more)
    if not torch.cuda.is_available():
        with pytest.raises(rw.Error, match="no GPU"):
            TorchEngine(MODEL, device="cuda")


def test_bfloat16_is_bfloat16(ids):
    engine = TorchEngine(MODEL, dtype="bfloat16")
    assert engine.facts().compute.endswith("cpu, bfloat16")
    scores = engine.score(plan_of("yarn", 512), requests_of(ids, 512))
    exact = TorchEngine(MODEL).score(plan_of("yarn", 512), requests_of(ids, 512))
    mean = [np.mean(np.concatenate([row[0] for row in s.tokens])) for s in (scores, exact)]
    assert 1e-5 < difference(scores, exact) and abs(mean[0] - mean[1]) < 0.02


def test_two_threads_with_one_model(engine, ids):
    wanted = {m: engine.score(plan_of(m, 512), requests_of(ids, 512)) for m in ("yarn", "linear")}
    found = {}

    def run(method):
        found[method] = [engine.score(plan_of(method, 512), requests_of(ids, 512)) for _ in range(2)]

    threads = [threading.Thread(target=run, args=(method,)) for method in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(difference(scores, wanted[method]) < 1e-6 for method in wanted for scores in found[method])


# ---- The sweep


@pytest.fixture(scope="module")
def sweep():
    return rw.sweep(MODEL, text=TEXT, engine="torch", **SMALL)


def test_rows_name_the_engine(sweep):
    (compute,) = {row["compute"] for row in sweep.rows}
    assert compute == f"PyTorch {torch.__version__}, transformers {transformers.__version__}, cpu, float32"
    assert {row["angles"] for row in sweep.rows} == {"float32"}
    assert {row["threads"] for row in sweep.rows} == {torch.get_num_threads()}


def test_the_sweep_recommends_what_the_native_one_does(sweep):
    native = rw.sweep(MODEL, text=TEXT, angles="float32", **SMALL)
    assert [(r["method"], r["factor"], r["length"], r["plan_hash"]) for r in sweep.rows] == [
        (r["method"], r["factor"], r["length"], r["plan_hash"]) for r in native.rows
    ]
    for ours, theirs in zip(sweep.rows, native.rows):
        assert ours["mean_nll"] == pytest.approx(theirs["mean_nll"], abs=2e-5)
        np.testing.assert_allclose(ours["window_nll"], theirs["window_nll"], atol=2e-5)
        assert ours["passkey_by_depth"] == theirs["passkey_by_depth"]
        assert ours["model_hash"] == theirs["model_hash"] and ours["text_hash"] == theirs["text_hash"]
        assert ours["entropy"] is None and theirs["entropy"] is not None
    assert [(r.length, r.method, r.factor, r.longest_usable) for r in sweep.recommendations] == [
        (r.length, r.method, r.factor, r.longest_usable) for r in native.recommendations
    ]


def test_a_folder_of_the_native_engine_is_refused(sweep, tmp_path):
    sweep.save(tmp_path)
    with pytest.raises(rw.Error, match="compute there PyTorch .*, here float32") as raised:
        rw.sweep(MODEL, text=TEXT, output=tmp_path, angles="float32", **SMALL)
    assert raised.value.code == "mismatch"


def test_a_loaded_model_and_its_tokenizer(sweep):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    ours = rw.sweep(loaded(), text=TEXT, tokenizer=tokenizer, **SMALL)
    for row, wanted in zip(ours.rows, sweep.rows, strict=True):
        for key in ("method", "length", "plan_hash", "text_hash", "window_nll", "bits_per_byte", "passkey_by_depth", "bos"):
            assert row[key] == wanted[key], key
        assert "transformers" in row["tokenizer"]
    with pytest.raises(rw.Error, match="tokenizer"):
        rw.sweep(loaded(), text=TEXT, **SMALL)
    with pytest.raises(rw.Error, match="path"):
        rw.sweep(loaded(), text=TEXT, tokenizer=tokenizer, engine="native", **SMALL)


# ---- The program


def program(*arguments, **more):
    return subprocess.run([sys.executable, "-m", "ropewalk", *map(str, arguments)], capture_output=True, timeout=300, **more)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_the_program_has_the_engine(sweep, text, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    run = program("sweep", MODEL, "--text", text, "-o", tmp_path / "out", "--methods", "none,yarn,linear", "--lengths",
                  "128,512", "--anchors", 2, "--passkey-trials", 1, "--engine", "torch", "--dtype", "float32", "--json",
                  env=environment)
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
        (["--engine", "jax"], "--engine"),
    ],
)
def test_the_program_refuses(text, tmp_path, more, says):
    run = program("sweep", MODEL, "--text", text, "-o", tmp_path / "out", *more)
    assert run.returncode == 2 and says in run.stderr.decode()


def test_ctrl_c_in_the_program(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(make_text(60000))
    arguments = ["sweep", MODEL, "--text", text, "-o", out, "--methods", "none,yarn", "--lengths", "16,2048,3000", "--no-passkey",
                 "--protocol", "windows", "--anchors", 40, "--engine", "torch", "--yes"]
    process = subprocess.Popen([sys.executable, "-m", "ropewalk", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    results, deadline = out / "results.jsonl", time.monotonic() + 200
    while not (results.exists() and results.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "finished cells are kept" in stderr, stderr


def test_a_tokenizer_of_transformers_counts_the_bytes_of_the_text():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    from ropewalk._sweep import _as_tokenizer

    ours, theirs = _as_tokenizer(tokenizer), _core.ModelFiles(str(MODEL)).tokenizer
    np.testing.assert_array_equal(ours.encode(TEXT), theirs.encode(TEXT))
    assert (ours.bos_id, ours.adds_bos) == (theirs.bos_id, theirs.adds_bos)
    assert engines.load_tokenizer(str(MODEL)).bos_token_id == ours.bos_id
