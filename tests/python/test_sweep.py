"""Engines in Python, and the sweep: its rows against the program's, its results, how it is stopped."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import numpy as np
import pytest

import ropewalk as rw
from ropewalk import _core, _pictures
from ropewalk.engine import EngineFacts, GenerateRequest, ScoreRequest, Scores, ScoringEngine, native_engine
from short_model import short_model

MODEL = short_model()  # 256 tokens
NATIVE = os.environ.get("ROPEWALK_PROGRAM")

NOUNS = "king man house people land city son day word hand priest field river stone".split()
VERBS = "went spake came saw took gave made said built heard sent found kept brought".split()


def make_text(words=6000):
    draw = np.random.default_rng(1)
    return "".join(
        f"And the {NOUNS[draw.integers(14)]} {VERBS[draw.integers(14)]} unto the {NOUNS[draw.integers(14)]}"
        + (".\n" if i % 3 == 0 else ", ")
        for i in range(words // 6)
    )


TEXT = make_text()
SMALL = {"methods": "linear,yarn", "lengths": [128, 512], "anchors": 2, "protocol": "aligned:32", "tasks": "perplexity"}


def timeless(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def small():
    return rw.sweep(MODEL, text=TEXT, progress=False, **SMALL)


# ---- Engines


class Uniform(ScoringEngine):
    """Each token is as probable as any other; counts what it is asked."""

    def __init__(self, fails=None, vocab=1024):
        super().__init__()
        self.fails, self.vocab, self.calls = fails, vocab, []

    def facts(self):
        return EngineFacts(name="uniform", vocab=self.vocab, compute="uniform 1.0")

    def memory_bytes(self, plan, length):
        return 1000 * length

    def do_score(self, call, requests):
        self.calls.append((call.plan.hash, call.final_length, call.angles, len(requests)))
        if self.fails:
            raise self.fails
        tokens = []
        for request in requests:
            n = len(request.positions)
            tokens.append((np.full(n, -np.log(self.vocab), np.float32), np.zeros(n, np.int32)))
            call.tick(len(request.prefix) + len(request.ids) - 1)
        return Scores(tokens, entropy=[(1.5, 0.5)] * len(tokens))


def test_an_engine_in_python_is_asked_and_its_answer_comes_back():
    engine, plan = Uniform(), rw.plan(MODEL).at(512)
    ticks = []
    request = ScoreRequest(ids=[5, 6, 7], positions=[2, 4], prefix=[3, 4])
    scores = engine.score(plan, [request], tick=ticks.append)
    assert engine.calls == [(plan.hash, 512, "exact", 1)]
    (log_probs, top), = scores.tokens
    assert log_probs.dtype == np.float32 and top.dtype == np.int32
    np.testing.assert_array_equal(log_probs, np.full(2, -np.log(1024), np.float32))
    assert (scores.entropy, ticks) == ([(1.5, 0.5)], [4])
    assert engine.memory_bytes(plan, 7) == 7000
    np.testing.assert_array_equal(request.prefix, [3, 4])


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), rw.Error("refused")])
def test_what_an_engine_raises_arrives_as_itself(error):
    with pytest.raises(type(error)) as raised:
        Uniform(fails=error).score(rw.plan(MODEL), [ScoreRequest(ids=[1, 2], positions=[1])])
    assert raised.value is error


def test_what_a_tick_raises_ends_the_call():
    error = LookupError("enough")

    def tick(tokens):
        raise error

    for engine in (Uniform(), native_engine(MODEL)):
        with pytest.raises(LookupError) as raised:
            engine.score(rw.plan(MODEL), [ScoreRequest(ids=[1, 2], positions=[1])], tick=tick)
        assert raised.value is error


@pytest.mark.parametrize(
    ("ids", "positions", "says"),
    [([1, 2000], [1], "2000"), ([1, 2], [0], "positions"), ([1, 2], [2], "positions"), ([1] * 600, [1], "final length")],
)
def test_requests_are_checked_before_the_engine_sees_them(ids, positions, says):
    engine = Uniform()
    with pytest.raises(rw.Error, match=says):
        engine.score(rw.plan(MODEL), [ScoreRequest(ids=ids, positions=positions)], final_length=512)
    assert engine.calls == []


def test_answers_are_checked():
    class Short(Uniform):
        def do_score(self, call, requests):
            return Scores([])

    class Infinite(Uniform):
        def do_score(self, call, requests):
            return Scores([([-np.inf], [0])])

    for engine, says in ((Short(), "one score"), (Infinite(), "finite")):
        with pytest.raises(rw.Error, match=says):
            engine.score(rw.plan(MODEL), [ScoreRequest(ids=[1, 2], positions=[1])])


def test_an_engine_that_does_not_generate_says_so():
    with pytest.raises(rw.Error, match="'uniform' does not generate"):
        Uniform().generate(rw.plan(MODEL), [GenerateRequest(ids=[1], max_tokens=1)])


def test_continuations_of_scores_come_from_either():
    class Both(Uniform):
        def do_score(self, call, requests):
            scores = super().do_score(call, requests)
            assert [list(r.stop) for r in requests] == [[3], []]
            if self.vocab == 1024:
                return scores
            made = [([1] * r.continue_tokens, False) for r in requests]
            return Scores(scores.tokens, continuations=made, fed_tokens=7)

        def do_generate(self, call, requests):
            return [([9] * r.max_tokens, list(r.stop) == [3]) for r in requests]

    requests = [
        ScoreRequest(ids=[1, 2], positions=[], continue_tokens=2, stop=[3]),
        ScoreRequest(ids=[1, 2], positions=[1]),
    ]
    for vocab, expected, fed in ((1024, [([9, 9], True), ([], False)], 0), (1025, [([1, 1], False), ([], False)], 7)):
        scores = Both(vocab=vocab).score(rw.plan(MODEL), requests)
        assert [(list(ids), stopped) for ids, stopped in scores.continuations] == expected
        assert scores.fed_tokens == fed
    assert (requests[0].continue_tokens, list(requests[0].stop)) == (2, [3])
    with pytest.raises(rw.Error, match="continue_tokens"):
        Both().score(rw.plan(MODEL), [ScoreRequest(ids=[1], positions=[], continue_tokens=-1)])


def test_the_native_engine_scores_and_generates_the_same_tokens():
    engine, plan = native_engine(MODEL), rw.plan(MODEL).at(256)
    prompt = _core.ModelFiles(str(MODEL)).tokenizer.encode("And the king went unto the")
    (ids, stopped), = engine.generate(plan, [GenerateRequest(ids=prompt, max_tokens=5)])
    assert len(ids) == 5 and not stopped
    whole = np.concatenate([prompt, ids])
    (_, top), = engine.score(plan, [ScoreRequest(ids=whole, positions=np.arange(len(prompt), len(whole)))]).tokens
    np.testing.assert_array_equal(top, ids)  # what is most probable is what was made
    (same, stopped), = engine.generate(plan, [GenerateRequest(ids=prompt, max_tokens=5, stop=[int(ids[2])])])
    first = list(ids).index(ids[2])
    np.testing.assert_array_equal(same, ids[:first])
    assert stopped


def test_the_native_engine_leaves_weights_in_their_file():
    plan = rw.plan(MODEL).at(64)
    request = ScoreRequest(ids=np.arange(20, 60), positions=[5, 39])
    packed, unpacked = (
        native_engine(MODEL, weights=form).score(plan, [request]).tokens[0][0] for form in ("packed", "unpacked")
    )
    np.testing.assert_allclose(packed, unpacked, atol=1e-4)
    with pytest.raises(rw.Error, match="packed"):
        native_engine(MODEL, weights="half")


def test_log_probabilities_are_those_of_a_softmax():
    """Over the whole vocabulary they sum to 1."""
    engine, plan = native_engine(MODEL), rw.plan(MODEL).at(16)
    requests = [ScoreRequest(ids=[0, 17, token], positions=[2]) for token in range(1024)]
    log_probs = np.array([row[0][0] for row in engine.score(plan, requests).tokens], np.float64)
    assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-5)
    assert all(row[1][0] == log_probs.argmax() for row in engine.score(plan, requests[:3]).tokens)


# ---- Rows


@pytest.mark.skipif(NATIVE is None, reason="ROPEWALK_PROGRAM names no native program")
def test_rows_are_the_programs(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    more = ["--methods", "none,yarn,self-extend:window=64,group=4", "--rope-scaling", '{"rope_type": "linear", "factor": 2.0}']
    more += ["--lengths", "96,512", "--anchors", "2", "--passkey-trials", "1", "--threads", "2"]
    subprocess.run([NATIVE, "sweep", MODEL, "--text", text, "-o", tmp_path / "program", *more], check=True, capture_output=True)
    ours = rw.sweep(
        MODEL,
        text=text,
        methods=["none", "yarn", "self-extend:window=64,group=4", {"rope_type": "linear", "factor": 2.0}],
        lengths=[96, "512"],
        anchors=2,
        passkey_trials=1,
        threads=2,
        progress=False,
    )
    theirs = rw.Sweep(tmp_path / "program")
    assert len(ours.rows) >= 9 and any(row["tasks"] for row in ours.rows)
    assert timeless(ours.rows) == timeless(theirs.rows)
    assert ours.recommendations == theirs.recommendations
    assert str(ours) == str(theirs)


@pytest.mark.skipif(NATIVE is None, reason="ROPEWALK_PROGRAM names no native program")
@pytest.mark.parametrize("more", [{}, {"protocol": "half", "lengths": [64]}, {"factors": [3.0], "lengths": ["128"]}])
def test_what_is_left_open_is_settled_as_in_the_program(tmp_path, more):
    """The cells, the protocol and the notes, of an engine that takes no time."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    command = [NATIVE, "sweep", MODEL, "--text", text, "-o", tmp_path / "p", "--dry-run", "--json"]
    for key, value in more.items():
        command += [f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else value]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    plan = json.loads(run.stdout)
    sweep = rw.sweep(MODEL, text=text, engine=Uniform(), progress=False, **more)
    planned = {(c["method"], c["factor"], c["length"], c["plan_hash"]) for c in plan["cells"]}
    rows = {(r["method"], r["factor"], r["length"], r["plan_hash"]) for r in sweep.rows}
    assert planned <= rows and len(rows - planned) <= plan["most_cost_cells"]
    assert sweep.header["protocol"] == plan["protocol"]
    assert all(note in run.stderr for note in sweep.notes)


