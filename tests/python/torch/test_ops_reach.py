"""Biases of arrays in ropewalk.torch.attention: made for the distances of a call, whatever its positions."""

import numpy as np
import pytest
import torch
from ops_reference import random

import ropewalk as rw
import ropewalk.torch as rt

HEADS, DIM = 2, 8
ONE = np.ones(HEADS, np.float32)
BIASES = {
    "kerple": rw.Kerple(HEADS, r1=ONE, r2=ONE),
    "sandwich": rw.Sandwich(HEADS),
    "alibi": rw.Alibi(HEADS),
    "t5": rw.T5Bias(HEADS, embedding=random(32, HEADS).numpy()),
    "shaw": rw.Shaw(HEADS, left=2, right=1, key_rows=random(4, DIM).numpy()),
    "transformer-xl": rw.TransformerXL(
        HEADS,
        projection=random(HEADS, DIM, 6).numpy(),
        content_bias=random(HEADS, DIM, seed=1).numpy(),
        position_bias=random(HEADS, DIM, seed=2).numpy(),
    ),
}
PLACES = {
    "near, far from 0": ([1 << 40], [(1 << 40) - 2, (1 << 40) - 1, 1 << 40]),
    "below 0": ([5], [-1000, -999, -998]),
    "all below 0": ([-998], [-1000, -999, -998]),
    "of each sequence": ([[3], [1 << 40]], [[1, 2, 3], [(1 << 40) - 2, (1 << 40) - 1, 1 << 40]]),
    "of the keys": (None, [1 << 40, (1 << 40) + 1, (1 << 40) + 2]),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_made_for_the_distances_of_a_call(name, places):
    q, k, v = random(2, 1, HEADS, DIM), random(2, 3, HEADS, DIM, seed=1), random(2, 3, HEADS, DIM, seed=2)
    at = {name: x for name, x in zip(("query_positions", "key_positions"), PLACES[places]) if x is not None}
    want = rw.attention(q.numpy(), k.numpy(), v.numpy(), bias=BIASES[name], **at)
    got = rt.attention(q, k, v, bias=BIASES[name], **{name: torch.tensor(x) for name, x in at.items()})
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=1e-6)


def test_a_bias_of_both_sides_reaches_as_far_ahead():
    q, k, v = random(1, HEADS, DIM), random(3, HEADS, DIM, seed=1), random(3, HEADS, DIM, seed=2)
    bias, at = rw.Kerple(HEADS, r1=ONE, r2=ONE, causal=False), {"query_positions": [5], "key_positions": [900, 901, 902]}
    want = rw.attention(q.numpy(), k.numpy(), v.numpy(), bias=bias, causal=False, **at)
    got = rt.attention(q, k, v, bias=bias, causal=False, **{name: torch.tensor(x) for name, x in at.items()})
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=1e-6)


def modules():
    made = {
        "kerple": rw.nn.Kerple(HEADS),
        "sandwich": rw.nn.Sandwich(HEADS),
        "transformer-xl": rw.nn.TransformerXL(HEADS, DIM, 6),
    }
    held = BIASES["transformer-xl"].parameters
    with torch.no_grad():
        for p in made["kerple"].parameters():
            p.fill_(1)
        for name in ("projection", "content_bias", "position_bias"):
            getattr(made["transformer-xl"], name).copy_(torch.tensor(held[name]))
    return made


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", modules())
def test_modules_are_made_for_the_distances_of_a_call(name, places):
    q, k, v = random(2, 1, HEADS, DIM), random(2, 3, HEADS, DIM, seed=1), random(2, 3, HEADS, DIM, seed=2)
    at = {name: x for name, x in zip(("query_positions", "key_positions"), PLACES[places]) if x is not None}
    module = modules()[name]
    if places == "near, far from 0":
        far = {"query_positions": [1 << 40], "key_positions": [0, 1, 2]}
        with pytest.raises(rw.Error, match=r"positions: expected distances below 2\^30, got 1099511627776"):
            module(q, k, v, **far)
    want = rw.attention(q.numpy(), k.numpy(), v.numpy(), bias=BIASES[name], **at)
    for given in (at, {name: torch.tensor(x) for name, x in at.items()}):
        for got in (module(q, k, v, **given), rt.attention(q, k, v, bias=module, **given)):
            np.testing.assert_allclose(got.detach().numpy(), want, rtol=0, atol=1e-6)


def test_a_compiled_module_does_not_read_positions():
    module, q, at = rw.nn.Kerple(HEADS), random(1, 3, HEADS, DIM), torch.arange(3)
    compiled = torch.compile(lambda at: module(q, q, q, query_positions=at, key_positions=at), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(at), module(q, q, q))


def test_positions_that_are_none_are_refused():
    q = random(1, 3, HEADS, DIM)
    for wrong in (torch.tensor(5), torch.arange(0), torch.arange(24).reshape(2, 3, 4), torch.arange(5)):
        for bias in (BIASES["kerple"], rw.nn.Kerple(HEADS)):
            with pytest.raises(rw.Error, match="query_positions: expected"):
                rt.attention(q, q, q, bias=bias, query_positions=wrong)
