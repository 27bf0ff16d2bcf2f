"""The plugin for vLLM against a stub: the classes, arguments and hooks of vLLM 0.33 that it uses, without its kernels.
vLLM itself is not here; whether the stub is what vLLM is, no test says."""

import json
import pathlib
import sys
import types

import numpy as np
import pytest
import torch
import transformers

import ropewalk as rw
from ropewalk import vllm as plugin

ROOT = pathlib.Path(__file__).resolve().parents[3]
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 512, "vocab_size": 1000, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128, "rope_theta": 10000.0,
}  # fmt: skip


def make_stub():
    """Modules with the names and signatures of vLLM 0.33."""
    registry = {}
    current = types.SimpleNamespace(config=None)

    class CustomOp(torch.nn.Module):
        def __new__(cls, *args, **kwargs):
            return super().__new__(registry.get(cls.__name__, cls))

        @classmethod
        def register_oot(cls, _decorated_op_cls=None, name=None):
            def register(op):
                key = name or cls.__name__
                assert key not in registry, f"Duplicate op name: {key}"
                op.name = key
                registry[key] = op
                return op

            return register if _decorated_op_cls is None else register(_decorated_op_cls)

    class RotaryEmbeddingBase(CustomOp):
        name = "rotary_embedding"

        def __init__(self, head_size, rotary_dim, max_position_embeddings, base, is_neox_style, dtype, init_cache=True):
            super().__init__()
            self.head_size, self.rotary_dim, self.base = head_size, rotary_dim, base
            self.max_position_embeddings, self.is_neox_style, self.dtype = max_position_embeddings, is_neox_style, dtype
            if init_cache:
                self.register_buffer("cos_sin_cache", self._compute_cos_sin_cache().to(dtype), persistent=False)

        def _compute_inv_freq(self, base):
            return 1.0 / base ** (torch.arange(0, self.rotary_dim, 2, dtype=torch.float) / self.rotary_dim)

        def _positions(self):
            return self.max_position_embeddings

        def _compute_cos_sin_cache(self):
            angles = torch.outer(torch.arange(self._positions(), dtype=torch.float), self._compute_inv_freq(self.base))
            return torch.cat((angles.cos(), angles.sin()), -1)

    class RotaryEmbedding(RotaryEmbeddingBase):
        def forward(self, positions, query, key=None):
            """query, key [tokens, heads * head_size]: vLLM's kernels in a formula."""
            cos, sin = self.cos_sin_cache[positions.flatten()].to(query.dtype)[:, None].chunk(2, -1)

            def turned(x):
                heads = x.view(len(positions), -1, self.head_size)
                x, rest = heads[..., : self.rotary_dim], heads[..., self.rotary_dim :]
                a, b = x.chunk(2, -1) if self.is_neox_style else (x[..., ::2], x[..., 1::2])
                a, b = a * cos - b * sin, b * cos + a * sin
                x = torch.cat((a, b), -1) if self.is_neox_style else torch.stack((a, b), -1).flatten(-2)
                return torch.cat((x, rest), -1).flatten(1)

            return turned(query), None if key is None else turned(key)

    def scaled(name, rows=lambda self: self.max_position_embeddings):
        """A class with a factor: its arguments as get_rope below gives them."""

        def __init__(self, *arguments, scaling_factor=1.0):
            self.scaling_factor = scaling_factor
            RotaryEmbedding.__init__(self, *arguments)

        return type(name, (RotaryEmbedding,), {"__init__": __init__, "_positions": rows})

    layers = types.ModuleType("vllm.model_executor.layers.rotary_embedding")
    layers.RotaryEmbedding = RotaryEmbedding
    layers.YaRNScalingRotaryEmbedding = scaled(
        "YaRNScalingRotaryEmbedding", lambda self: int(self.max_position_embeddings * self.scaling_factor)
    )
    for name in plugin._REPLACED:
        if not hasattr(layers, name):
            setattr(layers, name, scaled(name))
    layers.MRotaryEmbedding = type("MRotaryEmbedding", (RotaryEmbeddingBase,), {})
    layers.Phi3LongRoPEScaledRotaryEmbedding = type("Phi3LongRoPEScaledRotaryEmbedding", (torch.nn.Module,), {})

    def get_rope(head_size, max_position, is_neox_style=True, rope_parameters=None, dtype=None):
        rope = rope_parameters or {}
        arguments = [head_size, int(head_size * rope.get("partial_rotary_factor", 1.0)), max_position,
                     rope.get("rope_theta", 10000), is_neox_style, dtype or torch.get_default_dtype()]  # fmt: skip
        kind = rope.get("rope_type", "default")
        if kind == "longrope":
            return layers.Phi3LongRoPEScaledRotaryEmbedding()
        if "mrope_section" in rope:
            return layers.MRotaryEmbedding(*arguments)
        if kind == "yarn":
            arguments[2] = rope["original_max_position_embeddings"]
            return layers.YaRNScalingRotaryEmbedding(*arguments, scaling_factor=rope["factor"])
        return layers.RotaryEmbedding(*arguments)

    layers.get_rope = get_rope
    custom_op = types.ModuleType("vllm.model_executor.custom_op")
    custom_op.CustomOp, custom_op.op_registry_oot = CustomOp, registry
    config = types.ModuleType("vllm.config")
    config.get_current_vllm_config = lambda: current.config
    modules = {"vllm.config": config, "vllm.model_executor.custom_op": custom_op, layers.__name__: layers}
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        modules[name] = types.ModuleType(name)
        modules[name].__path__ = []
    modules["vllm.model_executor.layers"].rotary_embedding = layers
    return types.SimpleNamespace(
        modules=modules, layers=layers, registry=registry, current=current, base=RotaryEmbeddingBase
    )


