"""Scores of PyTorch as an engine against the library's decoder, on the embedded model: chunks, batches, prefixes."""

import threading

import numpy as np
import pytest
import torch

import ropewalk as rw
from engine_cases import MODEL, TRAINED, difference, embedded_ids, plan_of, requests_of
from ropewalk import _core
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine, native_engine

NATS = 1e-4  # by which the loss of a token may differ


@pytest.fixture(scope="module")
def native():
    return native_engine(MODEL)


@pytest.fixture(scope="module")
def engine():
    return TorchEngine(MODEL)


@pytest.fixture(scope="module")
def ids():
    return embedded_ids()


def usual_methods():
    """Those of a sweep without `methods`."""
    ids = embedded_ids()
    core = _core.Sweep(
        rw.plan(MODEL), None, None, ids, [], [], [], [], 0, "aligned", None, 1, False, ["perplexity"], 1, None, False, True, "exact", ["f32"], False
    )
    return sorted({task[0] for task in core.tasks})


MAPS = ["rerope", "leaky-rerope", "self-extend", "dual-chunk", "sinks", "string", "lampe", "dpe", "log-n", "rerope+log-n", "string+mscale"]


@pytest.mark.parametrize("method", sorted({*usual_methods(), *MAPS}))
def test_losses_of_tokens_are_the_native_ones(native, engine, ids, method):
    for length in (100, TRAINED, 2 * TRAINED, 4 * TRAINED):
        plan, requests = plan_of(method, length), requests_of(ids, length)
        remapped = any(layer.map is not None or layer.temperature is not None for layer in plan.layers)
        # Under these ropewalk.transformers rotates, with exact tables; else transformers itself, in float32.
        theirs = native.score(plan, requests, angles="exact" if remapped else "float32")
        ours = engine.score(plan, requests)
        assert difference(ours, theirs) <= NATS, (method, length)
        same = np.concatenate([x[1] == y[1] for x, y in zip(ours.tokens, theirs.tokens)])
        assert same.mean() > 0.999, (method, length)
        assert ours.entropy == []


def test_time_is_estimated_by_the_operations_of_the_native_engine(native, engine):
    """Norms are no products: the decoder does not count them."""
    ours, theirs = engine.facts(), native.facts()
    assert ours.token_flops == pytest.approx(theirs.token_flops, rel=1e-2)
    assert (ours.pair_flops, ours.head_flops) == (theirs.pair_flops, theirs.head_flops)


def test_a_head_of_its_own_is_no_layer(engine):
    from transformers import AutoModelForCausalLM

    config = type(engine.model.config).from_dict({**engine.model.config.to_dict(), "tie_word_embeddings": False})
    untied = AutoModelForCausalLM.from_config(config)
    assert TorchEngine(untied).facts().token_flops == engine.facts().token_flops


def test_the_comparison_sees_a_wrong_plan(native, engine, ids):
    requests = requests_of(ids, 512)
    assert (
        difference(engine.score(plan_of("yarn", 512), requests), native.score(plan_of("linear", 512), requests)) > 0.1
    )


@pytest.mark.parametrize("method", ["dynamic", "yarn"])
def test_chunks_change_rounding_alone(engine, ids, method, monkeypatch):
    """Frequencies that depend on the length are those of the final one from the first chunk on."""
    plan, requests = plan_of(method, 512), requests_of(ids, 512)
    whole = engine.score(plan, requests)
    monkeypatch.setattr(engine, "_most_tokens", 64)
    assert difference(engine.score(plan, requests), whole) < 3e-5


def test_alone_together_and_behind_a_prefix_the_scores_are_the_same(engine, ids):
    plan = plan_of("yarn", 300)
    requests = requests_of(ids, 300)
    together = engine.score(plan, requests)
    for request, row in zip(requests, together.tokens):
        whole = ScoreRequest(ids=np.concatenate([request.prefix, request.ids]), positions=request.positions)
        alone = engine.score(plan, [whole]).tokens[0]
        np.testing.assert_allclose(row[0], alone[0], atol=3e-5)


def test_a_shared_prefix_is_computed_once(engine, ids):
    """By the number of tokens that the model is fed."""
    fed = []
    hook = engine.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    ticks = []
    try:
        prefixes = [(200, 40), (200, 60), (230, 30)]  # tokens of prefix, of the rest
        requests = [ScoreRequest(prefix=ids[:p], ids=ids[500 : 500 + n], positions=[p + n - 1]) for p, n in prefixes]
        engine.score(plan_of("none", 300), requests, tick=ticks.append)
    finally:
        hook.remove()
    assert sum(fed) == 200 + 39 + 59 + 30 + 29
    assert sum(ticks) == sum(p + n - 1 for p, n in prefixes)


