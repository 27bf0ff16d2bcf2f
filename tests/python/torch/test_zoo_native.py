"""Models of the zoo run by the library's decoder: losses equal to PyTorch's, behind the trained length as well."""

import json
import os
import subprocess

import numpy as np
import pytest
import tokenizers
import torch
from test_zoo import ABSOLUTE, BIASES, ROTATIONS
from zoo_models import TRAINED, VOCAB, made, stirred, tokens

import ropewalk as rw
from ropewalk import zoo
from ropewalk.engine import ScoreRequest, native_engine

# Of the library's own methods, one that depends on the length is among them.
OWN = [
    {"rope_type": "by-parts", "factor": 4.0, "alpha": 0.5, "beta": 8.0},
    {"rope_type": "ntk-fixed", "factor": 4.0, "rope_theta": 500.0},
    {"rope_type": "ntk-mixed", "factor": 4.0, "exponent": 0.5},
    {"rope_type": "dynamic-yarn", "truncate": False},
    {"rope_type": "explicit", "divisors": [1.0, 2.0, 3.0, 4.0]},
    {"rope_type": "hope", "rope_theta": 10.0, "partial_rotary_factor": 0.5},
]
RUNNING = [*ROTATIONS, {"rope_type": "pope"}, *OWN]
ROWS_OF_HEADS = ("shaw", "transformer_xl", "deberta")  # not beside PoPE


def held(positions, folder, seed=0, lengths=3, **more):
    """Both losses of one window of so many trained lengths, and the largest logit."""
    model, ids = stirred(positions, seed, **more), tokens(lengths * TRAINED, batch=1)
    model.save_pretrained(folder)
    with torch.no_grad():
        logits = model(ids)[0].double()
    count = ids.shape[1]
    expected = torch.log_softmax(logits[:-1], -1).gather(1, ids[0, 1:, None])[:, 0]
    plan = rw.plan(folder).at(count)
    request = ScoreRequest(ids=ids[0].numpy().astype(np.int32), positions=np.arange(1, count))
    found = native_engine(folder).score(plan, [request]).tokens[0][0]
    return np.asarray(found, np.float64), expected.numpy(), float(logits.abs().max())


def check(positions, folder, seed=0, **more):
    for lengths in (1, 3):
        found, expected, largest = held(positions, folder, seed, lengths, **more)
        # A loss is a logit less their log-sum-exp, of which each is 2e-5 of the largest logit right.
        np.testing.assert_allclose(found, expected, rtol=0, atol=4e-5 * max(1.0, largest))


# Rows end there: what has no row for a position is refused by both.
ENDING = {"learned", "multiplicative", "tupe", "tupe-tied"}


@pytest.mark.parametrize("name", sorted(set(zoo.ENTRIES) - ENDING))
def test_entries(name, tmp_path):
    check(zoo.ENTRIES[name], tmp_path)


@pytest.mark.parametrize("name", sorted(ENDING))
def test_entries_whose_rows_end(name, tmp_path):
    positions = {part: {**settings} for part, settings in zoo.ENTRIES[name].items()}
    for settings in positions.values():
        settings["positions" if settings["type"] == "tupe" else "rows"] = 3 * TRAINED
    check(positions, tmp_path)


@pytest.mark.parametrize("seed", range(30))
def test_random_combinations(seed, tmp_path):
    draw = np.random.default_rng(1000 + seed)
    absolute, bias, rotation = (kinds[draw.integers(len(kinds))] for kinds in (ABSOLUTE, BIASES, RUNNING))
    bias = None if (rotation or {}).get("rope_type") == "pope" and bias in ROWS_OF_HEADS else bias
    positions = {"temperature": {"type": "log-n", "period": 16}} if draw.random() < 0.5 else {}
    positions |= {"recurrent_layer": {"cell": ["tanh", "gru"][draw.integers(2)]}} if draw.random() < 0.3 else {}
    positions |= {"absolute": {"type": absolute}} if absolute else {}
    positions |= {"bias": {"type": bias}} if bias else {}
    positions |= {"rotation": rotation} if rotation else {}
    check(positions, tmp_path, seed)


