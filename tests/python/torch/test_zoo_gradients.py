"""Gradients of whole models of the zoo against autograd through their formulas, typed again in float64: every parameter within 1e-4 of
the largest element of its own gradient (see CANCELLING), at the trained length and three times it.

The loss is the sum of all logits, each times a number that is drawn, so that every logit has a gradient of its own.
"""

import pytest
import torch
from test_zoo import CASES, combination
from test_zoo_formulas import ALL
from zoo_models import TRAINED, doubles, stirred, tokens
from zoo_reference import N, plain
from zoo_reference_of import parts

from ropewalk import zoo

# What these add is the same for all keys of a query, which a softmax does not see: their gradients are 0 but for rounding.
UNSEEN = (".bias.b2", ".bias.key_projection_bias", ".bias.from_cls")
# Where a softmax has almost all weight on one key, these are what is left of numbers that cancel, and float32's rounding of those
# numbers stays: with a GRU, q of the second layer is 1.7e-4 off on an Intel CPU, where PyTorch's scaled_dot_product_attention in its
# place makes it 1.3e-4 and attention in float64 9e-7.
CANCELLING = ("q_proj.weight", "k_proj.weight")


def reach(positions):
    """Tokens up to which there are rows of positions."""
    rows = [positions.get("absolute", {}), {"rows": positions.get("bias", {}).get("positions", N)}]
    return min(own.get("rows", N) for own in rows if own.get("type") != "hierarchical")


def check(model, twin, own):
    for count in (TRAINED, N):
        if count > reach(model.config["positions"]):
            continue
        ids, w = tokens(count), doubles(model)
        logits, expected = model(ids), plain(w, ids, twin, **own)
        assert (logits - expected).abs().max() <= 2e-5 * expected.abs().max()
        upstream = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
        (expected * upstream.double()).sum().backward()
        found = torch.autograd.grad((logits * upstream).sum(), list(model.parameters()))
        names = [name for name, _ in model.named_parameters()]
        assert sorted(names) == sorted(w)
        largest = {name: t.grad.abs().max().item() for name, t in w.items()}
        whole = max(largest.values())
        for name, gradient in zip(names, found):
            if largest[name] < 1e-12 * whole and name.endswith(UNSEEN):
                assert gradient.abs().max() <= 1e-6 * whole, name
            else:
                assert largest[name] > 1e-6 * whole, name  # or it was not seen at all
                limit = 1e-4 * largest[name]
                if name.endswith(CANCELLING):
                    limit = min(limit + 1e-7 * whole, 5e-4 * largest[name])
                assert (gradient - w[name].grad).abs().max() <= limit, name


@pytest.mark.parametrize(("positions", "own", "twin"), [pytest.param(p, o, t, id=n + " twin" * t) for n, t, p, o in ALL])
def test_settings(positions, own, twin):
    check(stirred(positions, bidirectional=twin), twin, own)


@pytest.mark.parametrize(("name", "positions", "twin"), CASES)
def test_entries(name, positions, twin):
    model = stirred(positions, bidirectional=twin)
    check(model, twin, parts(model.config["positions"], twin))


@pytest.mark.parametrize("seed", range(12))
def test_combinations(seed):
    model = stirred(combination(seed), seed)
    check(model, False, parts(model.config["positions"], False))


def test_every_entry_is_held():
    assert {name for name, _, _ in CASES} == set(zoo.ENTRIES)
