"""Models of the zoo: causal, saved and read again, trained. Their formulas: test_zoo_formulas.py."""

import json

import numpy as np
import pytest
import torch
from zoo_models import TRAINED, VOCAB, made, tokens

import ropewalk as rw
from ropewalk import zoo
from ropewalk.zoo import _train

CASES = [(n, p, twin) for n, p in zoo.ENTRIES.items() for twin in (False, True) if not (twin and n in ("cope", "gate"))]


@pytest.mark.parametrize(("name", "positions", "twin"), CASES)
def test_entries(name, positions, twin, tmp_path):
    model, ids = made(positions, bidirectional=twin), tokens(24)
    logits = model(ids)
    assert logits.shape == (2, 24, VOCAB) and logits.isfinite().all()
    other = ids.clone()
    other[:, 17] = (other[:, 17] + 1) % VOCAB
    changed = (model(other) - logits).abs().amax(dim=(0, 2))
    assert bool(changed[:17].max() > 0) is twin
    assert changed[17:].max() > 0
    logits.square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    model.save_pretrained(tmp_path)
    assert torch.equal(zoo.load(tmp_path)(ids), logits)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "ropewalk"


@pytest.mark.parametrize(("kind", "share"), [("default", 0.5), ("yarn", 0.5), ("hope", 0.5), ("default", 1)])
def test_a_share_of_heads_that_are_wider_than_the_model(kind, share):
    factor = {"factor": 4.0} if kind == "yarn" else {}
    model = made({"rotation": {"rope_type": kind, "partial_rotary_factor": share, **factor}}, head_dim=16)
    assert (model.model.rope.rotation.rotary_dim, model.model.rope.rotation.head_dim) == (16 * share, 16)


def test_a_file_with_other_tensors_is_refused(tmp_path):
    made({}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["positions"] = {"bias": {"type": "alibi", "learned": True}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(rw.Error, match="missing tensors .*self_attn.bias.slopes"):
        zoo.load(tmp_path)


ABSOLUTE = [None, "sinusoidal", "digits", "floater", "recurrent", "convolutional", "hierarchical"]
BIASES = [None, "alibi", "t5", "kerple", "sandwich", "fire", "shaw", "transformer_xl", "deberta"]
ROTATIONS = [None, {"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "default", "xpos": {}}, {"rope_type": "fope"}]


def combination(seed):
    draw = np.random.default_rng(seed)
    absolute, bias, rotation = (kinds[draw.integers(len(kinds))] for kinds in (ABSOLUTE, BIASES, ROTATIONS))
    positions = {"temperature": {"type": "log-n", "period": 16}} if draw.random() < 0.5 else {}
    positions |= {"recurrent_layer": {"cell": "tanh"}} if draw.random() < 0.3 else {}
    positions |= {"absolute": {"type": absolute}} if absolute else {}
    positions |= {"bias": {"type": bias}} if bias else {}
    return positions | ({"rotation": rotation} if rotation else {})


@pytest.mark.parametrize("seed", range(12))
def test_random_combinations_are_causal_and_saved(seed, tmp_path):
    model, ids = made(combination(seed), seed), tokens(2 * TRAINED)
    logits = model(ids)
    assert torch.allclose(model(ids[:, :50], length=2 * TRAINED), logits[:, :50], atol=1e-4)
    model.save_pretrained(tmp_path)
    assert torch.equal(zoo.load(tmp_path)(ids), logits)


def test_rows_of_the_first_steps_repeat_segments_and_those_of_the_last_are_whole(genesis):
    data, mix = _train._batches(_train._ROOT, 3)
    ids, weights, kinds = _train._batch(data, mix, 5, 20, 6, 256, False)
    again, other = (_train._batch(data, mix, step, 20, 6, 256, False)[0] for step in (5, 6))
    assert torch.equal(ids, again) and not torch.equal(ids, other)
    assert ids.shape == (12, 65) and weights.shape == (12, 64) and (kinds[::3] == 4).all() and (kinds != 4).sum() == 8
    for row in ids[::3]:
        assert any(torch.equal(row[n:], row[:-n]) for n in range(8, 33))
    assert _train._batch(data, mix, 20, 20, 6, 256, False)[0].shape == (6, 257)
    twin = _train._batch(data, mix, 5, 20, 6, 256, True)[2]
    assert (twin == 0).all()


@pytest.mark.parametrize(("name", "twin"), [("rope", False), ("alibi", False), ("learned", True)])
def test_training_lowers_the_loss_and_goes_on_with_the_same_bits(name, twin, tmp_path, genesis):
    settings = {"steps": 16, "rows": 4, "bidirectional": twin, "max_position_embeddings": 192, "num_hidden_layers": 2, "hidden_size": 64}
    whole = zoo.train(zoo.ENTRIES[name], tmp_path / "whole", **settings)
    zoo.train(zoo.ENTRIES[name], tmp_path / "parts", stop=6, **settings)
    parts = zoo.train(zoo.ENTRIES[name], tmp_path / "parts", **settings)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters()))
    losses = [float(line.split(",")[2]) for line in (tmp_path / "whole" / "loss.csv").read_text().splitlines()[1:]]
    assert len(losses) == 16 and np.mean(losses[-4:]) < np.mean(losses[:4]) - 0.3
    with pytest.raises(rw.Error, match="another recipe"):
        zoo.train(zoo.ENTRIES[name], tmp_path / "parts", **{**settings, "steps": 17})


def test_tuning_begins_with_the_tensors_of_a_folder_and_has_whole_rows_alone(tmp_path, genesis, monkeypatch):
    sizes = {"bidirectional": True, "rows": 2, "num_hidden_layers": 2, "hidden_size": 64}
    start, loss, seen = tmp_path / "start", _train._loss, []
    positions = {"absolute": {"type": "learned", "rows": 192}}
    before = zoo.train(positions, start, steps=2, max_position_embeddings=96, **sizes)
    monkeypatch.setattr(_train, "_loss", lambda model, batch, *rest: seen.append(batch[0].shape) or loss(model, batch, *rest))
    settings = {"steps": 3, "max_position_embeddings": 192, "start": start, **sizes}
    after = zoo.train(positions, tmp_path / "still", rate=0.0, **settings)
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert seen == [(2, 193)] * 3 and after.config["max_position_embeddings"] == 192
    tuned = zoo.train(positions, tmp_path / "tuned", **settings)
    assert not torch.equal(before.model.positions.table, tuned.model.positions.table)
    with pytest.raises(rw.Error, match="model.positions.table"):
        zoo.train(zoo.ENTRIES["learned"], tmp_path / "other", **{**settings, "max_position_embeddings": 64})
    with pytest.raises(rw.Error, match="another recipe"):
        zoo.train(positions, tmp_path / "tuned", **{**settings, "start": None})


def test_a_share_of_the_tokens_is_masked():
    ids = torch.full((8, 4000), 7)
    for share in (0.15, 0.4):
        given, chosen = _train._masked(ids, 40, 1, 0, share)
        assert chosen.float().mean().item() == pytest.approx(share, abs=0.01)
        assert (given == 40).float().mean().item() == pytest.approx(0.8 * share, abs=0.01)
        assert (given[~chosen] == 7).all()
