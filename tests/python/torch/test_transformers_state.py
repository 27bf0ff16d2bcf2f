"""What a method leaves and gives back, what is verified and refused, and methods that follow the length."""

import copy
import itertools
import json
import math
import warnings

import pytest
import tiny_models
import torch
import transformers
from tiny_models import IDS, V5, build, build_unscaled, built_with, close, logits

import ropewalk
import ropewalk.transformers as rt
from ropewalk import _core

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
WINDOW = 12


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rotary(model):
    return model.model.rotary_emb


def test_errors_change_nothing():
    model = build("llama")
    before, buffers = logits(model), {n: b.clone() for n, b in model.named_buffers()}
    config, attention = model.config.to_dict(), model.config._attn_implementation
    for method, factor in (("yar", 4), ("yarn", None), ("yarn+ntk", 2), ("rerope:4000", 4), (3, 2)):
        with pytest.raises(ropewalk.Error):
            rt.apply(model, method, factor)
    with pytest.raises(ropewalk.Error, match="unknown key"):
        rt.apply(model, {"rope_type": "yarn", "factor": 4.0, "beta_fats": 3})
    other = ropewalk.plan(build("llama", num_hidden_layers=3).config)
    with pytest.raises(ropewalk.Error, match="2 layers"):
        rt.apply(model, other)
    wide = ropewalk.plan(build("llama", head_dim=32).config)
    with pytest.raises(ropewalk.Error, match="how many elements rotate"):
        rt.apply(model, wide)
    assert torch.equal(logits(model), before)
    assert all(torch.equal(b, buffers[n]) for n, b in model.named_buffers())
    assert model.config.to_dict() == config and model.config._attn_implementation == attention
    with rt.applied(model, "yarn", 4), pytest.raises(ropewalk.Error, match="restore"):
        rt.apply(model, "linear", 2)
    rt.restore(model)
    assert torch.equal(logits(model), before)


def test_a_failing_block_restores():
    model = build("llama")
    before = logits(model)
    with pytest.raises(KeyError), rt.applied(model, f"rerope:{WINDOW}", 4):
        assert not torch.equal(logits(model), before)
        raise KeyError
    assert torch.equal(logits(model), before)
    assert not any(hook for module in model.modules() for hook in module._forward_pre_hooks.values())


def test_a_configuration_that_contradicts_the_buffers():
    model = build("llama")
    if V5:
        model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    else:
        model.config.rope_scaling = {"rope_type": "linear", "factor": 4.0}
    with pytest.raises(ropewalk.Error, match="contradicts the buffers") as error:
        rt.plan_of(model)
    assert error.value.code == "mismatch"
    with pytest.raises(ropewalk.Error, match="contradicts the buffers"):
        rt.apply(model, "yarn", 4)


