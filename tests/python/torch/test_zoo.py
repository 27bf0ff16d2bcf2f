"""Models of the zoo: causal, saved and read again, and against formulas typed again in float64."""

import json

import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk import zoo

TRAINED, VOCAB, HEADS, DIM, WIDTH = 32, 40, 4, 8, 32


def made(positions, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": 2}
    tied = positions.get("absolute", {}).get("type") != "complex_order"
    model = zoo.Model({"positions": positions, "max_position_embeddings": TRAINED, "tie_word_embeddings": tied, **sizes, **more})
    with torch.no_grad():  # nothing stays at zero, which would hide it
        for parameter in model.parameters():
            parameter += 0.02 * torch.rand_like(parameter)
    return model


def tokens(count, batch=2):
    return torch.randint(0, VOCAB, (batch, count), generator=torch.Generator().manual_seed(3))


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


def plain(model, ids, score, embed=None, turn=None, back=None):
    """The model in float64, typed again. score(q, k, layer, i): what is added to the scores of layer i [batch, heads, n, n]."""
    w = {name: t.double() for name, t in model.tensors().items()}
    n = ids.shape[1]

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name]

    x = w["model.embed_tokens.weight"][ids]
    x = x if embed is None else embed(x, w)
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    for i in range(2):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{at}self_attn.{p}_proj.weight"].t()).unflatten(-1, (-1, DIM)).transpose(1, 2) for p in "qkv")
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        q, k = (q, k) if turn is None else (turn(q), turn(k))
        v = v if back is None else turn(v)
        s = (q @ k.transpose(-1, -2)) * DIM**-0.5 + score(w, f"{at}self_attn.bias.", q, h)
        o = s.masked_fill(ahead, -torch.inf).softmax(-1) @ v
        o = o if back is None else back(o)
        x = x + o.transpose(1, 2).flatten(-2) @ w[at + "self_attn.o_proj.weight"].t()
        h = norm(x, at + "post_attention_layernorm.weight")
        g = h @ w[at + "mlp.gate_proj.weight"].t()
        x = x + (g * g.sigmoid() * (h @ w[at + "mlp.up_proj.weight"].t())) @ w[at + "mlp.down_proj.weight"].t()
    return norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].t()


N = 3 * TRAINED
D = (torch.arange(N)[:, None] - torch.arange(N)[None]).clamp(min=0).double()


def none(w, at, q, h):
    return 0.0


def turned(sign):
    angle = torch.arange(N).double()[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2).double() / DIM)
    cos, sin = angle.cos(), sign * angle.sin()

    def turn(x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    return turn


def fire(w, at, q, h):
    c, far = w[at + "c"], torch.maximum(w[at + "threshold"], torch.arange(N).double())[:, None]
    x = (c * D + 1).log() / (c * far + 1).log()
    y = (x[..., None] * w[at + "w1"] + w[at + "b1"]).relu() @ w[at + "w2"].t() + w[at + "b2"]
    return y.permute(2, 0, 1)


def gate(w, at, q, h):
    sums = torch.nn.functional.logsigmoid(h @ w[at + "weight"].t() + w[at + "bias"]).cumsum(1).transpose(1, 2)
    return sums[..., :, None] - sums[..., None, :]


def rows_of(type, operation):
    def embed(x, w):
        rows = {"learned": lambda: w["model.positions.table"][: x.shape[1]], "sinusoidal": sinusoids}[type]()
        return operation(x, rows)

    return embed


def sinusoids():
    angle = torch.arange(N).double()[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2).double() / WIDTH)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def convolution(x, w):
    v, y = w["model.positions.v"], x.clone()
    for tap in range(3):
        y[:, 2 - tap :] += x[:, : N - 2 + tap] * v[:, 0, tap]
    return y + w["model.positions.bias"]


