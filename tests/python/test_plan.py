"""Plans: what layers do against numbers from the models' own papers and code, and hashes against the program."""

import copy
import json
import math
import os
import pathlib
import subprocess
import threading

import numpy as np
import pytest
import ropewalk as rw

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ROPEWALK_PROGRAM")
needs_program = pytest.mark.skipif(PROGRAM is None, reason="ROPEWALK_PROGRAM names no native program")

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
PLAIN = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000,
    "vocab_size": 128,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}
MPT = {
    "model_type": "mpt",
    "d_model": 768,
    "n_heads": 12,
    "n_layers": 3,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "vocab_size": 128,
    "attn_config": {"alibi": True, "alibi_bias_max": 8},
}
T5 = {
    "model_type": "t5",
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_heads": 8,
    "num_layers": 2,
    "vocab_size": 128,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}
NEZHA = {
    "model_type": "nezha",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 2,
    "intermediate_size": 3072,
    "vocab_size": 128,
    "max_relative_position": 64,
}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 2, "n_positions": 1024, "vocab_size": 128}
CONFIGS = {"llama 3.1": LLAMA, "llama": PLAIN, "gpt-oss": GPT_OSS, "mpt": MPT, "t5": T5, "gpt-2": GPT2}


def inspected(path, *arguments):
    out = subprocess.run(
        [PROGRAM, "inspect", str(path), "--json", *arguments], capture_output=True, check=True, timeout=120
    ).stdout
    return json.loads(out)


# ---- what layers do ----


def test_llama_3_1():
    plan = rw.plan(LLAMA)
    assert (plan.trained_length, plan.configured_length, plan.length) == (8192, 131072, 131072)
    assert len(plan.layers) == 4 and len(plan.rotations) == 1
    (r,) = plan.rotations
    assert (r.head_dim, r.rotary_dim, r.layout, r.base, r.axes) == (128, 128, "half", 500000.0, 1)
    # Meta's formula at these pairs, in double: untouched, blended, divided by 8.
    expected = {28: 3.211445994753e-03, 29: 2.166570763503e-03, 32: 5.248461609930e-04, 35: 9.556212353965e-05}
    for pair, value in expected.items():
        assert r.inv_freq[pair] == pytest.approx(value, rel=2e-12)
    assert r.inv_freq_f32.dtype == np.float32 and r.amplitude == 1
    layer = plan.layers[0]
    assert layer.rotation is plan.layers[3].rotation
    assert (layer.bias, layer.window, layer.chunk, layer.temperature, layer.map) == (None, 0, 0, None, None)


def test_gpt_oss():
    plan = rw.plan(GPT_OSS)
    assert [layer.window for layer in plan.layers] == [128, 0, 128, 0]
    for layer in plan.layers:
        assert layer.rotation.amplitude == pytest.approx(1.3465735903, rel=1e-10)
        for pair, value in {8: 5.081327481546e-02, 12: 6.794959489732e-03, 17: 1.293187012451e-04}.items():
            assert layer.rotation.inv_freq[pair] == pytest.approx(value, rel=1e-12)


def test_biases_of_models():
    alibi = rw.plan(MPT).layers[2].bias
    assert isinstance(alibi, rw.Alibi) and alibi.heads == 12
    slopes = [2.0 ** -(k + 1) for k in range(8)] + [2.0 ** -(k + 0.5) for k in range(4)]  # 12 heads: 8, then every second of 16
    assert alibi.lower(0).fields["behind"].tolist() == pytest.approx(slopes)
    t5 = rw.plan(T5).layers[0].bias
    assert isinstance(t5, rw.T5Bias) and (t5.heads, t5.buckets, t5.last_distance) == (8, 32, 128)
    assert t5.embedding is None
    with pytest.raises(rw.Error, match="embedding"):  # the learned values are the model's
        t5.lower(10)
    nezha = rw.plan(NEZHA).layers[0].bias  # nothing is learned: it lowers; rows count from 0, as the published code has them
    assert isinstance(nezha, rw.Shaw) and nezha.heads == 12
    form = nezha.lower(100)
    row = 64 * 10000.0 ** (-np.arange(0, 64, 2) / 64)
    for rows in (form.fields["query_rows"], form.fields["value_rows"]):
        rows = np.asarray(rows).reshape(129, 64)
        np.testing.assert_allclose(rows[64, 0::2], np.sin(row), atol=1e-6)
        np.testing.assert_allclose(rows[64, 1::2], np.cos(row), atol=1e-6)
        np.testing.assert_array_equal(rows[0], [0, 1] * 32)
    gpt2 = rw.plan(GPT2)
    assert gpt2.learned_positions == 1024 and gpt2.layers[0].rotation is None


