"""Batches, models and settings that are rare: rows of padding alone, attention that is not causal, weights asked for by the
configuration, float64, and models that have read past their trained length."""

import warnings

import pytest
import torch
import transformers
from tiny_models import IDS, V5, build, built_with, close, logits

import ropewalk
import ropewalk.transformers as rt

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
MAPS = [
    "rerope:12",
    "self-extend:window=12,group=4",
    "dual-chunk:chunk=12,limit=20",
    "string",
    "dpe",
    "lampe",
    "sinks:sinks=3,window=12",
]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("method", [*MAPS, "log-n:8"])
def test_a_row_that_is_padding_alone(method):
    """In a chunk of a prompt that is padded on the left, or for the whole call."""
    model = build("llama")
    short = IDS[:, :25]
    both = torch.cat((IDS[:, :40], torch.cat((torch.zeros(1, 15, dtype=torch.long), short), 1)))
    mask = (both != 0).long()
    places = (mask.cumsum(-1) - 1).clamp_min(0)
    with rt.applied(model, method, 4):
        cache, parts = transformers.DynamicCache(config=model.config), []
        for first in range(0, 40, 13):
            now = slice(first, first + 13)
            with torch.no_grad():
                step = model(
                    input_ids=both[:, now],
                    attention_mask=mask[:, : now.stop],
                    position_ids=places[:, now],
                    past_key_values=cache,
                )
            parts.append(step.logits)
        found = torch.cat(parts, 1)
        for row, expected in ((found[:1], logits(model, both[:1])), (found[1:, 15:], logits(model, short))):
            assert close(row, expected, expected.abs().max())
        nothing = torch.ones_like(both)
        nothing[1] = 0
        whole = logits(model, both, attention_mask=nothing)
        assert close(whole[:1], logits(model, both[:1]), whole.abs().max()) and whole.isfinite().all()
        model(input_ids=both, attention_mask=nothing, labels=both).loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())