FORMULAS = {
    "none": ({}, {}),
    "rope": ({"rotation": {"rope_type": "default"}}, {"turn": turned(1)}),
    "values": ({"rotation": {"rope_type": "default", "values": True}}, {"turn": turned(1), "back": turned(-1)}),
    "alibi": ({"bias": {"type": "alibi"}}, {"score": lambda w, at, q, h: -(2.0 ** -torch.arange(2, 10, 2).double())[:, None, None] * D}),
    "kerple": (
        {"bias": {"type": "kerple"}},
        {"score": lambda w, at, q, h: -w[at + "r1"][:, None, None] * (1 + w[at + "r2"][:, None, None] * D).log()},
    ),
    "fire": ({"bias": {"type": "fire"}}, {"score": fire}),
    "gate": ({"bias": {"type": "gate"}}, {"score": gate}),
    "shaw": (
        {"bias": {"type": "shaw", "left": 9, "values": False}},
        {"score": lambda w, at, q, h: torch.einsum("bhid,ijd->bhij", q, w[at + "key_rows"][0][9 - D.clamp(max=9).long()]) * DIM**-0.5},
    ),
    "learned": ({"absolute": {"type": "learned", "rows": N}}, {"embed": rows_of("learned", torch.add)}),
    "multiplicative": ({"absolute": {"type": "multiplicative", "rows": N}}, {"embed": rows_of("learned", torch.mul)}),
    "sinusoidal": ({"absolute": {"type": "sinusoidal"}}, {"embed": rows_of("sinusoidal", torch.add)}),
    "convolutional": ({"absolute": {"type": "convolutional"}}, {"embed": convolution}),
    "kerple and rope": (
        {"rotation": {"rope_type": "default"}, "bias": {"type": "kerple"}},
        {"turn": turned(1), "score": lambda w, at, q, h: -w[at + "r1"][:, None, None] * (1 + w[at + "r2"][:, None, None] * D).log()},
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_typed_again(name):
    """At three times the trained length, within 2e-5 of the largest logit."""
    positions, own = FORMULAS[name]
    model, ids = made(positions), tokens(N)
    with torch.no_grad():
        expected = plain(model, ids, **{"score": none, **own})
        assert (model(ids) - expected).abs().max() <= 2e-5 * expected.abs().max()


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


@pytest.mark.parametrize("seed", range(12))
def test_random_combinations_are_causal_and_saved(seed, tmp_path):
    draw = np.random.default_rng(seed)
    absolute, bias, rotation = (kinds[draw.integers(len(kinds))] for kinds in (ABSOLUTE, BIASES, ROTATIONS))
    positions = {"temperature": {"type": "log-n", "period": 16}} if draw.random() < 0.5 else {}
    positions |= {"recurrent_layer": {"cell": "tanh"}} if draw.random() < 0.3 else {}
    positions |= {"absolute": {"type": absolute}} if absolute else {}
    positions |= {"bias": {"type": bias}} if bias else {}
    positions |= {"rotation": rotation} if rotation else {}
    model, ids = made(positions, seed), tokens(2 * TRAINED)
    logits = model(ids)
    assert torch.allclose(model(ids[:, :50], length=2 * TRAINED), logits[:, :50], atol=1e-4)
    model.save_pretrained(tmp_path)
    assert torch.equal(zoo.load(tmp_path)(ids), logits)


@pytest.mark.parametrize(("name", "twin"), [("rope", False), ("alibi", False), ("learned", True)])
def test_training_lowers_the_loss_and_goes_on_with_the_same_bits(name, twin, tmp_path):
    settings = {"steps": 24, "rows": 4, "bidirectional": twin, "max_position_embeddings": 192, "num_hidden_layers": 2, "hidden_size": 64}
    whole = zoo.train(zoo.ENTRIES[name], tmp_path / "whole", **settings)
    zoo.train(zoo.ENTRIES[name], tmp_path / "parts", stop=9, **settings)
    parts = zoo.train(zoo.ENTRIES[name], tmp_path / "parts", **settings)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters()))
    losses = [float(line.split(",")[2]) for line in (tmp_path / "whole" / "loss.csv").read_text().splitlines()[1:]]
    assert len(losses) == 24 and np.mean(losses[-4:]) < np.mean(losses[:4]) - 0.3
    with pytest.raises(rw.Error, match="another recipe"):
        zoo.train(zoo.ENTRIES[name], tmp_path / "parts", **{**settings, "steps": 25})