class Vllm:
    """An engine that has loaded a configuration, as far as rotation goes."""

    def __init__(self, monkeypatch):
        self.patch, self.stub = monkeypatch, make_stub()
        for name, module in self.stub.modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delenv("VLLM_ROPEWALK_PLAN", raising=False)

    def ask(self, plan):
        self.patch.setenv("VLLM_ROPEWALK_PLAN", plan if isinstance(plan, str) else json.dumps(plan))
        plugin.register()

    def load(self, config, max_model_len, **overrides):
        config = transformers.AutoConfig.for_model(**{**config, **overrides})
        model = types.SimpleNamespace(model="model", hf_config=config, hf_overrides=overrides, max_model_len=max_model_len)
        self.stub.current.config = types.SimpleNamespace(model_config=model, speculative_config=None)
        rope = getattr(config, "rope_parameters", None)  # transformers 5
        if rope is None:
            rope = {"rope_theta": config.rope_theta, **(config.rope_scaling or {})}
            if getattr(config, "partial_rotary_factor", 1.0) != 1:
                rope["partial_rotary_factor"] = config.partial_rotary_factor
        return config, rope

    def rope(self, config, max_model_len, neox=True, head_size=None, dtype=torch.float32, **overrides):
        config, rope = self.load(config, max_model_len, **overrides)
        head_size = head_size or getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return self.stub.layers.get_rope(head_size, config.max_position_embeddings, neox, rope, dtype)


@pytest.fixture
def vllm(monkeypatch):
    return Vllm(monkeypatch)


def refused(vllm, config, max_model_len, match, code="invalid_argument", **more):
    with pytest.raises(rw.Error, match=match) as error:
        vllm.rope(config, max_model_len, **more)
    assert error.value.code == code


LONG = {"max_position_embeddings": 512}


def exact(config, *method, count=512, **more):
    """The rows of the first rotation of a plan, as vLLM has them."""
    return rw.plan(config, *method, **more).rotations[0].table(count).rows.reshape(count, -1)


def test_without_the_variable_nothing_of_vllm_is_touched(vllm):
    before = dict(vars(vllm.stub.layers))
    plugin.register()
    vllm.patch.setenv("VLLM_ROPEWALK_PLAN", "")
    plugin.register()
    assert vllm.stub.registry == {} and vars(vllm.stub.layers) == before
    assert type(vllm.rope(LLAMA, 128)) is vllm.stub.layers.RotaryEmbedding


@pytest.mark.parametrize("method", ["none", "linear", "ntk", "dynamic", "yarn", "llama3", "by-parts"])
def test_the_table_is_the_exact_one_of_the_plan(vllm, method):
    vllm.ask({"method": method, "trained_length": 128, **({} if method == "none" else {"factor": 4})})
    made = vllm.rope(LLAMA, 512, **LONG)
    rotation = rw.plan(LLAMA, method, None if method == "none" else 4.0).rotations[0]
    assert made.cos_sin_cache.shape == (512, 64) and made.cos_sin_cache.dtype == torch.float32
    assert np.array_equal(made.cos_sin_cache.numpy(), rotation.table(512).rows.reshape(512, 64))
    assert made.cos_sin_cache[0, 0] == np.float32(rotation.amplitude)


