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
    "cohere_compass_text": dict(
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in (("sliding_attention", BASE), ("full_attention", 5 * BASE))
        },
    ),
    "dbrx": dict(
        attn_config=dict(rope_theta=BASE, kv_n_heads=2, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=48, moe_num_experts=4, moe_top_k=2, **(dict(hidden_size=64) if V5 else {})),
    ),
    "dots1": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1),
    "dots3_note_text": dict(
        **_MLA,
        **_FULL,
        head_dim=24,
        index_head_dim=16,
        index_n_heads=2,
        index_topk=16,
        shared_experts_intermediate_size=24,
    ),
    "ernie4_5_moe": dict(moe_k=2),
    "gemma3n_text": dict(
        vocab_size_per_layer_input=96,
        hidden_size_per_layer_input=8,
        num_kv_shared_layers=0,
        laurel_rank=8,
        activation_sparsity_pattern=None,
        layer_types=["sliding_attention", "full_attention"],
        intermediate_size=48,
        num_hidden_layers=2,
    ),
    "gemma4_text": dict(vocab_size_per_layer_input=96, hidden_size_per_layer_input=8, global_head_dim=32),
    "gemma4_unified_text": dict(global_head_dim=32),
    "longcat_flash": dict(
        **_MLA, num_layers=2, ffn_hidden_size=48, expert_ffn_hidden_size=24, zero_expert_num=2, moe_topk=2, head_dim=16
    ),
    "mimo_v2_flash": dict(head_dim=24, v_head_dim=24),
    "mistral": dict(sliding_window=None),
    "bamba": dict(attn_layer_indices=[0, 1]),
    "cohere2": dict(sliding_window_pattern=2),
    "exaone4": dict(sliding_window_pattern=2),
    "gemma3_text": dict(sliding_window_pattern=2),
    "nemotron": dict(num_key_value_heads=2),
    "granitemoehybrid": dict(position_embedding_type="rope", layer_types=["attention", "attention"]),
    "hunyuan_v1_dense": _ROPE,
    "hunyuan_v1_moe": _ROPE,
    "lfm2_moe": dict(layer_types=["conv", "full_attention"], num_dense_layers=1),
    "mllama_text_model": dict(cross_attention_layers=[], **({} if V5 else dict(rope_scaling={"rope_type": "default"}))),
    "ministral": dict(**_ROPE, layer_types=["sliding_attention", "full_attention"]),
    "phi4_multimodal": dict(
        vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2),
        audio_config=dict(
            hidden_size=16,
            intermediate_size=16,
            num_blocks=1,
            num_attention_heads=2,
            ext_pw_out_channel=16,
            nemo_conv_channels=16,
        ),
    ),
    "qwen4_exp_text": dict(
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=16,
        indexer_compress_ratio=2,
        ple_layer_ids=[1],
        ple_embed_dim=16,
        ngram_vocab_size_base=100,
        make_ngram_vocab_size_divisible_by=8,
        split_ngram_parts=1,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        hc_count=2,
        hc_lowrank=8,
        eos_token_id=2,
    ),
    "zamba2": dict(
        num_hidden_layers=3,
        layers_block_type=["mamba", "hybrid", "hybrid"],
        use_mem_rope=True,
        n_mamba_heads=4,
        mamba_headdim=32,
        mamba_d_state=16,
        num_key_value_heads=4,
        chunk_size=16,
        adapter_rank=8,
    ),
    "zaya": dict(num_experts_per_tok=1),
}


def families():
    """model_type -> (configuration class, model class) of every causal family. A multimodal one counts by its text
    model: by that one's name, or not again where that one is a family itself."""
    classes = {
        config: model[0] if isinstance(model, (tuple, list)) else model
        for config, model in MODEL_FOR_CAUSAL_LM_MAPPING.items()
    }
    types = {config.model_type for config in classes}
    found = {}
    for config_class, model_class in classes.items():
        if config_class.model_type.endswith("_assistant"):  # drafts of Gemma 4: their inputs are another model's keys
            continue
        if "text_config" in getattr(config_class, "sub_configs", {}):
            text = config_class.sub_configs["text_config"]
            text = config_class().text_config.model_type if text is transformers.AutoConfig else text.model_type
            if text in types and text != config_class.model_type:
                continue
            config_class = model_class.config_class
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
    model = model_class(config).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("qk_norm.temp"):  # ZAYA: 0 before training, and its keys with it
            parameter.data.fill_(1)
    return model


# ---------------------------------------------------------------------------------------------------------------------
# What the tests do with them

IDS = torch.tensor([[(7 * i * i + 3 * i) % 93 + 3 for i in range(60)]])
_KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section", "llama_4_scaling_beta")


def has_frequencies(model):
    return any(name.endswith("inv_freq") for name, _ in model.named_buffers())


def logits(model, ids=IDS, **kwargs):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **kwargs).logits


def close(a, b, scale):
    return (a - b).abs().max() <= 3e-5 * max(1, scale)


def rope_of(config):
    """The rope dictionaries of a configuration: by layer type (None where there is one for all), with its base."""
    if not V5:
        return {None: getattr(config, "rope_scaling", None) or {}}
    rope = config.rope_parameters
    typed = {k: v for k, v in rope.items() if k.endswith("attention") or isinstance(v, dict)}
    return typed or {None: rope}


def with_rope(config, rope):
    """The configuration with another rope dictionary for the layers that a context extension is for: all but those of a
    window with another base (Gemma 3) or whose family never scales them (OLMo 3)."""
    config = copy.deepcopy(config)
    named = hasattr(config, "original_max_position_embeddings") or (not V5 and rope["rope_type"] == "longrope")
    if "original_max_position_embeddings" in rope and named:
        config.original_max_position_embeddings = rope["original_max_position_embeddings"]
    if not V5:
        config.rope_scaling = None if rope["rope_type"] == "default" else dict(rope)
        return config
    old = rope_of(config)
    full = [d["rope_theta"] for k, d in old.items() if k != "sliding_attention" and d]
    unscaled = config.model_type == "olmo3"
    new = {
        k: d
        if d is None or (k == "sliding_attention" and (unscaled or any(theta != d["rope_theta"] for theta in full)))
        else {**{n: v for n, v in d.items() if n in _KEPT}, **rope}
        for k, d in old.items()
    }
    config.rope_parameters = new.get(None, new)
    return config


def built_with(model, rope):
    """A model of the same weights whose configuration has the rope dictionary from the beginning."""
    made = type(model)(with_rope(model.config, rope)).float().eval()
    made.load_state_dict(model.state_dict())
    return made


def build_unscaled(name, **settings):
    """The model without the scaling that some families have by default, since a method replaces it; None where it has
    no rotary module."""
    model = build(name, **settings)
    if not has_frequencies(model):
        return None
    ropes = [d for d in rope_of(model.config).values() if d]
    if all(d.get("rope_type", "default") in ("default", "proportional") for d in ropes):
        return model
    trained = ropes[0].get("original_max_position_embeddings", 0) if name == "ministral3" else 0
    rope = {"rope_type": "default", **({"original_max_position_embeddings": trained} if trained else {})}
    return built_with(model, rope)
