"""What frequencies support, against sums typed here; what engines make of plans, against the program."""

import json
import math

import numpy as np
import pytest
import ropewalk as rw

LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 128,
}


SMOOTH = {"rope_type": "yarn", "factor": 4.0, "truncate": False, "original_max_position_embeddings": 4096}


def plain(dim=128, base=10000.0, **more):
    return rw.rotation(dim, layout="half", base=base, **more)


def test_pairs():
    r = plain(method="yarn", factor=4, trained_length=4096)
    pairs = r.pairs_within(16384)
    np.testing.assert_allclose(pairs["frequency"], r.inv_freq)
    np.testing.assert_allclose(pairs["wavelength"], 2 * np.pi / r.inv_freq)
    np.testing.assert_allclose(pairs["trained_rotations"], 4096 * r.inv_freq / (2 * np.pi))
    np.testing.assert_allclose(pairs["rotations"], 16384 * r.inv_freq / (2 * np.pi))
    assert plain().critical_dimension(4096) == 2 * math.ceil(64 * math.log(4096 / (2 * math.pi), 1e4))
    assert r.critical_dimension(4096) == 2 * (4096 * r.inv_freq > 2 * np.pi).sum()
    unseen = plain(trained_length=4096).pairs_within(8192)["unseen_share"]
    assert (unseen[: plain().critical_dimension(4096) // 2] == 0).all() and unseen[-1] == pytest.approx(4096 / 8191, rel=1e-6)


def test_the_base_bounds_the_context():
    """arXiv 2405.14591, section 4: no sum of cosines up to the context is negative."""

    def lowest(base, context, dim=64):
        f = base ** (-2 * np.arange(dim // 2) / dim)
        return np.cos(np.arange(context + 1)[:, None] * f).sum(-1).min()

    bounds = rw.base_bounds(64, 4096)
    assert [context for context, _ in bounds] == [1024, 2048, 4096]
    for context, base in bounds:
        assert lowest(base, context) >= -1e-9 > lowest(base / 1.01, context)
    assert plain(64, bounds[-1][1]).longest_context() >= 4096
    at = plain(64, 500.0).longest_context()
    assert lowest(500.0, at) >= -1e-9 > lowest(500.0, at + 1)
    assert plain(64, 500.0).longest_context(limit=3) == 3


def test_decay():
    distances = np.array([[0, 1, 7], [100, 4095, 131071]])
    bound, expected = plain().decay(distances)
    f = plain().inv_freq
    turns = np.exp(1j * distances[..., None] * f)
    np.testing.assert_allclose(expected, turns.real.mean(-1), atol=1e-9)
    np.testing.assert_allclose(bound, np.abs(np.cumsum(turns, -1)).mean(-1), atol=1e-8)


def test_the_gradient_of_the_base():
    for more in ({}, {"method": "llama3", "factor": 8.0, "trained_length": 1024}):
        sides = [plain(32, 10000.0 + s, **more).inv_freq for s in (0.5, -0.5)]
        np.testing.assert_allclose(plain(32, **more).base_derivative(), sides[0] - sides[1], rtol=1e-6, atol=1e-13)


def test_methods_have_a_source():
    methods = {m["name"]: m for m in rw.scaling_methods()}
    assert {"none", "linear", "ntk", "yarn", "llama3", "longrope", "dynamic"} <= set(methods)
    assert methods["yarn"]["needs_trained_length"] and methods["dynamic"]["length_dependent"]
    assert "2309.00071" in methods["yarn"]["source"] and all(m["title"] for m in methods.values())


# ---- engines ----


def test_settings_are_read_back_as_the_plan():
    settings = rw.plan(LLAMA).engine_settings("yarn", 4)
    by_name = {s["engine"]: s for s in settings}
    assert any("vLLM" in name for name in by_name) and any("llama.cpp" in name for name in by_name)
    pasted = json.loads(next(s["setting"] for s in settings if "transformers 4" in s["engine"]))
    again = rw.plan({**LLAMA, **pasted})
    wanted = rw.plan(LLAMA, "yarn", 4)
    np.testing.assert_allclose(again.rotations[0].inv_freq, wanted.rotations[0].inv_freq, rtol=1e-12)
    assert again.rotations[0].amplitude == wanted.rotations[0].amplitude
    one = rw.plan(LLAMA).engine_settings("yarn", 4, engines=["vllm"])
    assert one and all("vLLM" in s["engine"] for s in one)
    maps = rw.plan(LLAMA).engine_settings("rerope", 4)
    assert all(s["setting"] is None and s["note"] for s in maps)
    assert rw.plan(LLAMA).engine_settings()
    dictionary = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}
    pasted = json.loads(rw.plan(LLAMA).engine_settings(dictionary, 4, engines=["transformers=4.57"])[0]["setting"])
    again = rw.plan({**LLAMA, **pasted}).rotations[0].inv_freq
    np.testing.assert_allclose(again, rw.plan(LLAMA).with_rope(dictionary).rotations[0].inv_freq, rtol=1e-12)


def test_warnings_name_engines_and_versions():
    plan = rw.plan(LLAMA, SMOOTH)
    found = {w["id"]: w for w in plan.warnings()}
    assert found["yarn-truncate"]["engine"] == "llama.cpp" and found["yarn-truncate"]["rotation"] == 0
    assert "yarn-truncate" not in {w["id"] for w in plan.warnings(["vllm"])}
    assert "yarn-truncate" in {w["id"] for w in plan.warnings("llama.cpp")}


def test_engines_against_the_formula():
    (views,) = rw.plan(LLAMA, SMOOTH).compare_engines()
    by_engine = {v["engine"]: v for v in views}
    assert len(by_engine) == 3 and all(v["expressible"] for v in views)
    different = [v for v in views if not v["same"]]
    assert [v["angle_rad"] > 0.1 for v in different] == [True]  # llama.cpp rounds the ends of the ramp all the same
    (views,) = rw.plan(LLAMA).compare_engines(position=100)
    assert all(v["same"] and v["frequency_ratio"] == pytest.approx(1) for v in views)


def test_which_cached_keys_move():
    assert rw.plan(LLAMA, "yarn", 4).can_rerotate() == ""
    dynamic = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    assert "length" in rw.plan(dynamic).can_rerotate()
    assert rw.plan(dynamic).can_rerotate(1000, 2000) == ""
    assert rw.plan(dynamic).can_rerotate(1000, 9000)


R = plain()
BAD = {
    "lengths below 1": (lambda: R.pairs_within(0, 4096), "length"),
    "no trained length": (lambda: R.pairs_within(4096), "length"),
    "an odd rotary_dim": (lambda: rw.base_bounds(127, 4096), "rotary_dim|even"),
    "a context of absurd size": (lambda: rw.base_bounds(128, 2**62), "context"),
    "a distance beyond all positions": (lambda: R.decay([2**62]), "distance"),
    "a distance in float": (lambda: R.decay([0.5]), "distances: expected whole numbers"),
    "an unknown engine": (lambda: rw.plan(LLAMA).warnings(["vlm"]), 'did you mean "vllm"|vllm'),
    "engines that are no names": (lambda: rw.plan(LLAMA).warnings([1]), "engines: expected names"),
    "a version that is none": (lambda: rw.plan(LLAMA).engine_settings(engines=["vllm=x"]), "expected a release"),
    "one length of two": (lambda: rw.plan(LLAMA).can_rerotate(10), "expected both or neither"),
    "a method that is none": (lambda: rw.plan(LLAMA).engine_settings("yarm", 4), "yarm"),
    "settings without a factor": (lambda: rw.plan(LLAMA).engine_settings("yarn", 0.5), "factor"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message):
        call()