@pytest.mark.parametrize("config", CONFIGS)
@needs_program
def test_hash_is_that_of_the_program(config, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[config]))
    told = inspected(path)
    for source in (CONFIGS[config], path, str(tmp_path), rw.plan(path)):
        plan = rw.plan(source)
        assert plan.hash == told["plan_hash"] and plan.length == told["plan_length"]
    assert str(plan) == told["plan"]
    other = inspected(path, "--length", "20000")
    assert rw.plan(path, length=20000).hash == plan.at(20000).hash == other["plan_hash"]
    rows = told["positions"]["rotations"]
    assert len(rows) == len(plan.rotations)
    for row, rotation in zip(rows, plan.rotations, strict=True):
        assert [pair["frequency"] for pair in row["pairs"]] == rotation.inv_freq.tolist()
        assert (row["amplitude"], row["layout"]) == (rotation.amplitude, rotation.layout)


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 4.0}, {"rope_type": "yarn", "factor": 4.0}])
@needs_program
def test_rope_dictionaries_as_the_program_reads_them(rope, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN))
    told = inspected(path, "--rope-scaling", json.dumps(rope), "--length", "16384")
    plan = rw.plan(path, rope)
    assert plan.length == 16384 and plan.hash == told["plan_hash"]
    assert rw.plan(PLAIN).with_rope(rope).hash == plan.hash


MISTRAL = {
    "dim": 4096,
    "n_layers": 2,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-05,
    "rope_theta": 1e6,
    "vocab_size": 32000,
    "yarn": {"original_max_position_embeddings": 16384, "factor": 16, "apply_scale": False, "beta": 32, "alpha": 1},
}
MEGATRON = {
    "num_layers": 4,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "position_embedding_type": "rope",
    "rotary_base": 500000,
    "rotary_percent": 0.5,
    "max_position_embeddings": 8192,
    "rotary_seq_len_interpolation_factor": 4,
}


def test_params_and_megatron_arguments_as_a_dict(tmp_path):
    mistral = rw.plan(MISTRAL)
    (r,) = mistral.rotations
    assert (r.layout, r.base, mistral.trained_length, r.amplitude) == ("interleaved", 1e6, 16384, 1)
    assert "yarn(factor 16" in r.method
    megatron = rw.plan(MEGATRON)
    (r,) = megatron.rotations
    assert (r.layout, r.rotary_dim, r.head_dim, r.method) == ("half", 64, 128, "linear(factor 4)")
    for name, content in (("params.json", MISTRAL), ("args.json", MEGATRON)):
        (tmp_path / name).write_text(json.dumps(content))
        assert rw.plan(content) == rw.plan(tmp_path / name)


@needs_program
def test_the_models_of_this_repository():
    assert rw.plan(ROOT / "models").hash == inspected(ROOT / "models")["plan_hash"]


# ---- methods ----


def test_methods():
    plan = rw.plan(PLAIN)
    yarn = rw.plan(PLAIN, "yarn", 4)
    assert yarn.length == 16384 and yarn.rotations[0].method.startswith("yarn(factor 4")
    # arXiv 2309.00071, as transformers computes it
    for pair, value in {20: 5.623413252e-02, 21: 4.729203850e-02, 32: 6.538461538e-03, 45: 4.294025890e-04}.items():
        assert yarn.rotations[0].inv_freq[pair] == pytest.approx(value, rel=6e-10)
    assert yarn.hash == plan.with_method("yarn", 4).hash == plan.with_method("yarn:4").hash != plan.hash
    assert plan.with_method("yarn", length=16384) == yarn  # the factor follows from the length
    assert yarn.with_method("none").at(4096).hash == plan.hash
    assert rw.plan(plan, yarn) == yarn
    assert rw.plan(PLAIN, "as-shipped") == plan
    assert len({plan, yarn, rw.plan(PLAIN)}) == 2


