"""Models of the zoo run by the library's decoder: losses equal to PyTorch's, behind the trained length as well."""

import json
import os
import subprocess

import numpy as np
import pytest
import tokenizers
import torch
from test_zoo import ABSOLUTE, BIASES, ROTATIONS
from zoo_models import TRAINED, VOCAB, made, tokens

import ropewalk as rw
from ropewalk import zoo
from ropewalk.engine import ScoreRequest, native_engine

RUNNING = [rotation for rotation in ROTATIONS if (rotation or {}).get("rope_type") != "fope"]


def held(positions, folder, seed=0, **more):
    """Both losses of one window of 3 trained lengths, and the largest logit."""
    model, ids = made(positions, seed, **more), tokens(3 * TRAINED, batch=1)
    model.save_pretrained(folder)
    with torch.no_grad():
        logits = model(ids)[0].double()
    count = ids.shape[1]
    expected = torch.log_softmax(logits[:-1], -1).gather(1, ids[0, 1:, None])[:, 0]
    plan = rw.plan(folder).at(count)
    request = ScoreRequest(ids=ids[0].numpy().astype(np.int32), positions=np.arange(1, count))
    found = native_engine(folder).score(plan, [request]).tokens[0][0]
    return np.asarray(found, np.float64), expected.numpy(), float(logits.abs().max())


def check(positions, folder, seed=0):
    found, expected, largest = held(positions, folder, seed)
    # A loss is a logit less their log-sum-exp, of which each is 2e-5 of the largest logit right.
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-5 * max(1.0, largest))


# Rows end there: what has no row for a position is refused by both.
ENDING = {"learned", "multiplicative", "tupe"}
# Rotations that the decoder does not compute, which it says.
REFUSED = {"pope", "fope"}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_does_not_run_is_refused(name, tmp_path):
    with pytest.raises(rw.Error, match="rope_type"):
        check(zoo.ENTRIES[name], tmp_path)


@pytest.mark.parametrize("name", sorted(set(zoo.ENTRIES) - ENDING - REFUSED))
def test_entries(name, tmp_path):
    check(zoo.ENTRIES[name], tmp_path)


@pytest.mark.parametrize("name", sorted(ENDING))
def test_entries_whose_rows_end(name, tmp_path):
    positions = {part: {**settings} for part, settings in zoo.ENTRIES[name].items()}
    for settings in positions.values():
        settings["positions" if settings["type"] == "tupe" else "rows"] = 3 * TRAINED
    check(positions, tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_random_combinations(seed, tmp_path):
    draw = np.random.default_rng(1000 + seed)
    absolute, bias, rotation = (kinds[draw.integers(len(kinds))] for kinds in (ABSOLUTE, BIASES, RUNNING))
    positions = {"temperature": {"type": "log-n", "period": 16}} if draw.random() < 0.5 else {}
    positions |= {"recurrent_layer": {"cell": ["tanh", "gru"][draw.integers(2)]}} if draw.random() < 0.3 else {}
    positions |= {"absolute": {"type": absolute}} if absolute else {}
    positions |= {"bias": {"type": bias}} if bias else {}
    positions |= {"rotation": rotation} if rotation else {}
    check(positions, tmp_path, seed)


@pytest.mark.parametrize("remap", [{"type": "rerope", "window": 16}, {"type": "self-extend", "window": 16, "group": 4}])
def test_maps(remap, tmp_path):
    check({"rotation": {"rope_type": "default"}, "map": remap, "bias": {"type": "alibi"}}, tmp_path)


TWINS = sorted(set(zoo.ENTRIES) - REFUSED - {"cope", "gate", "xpos", "vo-rope"})


@pytest.mark.parametrize("name", TWINS)
def test_the_twins_pseudo_perplexity(name, tmp_path):
    """Every token of a window is masked in turn."""
    count, mask = 24, VOCAB - 1
    model, ids = made(zoo.ENTRIES[name], 5, bidirectional=True, mask_token_id=mask), tokens(count, batch=1)
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