def test_the_plan_is_read_back():
    model = build("llama")
    own = rt.plan_of(model)
    assert own.hash == ropewalk.plan(model.config).hash
    plan = rt.apply(model, "yarn", 4)
    assert plan.hash == ropewalk.plan(model.config, allow_unknown=True).at(plan.length).hash == rt.plan_of(model).hash
    rotary(model).inv_freq[1] *= 1.0001
    with pytest.raises(ropewalk.Error, match="restore"):
        rt.plan_of(model)
    rt.restore(model)
    assert rt.plan_of(model).hash == own.hash
    rt.apply(model, ropewalk.plan(model.config, "yarn", 4))
    assert rt.plan_of(model).hash == plan.hash
    model.to(torch.bfloat16)
    with pytest.raises(ropewalk.Error, match="bfloat16"):
        rt.plan_of(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_frequencies_are_repaired_and_told(dtype):
    model = build("llama").to(dtype).float()
    exact = build("llama")
    for (name, a), (_, b) in zip(model.named_parameters(), exact.named_parameters()):
        a.data.copy_(b.data)
        assert name
    assert not torch.allclose(logits(model), logits(exact), atol=1e-2)
    with pytest.warns(UserWarning, match="rounded"):
        rt.apply(model, "none")
    assert torch.equal(logits(model), logits(exact))
    rt.restore(model)
    assert not torch.equal(logits(model), logits(exact))


class Bent(dict):
    """Buffers that take what is written to them one bit off."""

    def __init__(self, buffers):
        super().__init__(buffers)
        self.known = {id(b) for b in buffers.values()}

    def __setitem__(self, name, value):
        if id(value) not in self.known:
            value = torch.nextafter(value, torch.full_like(value, 2.0))
        super().__setitem__(name, value)


@pytest.mark.parametrize("method", ["yarn", "dynamic", f"rerope:{WINDOW}"])
def test_a_write_that_does_not_arrive_raises_and_changes_nothing(method):
    model = build("llama")
    before, config = logits(model), model.config.to_dict()
    rotary(model).__dict__["_buffers"] = Bent(rotary(model)._buffers)
    with pytest.raises(ropewalk.Error, match="inv_freq has") as error:
        rt.apply(model, method, 4)
    assert error.value.code == "mismatch"
    assert torch.equal(logits(model), before) and model.config.to_dict() == config
    assert not any(hook for module in model.modules() for hook in module._forward_pre_hooks.values())


def test_the_hash_is_that_of_what_the_buffers_hold():
    model = build("gemma3_text")
    plan = rt.apply(model, "yarn", 4)
    rows = [(layer.rotation.inv_freq_f32.tolist(), layer.rotation.amplitude) for layer in plan.layers]
    assert _core.hash_of_buffers(plan._core, rows) == plan.hash
    live = model.__dict__[rt._apply.STATE].layers[-1][0]
    rows[-1] = live.inv_freq.tolist(), live.amplitude
    assert _core.hash_of_buffers(plan._core, rows) == plan.hash
    bent = copy.deepcopy(rows)
    bent[-1][0][2] *= 1 + 2e-7
    others = [bent, rows[:-1] + [None], rows[:-1] + [(rows[-1][0], 1.0)], rows[:-1] + [(rows[-1][0][:-1], rows[-1][1])]]
    assert len({plan.hash, *(_core.hash_of_buffers(plan._core, other) for other in others)}) == 5
    with pytest.raises(ropewalk.Error, match="layers"):
        _core.hash_of_buffers(plan._core, rows[:-1])
    # Buffers that agree with what was written, of a plan that says something else.
    state = model.__dict__[rt._apply.STATE]
    state.plan = ropewalk.plan(model.config, "linear", 2)
    with pytest.raises(ropewalk.Error, match="read back from the model has the hash") as error:
        rt.plan_of(model)
    assert error.value.code == "mismatch"


def test_keys_that_are_read_over_are_named():
    model = build("llama")
    model.config.rope_tetha = 5.0
    with pytest.warns(UserWarning, match="rope_tetha"):
        rt.apply(model, "yarn", 4)
    rt.restore(model)
    with pytest.warns(UserWarning, match="rope_tetha"):
        rt.plan_of(model)
    if V5:  # what the reader refuses in any case is told too, and the buffers are read
        del model.config.rope_tetha
        model.config.rope_theta = 5.0
        with pytest.warns(UserWarning, match="rope_theta is 5.*read from the buffers"):
            assert rt.plan_of(model).layers[0].rotation.base == 10000


@pytest.mark.parametrize("method", ["yarn", "none", "yarn:4", f"rerope:{WINDOW}"])
@pytest.mark.parametrize("factor", [float("nan"), math.inf, 0.5, 0, -1])
def test_a_factor_that_is_none_is_named(method, factor):
    with pytest.raises(ropewalk.Error, match="factor: expected a finite number of 1 or more"):
        rt.apply(build("llama"), method, factor)


def test_a_factor_beside_a_method_that_has_its_own():
    model = build("llama")
    for method in ({"rope_type": "yarn", "factor": 4.0}, ropewalk.plan(model.config, "yarn", 4)):
        with pytest.raises(ropewalk.Error, match=f"factor: expected none, because a {type(method).__name__}"):
            rt.apply(model, method, 2)


@pytest.mark.parametrize("method", ["yarn", "dynamic", f"rerope:{WINDOW}", "log-n:8"])
def test_a_default_device_is_not_that_of_the_model(method):
    model, twin = build("llama"), build("llama")
    torch.set_default_device("meta")
    try:
        rt.apply(model, method, 4)
    finally:
        torch.set_default_device(None)
    with rt.applied(twin, method, 4):
        assert torch.equal(logits(model), logits(twin))


# ---------------------------------------------------------------------------------------------------------------------
# Models that share a configuration, and attention that is changed under a method


def shared(name="llama", count=2):
    model = build(name)
    others = [type(model)(model.config).eval() for _ in range(count - 1)]
    for other in others:
        other.load_state_dict(model.state_dict())
    return [model, *others]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_models_that_share_a_configuration(order):
    """Each is right while the others come and go, and the last one leaves the configuration as it was."""
    models, alone = shared(count=3), build("llama")
    config, before = models[0].config, logits(alone)
    said, attention = config.to_dict(), config._attn_implementation
    methods = [f"rerope:{WINDOW}", "log-n:8", f"rerope:{WINDOW}"]
    expected = []
    for method in methods:
        with rt.applied(alone, method, 4):
            expected.append(logits(alone))
    for i, model in enumerate(models):
        rt.apply(model, methods[i], 4)
        assert all(torch.equal(logits(m), expected[k]) for k, m in enumerate(models[: i + 1]))
        # Those without a method compute what they are, by this package's attention.
        assert all(close(logits(m), before, before.abs().max()) for m in models[i + 1 :])
    twin = copy.deepcopy(models[order[0]])  # has a configuration of its own
    left = set(range(3))
    for i in order:
        rt.restore(models[i])
        left.remove(i)
        assert all(torch.equal(logits(models[k]), expected[k]) and rt.plan_of(models[k]) for k in left)
        assert close(logits(models[i]), before, before.abs().max())
    assert config.to_dict() == said and config._attn_implementation == attention
    assert all(torch.equal(logits(model), before) for model in models)
    assert torch.equal(logits(twin), expected[order[0]])
    rt.restore(twin)
    assert torch.equal(logits(twin), before) and twin.config._attn_implementation == attention


def test_a_shared_configuration_says_one_method():
    first, second = shared()
    said = first.config.to_dict()
    rt.apply(first, "yarn", 4)
    with pytest.raises(ropewalk.Error, match="contradicts the buffers"):
        rt.apply(second, "linear", 2)
    rt.restore(first)
    assert first.config.to_dict() == said
    # Dynamic frequencies are those of the model up to the trained length, and contradict nothing.
    for order in ((0, 1), (1, 0)):
        rt.apply(first, "dynamic", 4)
        rt.apply(second, "yarn", 4)
        for i in order:
            rt.restore((first, second)[i])
        assert first.config.to_dict() == said


def test_a_model_that_is_gone_keeps_nothing():
    first, second = shared()
    attention = first.config._attn_implementation
    rt.apply(first, f"rerope:{WINDOW}", 4)
    rt.apply(second, f"rerope:{WINDOW}", 4)
    second.itself = [second]  # until garbage is collected
    del second
    rt.restore(first)
    assert first.config._attn_implementation == attention


def test_attention_that_is_changed_under_a_method_is_refused():
    """Its layers would not rotate."""
    model = build("llama")
    before = logits(model)
    for method in (f"rerope:{WINDOW}", "log-n:8"):
        rt.apply(model, method, 4)
        expected = logits(model)
        model.set_attn_implementation("eager")
        with pytest.raises(ropewalk.Error, match="set_attn_implementation.*restore"):
            logits(model)
        twin = copy.deepcopy(model)
        with pytest.raises(ropewalk.Error, match="restore"):
            logits(twin)
        model.set_attn_implementation(rt._state.ATTENTION)
        assert torch.equal(logits(model), expected)
        rt.restore(model)
        assert torch.equal(logits(model), before)
    with rt.applied(model, "yarn", 4):  # which any attention has
        model.set_attn_implementation("eager")
        logits(model)


def test_absent_keys_are_absent_again_in_a_copy():
    model = build("llama")
    key = "rope_parameters" if V5 else "rope_scaling"
    state = rt._state.State(None)
    saved = model.config.__dict__.pop(key, None)
    state.set(model.config, key, {"rope_type": "linear", "factor": 2.0})
    config, twin = copy.deepcopy((model.config, state))
    rt._state.undo(model, twin)
    assert key not in config.__dict__ and key in model.config.__dict__
    rt._state.undo(model, state)
    assert key not in model.config.__dict__
    model.config.__dict__[key] = saved


# ---------------------------------------------------------------------------------------------------------------------
# Methods that depend on the length

LONG = torch.cat((IDS, IDS, IDS), 1)  # 180 tokens; the models are of 128
LENGTH_ROPES = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        # 4.57 takes the factor from the two lengths where this key is given, in place of the dictionary's.
        **({"original_max_position_embeddings": 128} if V5 else {}),
        "short_factor": [1.0 + 0.03 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)],
    },
}