def test_the_attention_factor_of_yarn_is_in_the_table(vllm):
    vllm.ask({"method": "yarn", "factor": 4, "trained_length": 128})
    table = vllm.rope(LLAMA, 512, **LONG).cos_sin_cache
    norms = table[:, :32] ** 2 + table[:, 32:] ** 2
    assert torch.allclose(norms, torch.full_like(norms, (0.1 * np.log(4) + 1) ** 2))


def test_a_name_alone_takes_the_length_that_vllm_serves(vllm):
    vllm.ask("yarn")
    table = vllm.rope({**LLAMA, "max_position_embeddings": 1024, "rope_scaling": None}, 1024).cos_sin_cache
    assert np.array_equal(table.numpy(), exact(LLAMA, "yarn", count=1024, trained_length=1024, length=1024))
    vllm.stub.registry.clear()
    vllm.ask({"method": "yarn", "trained_length": 128})
    table = vllm.rope(LLAMA, 512, **LONG).cos_sin_cache
    assert np.array_equal(table.numpy(), exact(LLAMA, "yarn", 4.0))


def test_a_table_in_bfloat16_is_the_exact_one_rounded_once(vllm):
    vllm.ask({"method": "yarn", "factor": 4, "trained_length": 128})
    table = vllm.rope(LLAMA, 512, dtype=torch.bfloat16, **LONG).cos_sin_cache
    assert torch.equal(table, torch.tensor(exact(LLAMA, "yarn", 4.0)).bfloat16())


@pytest.mark.parametrize("kind", ["half", "partial", "interleaved"])
def test_what_vllm_rotates_by_it_is_what_rotate_rotates(vllm, kind):
    config, neox = dict(LLAMA), True
    if kind == "partial":
        config |= {"model_type": "phi", "architectures": ["PhiForCausalLM"], "layer_norm_eps": 1e-5}
        config |= {"partial_rotary_factor": 0.5}
        del config["rms_norm_eps"]
    if kind == "interleaved":
        config |= {"model_type": "cohere", "architectures": ["CohereForCausalLM"], "layer_norm_eps": 1e-5}
        del config["rms_norm_eps"]
        neox = False
    vllm.ask({"method": "yarn", "factor": 4, "trained_length": 128})
    made = vllm.rope(config, 512, neox=neox, **LONG)
    rotation = rw.plan(config, "yarn", 4.0).rotations[0]
    assert rotation.rotary_dim == (32 if kind == "partial" else 64)
    assert rotation.layout == ("interleaved" if kind == "interleaved" else "half")
    positions = torch.tensor([0, 1, 127, 128, 500])
    q, k = torch.randn(5, 4, 64), torch.randn(5, 2, 64)
    ours = rw.rotate(q, k, rotation.table(512), positions)
    theirs = made(positions, q.flatten(1), k.flatten(1))
    for x, y in zip(theirs, ours):
        assert torch.allclose(x.view(y.shape), y, atol=1e-6)
    assert made(positions, q.flatten(1))[1] is None


def test_a_config_that_ships_yarn_is_asked_as_yarn(vllm):
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    config = {**LLAMA, "max_position_embeddings": 512, "rope_scaling": rope}
    vllm.ask({})  # as shipped, with exact angles
    made = vllm.rope(config, 512)
    assert type(made).__name__ == "RopewalkYaRNScalingRotaryEmbedding"
    assert np.array_equal(made.cos_sin_cache.numpy(), exact(config))


def test_each_rotation_of_a_model_with_two_has_its_own_table(vllm):
    config = {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_hidden_layers": 6, "intermediate_size": 512, "vocab_size": 1000, "head_dim": 64,
        "max_position_embeddings": 128, "sliding_window": 32, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
        "sliding_window_pattern": 6, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 64,
    }  # fmt: skip
    vllm.ask({"method": "linear", "factor": 4, "trained_length": 128})
    vllm.load(config, 512, **LONG)
    plan = rw.plan(config, "linear", 4.0)
    assert len(plan.rotations) == 2
    for rotation in plan.rotations:
        made = vllm.stub.layers.get_rope(64, 512, True, {"rope_theta": rotation.base}, torch.float32)
        assert np.array_equal(made.cos_sin_cache.numpy(), rotation.table(512).rows.reshape(512, 64))


def test_the_method_may_be_a_rope_dictionary(vllm):
    rope = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5}
    vllm.ask({"method": rope, "trained_length": 128})
    table = vllm.rope(LLAMA, 512, **LONG).cos_sin_cache
    assert np.array_equal(table.numpy(), exact(LLAMA, rope))
    assert table[0, 0] == 1.5