def not_causal():
    """Models that attend to keys ahead."""
    sizes = dict(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    for name in ("ModernBert", "EuroBert"):
        kind = getattr(transformers, f"{name}ForMaskedLM", None)
        if V5 and kind is not None:
            yield kind(getattr(transformers, f"{name}Config")(**sizes, cls_token_id=1, sep_token_id=2)).eval()
    if V5:
        yield build("gemma3_text", use_bidirectional_attention=True)


@pytest.mark.skipif(not V5, reason="4.57's own are refused before")
def test_maps_are_refused_where_attention_is_not_causal():
    models = list(not_causal())
    assert len(models) == 3
    for model in models:
        before = logits(model)
        for method in MAPS:
            with pytest.raises(ropewalk.Error, match=f"{model.config.model_type}: the position map .* not causal") as error:
                rt.apply(model, method, 4)
            assert error.value.code == "unsupported" and torch.equal(logits(model), before)
        for method in ("yarn", "log-n:8"):
            with rt.applied(model, method, 4):
                assert not torch.equal(logits(model), before)


def test_a_call_whose_mask_is_not_causal_is_refused_under_a_map():
    model = build("llama")
    seen = torch.ones(60, 60).tril().bool()[None, None]
    ahead = seen.clone()
    ahead[..., :10, :10] = True  # a prefix that is read in both directions
    with rt.applied(model, "rerope:12", 4):
        expected = logits(model)
        for allowed, given in ((True, seen), (False, ahead)):
            for mask in (given, torch.zeros(given.shape).masked_fill(~given, torch.finfo(torch.float32).min)):
                if allowed:
                    assert close(logits(model, attention_mask=mask), expected, expected.abs().max())
                else:
                    with pytest.raises(ropewalk.Error, match=r"llama: the position map ReRoPE\(window=12\).* not causal"):
                        logits(model, attention_mask=mask)
        model.model.layers[1].self_attn.is_causal = False
        if V5:  # 4.57 gives a mask that is causal in any case
            with pytest.raises(ropewalk.Error, match="not causal"):
                logits(model)
    with rt.applied(model, "log-n:8", 4):
        assert not close(logits(model, attention_mask=ahead), logits(model, attention_mask=seen), 1)


@pytest.mark.parametrize("method", ["rerope:12", "log-n:8"])
def test_weights_asked_for_by_the_configuration(method):
    model = build("llama")
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    with rt.applied(model, method, 4), torch.no_grad():
        expected = model(input_ids=IDS, output_attentions=True).attentions
        found = model(input_ids=IDS).attentions
    assert len(found) == len(expected) == 2
    assert all(torch.equal(a, b) and a.shape == (1, 4, 60, 60) for a, b in zip(found, expected, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Settings

LONG = torch.cat((IDS, IDS, IDS), 1)  # 180 tokens; the models are of 128


def test_dynamic_counts_from_max_position_embeddings():
    """As transformers, which does not read the original length for it."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 32}
    model = build("llama")
    theirs = built_with(model, rope)
    with pytest.warns(UserWarning) as told:
        rt.apply(model, rope)
    assert [str(w.message)[:70] for w in told] == [
        "original_max_position_embeddings = 32: transformers does not read it f"
    ]
    for ids in (IDS, LONG[:, :100], LONG, IDS):
        assert torch.allclose(logits(model, ids), logits(theirs, ids), atol=1e-6)
    assert rt.plan_of(model).trained_length == 128
    rt.restore(model)
    # A length that is given counts.
    with rt.applied(model, rope, trained_length=32) as plan:
        assert plan.trained_length == 32


def test_an_unknown_key_of_a_dictionary_is_to_be_removed():
    with pytest.raises(ropewalk.Error, match='unknown key "beta_fats".*positions: remove it$') as error:
        rt.apply(build("llama"), {"rope_type": "yarn", "factor": 4.0, "beta_fats": 3})
    assert error.value.code == "invalid_config"


# ---------------------------------------------------------------------------------------------------------------------
# Models that were used or converted

OWN = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        **({"original_max_position_embeddings": 128} if V5 else {}),
        "short_factor": [1.0 + 0.03 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)],
    },
}


@pytest.mark.parametrize("kind", OWN)
def test_a_model_that_has_read_past_its_trained_length(kind):
    model, fresh = (built_with(build("llama"), OWN[kind]) for _ in range(2))
    for ids in (IDS, LONG[:, :128], LONG[:, :129], LONG, IDS):
        before = logits(model, ids)
        live = model.model.rotary_emb.inv_freq.clone()
        plan = rt.plan_of(model)
        assert torch.equal(torch.from_numpy(plan.layers[0].rotation.inv_freq_f32.copy()), live)
        assert plan.hash == rt.plan_of(fresh).at(plan.length).hash
        for method in ("yarn", "rerope:12"):
            with rt.applied(model, method, 4), rt.applied(fresh, method, 4):
                assert torch.equal(logits(model), logits(fresh))
        assert torch.equal(model.model.rotary_emb.inv_freq, live) and torch.equal(logits(model, ids), before)


def test_float64_keeps_the_frequencies():
    model, single = build("llama").double(), build("llama")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    assert rt.plan_of(model).hash == rt.plan_of(single).hash
    before = logits(model)
    for method in ("yarn", "dynamic", "rerope:12", "log-n:8"):
        with rt.applied(model, method, 4), rt.applied(single, method, 4):
            expected = logits(single)
            assert close(logits(model), expected, expected.abs().max())
            assert rt.plan_of(model.double()).hash == rt.plan_of(single).hash
        assert torch.equal(logits(model), before)
    with rt.applied(single, "yarn", 4):
        assert rt.plan_of(single.double())
        single.model.rotary_emb.inv_freq[1] *= 1 + 1e-9
        with pytest.raises(ropewalk.Error, match="restore"):
            rt.plan_of(single)
    model.model.rotary_emb.inv_freq[1] *= 1 + 1e-6
    with pytest.raises(ropewalk.Error, match="contradicts the buffers"):
        rt.plan_of(model)