def in_chunks(model, lengths, cache=None):
    cache, parts, first = cache or transformers.DynamicCache(), [], 0
    for n in lengths:
        with torch.no_grad():
            parts.append(model(input_ids=LONG[:, first : first + n], past_key_values=cache, use_cache=True).logits)
        first += n
    return torch.cat(parts, 1)


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_without_a_length_they_follow_as_those_of_transformers(name, kind):
    model = build_unscaled(name)
    theirs = built_with(model, LENGTH_ROPES[kind])
    before = logits(model, LONG)
    plan = rt.apply(model, LENGTH_ROPES[kind])
    assert plan.hash == plan.at(128).hash
    # Short, long, short again, a length between, chunks, single steps: each after what came before.
    for ids in (IDS, LONG, IDS, LONG[:, :150], LONG, LONG[:, :140], LONG[:, :129], LONG[:, :128]):
        assert torch.allclose(logits(model, ids), logits(theirs, ids), atol=1e-6), ids.shape
    for lengths in ([45] * 4, [120] + [1] * 20):
        assert torch.allclose(in_chunks(model, lengths), in_chunks(theirs, lengths), atol=2e-6)
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0, output_logits=True)
    options |= dict(return_dict_in_generate=True, attention_mask=torch.ones(1, 120, dtype=torch.long))
    for a, b in zip(*(m.generate(LONG[:, :120], **options).logits for m in (model, theirs))):
        assert torch.allclose(a, b, atol=2e-6)
    logits(model, LONG)
    assert rt.plan_of(model).hash == plan.at(180).hash != plan.hash
    twin = copy.deepcopy(model)  # follows by itself
    logits(model, IDS)
    assert rt.plan_of(twin).hash == plan.at(180).hash
    assert torch.equal(logits(twin, IDS), logits(model, IDS))
    rt.restore(model)
    assert torch.equal(logits(model, LONG), before)