SYLLABLES = "za ra ba bel shi mon dan gad le vi na ph ta li am mi ah jo el ish ma ka".split()


def genealogy():
    """Names that come again: some tokens need their far context."""
    draw, out = np.random.default_rng(2), []
    for _ in range(60):
        names = ["".join(draw.choice(SYLLABLES, 3)).capitalize() for _ in range(8)]
        lines = [f"And {names[i]} begat {names[i - 7]}, and {names[i]} was the son of {names[i - 5]}.\n" for i in range(8)]
        out.append("".join(lines) * 2)
    return "".join(out)


@pytest.mark.skipif(NATIVE is None, reason="ROPEWALK_PROGRAM names no native program")
def test_key_tokens_and_budget_are_the_programs(tmp_path):
    """Byte for byte, but for how long a cell took."""
    text, program, ours = tmp_path / "text.txt", tmp_path / "program", tmp_path / "ours"
    text.write_text(genealogy())
    more = ["--methods", "none,yarn", "--lengths", "256,512", "--anchors", "6", "--threads", "2", "--budget", "1h"]
    more += ["--tasks", "perplexity,passkey,key-tokens"]
    subprocess.run([NATIVE, "sweep", MODEL, "--text", text, "-o", program, *more], check=True, capture_output=True)
    settings = {"methods": "none,yarn", "lengths": [256, 512], "anchors": 6, "threads": 2, "budget": "1h", "progress": False}
    settings["tasks"] = "perplexity,passkey,key-tokens"
    sweep = rw.sweep(MODEL, text=text, output=ours, **settings)
    assert (ours / "key-tokens.json").read_bytes() == (program / "key-tokens.json").read_bytes()

    def rows(folder):
        lines = (folder / "results.jsonl").read_bytes().splitlines()[1:]
        return sorted(re.sub(rb'"seconds":[^,}]*', b"", line) for line in lines)

    assert rows(ours) == rows(program)
    headers = [json.loads((folder / "results.jsonl").read_bytes().splitlines()[0]) for folder in (ours, program)]
    assert [header["family"] for header in headers] == ["llama", "llama"]
    assert all([t["task"] for t in row["tasks"]] == ["passkey", "key-tokens"] for row in sweep.rows)
    assert any("scored tokens are key tokens" in note for note in sweep.notes)
    for method in sweep.recommendation(512).methods:
        assert method["key_tokens"]["tokens"] == len(sweep.rows[0]["tasks"][1]["answers"]) > 0
    # The spans are read when the sweep goes on, and belong to their text.
    spans = (ours / "key-tokens.json").read_bytes()
    again = rw.sweep(MODEL, text=text, output=ours, **settings)
    assert again.rows == sweep.rows and (ours / "key-tokens.json").read_bytes() == spans
    with pytest.raises(rw.Error, match="of another text"):
        rw.sweep(MODEL, text=TEXT, output=ours, **settings)


