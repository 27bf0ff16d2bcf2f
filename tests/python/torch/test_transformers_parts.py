"""Attention of maps by fused kernels of a GPU, whose place a formula takes here: which pairs its parts have, and what a
model computes with them."""

import copy
import itertools
import pickle
import warnings

import pytest
import tiny_models
import torch
import transformers
from tiny_models import IDS, build_unscaled, close, logits

import ropewalk as rw
import ropewalk.transformers as rt
from ropewalk.transformers import _attention, _parts, _views

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
MAPS = [
    rw.ReRoPE(window=5),
    rw.ReRoPE(window=40),
    rw.LeakyReRoPE(window=7, factor=4),
    rw.SelfExtend(window=8, group=4),
    rw.DualChunk(chunk=6, limit=9),
    rw.DualChunk(chunk=64, limit=80),
    rw.AttentionSinks(sinks=3, window=6),
    rw.AttentionSinks(sinks=0, window=6),
    rw.AttentionSinks(sinks=3, window=64),
    rw.STRING(shift=9, window=4),
    rw.LaMPE(head=5, mapped=20, tail=6, length=40),
    rw.LaMPE(head=5, mapped=20, tail=40, length=40),
    rw.LaMPE(head=5, mapped=40, tail=6, length=40),
    rw.DPE(window=8, **{f"group{i}": i for i in range(1, 9)}),
]


@pytest.mark.parametrize("position_map", [*MAPS, None], ids=str)
@pytest.mark.parametrize("keys", [1, 2, 5, 6, 13, 29, 60])
def test_parts_have_each_pair_of_a_map_once(position_map, keys):
    for tokens in {1, 2, keys // 2, keys - 3, keys - 1, keys} & set(range(1, keys + 1)):
        settings = None if position_map is None else position_map.settings
        at = torch.arange(keys)
        if position_map is None:
            expected = torch.zeros(tokens, keys, dtype=torch.long)
        else:
            expected = torch.from_numpy(position_map.view_of(at[keys - tokens :].numpy(), at.numpy())).long()
        expected = torch.where(at > at[keys - tokens :, None], -1, expected)
        found = torch.full((tokens, keys), -1)
        done = 0
        for part in _parts.parts_of(position_map, settings, tokens, keys):
            (q0, q1), (k0, k1) = part.queries, part.keys
            assert 0 <= q0 < q1 <= tokens and 0 <= k0 < k1 <= keys
            assert q1 <= done or q0 == done  # with the results of all of its queries, or of none
            done = max(done, q1)
            seen = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool)
            if part.causal:
                distance = torch.arange(k1 - k0 - (q1 - q0), k1 - k0)[:, None] - torch.arange(k1 - k0)
                seen = (distance >= 0) & ((distance < part.window) | (part.window == 0))
            assert seen.any(1).all()  # log-sum-exp of nothing is not asked for
            block = found[q0:q1, k0:k1]
            assert (block[seen] == -1).all()
            block[seen] = part.view
        assert done == tokens and torch.equal(found, expected)


def test_maps_of_too_many_parts_and_others_have_none():
    class Unknown:
        name, views = "unknown", [None, None]

    chunks = rw.DualChunk(chunk=2, limit=3)
    assert _parts.parts_of(chunks, chunks.settings, 60, 60) is not None
    assert _parts.parts_of(chunks, chunks.settings, 6000, 6000) is None
    assert _parts.parts_of(chunks, chunks.settings, 1, 6000) is not None
    assert _parts.parts_of(Unknown, {}, 6, 6) is None


@pytest.fixture
def fused(monkeypatch):
    """As on a GPU that has flash attention; the number of its calls."""
    calls = []
    flash = _parts._flash

    def count(*args):
        calls.append(args)
        return flash(*args)

    monkeypatch.setattr(_attention, "works", lambda *args: True)
    monkeypatch.setattr(_parts, "_flash", count)
    return calls


METHODS = [
    "rerope:12",
    "leaky-rerope:12",
    "self-extend:window=12,group=4",
    "dual-chunk:chunk=12,limit=20",
    "sinks:sinks=3,window=12",
    "log-n:8",
    "rerope:12+log-n:8",
]
FAMILIES = [
    n
    for n in ("llama", "gpt_oss", "phi", "cohere", "smollm3", "qwen3", "nanochat")
    if n in tiny_models.families()
]


@pytest.mark.parametrize(("name", "method"), list(itertools.product(FAMILIES, METHODS)))
def test_a_model_computes_the_same(name, method, fused, monkeypatch):
    """Whole, in chunks and step by step; two sequences too."""
    model = build_unscaled(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ids = torch.cat((IDS, IDS.flip(1)))

        def outputs():
            cache, parts, first = transformers.DynamicCache(), [], 0
            for n in (25, 1, 20, 14):
                with torch.no_grad():
                    part = model(input_ids=ids[:, first : first + n], past_key_values=cache, use_cache=True)
                parts.append(part.logits)
                first += n
            return [logits(model), *torch.cat(parts, 1)]

        with rt.applied(model, method, 4):
            by_parts = outputs()
            count = len(fused)
            monkeypatch.setattr(_attention, "works", lambda *args: False)
            expected = outputs()
    assert count > 0 and len(fused) == count
    for x, y in zip(by_parts, expected):
        assert close(x, y, expected[0].abs().max())


def test_what_fused_kernels_do_not_have(fused):
    """Padding, packed and uneven positions, gradients and weights go other ways."""
    model = build_unscaled("llama")
    mask = torch.ones_like(IDS)
    mask[:, :7] = 0
    positions = torch.arange(IDS.shape[1])[None]
    with rt.applied(model, "dual-chunk:chunk=12,limit=20", 4):
        with torch.no_grad():
            model(IDS, attention_mask=mask)
            model(IDS, position_ids=positions % 30, use_cache=False)
            model(IDS, position_ids=positions * 2, use_cache=True)
            model(IDS, position_ids=positions + 5, use_cache=True)
            model(IDS, output_attentions=True)
        model(IDS)
        assert not fused
        with torch.no_grad():
            model(IDS)
        assert fused


def test_flash_attention_is_tried_before_it_is_used():
    assert not _parts.works(torch.device("cpu"), torch.bfloat16, 4, 2, 64)
    assert not _parts.works(torch.device("cuda"), torch.float32, 4, 2, 64)


def test_layers_share_what_positions_say(monkeypatch):
    """One computation of cosines for each view and side of a pass, not for each layer; and a new one for the next."""
    model = build_unscaled("llama")
    calls = []
    make = _views.mapped_cos_sin
    monkeypatch.setattr(_attention, "works", lambda *args: True)
    monkeypatch.setattr(_views, "mapped_cos_sin", lambda *args: calls.append(args) or make(*args))
    with rt.applied(model, "rerope:12", 4), torch.no_grad():
        for passes in (1, 2):
            model(IDS)
            assert len(calls) == 4 * passes


def test_a_copy_of_a_model_and_a_stored_one_leave_a_pass_behind():
    model = build_unscaled("llama")
    with rt.applied(model, "rerope:12", 4):
        expected = logits(model)
        shared = model.model.layers[0].self_attn.__dict__["_ropewalk"].shared
        assert shared.running.passes
        for made in (copy.deepcopy(shared).running, pickle.loads(pickle.dumps(shared.running))):
            assert not made.passes and made.positions is None
        assert torch.equal(logits(copy.deepcopy(model)), expected)
