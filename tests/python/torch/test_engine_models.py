"""Devices, types and kinds of models of the torch engine."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import ropewalk as rw
from engine_cases import MODEL, TEXT, difference, embedded_ids, loaded, plan_of, requests_of
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine, native_engine


@pytest.fixture(scope="module")
def ids():
    return embedded_ids()


def test_the_hash_is_that_of_the_weights():
    model = loaded()
    first, same = TorchEngine(model).model_hash(), TorchEngine(loaded()).model_hash()
    assert first == same
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] += 1
    assert TorchEngine(model).model_hash() != first


def test_what_it_refuses():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(MODEL))
    spread = loaded()
    spread.hf_device_map = {"model.embed_tokens": 0, "model.layers": 1}
    for given, more, says in [
        (model, {}, "meta device"),
        (3, {}, "expected a causal model"),
        ("no-such-folder", {}, "no-such-folder"),
        (MODEL, {"dtype": "int8"}, "int8"),
        (MODEL, {"dtype": "float8_e4m3fn"}, "expected float32, bfloat16"),
        (MODEL, {"device": "gpu0"}, "cannot use 'gpu0'"),
        (MODEL, {"device": "meta"}, "meta"),
        (loaded(), {"dtype": "bfloat16"}, "load it with dtype"),
        (loaded(), {"device": "auto"}, "for paths"),
        (loaded(), {"device": "gpu0"}, "cannot use 'gpu0'"),
        (spread, {"device": "cpu"}, "spread over several"),
    ]:
        with pytest.raises(rw.Error, match=says):
            TorchEngine(given, **more)
    if not torch.cuda.is_available():
        with pytest.raises(rw.Error, match="no GPU"):
            TorchEngine(MODEL, device="cuda")
    if not transformers.utils.is_accelerate_available():
        with pytest.raises(rw.Error, match="transformers does not load it: .*ccelerate"):
            TorchEngine(MODEL, device="auto")


def test_bfloat16_is_bfloat16(ids):
    engine = TorchEngine(MODEL, dtype="bfloat16")
    assert engine.facts().compute.endswith("cpu, bfloat16")
    scores = engine.score(plan_of("yarn", 512), requests_of(ids, 512))
    exact = TorchEngine(MODEL).score(plan_of("yarn", 512), requests_of(ids, 512))
    mean = [np.mean(np.concatenate([row[0] for row in s.tokens])) for s in (scores, exact)]
    assert 1e-5 < difference(scores, exact) and abs(mean[0] - mean[1]) < 0.02


@pytest.mark.skipif(not transformers.utils.is_accelerate_available(), reason="accelerate is not installed")
def test_a_device_map(ids):
    plan, requests = plan_of("rerope+log-n", 512), requests_of(ids, 512)
    engine = TorchEngine(MODEL, device="auto", dtype="float32")
    assert difference(engine.score(plan, requests), TorchEngine(MODEL).score(plan, requests)) < 3e-5


# ---- Models that read images too


@pytest.fixture(scope="module")
def with_images(tmp_path_factory):
    text = dict(model_type="mistral", hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
                head_dim=8, num_hidden_layers=2, vocab_size=64, max_position_embeddings=256, sliding_window=None)  # fmt: skip
    vision = dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                  head_dim=8, image_size=16, patch_size=4)  # fmt: skip
    config = transformers.Mistral3Config(text_config=text, vision_config=vision)
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("images")
    transformers.Mistral3ForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("method", ["none", "yarn", "rerope"])
def test_the_text_of_a_model_that_reads_images(with_images, method):
    plan = rw.plan(with_images).with_method(method, None if method == "none" else 2.0, length=512)
    requests = requests_of(np.arange(4000) * 7 % 61 + 2, 512)
    ours = TorchEngine(str(with_images)).score(plan, requests)
    assert difference(ours, native_engine(str(with_images)).score(plan, requests, angles="float32")) < 1e-4


@pytest.fixture(scope="module")
def qwen_vl(tmp_path_factory):
    """As published: the keys of the text at the top of config.json."""
    text = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
                vocab_size=64, max_position_embeddings=256)  # fmt: skip
    vision = dict(depth=1, embed_dim=16, num_heads=2, hidden_size=32, patch_size=4, mlp_ratio=2)
    axes = dict(rope_type="default", mrope_section=[1, 1, 2])
    config = transformers.Qwen2VLConfig(text_config=dict(text, rope_scaling=axes), vision_config=vision)
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("qwen")
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    keys = json.loads((folder / "config.json").read_text())
    keys.pop("text_config")
    published = dict(text, rope_scaling=dict(type="mrope", mrope_section=[1, 1, 2]), tie_word_embeddings=False)
    (folder / "config.json").write_text(json.dumps({**keys, **published}))
    return folder


# Longer than a chunk: transformers 4.57 counts positions of later ones from 0 where none are given.
@pytest.mark.parametrize("method", ["none", "yarn"])
def test_positions_of_qwen_vl_behind_a_cache(qwen_vl, method):
    plan = rw.plan(qwen_vl).with_method(method, None if method == "none" else 4.0, length=1024)
    requests = requests_of(np.arange(4000) * 7 % 51 + 2, 1024)
    ours = TorchEngine(str(qwen_vl)).score(plan, requests)
    assert difference(ours, native_engine(str(qwen_vl)).score(plan, requests, angles="float32")) < 1e-4


def test_a_setting_is_saved_with_the_axes(qwen_vl, tmp_path):
    model = transformers.AutoModelForImageTextToText.from_pretrained(qwen_vl)

    def ropes():
        config = model.config.to_dict()
        return [{k: v for k, v in c.items() if k.startswith("rope_")} for c in (config, config["text_config"])]

    before = ropes()
    with rw.transformers.applied(model, "yarn", factor=4):
        model.save_pretrained(tmp_path)
    assert ropes() == before
    wanted = rw.plan(qwen_vl).with_method("yarn", 4.0, length=1024)
    assert rw.plan(tmp_path).at(1024).hash == wanted.at(1024).hash


def test_weights_that_no_file_has_are_an_error(with_images, tmp_path):
    shutil.copy(with_images / "config.json", tmp_path)
    tensors = load_file(with_images / "model.safetensors")
    name = next(n for n in tensors if n.endswith("layers.1.mlp.up_proj.weight"))
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(rw.Error, match="no file has .*layers.1.mlp.up_proj.weight"):
        TorchEngine(str(tmp_path))


# ---- Models without a cache that can be cut


def mamba():
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=64, state_size=4)
    return transformers.MambaForCausalLM(config)


def mamba2():
    config = transformers.Mamba2Config(
        hidden_size=32, num_hidden_layers=2, vocab_size=64, state_size=4, head_dim=16, num_heads=4, n_groups=1
    )
    return transformers.Mamba2ForCausalLM(config)


def jamba():
    config = transformers.JambaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=64, num_experts=2, expert_layer_period=2,
        expert_layer_offset=1, mamba_d_state=4, use_mamba_kernels=False,
    )  # fmt: skip
    return transformers.JambaForCausalLM(config)


def bamba():
    config = transformers.BambaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, attn_layer_indices=[1], num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16,
    )  # fmt: skip
    return transformers.BambaForCausalLM(config)


@pytest.mark.parametrize("make", [mamba, mamba2, jamba, bamba])
def test_recurrent_models_are_fed_whole(make):
    torch.manual_seed(5)
    model = make().eval()
    tokens = torch.randint(3, 64, (90,))
    with torch.no_grad():
        expected = model(input_ids=tokens[None], use_cache=False).logits[0].log_softmax(-1)
    engine = TorchEngine(model)
    engine._most_tokens = 64
    plan, at = rw._sweep._plan_of(model, allow_unknown=True), np.arange(40, 90)
    requests = [
        ScoreRequest(ids=tokens, positions=at),
        ScoreRequest(prefix=tokens[:30], ids=tokens[30:], positions=at),
    ]
    for log_probs, _ in engine.score(plan, requests, final_length=128).tokens:
        np.testing.assert_allclose(log_probs, expected[at - 1, tokens[40:]].numpy(), atol=2e-5)
    ((made, _),) = engine.generate(plan, [GenerateRequest(ids=tokens, max_tokens=1)], final_length=128)
    assert int(made[0]) == int(expected[-1].argmax())


def test_sweeps_of_recurrent_models():
    """Of a hybrid, whose attention rotates; where nothing does, no method but none can be measured."""
    torch.manual_seed(5)
    text, settings = np.arange(900) % 61 + 3, {"lengths": [64], "trained_length": 32, "anchors": 2, "progress": False}
    rows = rw.sweep(bamba(), text=text, methods="none,yarn", protocol="aligned:8", **settings).rows
    assert {row["method"] for row in rows} == {"none", "yarn"} and all(row["perplexity"] > 1 for row in rows)
    for make in (mamba, jamba):
        rows = rw.sweep(make(), text=text, methods="none", protocol="aligned:8", **settings).rows
        assert {row["length"] for row in rows} == {32, 64} and all(row["method"] == "none" and row["perplexity"] > 1 for row in rows)
        with pytest.raises(rw.Error, match="no layer of this model rotates"):
            rw.sweep(make(), text=text, methods="none,yarn", **settings)


def test_a_model_that_keeps_nothing_in_the_cache_is_refused_by_name(ids):
    model = loaded()
    forward = model.forward

    def forgets(input_ids=None, past_key_values=None, use_cache=None, **more):
        return forward(input_ids=input_ids, use_cache=False, **more)

    model.forward = forgets
    with pytest.raises(rw.Error, match="LlamaForCausalLM does not keep its keys"):
        TorchEngine(model).score(plan_of("none", 600), [ScoreRequest(ids=ids[:600], positions=[599])])


# ---- GGUF


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    run = subprocess.run([*PROGRAM, "convert", MODEL, "-o", path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return path


PROGRAM = [sys.executable, "-m", "ropewalk"]
with_gguf = transformers.utils.is_gguf_available() and transformers.utils.is_accelerate_available()


@pytest.mark.skipif(with_gguf, reason="gguf is installed")
def test_a_gguf_file_without_the_package_that_reads_it(gguf):
    with pytest.raises(rw.Error, match="model.gguf: transformers does not load it: .*(accelerate|gguf)"):
        TorchEngine(gguf)


@pytest.mark.skipif(not with_gguf, reason="gguf and accelerate are not installed")
def test_a_gguf_file(gguf, ids):
    plan, requests = plan_of("yarn", 512), requests_of(ids, 512)
    assert rw.plan(gguf).with_method("yarn", 2.0, length=512).hash == plan.hash
    assert difference(TorchEngine(gguf).score(plan, requests), TorchEngine(MODEL).score(plan, requests)) < 1e-4
    small = {"methods": "none", "lengths": [128], "anchors": 2, "tasks": "perplexity", "progress": False}
    sweep = rw.sweep(gguf, text=TEXT, engine="torch", **small)
    native = rw.sweep(gguf, text=TEXT, angles="float32", **small)
    assert sweep.rows[0]["mean_nll"] == pytest.approx(native.rows[0]["mean_nll"], abs=2e-5)