class Slow(Uniform):
    """A millisecond for a token."""

    def facts(self):
        return EngineFacts(name="slow", vocab=1024, compute="slow 1.0", token_flops=1.0)

    def do_score(self, call, requests):
        for request in requests:
            time.sleep(1e-3 * (len(request.prefix) + len(request.ids)))
        return super().do_score(call, requests)


def test_a_budget_leaves_the_longest_length_out_and_the_same_call_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    small = {**SMALL, "methods": "none", "lengths": [128, 256, 2048]}
    # 2 windows of 128 and of 256 tokens take about 0.8 s, those of 2048 about 4.
    sweep = rw.sweep(MODEL, text=TEXT, engine=Slow(), output=tmp_path, budget=3, **small)
    assert {row["length"] for row in sweep.rows} == {128, 256}
    said = capsys.readouterr().err
    assert "not measured within the budget: 2048 tokens (about " in said and f"output={str(tmp_path)!r}" in said
    whole = rw.sweep(MODEL, text=TEXT, engine=Slow(), output=tmp_path, progress=False, **small)
    apart = rw.sweep(MODEL, text=TEXT, engine=Slow(), progress=False, **small)
    assert timeless(whole.rows) == timeless(apart.rows) and len(whole.rows) == 3
    with pytest.raises(rw.Error, match="nothing can be measured"):
        rw.sweep(MODEL, text=TEXT, engine=Slow(), budget=1e-3, progress=False, **small)
    rest = tmp_path / "rest"  # with a folder every call measures a part
    calls, ended = 0, None
    while calls < 20 and (ended is None or len(ended.rows) < 3):
        calls += 1
        try:
            ended = rw.sweep(MODEL, text=TEXT, engine=Slow(), output=rest, budget=1e-3, progress=False, **small)
        except rw.Error as error:
            assert "no row can be finished within it" in str(error)
    assert calls > 2 and timeless(ended.rows) == timeless(whole.rows)
    with pytest.raises(rw.Error, match="'uniform' cannot be timed"):
        rw.sweep(MODEL, text=TEXT, engine=Uniform(), budget="1h", progress=False, **small)