def test_maps_and_temperatures():
    layer = rw.plan(PLAIN, "rerope:window=512+log-n", 4).layers[1]
    assert layer.map == rw.ReRoPE(window=512)
    n = np.array([0, 4094, 4095, 4096, 8191, 131071, 2**31 - 1])
    expected = np.maximum(1, np.log(n + 1.0) / math.log(4096))
    np.testing.assert_allclose(layer.temperature(n), expected, rtol=1e-15)
    assert rw.plan(PLAIN, "self-extend:window=1024,group=8", 4).layers[0].map == rw.SelfExtend(1024, 8)
    trained = rw.plan(PLAIN, "log-n", 2, trained_length=2048)
    assert trained.trained_length == 2048 and trained.layers[0].temperature.period == 2048


def test_step_log_temperatures():
    """Llama 4 counts the token itself, Ministral 3 does not: they differ by one position."""
    llama4, ministral = rw.Temperature("step-log", 0.1, 8192, 1), rw.Temperature("step-log", 0.1, 8192, 0)
    n = np.array([[0, 8190], [8191, 16383]])
    np.testing.assert_allclose(llama4(n), 1 + 0.1 * np.log1p((n + 1) // 8192), rtol=1e-15)
    assert llama4(8191) == pytest.approx(1.0693147, rel=1e-7) and ministral(8191) == 1


def test_a_plan_does_not_change():
    plan = rw.plan(PLAIN)
    plan.layers.clear()
    plan.rotations.clear()
    plan.rotations[0].inv_freq[:] = 0
    assert len(plan.layers) == 4 and plan.rotations[0].inv_freq[0] == 1
    assert rw.plan(PLAIN).hash == plan.hash


def test_text():
    plan = rw.plan(PLAIN, "yarn", 4)
    assert "layers 0-3: rotary" in str(plan) and plan.hash in str(plan) and plan.hash in repr(plan)


class TransformersConfig:
    """The interface of a configuration of transformers."""

    def __init__(self, content):
        self.content = content

    def to_dict(self):
        return {**self.content, "dtype": np.dtype("float32"), "_sliding_window": 7}  # not all of it is JSON


class Model:
    def __init__(self, content):
        self.config = TransformersConfig(content)


def test_configs_and_models_of_transformers():
    expected = rw.plan(LLAMA).hash
    assert rw.plan(TransformersConfig(LLAMA)).hash == expected
    assert rw.plan(Model(LLAMA)).hash == expected


def test_keys_without_effect_are_told():
    with pytest.warns(UserWarning, match="sliding_window"):
        plan = rw.plan({**PLAIN, "sliding_window": 1024})
    assert any("sliding_window" in line for line in plan.not_honoured)


# ---- maps ----

MAPS = [
    rw.ReRoPE(5),
    rw.LeakyReRoPE(5, 3),
    rw.SelfExtend(6, 4),
    rw.DualChunk(6, 9),
    rw.AttentionSinks(2, 5),
    rw.STRING(6, 2),
    rw.LaMPE(4, 7, 3, 30),
]


def relative(m, i, j):
    """The papers' formulas; None: masked."""
    d = i - j
    if d < 0:
        return None
    if isinstance(m, rw.ReRoPE):
        return min(d, m.window)
    if isinstance(m, rw.LeakyReRoPE):
        return d if d < m.window else m.window + (d - m.window) / m.factor
    if isinstance(m, rw.SelfExtend):
        return d if d < m.window else i // m.group + m.window - m.window // m.group - j // m.group
    if isinstance(m, rw.LaMPE):
        squeezed = [p * m.mapped // (m.length - 1) for p in (i, j, m.head, m.length - m.tail - 1)]
        join = m.head - 1 - squeezed[2]
        if d < m.head or d < m.length - m.tail:
            return d if d < m.head else squeezed[0] + join - squeezed[1]
        return d - (m.length - m.tail - 1) + squeezed[3] + join
    if isinstance(m, rw.STRING):
        return d if d < m.shift else d - m.shift + m.window
    if isinstance(m, rw.DualChunk):
        chunks, key = i // m.chunk - j // m.chunk, j % m.chunk
        return (i % m.chunk, min(i % m.chunk + m.chunk, m.limit), m.limit)[min(chunks, 2)] - key
    cached = min(i + 1, m.sinks + m.window)  # attention sinks: positions within the cache
    if j >= m.sinks and d >= m.window:
        return None
    return d if j >= m.sinks or i < m.sinks + m.window else cached - 1 - j


@pytest.mark.parametrize("m", MAPS, ids=repr)
def test_maps_are_the_papers(m):
    n = np.arange(40)
    views = m.view_of(n, n)
    assert views.shape == (40, 40)
    for i in n:
        for j in n:
            expected = relative(m, int(i), int(j))
            if expected is None:
                assert views[i, j] == -1
                with pytest.raises(rw.Error, match="does not let"):
                    m.relative_position(i, j)
                continue
            assert m.relative_position(i, j) == pytest.approx(expected, rel=1e-15), (i, j)
            view = m.views[views[i, j]]
            assert (view.query(i) - view.key(j)) / view.frequency_divisor == pytest.approx(expected, rel=1e-15)
    far = 2**31 - 1
    assert m.relative_position(far, far) == 0
    largest = max(x for i in n for j in n if (x := relative(m, int(i), int(j))) is not None)
    assert m.largest_relative_position(40) == largest


def test_dpe_is_self_extend_of_each_share():
    groups = (2, 8, 3, 8, 32, 5, 32, 4)
    m = rw.DPE(6, *groups)
    assert [len(view.shares) for view in m.views] == [0, 8] and eval(repr(m), vars(rw)) == m == copy.deepcopy(m)
    for i in range(40):
        for j in range(i + 1):
            for share, group in enumerate(groups):
                assert m.relative_position(i, j, share) == rw.SelfExtend(6, group).relative_position(i, j)
                query, key = m.views[1].shares[share]
                assert i - j < 6 or query(i) - key(j) == m.relative_position(i, j, share)


@pytest.mark.parametrize("m", MAPS, ids=repr)
def test_maps_are_values(m):
    assert copy.deepcopy(m) == m and hash(copy.copy(m)) == hash(m)
    assert m != rw.ReRoPE(window=77) and m.name in (
        "rerope",
        "leaky-rerope",
        "self-extend",
        "dual-chunk",
        "sinks",
        "string",
        "lampe",
    )
    assert eval(repr(m), vars(rw)) == m
    formula = m.views[0].key
    assert set(formula) == {"modulus", "multiplier", "divisor", "slope", "offset", "limit"}


# ---- bad input ----

BAD = {
    "a list": (lambda: rw.plan([1]), "plan: expected a path .*list"),
    "nothing": (lambda: rw.plan(None), "plan: expected a path .*NoneType"),
    "no such file": (lambda: rw.plan("no/such/file"), "no such file"),
    "no model type": (lambda: rw.plan({}), "model_type"),
    "a contradiction": (lambda: rw.plan({**PLAIN, "rope_theta": "x"}), "rope_theta"),
    "an unknown rope type": (lambda: rw.plan({**PLAIN, "rope_scaling": {"rope_type": "yam", "factor": 2}}), "yam"),
    "an unknown key about positions": (
        lambda: rw.plan({**PLAIN, "rope_scaling": {"type": "linear", "fctor": 2}}),
        "fctor",
    ),
    "heads that do not divide": (lambda: rw.plan({**PLAIN, "num_attention_heads": 7}), "head"),
    "an unknown method": (lambda: rw.plan(PLAIN, "yarm", 2), 'yarm.*did you mean "yarn"'),
    "a bias as a method": (lambda: rw.plan(PLAIN, "alibi", 2), "trained with the model"),
    "no factor": (lambda: rw.plan(PLAIN, "yarn"), "expected a factor"),
    "a small factor": (lambda: rw.plan(PLAIN, "yarn", 0.5), "factor"),
    "a factor that is no number": (lambda: rw.plan(PLAIN, "yarn", float("nan")), "^factor: expected a number above 0"),
    "an infinite factor": (lambda: rw.plan(PLAIN, "yarn", float("inf")), "^factor: expected a number above 0"),
    "a factor without any length": (lambda: rw.plan(PLAIN, "yarn", 1e30), "^factor: expected a number above 0"),
    "a negative factor": (lambda: rw.plan(PLAIN, "yarn", -1), "^factor: expected a number above 0"),
    "a rotation's factor that is no number": (
        lambda: rw.rotation(64, layout="half", method="yarn", factor=float("nan"), trained_length=4096),
        "factor must be a number",
    ),
    "a factor without a method": (lambda: rw.plan(PLAIN, None, 2), "factor: expected a method"),
    "a factor beside a dictionary": (lambda: rw.plan(PLAIN, {"rope_type": "linear", "factor": 2}, 2), "factor"),
    "a dictionary without a factor": (lambda: rw.plan(PLAIN, {"rope_type": "linear"}), "factor"),
    "a scaling where nothing rotates": (lambda: rw.plan(MPT, "yarn", 2), "no layer of this model rotates"),
    "a length of 0": (lambda: rw.plan(PLAIN, length=0), "length"),
    "a length of text": (lambda: rw.plan(PLAIN, length="8k"), "length: expected a whole number"),
    "a map twice": (lambda: rw.plan(PLAIN, "rerope+sinks", 2), "one distance map"),
    "a window of 0": (lambda: rw.ReRoPE(0), "window"),
    "a window of text": (lambda: rw.ReRoPE("x"), "window: expected a whole number"),
    "a limit outside": (lambda: rw.DualChunk(8, 100), "limit"),
    "a period of 0": (lambda: rw.Temperature("log-n", period=0), "period"),
    "an unknown temperature": (lambda: rw.Temperature("linear"), "kind"),
    "positions in float": (lambda: rw.Temperature("log-n")(np.zeros(3)), "positions: expected whole numbers"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, message = BAD[what]
    with pytest.raises(rw.Error, match=message):
        call()


def test_codes_of_errors(tmp_path):
    codes = {
        "io": tmp_path / "none.json",
        "invalid_config": tmp_path / "config.json",
        "invalid_file": tmp_path / "a.gguf",
    }
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "a.gguf").write_bytes(b"GGUF\x03\x00")
    for code, path in codes.items():
        with pytest.raises(rw.Error, match=path.name) as caught:
            rw.plan(path)
        assert caught.value.code == code


def test_two_threads_resolve_plans():
    expected = {factor: rw.plan(LLAMA, "yarn", factor).hash for factor in range(2, 10)}
    wrong = []

    def work():
        for factor, value in expected.items():
            if rw.plan(LLAMA, "yarn", factor).hash != value:
                wrong.append(factor)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("method", ["none", "yarn", "dynamic", "rerope+log-n", "dual-chunk", "dpe"])
def test_plans_are_pickled(method):
    import pickle

    for config in (PLAIN, GPT_OSS if method in ("none", "rerope+log-n") else LLAMA):
        plan = rw.plan(config).with_method(method, None if method == "none" else 2.0, length=9000)
        again = pickle.loads(pickle.dumps(plan))
        assert again == plan and again.hash == plan.hash and again.length == 9000
        assert str(again) == str(plan) and again.not_honoured == plan.not_honoured
        assert [layer.map for layer in again.layers] == [layer.map for layer in plan.layers]


def test_a_plan_of_other_bytes_is_refused():
    build, parts = rw.plan(PLAIN).__reduce__()
    with pytest.raises(rw.Error, match="not the one that was sent"):
        build(parts[0], parts[1], "0" * 32, *parts[3:])
    with pytest.raises(rw.Error, match="ends early"):
        build(parts[0][:40], *parts[1:])
