"""The torch engine where memory is scarce: an allocator that fails, and what is free."""

import types

import numpy as np
import pytest
import torch

import ropewalk as rw
from engine_cases import MODEL, difference, embedded_ids, fed_tokens, plan_of, requests_of
from ropewalk._engine_feeder import Feeder
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine


@pytest.fixture(scope="module")
def ids():
    return embedded_ids()


class Scarce:
    """Refuses more than `tokens` tokens at a time, as a GPU does whose memory is full."""

    def __init__(self, engine, tokens):
        self.tokens, self.refused, self.largest = tokens, 0, 0
        self.hook = engine.model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, module, args, kwargs):
        tokens = kwargs["input_ids"].numel()
        if tokens > self.tokens:
            self.refused += 1
            raise torch.OutOfMemoryError("out of memory. Tried to allocate 20.00 GiB.\nand more lines")
        self.largest = max(self.largest, tokens)


@pytest.mark.parametrize("tokens", [600, 300, 70])
def test_less_at_a_time_where_memory_runs_out(ids, tokens):
    engine = TorchEngine(MODEL)
    plan, requests, ticks = plan_of("yarn", 300), requests_of(ids, 300), []
    whole = engine.score(plan, requests)
    scarce = Scarce(engine, tokens)
    scores = engine.score(plan, requests, tick=ticks.append)
    assert difference(scores, whole) < 3e-5
    assert scarce.refused > 0 and scarce.largest <= tokens
    assert sum(ticks) == fed_tokens(requests)


def test_no_memory_at_all_is_an_error(ids):
    engine = TorchEngine(MODEL)
    Scarce(engine, 10)
    with pytest.raises(rw.Error, match="not enough memory on cpu for one sequence of 300 tokens.*20.00 GiB"):
        engine.score(plan_of("yarn", 300), requests_of(ids, 300))


def test_memory_that_runs_out_in_the_middle_of_a_model(ids):
    """When some layers have their keys in the cache already, of a prefix too."""
    engine, calls = TorchEngine(MODEL), []
    plan, requests, ticks = plan_of("yarn", 300), requests_of(ids, 300), []
    whole = engine.score(plan, requests)

    def refuse(module, args, kwargs):
        calls.append(kwargs["hidden_states"].shape)
        if len(calls) in (1, 3, 6, 12):
            raise torch.OutOfMemoryError("out of memory")

    engine.model.model.layers[2].self_attn.register_forward_pre_hook(refuse, with_kwargs=True)
    scores = engine.score(plan, requests, tick=ticks.append)
    assert len(calls) > 12 and difference(scores, whole) < 3e-5
    assert sum(ticks) == fed_tokens(requests)
    assert difference(engine.score(plan, requests), whole) < 3e-5


def test_less_at_a_time_when_text_is_generated(ids):
    engine, plan = TorchEngine(MODEL), plan_of("yarn", 512)
    prompt = [GenerateRequest(ids=ids[:400], max_tokens=4)]
    ((made, stopped),) = engine.generate(plan, prompt)
    scarce = Scarce(engine, 100)
    ((again, same),) = engine.generate(plan, prompt)
    assert list(again) == list(made) and same == stopped and scarce.refused > 0 and scarce.largest <= 100


def test_continuations_one_by_one_where_memory_does_not_hold_several(ids):
    engine, plan, refused = TorchEngine(MODEL), plan_of("rerope", 512), []
    prompts = [GenerateRequest(prefix=ids[:200], ids=ids[at : at + n], max_tokens=4) for at, n in ((200, 90), (300, 35), (400, 1))]
    ticks: list[list[int]] = [[], []]
    whole = engine.generate(plan, prompts, tick=ticks[0].append)

    def refuse(module, args, kwargs):
        if len(kwargs["input_ids"]) > 1 and len(refused) < 2:
            refused.append(0)
            if len(refused) == 2:  # in the middle
                raise torch.OutOfMemoryError("out of memory")

    engine.model.register_forward_pre_hook(refuse, with_kwargs=True)
    again = engine.generate(plan, prompts, tick=ticks[1].append)
    assert len(refused) == 2
    assert [(list(a), b) for a, b in again] == [(list(a), b) for a, b in whole]
    assert sum(ticks[0]) == sum(ticks[1]) == sum(len(p.prefix) + len(p.ids) + 3 for p in prompts)


