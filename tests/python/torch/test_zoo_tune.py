"""Tuning at a longer length: what is measured, the bits of a run that goes on, rotations by name, and what is refused."""

import csv
import json
import pathlib

import pytest
import torch
from torch.nn import functional
from zoo_models import TRAINED, made

import ropewalk as rw
from ropewalk import zoo
from ropewalk.zoo import _train, _tune

MODELS = pathlib.Path(_train._ROOT) / "models"
SMALL = {"tokens": 4 * TRAINED, "windows": 3, "scored": 8, "rows": 2}


@pytest.fixture
def start(tmp_path):
    """A tiny model with RoPE and the tokenizer of the embedded one."""
    model = made({"rotation": {"rope_type": "default", "rope_theta": 5000.0}}, vocab_size=1024, bos_token_id=0)
    model.save_pretrained(tmp_path / "start", tokenizer=MODELS)
    return tmp_path / "start"


@pytest.fixture(scope="module")
def held_out():
    """Tokens of the held-out text."""
    from tokenizers import Tokenizer

    text = _train._sources(_train._ROOT)[0].read_text()
    return Tokenizer.from_file(str(MODELS / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def lines_of(folder):
    with open(folder / "tuning.csv", encoding="utf-8", newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def test_steps_that_are_measured():
    assert [n for n in range(330) if _tune.measured(n)] == [0, 5, 10, 20, 40, 80, 160, 320]


def test_a_run_goes_on_with_the_same_bits(start, tmp_path, genesis):
    whole = zoo.tune("linear", tmp_path / "whole", start=start, steps=12, **SMALL)
    zoo.tune("linear", tmp_path / "parts", start=start, steps=3, **SMALL)
    parts = zoo.tune("linear", tmp_path / "parts", start=start, steps=12, **SMALL)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters()))
    first, second = (lines_of(tmp_path / name) for name in ("whole", "parts"))
    assert [row["step"] for row in first] == [0, 5, 10]
    for a, b in zip(first, second, strict=True):
        assert [a[f"loss_{n}"] for n in (TRAINED, 4 * TRAINED)] == [b[f"loss_{n}"] for n in (TRAINED, 4 * TRAINED)]
    assert first[2]["training_loss"] < first[1]["training_loss"] and first[1]["training_loss"] == second[1]["training_loss"]
    ids = torch.arange(50)[None]
    assert torch.equal(zoo.load(tmp_path / "whole")(ids), whole(ids))
    with pytest.raises(rw.Error, match="another recipe"):
        zoo.tune("ntk", tmp_path / "parts", start=start, steps=12, **SMALL)


def test_the_loss_is_that_of_the_last_tokens_of_windows(start, tmp_path, held_out, genesis):
    zoo.tune("none", tmp_path / "out", start=start, steps=0, **SMALL)
    measured, model = lines_of(tmp_path / "out")[0], zoo.load(start)
    for length in (TRAINED, 4 * TRAINED):
        losses = []
        for end in (len(held_out) // 3, 2 * len(held_out) // 3, len(held_out)):
            window = [0, *held_out[end - length : end]]  # the begin token stands for what is before
            nll = functional.cross_entropy(model(torch.tensor([window[:-1]]))[0], torch.tensor(window[1:]), reduction="none")
            losses += nll[-8:].tolist()
        assert abs(sum(losses) / len(losses) - measured[f"loss_{length}"]) < 2e-4


def test_the_embedded_model_is_what_its_own_code_says(tmp_path, held_out, genesis):
    from safetensors.torch import load_file

    zoo.tune("none", tmp_path, tokens=1100, steps=0, windows=1, scored=64)
    common, _ = _train._sources(_train._ROOT)
    llama = common.Llama().load(load_file(str(MODELS / "model.safetensors")))
    for length in (1024, 1100):
        window = torch.tensor([[0, *held_out[-length:]]])
        logits = llama(window[:, :-1], *common.cos_sin(common.plain_frequencies(), length))[0, -64:]
        assert abs(functional.cross_entropy(logits, window[0, -64:]).item() - lines_of(tmp_path)[0][f"loss_{length}"]) < 2e-4
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] == 1100 and config["model_type"] == "ropewalk"


def test_rotations_by_name():
    config = zoo.read_config(
        {"positions": {"rotation": {"rope_type": "default", "rope_theta": 5000.0}}}
    )  # heads of 32, 256 tokens
    made = {name: _tune.rotation_of(name, config, 1024) for name in ("none", "linear", "ntk", "yarn", "base:5e5", "base:bound")}
    assert made["none"] == config["positions"]["rotation"]
    assert made["linear"] == {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4}
    assert made["ntk"] == {**made["linear"], "rope_type": "ntk"}
    assert made["yarn"] == {**made["linear"], "rope_type": "yarn", "original_max_position_embeddings": 256}
    assert made["base:5e5"] == {"rope_type": "default", "rope_theta": 500000.0}
    bound = made["base:bound"]["rope_theta"]
    assert bound == 58155 and rw.rotation(32, layout="half", base=bound).longest_context() >= 1024
    for name in ("base:0", "base:x", "base", "longest"):
        with pytest.raises(rw.Error, match="base:bound or a dictionary, got"):
            _tune.rotation_of(name, config, 1024)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": TRAINED}, f"tokens: expected more than the {TRAINED} "),
        ({"windows": 1000}, "tokens: expected less than the 78 of each of 1000 windows, got 128"),
        ({"scored": TRAINED + 1}, f"scored: expected 1 to the trained length {TRAINED}, got {TRAINED + 1}"),
        ({"source": "/nowhere"}, "is no checkout of Ropewalk"),
    ],
)
def test_settings_that_are_refused(settings, message, start, tmp_path):
    with pytest.raises(rw.Error, match=message):
        zoo.tune("none", tmp_path / "out", start=start, steps=0, **{**SMALL, **settings})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, r"config\.attention_bias: expected False"),
        ({"architectures": ["QwenForCausalLM"]}, r"config\.architectures: expected \['LlamaForCausalLM'\]"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, r"config\.rope_scaling: unknown key"),
        ({"model_type": "gemma"}, r"config\.model_type: expected 'ropewalk'"),
    ],
)
def test_llamas_that_are_refused(change, message, tmp_path):
    config = json.loads((MODELS / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises(rw.Error, match=message):
        zoo.tune("none", tmp_path / "out", start=tmp_path)


def test_positions_beside_a_rotation_are_refused(tmp_path):
    made({"bias": {"type": "alibi"}}).save_pretrained(tmp_path)
    with pytest.raises(rw.Error, match="expected a causal model whose positions are a rotation alone"):
        zoo.tune("none", tmp_path / "out", start=tmp_path)


def test_another_tokenizer_is_refused(start, tmp_path):
    tokenizer = json.loads((start / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["added_tokens"][0]["content"] = "<s>"
    (start / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(rw.Error, match="expected the tokenizer of .*models, in whose tokens the text is"):
        zoo.tune("none", tmp_path / "out", start=start, steps=0, **SMALL)