def test_the_plan_may_be_that_of_a_file(vllm, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    vllm.ask({"config": str(tmp_path / "config.json"), "method": "yarn", "factor": 4})
    table = vllm.rope(LLAMA, 512, **LONG).cos_sin_cache
    assert np.array_equal(table.numpy(), exact(LLAMA, "yarn", 4.0))


def test_contradictions_are_refused(vllm):
    vllm.ask({"method": "yarn", "factor": 4, "trained_length": 128})
    refused(vllm, LLAMA, 1024, "is for 512 tokens, but vLLM serves 1024", max_position_embeddings=1024)
    refused(vllm, LLAMA, 512, "table of 128 positions for sequences of 512")
    refused(vllm, LLAMA, 512, "is_neox_style False; the rotations of the configuration are: .*half", neox=False, **LONG)
    refused(vllm, LLAMA, 512, "head_size 32", head_size=32, **LONG)
    vllm.stub.registry.clear()
    vllm.ask({"method": "yarn", "factor": 4})
    refused(vllm, LLAMA, 512, "give trained_length", **LONG)


def test_another_models_plan_is_refused(vllm, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "rope_theta": 500000.0}))
    vllm.ask({"config": str(tmp_path / "config.json"), "method": "yarn", "factor": 4})
    refused(vllm, LLAMA, 512, "base 10000", **LONG)


@pytest.mark.parametrize("method", ["rerope:window=64", "none+log-n", "self-extend:window=64,group=8"])
def test_what_a_table_cannot_say_is_refused(vllm, method):
    vllm.ask({"method": method, "length": 512, "trained_length": 128})
    refused(vllm, LLAMA, 512, "frequencies alone", "unsupported", **LONG)


def test_classes_that_are_more_than_a_table_are_refused(vllm):
    vllm.ask("yarn")
    vllm.load(LLAMA, 128)
    for rope in ({"mrope_section": [16, 24, 24]}, {"rope_type": "longrope"}):
        with pytest.raises(rw.Error, match="which a plan cannot replace") as error:
            vllm.stub.layers.get_rope(64, 128, True, rope)
        assert error.value.code == "unsupported"


def test_a_second_model_is_refused(vllm):
    vllm.ask("yarn")
    _, rope = vllm.load(LLAMA, 128)
    draft = types.SimpleNamespace(model="draft")
    vllm.stub.current.config.speculative_config = types.SimpleNamespace(draft_model_config=draft)
    with pytest.raises(rw.Error, match="speculative"):
        vllm.stub.layers.get_rope(64, 128, True, rope)


def test_registering_again_changes_nothing_and_another_plugin_is_named(vllm):
    vllm.ask("yarn")
    first = dict(vllm.stub.registry)
    phi = vllm.stub.layers.Phi3LongRoPEScaledRotaryEmbedding
    plugin.register()
    assert vllm.stub.registry == first and vllm.stub.layers.Phi3LongRoPEScaledRotaryEmbedding is phi
    # Whether vLLM compiles its formula or calls its kernel goes by the name of the op.
    assert {op.name for op in first.values()} == {"rotary_embedding"}
    vllm.stub.registry["RotaryEmbedding"] = type("AnotherRotaryEmbedding", (vllm.stub.base,), {})
    with pytest.raises(rw.Error, match="replaced by") as error:
        plugin.register()
    assert error.value.code == "unsupported"


@pytest.mark.parametrize(("value", "match"), [("{", "JSON"), ('{"metod": "yarn"}', "unknown key 'metod'; expected config")])
def test_a_variable_that_cannot_be_read_is_refused(vllm, value, match):
    vllm.patch.setenv("VLLM_ROPEWALK_PLAN", value)
    with pytest.raises(rw.Error, match=match):
        plugin.register()
    assert vllm.stub.registry == {}


def test_an_unknown_method_is_refused_with_all_names(vllm):
    vllm.ask("yarm")
    refused(vllm, LLAMA, 128, "expected one of none, linear")


def test_an_older_vllm_is_refused(vllm):
    vllm.patch.setenv("VLLM_ROPEWALK_PLAN", "yarn")
    del vllm.stub.layers.Llama3RotaryEmbedding
    with pytest.raises(rw.Error, match="for vLLM 0.33") as error:
        plugin.register()
    assert error.value.code == "unsupported"


def test_the_entry_point_leads_to_it():
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]\nropewalk = "ropewalk.vllm:register"\n' in text