def test_generated_tokens_are_the_native_ones(native, engine, ids):
    prompts = [
        GenerateRequest(ids=ids[:40], max_tokens=8),
        GenerateRequest(prefix=ids[:9], ids=ids[9:30], max_tokens=0),
    ]
    plan = plan_of("yarn", 512)
    ours, theirs = engine.generate(plan, prompts), native.generate(plan, prompts)
    assert [(list(a), b) for a, b in ours] == [(list(a), b) for a, b in theirs]
    stop = GenerateRequest(ids=ids[:40], max_tokens=8, stop=[int(ours[0][0][4])])
    ((made, stopped),) = engine.generate(plan, [stop])
    assert stopped and list(made) == list(ours[0][0][: list(ours[0][0]).index(ours[0][0][4])])


@pytest.mark.parametrize("method", ["none", "yarn", *MAPS])
def test_continuations_side_by_side_are_those_alone(engine, ids, method, monkeypatch):
    """Prompts of several lengths: those that are shorter have padding in front."""
    plan, fed = plan_of(method, 512), []
    starts = ((0, 300, 9), (40, 37, 12), (300, 299, 1), (9, 120, 12), (80, 1, 7), (500, 5, 0))
    asked = [GenerateRequest(ids=ids[at : at + n], max_tokens=most) for at, n, most in starts]
    hook = engine.model.register_forward_pre_hook(lambda m, a, given: fed.append(given["input_ids"].shape), with_kwargs=True)
    together = engine.generate(plan, asked)
    assert max(rows for rows, _ in fed) == 4 and sum(rows == 4 for rows, _ in fed) == 11
    # Ended by different tokens at different times.
    stops = [GenerateRequest(ids=r.ids, max_tokens=r.max_tokens, stop=made[3:4]) for r, (made, _) in zip(asked, together)]
    stopped = engine.generate(plan, stops)
    monkeypatch.setattr(engine._steps.part, "takes_padding", False)
    fed.clear()
    alone, stopped_alone = engine.generate(plan, asked), engine.generate(plan, stops)
    hook.remove()
    assert max(rows for rows, _ in fed) == 1
    for ours, theirs in ((together, alone), (stopped, stopped_alone)):
        assert [(list(a), b) for a, b in ours] == [(list(a), b) for a, b in theirs]
    assert [len(made) for made, _ in together] == [most for _, _, most in starts] and any(b for _, b in stopped)


def test_a_scored_context_and_all_behind_it_cost_one_prefill(native, engine, ids):
    """Answers given and continuations asked for behind one prefix: tokens and ids are the native ones."""
    context, plan = ids[:200], plan_of("yarn", 300)
    requests = [ScoreRequest(prefix=context, ids=[], positions=np.arange(150, 190))]
    for i in (300, 320, 340):
        requests.append(ScoreRequest(prefix=context, ids=ids[i : i + 15], positions=np.arange(205, 215)))
        requests.append(ScoreRequest(prefix=context, ids=ids[i : i + 5], positions=[], continue_tokens=6))
    requests.append(ScoreRequest(ids=ids[:20], positions=[9], continue_tokens=3, stop=np.arange(1024)))
    ours = engine.score(plan, requests)
    theirs = native.score(plan, requests, angles="float32", whole_reuse=True)
    assert difference(ours, theirs) <= NATS
    made = [(list(a), b) for a, b in ours.continuations]
    assert made == [(list(a), b) for a, b in theirs.continuations]
    assert [len(a) for a, _ in made] == [0, 0, 6, 0, 6, 0, 6, 0] and made[-1] == ([], True)
    prefill, forced, continued, last = 199, 1 + 14, 1 + 5 + 5, 20
    assert theirs.fed_tokens == prefill + 3 * forced + 3 * continued + last
    # PyTorch keeps the whole context; the scores of the last request are a pass of their own.
    assert ours.fed_tokens == 200 + 3 * 14 + 3 * (5 + 5) + 9 + 20


def test_the_model_is_given_back_as_it_was(engine, ids):
    before = {name: buffer.clone() for name, buffer in engine.model.named_buffers()}
    engine.score(plan_of("yarn", 512), requests_of(ids, 512))
    with pytest.raises(LookupError):
        engine.score(plan_of("linear", 512), requests_of(ids, 512), tick=lambda tokens: {}[tokens])
    after = dict(engine.model.named_buffers())
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_exact_angles_are_refused(engine, ids):
    with pytest.raises(rw.Error, match="float32"):
        engine.score(plan_of("none", 64), [ScoreRequest(ids=ids[:9], positions=[1])], angles="exact")


def test_two_threads_with_one_model(engine, ids):
    wanted = {m: engine.score(plan_of(m, 512), requests_of(ids, 512)) for m in ("yarn", "linear")}
    found = {}

    def run(method):
        found[method] = [engine.score(plan_of(method, 512), requests_of(ids, 512)) for _ in range(2)]

    threads = [threading.Thread(target=run, args=(method,)) for method in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(difference(scores, wanted[method]) < 1e-6 for method in wanted for scores in found[method])