def test_tasks_are_measured():
    settings = {"methods": "none", "lengths": [1024], "trained_length": 1024, "anchors": 2, "samples": 1, "passkey_trials": 4}
    tasks = ["perplexity", "passkey", "kv", "ruler:vt"]
    sweep = rw.sweep(MODEL, text=TEXT, tasks=tasks, progress=False, **settings)
    (row,) = sweep.rows
    assert row["protocol"].endswith("+passkey")
    assert [(t["task"], t["prompts"]) for t in row["tasks"]] == [("passkey", 2), ("kv", 1), ("ruler:vt", 1)]
    assert [t["recall"] is None for t in row["tasks"]] == [True, True, False]
    apart = rw.sweep(MODEL, text=TEXT, tasks=tasks[:2], share=False, progress=False, **settings).rows[0]
    assert not apart["protocol"].endswith("+passkey") and len(apart["tasks"][0]["answers"]) >= 4
    with pytest.raises(rw.Error, match="samples"):
        rw.sweep(MODEL, text=TEXT, tasks=tasks, progress=False, **{**settings, "samples": 0})


def test_rows_of_an_engine_name_it_and_have_its_numbers():
    sweep = rw.sweep(MODEL, text=TEXT, engine=Uniform(), progress=False, **SMALL)
    assert {row["compute"] for row in sweep.rows} == {"uniform 1.0"}
    assert all(row["perplexity"] == pytest.approx(1024, rel=1e-5) for row in sweep.rows)
    assert all(row["entropy"] == 1.5 for row in sweep.rows)