def test_they_follow_where_keys_are_cached_unrotated():
    """With log-n: chunks of a growing sequence end as one forward pass does: keys are rotated when they are read."""
    model = build("llama")
    pinned = copy.deepcopy(model)
    with rt.applied(model, "dynamic+log-n:8", 4), rt.applied(pinned, "dynamic+log-n:8", 4, length=180):
        expected = logits(pinned, LONG)
        assert close(logits(model, LONG), expected, expected.abs().max())
        assert not close(logits(model), logits(pinned), 1)
    one = build("llama", num_hidden_layers=1)
    with rt.applied(one, "dynamic+log-n:8", 4):
        whole = logits(one, LONG)
        assert close(in_chunks(one, [100, 30, 50])[:, 130:], whole[:, 130:], whole.abs().max())


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_with_a_length_they_stay(kind):
    model = build("llama")
    theirs = built_with(model, LENGTH_ROPES[kind])
    expected = logits(theirs, LONG)  # transformers looks at the 180 tokens
    for method in (LENGTH_ROPES[kind], ropewalk.plan(model.config, LENGTH_ROPES[kind], length=180)):
        with rt.applied(model, method, length=180):
            assert torch.allclose(logits(model, LONG), expected, atol=1e-6)
            # The same in chunks, where transformers itself is wrong.
            ours, wrong = in_chunks(model, [45] * 4), in_chunks(theirs, [45] * 4)
            assert close(ours, expected, expected.abs().max())
            assert not close(wrong, expected, expected.abs().max())
            assert rt.plan_of(model).length == 180


