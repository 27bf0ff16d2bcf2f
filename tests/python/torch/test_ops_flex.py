"""Biases of devices without kernels, on the CPU: what they lack, and sums that keep their digits."""

import pytest
import torch
from ops_reference import B, D, H, S, T, flex_arguments, random, tensors
from torch.testing import assert_close

import ropewalk as rw
import ropewalk.torch as rt
import ropewalk.torch._flex as flex
from ropewalk import nn
from ropewalk.torch._attention_op import attention_op
from ropewalk.torch._flex import flex_attention

AT, ROWS = torch.arange, torch.arange(3, dtype=torch.int32)
LACKING = {
    "content ahead": (lambda: nn.TransformerXL(H, D, 8).form(T, S), {"causal": False}, "knows distances"),
    "content far": (lambda: nn.TransformerXL(H, D, 8).form(T, S), {"query_positions": AT(T) + 100}, "knows distances"),
    "content short": (lambda: rt.Content(ROWS, 0, random(1, 3, D)), {}, "knows distances"),
    "content ahead of its window": (lambda: rt.Content(ROWS, -1, random(1, 3, D)), {"window": 3, "causal": False}, "knows dist"),
    "content of a document": (lambda: rt.Content(ROWS, 0, random(1, 3, D)), {"document_starts": AT(17) * 4}, "knows distances"),
    "content of repeated keys": (
        lambda: nn.Shaw(H, D, left=2, values=False).form(T, S),
        {"key_positions": AT(S) // 2},
        "consecutive",
    ),
    "content of keys apart": (
        lambda: nn.Shaw(H, D, left=2, values=False).form(T, S),
        {"key_positions": AT(S) * 2},
        "consecutive",
    ),
    "distances far": (lambda: rt.Distances(random(H, S)), {"query_positions": AT(T) + 100}, "knows distances"),
    "slopes ahead": (lambda: rt.Slopes(torch.ones(H)), {"causal": False}, "ahead: expected a slope for each head"),
    "ALiBi ahead": (lambda: nn.Alibi(H).form(T, S), {"causal": False}, "ahead: expected a slope for each head"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_a_bias_lacks_is_refused_as_on_the_cpu(name):
    make, settings, message = LACKING[name]
    for op in (flex_attention, attention_op):
        with torch.no_grad(), pytest.raises(rw.Error, match=message) as error:
            op(*tensors(), *flex_arguments(make(), **settings))
        assert error.value.code == "invalid_argument"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_what_a_bias_has_is_computed_as_on_the_cpu():
    """Tables as long as what is seen, shorter than all keys."""
    rows, starts = random(1, 3, D), torch.arange(24) * 3
    of_documents = starts.repeat_interleave(3)[:S]
    cases = [
        (rt.Content(ROWS, 0, rows), {"window": 3}),
        (rt.Content(torch.arange(5, dtype=torch.int32) // 2, -2, rows), {"window": 3, "causal": False}),
        (rt.Content(ROWS, 0, rows), {"document_starts": starts}),
        (rt.Content(ROWS, 0, rows), {"document_starts": starts, "key_positions": torch.arange(S) - of_documents}),
        (rt.Distances(random(H, 3)), {"document_starts": starts}),
        (rt.Content(ROWS, 0, rows, repeats_behind=True), {"query_positions": torch.arange(T) + 500}),
    ]
    for bias, settings in cases:
        with torch.no_grad():
            for x, y in zip(*(op(*tensors(), *flex_arguments(bias, **settings)) for op in (flex_attention, attention_op))):
                assert_close(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_distance_without_a_row_is_nan_where_the_host_reads_no_position(monkeypatch):
    monkeypatch.setattr(flex, "host_reads", lambda x: False)
    at = torch.arange(T) + 40  # the last ones see keys further than the table's 70
    arguments = flex_arguments(nn.TransformerXL(H, D, 8).form(T, S), query_positions=at)
    with torch.no_grad():
        out, _ = flex_attention(*tensors(), *arguments)
    assert torch.equal(out.isnan().all(-1).all(-1), (at >= S).expand(B, T))
    assert torch.equal(out.isnan().any(-1).any(-1), (at >= S).expand(B, T))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_gates_after_hard_forgetting_keep_their_digits():
    """Sums of 20480 at which a float32 has steps of 2^-9, and differences below 1."""
    n = 2048
    gates = torch.full((1, n, 2), -20.0)
    gates[:, n // 2 :] = torch.nn.functional.logsigmoid(random(1, n // 2, 2, seed=1) + 3)
    q, k, v = random(1, 64, 2, 8, seed=2), random(1, n, 2, 8, seed=3), random(1, n, 2, 8, seed=4)
    arguments = flex_arguments(rt.Gates(gates))
    with torch.no_grad():
        for x, y in zip(flex_attention(q, k, v, *arguments), attention_op(q, k, v, *arguments)):
            assert_close(x, y, rtol=0, atol=2e-6)
