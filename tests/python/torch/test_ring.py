"""Attention over ranks (ropewalk.torch.ring_attention) beside that of one process: 2 and 3 processes, gloo."""

import re

import pytest
import torch
from ranks_cases import HERE, found
from ring_on_ranks import CASES

import ropewalk as rw
import ropewalk.torch as rt

SCRIPT = HERE / "ring_on_ranks.py"
FEW = ["plain", "short", "both directions", "window", "kerple", "shaw", "rerope", "dual-chunk", "sinks", "rerope far"]


@pytest.fixture(scope="module")
def two():
    return found(SCRIPT)


@pytest.fixture(scope="module")
def three():
    return found(SCRIPT, *FEW, ranks=3)


def check(row):
    assert row["largest"] > 0.1
    assert row["forward"] <= 2e-6 and row["backward"] <= 1e-5, row
    assert row["same_bits"]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_find_what_one_does(two, name):
    check(two[name, 0])


@pytest.mark.parametrize("name", FEW)
def test_three_ranks_find_what_one_does(three, name):
    check(three[name, 0])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gates", "Gates .the forgetting gate. sums over the tokens between query and key"),
        ("cope", "Contextual .CoPE. sums over"),
        ("swin", "Swin has a window of pixels"),
        ("map of content", "expected a form without products of queries and keys"),
        ("tokens", "q: expected .batch, 128, heads, head_dim., the tokens of rank . of 2"),
    ],
)
def test_refused_on_every_rank(two, name, says):
    for rank in (0, 1):
        assert re.search(says, two["refused", rank][name]), two["refused", rank]
        assert two["refused", rank]["after"] is True


def test_the_deal_is_that_of_the_library(two, three):
    """Deal of ring.h: runs of a multiple of 64 tokens, r and 2 N - 1 - r."""
    assert [two["deal", r]["runs"] for r in (0, 1)] == [[[0, 128], [384, 500]], [[128, 256], [256, 384]]]
    assert [three["deal", r]["runs"] for r in (0, 1, 2)] == [
        [[0, 128], [500, 500]],
        [[128, 256], [500, 500]],
        [[256, 384], [384, 500]],
    ]
    for rows, ranks in ((two, 2), (three, 3)):
        assert all(rows["deal", r]["whole"] and rows["deal", r]["alone"] for r in range(ranks))
        assert sorted(p for r in range(ranks) for p in rows["deal", r]["positions"]) == list(range(500))


def test_a_ring_needs_ranks():
    with pytest.raises(rw.Error, match="init_process_group"):
        rt.Ring(10)


def test_keys_of_a_map_may_begin_anywhere():
    """Attention of one process at the positions of a run far from 0: a map reads distances alone where it says so."""
    q, k, v = (torch.randn(1, 70, 2, 16) for _ in range(3))
    settings = {"rotation": rw.rotation(16, layout="half"), "remap": rw.ReRoPE(20)}
    near = rt.attention(q, k, v, **settings)
    at = torch.arange(70) + 1_000_000
    far = rt.attention(q, k, v, query_positions=at, key_positions=at, **settings)
    assert (near - far).abs().max() < 2e-6 * near.abs().max()
    with pytest.raises(rw.Error, match="multiple of 64"):
        rt.attention(q, k, v, query_positions=at + 1, key_positions=at + 1, **settings)