# ---------------------------------------------------------------------------------------------------------------------
# What the files say


def test_what_save_pretrained_keeps(tmp_path):
    model = build("llama")
    for method in ("yarn", "linear", "llama3", "ntk", "by-parts", "dynamic"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            rt.apply(model, method, 4)
        expected, live = logits(model), rotary(model).inv_freq.clone()
        model.save_pretrained(tmp_path / method)
        assert ropewalk.plan(tmp_path / method).at(rt.plan_of(model).length).hash == rt.plan_of(model).hash
        rt.restore(model)
        loaded = type(model).from_pretrained(tmp_path / method)
        # "by-parts" is written as llama3, which transformers rounds in another order: by one bit.
        bits = 2**-23 if method == "by-parts" else 0
        assert torch.allclose(rotary(loaded).inv_freq, live, rtol=bits, atol=0), method
        assert torch.allclose(logits(loaded), expected, atol=2e-4 if bits else 1e-6), method
    before = model.config.to_dict()
    with pytest.warns(UserWarning, match="save_pretrained"):
        rt.apply(model, f"rerope:{WINDOW}", 4)
    assert model.config.to_dict() == before
    rt.restore(model)


ONES, LONGER = [1.0] * 8, [2.0 + i for i in range(8)]
TRAINED = {"original_max_position_embeddings": 128}
SHORTER = {"original_max_position_embeddings": 32, "short_factor": LONGER, "long_factor": LONGER[::-1]}
DICTIONARIES = {
    # Their frequencies at the trained length are those of the model.
    "dynamic, factor 1": {"rope_type": "dynamic", "factor": 1.0},
    "longrope, short ones": {"rope_type": "longrope", **TRAINED, "short_factor": ONES, "long_factor": LONGER},
    # transformers asks for the length that these leave to the model.
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "short_factor": LONGER, "long_factor": LONGER[::-1]},
    # 4.57 reads this length at the top of the configuration alone, and takes the factor from it.
    "longrope, shorter": {"rope_type": "longrope", "factor": 4.0, **SHORTER},
    "longrope, another factor": {"rope_type": "longrope", "factor": 6.0, **SHORTER},
    "longrope, no factor": {"rope_type": "longrope", **SHORTER},
    # The key before 4.43.
    "type": {"type": "linear", "factor": 2.0},
    "base": {"rope_theta": 500.0},
    # transformers does not have these.
    "su": {"rope_type": "su", "factor": 4.0, **TRAINED, "short_factor": LONGER, "long_factor": LONGER[::-1]},
    "ntk": {"rope_type": "ntk", "factor": 4.0},
    "xdrope": {"rope_type": "xdrope", "alpha": 4.0},
    "deepseek_yarn": {"rope_type": "deepseek_yarn", "factor": 4.0, **TRAINED, "mscale": 1.0, "mscale_all_dim": 1.0},
    "proportional": {"rope_type": "proportional", "factor": 4.0},
}
NOT_SAID = {"su", "ntk", "xdrope", "deepseek_yarn"}
NOT_SAID |= set() if V5 else {"proportional"}


def said_of(config):
    keys = ("rope_parameters", "rope_scaling", "rope_theta", "original_max_position_embeddings")
    return copy.deepcopy([config.__dict__.get(key, "absent") for key in keys])


def check_reloaded(model, method, factor, folder):
    """A model that save_pretrained keeps is the same again; otherwise it is told, and the configuration stays."""
    said = said_of(model.config)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rt.apply(model, method, factor)
    kept = not any("config.json cannot say" in str(w.message) for w in told)
    model.save_pretrained(folder)
    if kept:
        loaded = type(model).from_pretrained(folder)
        for ids in (IDS, LONG):
            assert torch.allclose(logits(loaded, ids), logits(model, ids), atol=2e-4)
    else:
        assert said_of(model.config) == said
    rt.restore(model)
    assert said_of(model.config) == said
    return kept


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_are_kept_or_told(name, tmp_path):
    assert check_reloaded(build("llama"), DICTIONARIES[name], None, tmp_path) == (name not in NOT_SAID)