def test_token_ids_in_place_of_a_text():
    ids = _core.ModelFiles(str(MODEL)).tokenizer.encode(TEXT)
    sweep = rw.sweep(MODEL, text=ids, progress=False, **{**SMALL, "tasks": ["perplexity", "passkey", "key-tokens"]})
    assert sweep.header["tokenizer"] == "ids given" and not any(row["tasks"] for row in sweep.rows)
    assert any("passkey, key-tokens is left out" in note for note in sweep.notes)


# ---- Folders


def test_a_folder_is_continued_and_other_settings_and_engines_are_refused(tmp_path, small):
    folder = tmp_path / "out"
    small.save(folder)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:-1]))
    again = rw.sweep(MODEL, text=TEXT, output=folder, progress=False, **SMALL)
    assert timeless(again.rows) == timeless(small.rows)
    cut = json.loads(lines[-1])["identity"]
    there = [[row for row in sweep.rows if row["identity"] != cut] for sweep in (again, small)]
    assert there[0] == there[1]  # with their seconds: they were not measured again
    before = (folder / "results.jsonl").read_bytes()
    with pytest.raises(rw.Error, match="compute there float32, here uniform 1.0") as raised:
        rw.sweep(MODEL, text=TEXT, engine=Uniform(), output=folder, progress=False, **SMALL)
    assert raised.value.code == "mismatch"
    with pytest.raises(rw.Error, match="seed there 1, here 2"):
        rw.sweep(MODEL, text=TEXT, output=folder, seed=2, progress=False, **SMALL)
    assert (folder / "results.jsonl").read_bytes() == before


# ---- The type of the KV cache


def test_types_of_the_kv_cache_are_an_axis(tmp_path, small):
    both = rw.sweep(MODEL, text=TEXT, kv=["q8_0", "f32"], output=tmp_path / "out", progress=False, **SMALL)
    plain = [{k: v for k, v in row.items() if k not in ("kv", "kv_keys")} for row in both.rows if row["kv"] == "f32"]
    assert timeless(plain) == timeless(small.rows)  # in the same order, and bit for bit
    assert small.kv is None and "kv" not in small.rows[0]
    q8 = [row for row in both.rows if row["kv"] == "q8_0"]
    assert len(q8) == len(plain) - 1  # but what the recommended setting costs
    assert {row["kv_keys"] for row in q8} == {"rotated"}
    assert len({row["identity"] for row in both.rows}) == len(both.rows)
    assert both.kv["recommended_on"] == "f32" and both.kv["types"] == ["q8_0"]
    for cost in both.kv["costs"]:
        losses = [
            np.array(row["window_nll"])
            for kv in ("q8_0", "f32")
            for row in both.rows
            if (row["kv"], row["method"], row["factor"], row["length"]) == (kv, cost["method"], cost["factor"], cost["length"])
        ]
        n = min(map(len, losses))
        difference = losses[0][:n] - losses[1][:n]
        assert cost["loss"]["nats"] == pytest.approx(difference.mean(), abs=1e-12)
        assert cost["loss"]["standard_error"] == pytest.approx(difference.std(ddof=1) / np.sqrt(n), rel=1e-9)
    assert both.kv["text"] in " ".join(str(both).split())
    assert "q8_0" in both._repr_html_() and both.recommendation(512).text.startswith(small.recommendation(512).text)
    # Continued with another type.
    more = rw.sweep(MODEL, text=TEXT, kv="bf16", output=tmp_path / "out", progress=False, **SMALL)
    assert more.kv["types"] == ["bf16", "q8_0"]
    assert [row for row in more.rows if row["kv"] != "bf16"] == both.rows