PE = [{"rope_type": "pope", "rope_theta": 500.0}, {"rope_type": "fope", "rope_theta": 10.0}, {"rope_type": "fope", "frequencies": 1}]
BESIDE = [{"type": "alibi"}, {"type": "t5"}, {"type": "kerple"}, {"type": "sandwich"}, {"type": "fire"}, {"type": "gate"}]


@pytest.mark.parametrize("rotation", PE, ids=str)
@pytest.mark.parametrize("bias", BESIDE, ids=lambda bias: bias["type"])
def test_encoded_queries_and_keys_beside_a_bias(rotation, bias, tmp_path):
    check({"rotation": rotation, "bias": bias, "temperature": {"type": "step-log", "period": 16}}, tmp_path)


@pytest.mark.parametrize("name", ["pope", "fope"])
@pytest.mark.parametrize("sizes", [{"head_dim": 16}, {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 12}], ids=str)
def test_encoded_queries_and_keys_of_other_sizes(name, sizes, tmp_path):
    check(zoo.ENTRIES[name], tmp_path, **sizes)


@pytest.mark.parametrize("rotation", OWN, ids=lambda rotation: rotation["rope_type"])
def test_methods_by_the_names_of_the_library(rotation, tmp_path):
    check({"rotation": rotation}, tmp_path)


REFUSED = [
    ({"rope_type": "poope"}, "one of default, linear, .*pope, fope, none, ntk-fixed"),
    ({"rope_type": "base", "base": 5e5}, "base"),
    ({"rope_type": "ntk-fixed", "factor": 4.0, "dialect": "vllm"}, "dialect"),
    ({"rope_type": "hope", "factor": 4.0}, "factor"),
    ({"rope_type": "fope", "frequencies": 5}, "frequencies"),
    ({"rope_type": "pope", "xpos": {}}, "xpos"),
]


@pytest.mark.parametrize(("rotation", "words"), REFUSED, ids=str)
def test_both_refuse_the_same(rotation, words, tmp_path):
    with pytest.raises(rw.Error, match=words):
        made({"rotation": rotation})
    made({}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "positions": {"rotation": rotation}}))
    with pytest.raises(rw.Error, match=words.rpartition("*")[2]):
        rw.plan(tmp_path)


def test_fope_without_a_frequency_is_refused_by_both(tmp_path):
    with pytest.raises(rw.Error, match="none makes a whole rotation within 6 tokens"):
        made({"rotation": {"rope_type": "fope"}}, max_position_embeddings=6)
    made({}, max_position_embeddings=6).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "positions": {"rotation": {"rope_type": "fope"}}}))
    with pytest.raises(rw.Error, match="none makes a whole rotation within the trained 6 tokens"):
        rw.plan(tmp_path)


@pytest.mark.parametrize("remap", [{"type": "rerope", "window": 16}, {"type": "self-extend", "window": 16, "group": 4}])
def test_maps(remap, tmp_path):
    check({"rotation": {"rope_type": "default"}, "map": remap, "bias": {"type": "alibi"}}, tmp_path)


TWINS = sorted(set(zoo.ENTRIES) - {"cope", "gate", "xpos", "vo-rope"})


@pytest.mark.parametrize("name", TWINS)
def test_the_twins_pseudo_perplexity(name, tmp_path):
    """Every token of a window is masked in turn."""
    count, mask = 24, VOCAB - 1
    model, ids = stirred(zoo.ENTRIES[name], 5, bidirectional=True, mask_token_id=mask), tokens(count, batch=1)
    model.save_pretrained(tmp_path)
    copies = ids.repeat(count, 1)
    copies[range(count), range(count)] = mask
    with torch.no_grad():
        rows = model(copies)[range(count), range(count)].double()
    expected = -torch.log_softmax(rows, -1).gather(1, ids[0, :, None]).mean()
    vocabulary = {str(i): i for i in range(VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "ids.txt").write_text(json.dumps(ids[0].tolist()))
    asked = ["perplexity", tmp_path, "--ids", tmp_path / "ids.txt", "--lengths", str(count), "--anchors", "1", "--protocol", "masked", "--json"]
    ran = subprocess.run([os.environ["ROPEWALK_PROGRAM"], *map(str, asked)], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["lengths"][0]["mean_nll"] == pytest.approx(float(expected), rel=2e-5)
