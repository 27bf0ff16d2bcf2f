"""Models of scripts/evidence_twin.py: what reads more than its table is the same model within it."""

import pathlib
import sys

import pytest
import torch
from zoo_models import TRAINED, stirred, tokens

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEARNED = {"absolute": {"type": "learned"}}


@pytest.fixture(scope="module")
def twin():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import evidence_twin
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return evidence_twin


@pytest.mark.parametrize("kind", ["hierarchical", "random"])
def test_logits_within_the_table_are_those_of_the_trained_rows(kind, twin):
    trained = stirred(LEARNED, bidirectional=True)
    made = twin.variant(trained, kind)
    with torch.no_grad():
        torch.testing.assert_close(made(tokens(TRAINED)), trained(tokens(TRAINED)), rtol=0, atol=1e-5)
        longer = made(tokens(twin.LENGTHS[-1], batch=1))
    assert torch.isfinite(longer).all()


def test_rows_behind_the_table(twin):
    trained = stirred(LEARNED, bidirectional=True)
    table, rows = trained.model.positions.table.detach(), twin.LENGTHS[-1]
    composed = twin.variant(trained, "hierarchical").model.positions.rows(torch.arange(rows))
    u = (table - twin.ALPHA * table[0]) / (1 - twin.ALPHA)
    for i, j in ((1, 0), (3, 5), (31, 31)):
        torch.testing.assert_close(composed[i * TRAINED + j], twin.ALPHA * u[i] + (1 - twin.ALPHA) * u[j])
    new = twin.variant(trained, "random").model.positions.table.detach()[TRAINED:]
    assert len(new) == rows - TRAINED
    torch.testing.assert_close(new.std(0), table.std(0), rtol=0.15, atol=0)
    torch.testing.assert_close(new.mean(0), table.mean(0), rtol=0, atol=5 * table.std().item() * len(new) ** -0.5)


def test_two_heads_look_at_the_neighbours_before_training(twin):
    model = twin.beginning()
    layer, x = model.model.layers[0].self_attn, torch.nn.functional.rms_norm(model.model.positions.table, (128,))
    q, k = (p(x).detach().unflatten(-1, (-1, layer.dim)).transpose(0, 1) for p in (layer.q_proj, layer.k_proj))
    found = (q @ k.transpose(1, 2)).argmax(-1)
    assert torch.equal(found[0, 1:], torch.arange(twin.TRAINED - 1))
    assert torch.equal(found[1, :-1], torch.arange(1, twin.TRAINED))