def test_as_many_run_together_as_a_quarter_of_the_free_memory_holds(ids, monkeypatch):
    engine, fed = TorchEngine(MODEL), []
    engine.model.register_forward_pre_hook(
        lambda m, a, settings: fed.append(len(settings["input_ids"])), with_kwargs=True
    )
    requests = [ScoreRequest(ids=ids[i : i + 64], positions=[63]) for i in range(16)]
    a_token = 2 * 4 * 6 * 32 * 4  # bytes of keys and values, 4 layers, 6 heads of 32, float32
    for fits in (1, 3, 16):
        fed.clear()
        monkeypatch.setattr(engine, "_free_bytes", lambda fits=fits: 4 * fits * 64 * a_token)
        engine.score(plan_of("none", 64), requests)
        assert max(fed) == fits and sum(fed) == 16
    # What did not fit is remembered as tokens: shorter sequences run together still.
    Scarce(engine, 4 * 64)
    fed.clear()
    engine.score(plan_of("none", 64), requests)
    assert min(fed) >= 4
    shorter = [ScoreRequest(ids=ids[i : i + 16], positions=[15]) for i in range(16)]
    fed.clear()
    engine.score(plan_of("none", 64), shorter)
    assert max(fed) == 16


def test_other_errors_are_not_taken_for_memory(ids):
    engine = TorchEngine(MODEL)

    def fail(module, args, kwargs):
        raise RuntimeError("something else")

    engine.model.register_forward_pre_hook(fail, with_kwargs=True)
    with pytest.raises(RuntimeError, match="something else"):
        engine.score(plan_of("none", 64), [ScoreRequest(ids=ids[:9], positions=[3])])
    assert np.isfinite(engine._most_together)


@pytest.mark.parametrize("method", ["yarn", "rerope:40"])
def test_chunks_of_an_accelerator(ids, method, monkeypatch):
    """Whole sequences, also where a few tokens of them are in the cache. There is no GPU here, only the name of one."""
    engine, fed = TorchEngine(MODEL), []
    plan = plan_of(method, 300)
    first = ids[:200]
    second = np.concatenate([ids[:9], ids[300:491]])
    third = np.concatenate([second[:150], np.where(second[150:] > 9, second[150:] - 1, 10)])
    prefixes = first, second, third
    requests = [ScoreRequest(ids=ids[200:300], prefix=p, positions=range(201, 300)) for p in prefixes]
    expected = engine.score(plan, requests)
    engine.model.register_forward_pre_hook(
        lambda m, a, settings: fed.append(settings["input_ids"].shape[1]), with_kwargs=True
    )
    monkeypatch.setattr(engine, "device", types.SimpleNamespace(type="gpu"))
    assert difference(engine.score(plan, requests), expected) < 3e-5
    assert [n for n in fed if n != 8] == [200, 99, 200, 99, 50, 99]  # 8: probes of how layers rotate


def test_logits_of_a_chunk(monkeypatch):
    engine = TorchEngine(MODEL)
    feeder = Feeder(engine, types.SimpleNamespace(plan=plan_of("none", 64)))
    assert feeder._most_logits(1 << 40) == 64 << 20
    monkeypatch.setattr(engine, "device", types.SimpleNamespace(type="gpu"))
    for free, logits in ((None, 256 << 20), (1 << 30, 256 << 20), (1 << 40, 1 << 36)):
        monkeypatch.setattr(engine, "_steps", types.SimpleNamespace(ranks=None, free_bytes=lambda free=free: free))
        feeder._steps = engine._steps
        assert feeder._most_logits(1 << 40) == logits and feeder._most_logits(1 << 20) == 256 << 20