def test_memory_is_that_of_the_type():
    engine, plan = native_engine(MODEL), rw.plan(MODEL)
    f32, bf16, q8 = (engine.memory_bytes(plan, 4096, kv) for kv in ("f32", "bf16", "q8_0"))
    assert engine.memory_bytes(plan, 4096) == f32
    assert (f32 - q8) / (f32 - bf16) == pytest.approx((4 - 34 / 32) / 2)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kv": "q8"}, "kv: expected types of a KV cache, f32, bf16, q8_0, got 'q8'"),
        ({"kv": [8]}, "kv: expected types of a KV cache"),
        ({"kv": "q8_0", "engine": "torch"}, 'kv: the KV cache of engine="torch" has the type'),
        ({"kv": "bf16", "engine": Uniform()}, "kv: a KV cache of bf16 is not possible with the engine 'uniform'"),
    ],
)
def test_types_that_cannot_be_measured_are_refused(more, says):
    with pytest.raises(rw.Error, match=re.escape(says)):
        rw.sweep(MODEL, text=TEXT, progress=False, **SMALL, **more)


def test_saving_replaces_nothing(tmp_path, small):
    (tmp_path / "results.jsonl").write_text("mine")
    with pytest.raises(rw.Error, match="exists already"):
        small.save(tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == "mine"


def test_the_folder_of_a_sweep_without_output_goes_with_it():
    sweep = rw.sweep(MODEL, text=TEXT, engine=Uniform(), progress=False, **SMALL)
    folder = sweep.folder
    assert (folder / "results.jsonl").exists()
    del sweep
    assert not folder.parent.exists()


def test_report(tmp_path, small):
    path = small.report(tmp_path / "report.html")
    assert "<html" in path.read_text() and small.rows[0]["plan_hash"] in path.read_text()
    other = tmp_path / "mine.html"
    other.write_text("mine")
    with pytest.raises(rw.Error, match="no report of ropewalk"):
        small.report(other)


def test_recommendation(small):
    best = small.recommendation("512")
    assert best == small.recommendation(512) and best.method == "yarn" and best.text == str(best)
    assert [s["engine"] for s in best.settings]
    with pytest.raises(rw.Error, match="512"):
        small.recommendation(4096)


def test_it_draws_itself(small):
    svg = xml.etree.ElementTree.fromstring(small._repr_svg_())
    lines = [e for e in svg.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 3  # a line for each method, with a point for each length that it was measured at, yarn's cost among them
    for method, line in zip(("linear", "yarn", "none"), lines, strict=True):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == sum(row["method"] == method for row in small.rows)
        assert points == sorted(points)
    page = small._repr_html_()
    assert f"<b>{small.recommendation(512).perplexity:.4g}</b>" in page and "<svg" in page


def test_bold_is_the_factor_that_is_recommended(small):
    report = json.loads(json.dumps(small._report))
    best = small.recommendation(512)
    row = report["grid"]["cells"][report["grid"]["methods"].index(best.method)]
    column = [c["length"] for c in report["grid"]["columns"]].index(512)
    assert "<b>" in _pictures.table(report)
    report["cells"][row[column]]["factor"] *= 2
    assert "<b>" not in _pictures.table(report)


def test_names_in_a_page_are_escaped(small):
    report = json.loads(json.dumps(small._report))
    report["grid"]["methods"][0] = "<script>"
    from ropewalk._pictures import charts, table

    assert "<script>" not in charts(report) + table(report)


def test_pandas(small):
    pandas = pytest.importorskip("pandas")
    frame = small.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["perplexity"]) == [r["perplexity"] for r in small.rows]


# ---- Bad input


def test_weights_in_the_file_give_the_same_rows():
    packed, unpacked = (
        rw.sweep(MODEL, text=TEXT, progress=False, **SMALL, weights=form).rows for form in ("packed", "unpacked")
    )
    assert len(packed) == len(unpacked) > 0
    for one, other in zip(packed, unpacked):
        assert one["mean_nll"] == pytest.approx(other["mean_nll"], abs=1e-5)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"methods": "yarnn"}, "yarnn"),
        ({"methods": [3]}, "methods"),
        ({"lengths": ["8q"]}, "8q"),
        ({"lengths": [0]}, "length"),
        ({"lengths": [1 << 20]}, "too short"),
        ({"protocol": "anchored"}, "protocol"),
        ({"anchors": 0}, "anchors"),
        ({"passkey_trials": 0, "tasks": ["perplexity", "passkey"]}, "passkey_trials"),
        ({"tasks": "passkey"}, "expected perplexity"),
        ({"tasks": "perplexity,nonsense"}, "nonsense"),
        ({"engine": "jax"}, "jax"),
        ({"dtype": "float16"}, "float16"),
        ({"weights": "half"}, "packed"),
        ({"weights": "packed", "engine": "torch"}, "native engine alone"),
        ({"device": "cuda"}, "device"),
        ({"angles": "rough"}, "rough"),
        ({"text": ""}, "text"),
        ({"text": []}, "text"),
        ({"text": [1.5] * 4000}, "text: expected whole numbers, got float64"),
        ({"text": np.ones((1, 4000), np.int64)}, r"text: .* got ids of shape \[1, 4000\]"),
        ({"text": [1 << 40] * 4000}, "text: expected token ids from 0"),
        ({"text": None}, "text: expected whole numbers"),
        ({"seed": -1}, "seed: expected 0 or more, got -1"),
        ({"anchors": 1.5}, "anchors: expected a whole number"),
        ({"bos": "no"}, "bos: expected True or False"),
        ({"share": "no"}, "share: expected True or False"),
        ({"factors": ["a"]}, "factors: expected a number"),
        ({"text": pathlib.Path("no-such-file")}, "no-such-file"),
        ({"tokenizer": 3}, "tokenizer"),
        ({"threads": 0}, "thread"),
        ({"budget": "5 m"}, "30m"),
        ({"budget": "1"}, "30m"),
        ({"budget": 0}, "30m"),
        ({"tasks": "perplexity,key-tokens", "protocol": "windows"}, "the protocol aligned"),
    ],
)
def test_bad_input(more, says):
    with pytest.raises(rw.Error, match=says):
        rw.sweep(MODEL, **{"text": TEXT, "progress": False, **SMALL, **more})