@pytest.mark.parametrize("name", [name for name in DICTIONARIES if name.startswith("longrope")])
def test_longrope_of_a_family_that_has_an_original_length(name, tmp_path):
    """Phi-3: its own is at the top of the configuration and goes first. 4.57 refuses dictionaries of more than three keys."""
    model = build_unscaled("phi3", original_max_position_embeddings=128)
    assert check_reloaded(model, DICTIONARIES[name], None, tmp_path) == V5


def test_a_factor_of_one_is_kept(tmp_path):
    assert check_reloaded(build("llama"), "dynamic", 1, tmp_path)


@pytest.mark.parametrize("method", ["yarn", "linear", "llama3", "dynamic", "ntk", "none"])
def test_a_family_that_takes_few_types(method, tmp_path):
    """Phi-3's configuration refuses all but LongRoPE."""
    assert check_reloaded(build_unscaled("phi3"), method, 4, tmp_path) == (method in ("ntk", "none"))


def test_a_config_with_an_infinity(tmp_path):
    model = build("llama")
    model.config.time_step_limit = (0.0, math.inf)
    assert rt.plan_of(model).hash == ropewalk.plan(build("llama").config).hash
    model.save_pretrained(tmp_path)
    assert "time_step_limit" in json.loads((tmp_path / "config.json").read_text())
    assert ropewalk.plan(tmp_path).hash == rt.plan_of(model).hash


def test_a_copy_keeps_the_method():
    model = build("llama")
    for method in ("yarn", "dynamic", f"rerope:{WINDOW}"):
        with rt.applied(model, method, 4):
            expected = logits(model)
            twin = copy.deepcopy(model)
        assert torch.equal(logits(twin), expected)
        rt.restore(twin)
        assert torch.equal(logits(twin), logits(model))


def test_deepseeks_multiplier_of_the_scores():
    """YaRN with mscale_all_dim multiplies scores by (0.1 mscale_all_dim ln s + 1)^2 (DeepSeek-V2, section 3.1.4)."""
    model = build_unscaled("deepseek_v3")
    rope = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
    }
    theirs = built_with(model, rope)
    expected = 24**-0.5 * (0.08 * math.log(4) + 1) ** 2
    scalings = [layer.self_attn.scaling for layer in model.model.layers]
    with rt.applied(model, rope):
        assert [layer.self_attn.scaling for layer in model.model.layers] == pytest.approx([expected] * 2, rel=1e-12)
        assert torch.allclose(logits(model), logits(theirs), atol=1e-6)
        model.model.layers[1].self_attn.scaling *= 1.01
        with pytest.raises(ropewalk.Error, match="scores are multiplied by"):
            rt.plan_of(model)
    assert [layer.self_attn.scaling for layer in model.model.layers] == scalings
    # A model that has the multiplier loses it under a method without, in the rotary modules and under a map.
    for method in ("linear", f"rerope:{WINDOW}"):
        with rt.applied(model, method, 4), rt.applied(theirs, method, 4):
            assert close(logits(theirs), logits(model), logits(model).abs().max())
            assert not close(logits(theirs), logits(model) * 0, 1)


def test_models_without_buffers_are_refused():
    with torch.device("meta"):
        model = tiny_models.families()["llama"][1](tiny_models.config_of("llama"))
    with pytest.raises(ropewalk.Error, match="meta"):
        rt.apply(model, "yarn", 4)
    with pytest.raises(ropewalk.Error, match="PreTrainedModel"):
        rt.apply(torch.nn.Linear(2, 2), "yarn", 4)
    with pytest.raises(ropewalk.Error, match="gptj.*rotates by"):
        rt.apply(tiny_models.build("gptj", rotary_dim=8), "yarn", 4)
