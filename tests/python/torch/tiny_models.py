"""Tiny random models of the causal families that the installed transformers has."""

import copy

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

SIZES = dict(
    vocab_size=96,
    hidden_size=64,
    n_embd=64,
    d_model=64,
    intermediate_size=48,
    moe_intermediate_size=24,
    shared_expert_intermediate_size=24,
    num_hidden_layers=2,
    n_layers=2,
    n_layer=2,
    num_attention_heads=4,
    n_heads=4,
    n_head=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
    num_experts=4,
    n_routed_experts=4,
    num_local_experts=4,
    moe_num_experts=4,
    num_experts_per_tok=2,
    moe_topk=2,
    q_lora_rank=24,
    kv_lora_rank=16,
    qk_nope_head_dim=8,
    qk_rope_head_dim=16,
    v_head_dim=12,
    n_group=1,
    topk_group=1,
    sliding_window=24,
    mamba_chunk_size=16,
    chunk_size=16,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    attention_dropout=0.0,
    initializer_range=0.2,
)

BASE = 1000.0
V5 = int(transformers.__version__.split(".")[0]) >= 5
_ROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": BASE}) if V5 else dict(rope_theta=BASE)
_MLA = dict(num_key_value_heads=4)
_FULL = dict(layer_types=["full_attention"] * 2)

# What a family's configuration needs beyond SIZES, or in place of it.
EXTRA = {
    **dict.fromkeys(
        [
            "axk1",
            "axk2",
            "bailing_hybrid",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "longcat_flash",
            "minicpm3",
            "youtu",
        ],
        _MLA,
    ),
    "deepseek_v2": dict(num_key_value_heads=4, num_experts_per_tok=2),
    "ernie4_5_moe": dict(moe_k=2),
    "mimo_v2_flash": dict(head_dim=24, v_head_dim=24),
    "mistral": dict(sliding_window=None),
    "bamba": dict(attn_layer_indices=[0, 1]),
    "exaone4": dict(sliding_window_pattern=2),
    "gemma3_text": dict(sliding_window_pattern=2),
    "nemotron": dict(num_key_value_heads=2),
    "granitemoehybrid": dict(position_embedding_type="rope", layer_types=["attention", "attention"]),
    "hunyuan_v1_dense": _ROPE,
    "hunyuan_v1_moe": _ROPE,
    "lfm2_moe": dict(layer_types=["conv", "full_attention"], num_dense_layers=1),
    "ministral": dict(**_ROPE, layer_types=["sliding_attention", "full_attention"]),
    "zaya": dict(num_experts_per_tok=1),
}


def families():
    """model_type -> (configuration class, model class) of every causal family, those with a text part by that."""
    found = {}
    for config_class, model_class in MODEL_FOR_CAUSAL_LM_MAPPING.items():
        if isinstance(model_class, (tuple, list)):
            model_class = model_class[0]
        found[config_class.model_type] = (config_class, model_class)
    return dict(sorted(found.items()))


def config_of(model_type, **settings):
    config_class, _ = families()[model_type]
    default = config_class()
    values = {}
    for name, value in SIZES.items():
        attribute = getattr(config_class, name, None)
        settable = not isinstance(attribute, property) or attribute.fset is not None
        if settable and name in default.__dict__ and (default.__dict__[name] is not None or name == "head_dim"):
            values[name] = value
    values.update(EXTRA.get(model_type, {}))
    values.update(settings)
    if "layer_types" not in values and default.__dict__.get("layer_types"):
        types = list(default.layer_types)
        kinds = sorted(set(types), key=types.index)
        layers = values.get("num_hidden_layers", 2)
        values["layer_types"] = (kinds * layers)[: max(layers, len(kinds))]
        values["num_hidden_layers"] = len(values["layer_types"])
    return config_class(**values)


def build(model_type, **settings):
    """The model; ValueError where the sizes above do not make it tiny."""
    _, model_class = families()[model_type]
    config = config_of(model_type, **settings)
    try:
        with torch.device("meta"):
            parameters = sum(p.numel() for p in model_class(copy.deepcopy(config)).parameters())
    except NotImplementedError:  # it reads its weights while it makes them
        parameters = 0
    if parameters > 10_000_000:
        raise ValueError(f"{parameters} parameters")
    torch.manual_seed(sum(map(ord, model_type)))
    return model_class(config).float().eval()
