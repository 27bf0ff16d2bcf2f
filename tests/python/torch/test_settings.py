"""Settings pasted into config.json, as this version of transformers runs them: the rotation of a method, whatever the file shipped."""

import json

import pytest
import ropewalk as rw
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

TRAINED, PAIRS = 1024, 8
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "rope_theta": 10000.0,
    "max_position_embeddings": TRAINED,
}
LISTS = {"short_factor": [1 + 0.1 * i for i in range(PAIRS)], "long_factor": [2 + 0.5 * i for i in range(PAIRS)]}
INSIDE = {"original_max_position_embeddings": TRAINED}
SHIPPED = {
    "nothing": {},
    "yarn": {"max_position_embeddings": 2 * TRAINED, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, **INSIDE}},
    "longrope": {"max_position_embeddings": 2 * TRAINED, **INSIDE, "rope_scaling": {"rope_type": "longrope", **LISTS}},
}
METHODS = {
    **dict.fromkeys(["linear", "ntk", "dynamic", "yarn", "llama3", "by-parts", "ntk-mixed"]),
    "a YaRN dictionary": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0},
    "a YaRN dictionary with attn_factor": {"rope_type": "yarn", "factor": 4.0, "attn_factor": 1.3},
    "LongRoPE": {"rope_type": "longrope", **LISTS},
    "LongRoPE with a factor": {"rope_type": "longrope", "factor": 8.0, **LISTS},
    "LongRoPE with an attention factor": {"rope_type": "longrope", "attention_factor": 1.3, **LISTS},
}


def of_transformers(config, length):
    """Frequencies and the factor on cos and sin for a sequence of `length` tokens."""
    module = LlamaRotaryEmbedding(transformers.AutoConfig.for_model(**config))
    cos, sin = module(torch.zeros(1), torch.arange(length)[None])
    return module.inv_freq.double().numpy(), float((cos[0, 1] ** 2 + sin[0, 1] ** 2).sqrt()[0])


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("length", [4 * TRAINED, 3000])
def test_pasted_into_a_config(shipped, method, length, tmp_path):
    config = {**CONFIG, **SHIPPED[shipped]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    plan = rw.plan(path)
    rope = METHODS[method]
    factor = 4 if rope is None or "factor" not in rope else rope["factor"]
    wanted = plan.with_method(method, 4, length=length) if rope is None else plan.with_rope({**INSIDE, "factor": factor, **rope})
    (setting,) = plan.engine_settings(
        method if rope is None else rope, 4, length=length, engines=[f"transformers={transformers.__version__}"]
    )
    config.update(json.loads(setting["setting"]))
    inv_freq, amplitude = of_transformers(config, length)
    rotation = wanted.at(length).rotations[0]
    assert inv_freq == pytest.approx(rotation.inv_freq, rel=1e-6)
    assert amplitude == pytest.approx(rotation.amplitude, rel=1e-6)