def test_the_name_of_a_file_is_no_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("book.txt").write_text(TEXT)
    with pytest.raises(rw.Error, match=r"pathlib.Path\('book.txt'\)"):
        rw.sweep(MODEL, text="book.txt", progress=False)


def test_a_model_that_is_not_there():
    with pytest.raises(rw.Error, match="no-such-model"):
        rw.sweep("no-such-model", text=TEXT, progress=False)


# ---- Progress, threads, Ctrl-C


def test_lines_where_tqdm_is_not_installed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    sweep = rw.sweep(MODEL, text=TEXT, engine=Uniform(), **SMALL)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert len(lines) == len(sweep.rows)
    assert lines[0].startswith("[1/5] linear x2 at 128: perplexity 1024")


class Bar:
    """What the sweep asks of tqdm."""

    made = []

    def __init__(self, total, **more):
        self.total, self.n, self.closed, self.said, self.shown = total, 0, False, [], []
        Bar.made.append(self)

    def write(self, line, file=None):
        self.said.append(line)

    def set_description(self, text, refresh=True):
        self.text = text

    def set_postfix_str(self, text, refresh=True):
        self.result = text

    def refresh(self):
        self.shown.append((self.n, self.text))

    def close(self):
        self.closed = True


@pytest.mark.parametrize("fails", [None, KeyboardInterrupt()])
def test_a_bar_where_tqdm_is_installed(capsys, monkeypatch, fails):
    """The one that tqdm.auto has: in a notebook one of its own. It is closed when a sweep is ended, too."""
    import types

    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    Bar.made.clear()
    raised = None
    try:
        rw.sweep(MODEL, text=TEXT, engine=Uniform(fails), **SMALL)
    except KeyboardInterrupt as error:
        raised = error
    (bar,) = Bar.made
    assert bar.closed and raised is fails and capsys.readouterr().err == ""
    if fails is None:
        assert bar.n == bar.total == 6 and bar.result.startswith("perplexity 1024")
        assert bar.shown[-1][1].startswith("[6/6] ") and [n for n, _ in bar.shown] == sorted(n for n, _ in bar.shown)
    else:
        assert any("finished rows are kept" in line for line in bar.said)


def test_two_threads_sweep_at_once(small):
    sweeps, errors = {}, []

    def run(name, **more):
        try:
            sweeps[name] = rw.sweep(MODEL, text=TEXT, progress=False, **{**SMALL, **more})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), kwargs=more) for i, more in enumerate([{}, {"engine": Uniform()}, {}])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert timeless(sweeps[0].rows) == timeless(sweeps[2].rows) == timeless(small.rows)
    assert {row["compute"] for row in sweeps[1].rows} == {"uniform 1.0"}


LONG = """
import sys, ropewalk as rw
print("begin", flush=True)
try:
    rw.sweep({model!r}, text=open({text!r}).read(), methods="none,yarn,linear,ntk", lengths=[64, 2048, 3000],
             protocol="windows", anchors=400, tasks="perplexity", output={out!r}, threads=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


def test_ctrl_c_keeps_finished_rows(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(make_text(60000))
    code = LONG.format(model=str(MODEL), text=str(text), out=str(out))
    # A shell starts what it puts in the background with SIGINT ignored, which children inherit.
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    results, deadline = out / "results.jsonl", time.monotonic() + 120
    while not (results.exists() and results.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 7 and "interrupted" in stdout, stderr
    assert time.monotonic() - begin < 20
    assert f"output={str(out)!r}" in stderr
    lines = results.read_text().splitlines()
    assert 2 <= len(lines) < 13 and all(json.loads(line) for line in lines)


def test_shards_measure_one_sweep_together(tmp_path, small):
    out = tmp_path / "out"
    found = {}

    def work(shard):
        found[shard] = rw.sweep(MODEL, text=TEXT, progress=False, output=out, shard=shard, **SMALL)

    workers = [threading.Thread(target=work, args=(f"{i}/2",)) for i in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for sweep in (found["1/2"], found["2/2"], rw.Sweep(out)):
        assert timeless(sweep.rows) == timeless(small.rows)
        assert sweep.recommendations == small.recommendations
    assert {path.name for path in out.iterdir()} == {f"{kind}.{i}-of-2.jsonl" for kind in ("results", "units") for i in (1, 2)}
    found["1/2"].save(tmp_path / "copy")
    assert timeless(rw.Sweep(tmp_path / "copy").rows) == timeless(small.rows)
    with pytest.raises(rw.Error, match="exists already"):
        found["1/2"].save(tmp_path / "copy")
    # Without shards it goes on from there.
    assert timeless(rw.sweep(MODEL, text=TEXT, progress=False, output=out, **SMALL).rows) == timeless(small.rows)


def test_wrong_shards_are_refused(tmp_path, monkeypatch):
    with pytest.raises(rw.Error, match="give the folder that the processes share as output"):
        rw.sweep(MODEL, text=TEXT, progress=False, shard="1/2", **SMALL)
    for name in ("SLURM_ARRAY_TASK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for shard, why in (("17/16", "from 1 to the number of shards"), ("x", "such as 3/16"), ("auto", "OMPI_COMM_WORLD_RANK")):
        with pytest.raises(rw.Error, match=why):
            rw.sweep(MODEL, text=TEXT, progress=False, output=tmp_path / "out", shard=shard, **SMALL)
    assert not (tmp_path / "out").exists()
