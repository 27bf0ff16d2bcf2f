"""Random tiny models of every family and rope type that both transformers 4.57 and ropewalk know.

Weights are large enough that attention is far from uniform: a wrong rope changes logits by more
than a tenth of their range, which the negative controls of compare.py hold.
"""

import json
import pathlib

import torch
import transformers

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
    initializer_range=0.02, bos_token_id=0, eos_token_id=1, attention_dropout=0.0,
)
PAIRS = SIZES["head_dim"] // 2
ORIGINAL = 32  # tokens "trained"

# name -> (config class, model class, extra configuration, stored dtype, sharded)
FAMILIES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
              dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True),
              torch.bfloat16, False),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM,
                dict(tie_word_embeddings=True, sliding_window=24), torch.float16, False),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM,
              dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=20,
                   max_window_layers=1), torch.float32, True),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM,
              dict(tie_word_embeddings=False, use_sliding_window=False), torch.bfloat16, False),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM,
                dict(tie_word_embeddings=True, num_hidden_layers=4, pad_token_id=2),
                torch.bfloat16, False),
}

# name -> (max_position_embeddings, rope_scaling, extra top-level keys)
ROPE_TYPES = {
    "default": (128, None, {}),
    "linear": (128, dict(rope_type="linear", factor=4.0), {}),
    "dynamic": (ORIGINAL, dict(rope_type="dynamic", factor=2.0), {}),
    "yarn": (128, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=ORIGINAL),
             {}),
    "yarn_options": (128, dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=0.5,
                               mscale=0.8, mscale_all_dim=0.4, truncate=False,
                               original_max_position_embeddings=ORIGINAL), {}),
    "yarn_attention_factor": (
        128, dict(rope_type="yarn", factor=8.0, attention_factor=0.9,
                  original_max_position_embeddings=16), {}),
    "llama3": (256, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                         original_max_position_embeddings=ORIGINAL), {}),
    "longrope": (128, dict(rope_type="longrope",
                           short_factor=[1.0 + 0.03 * i for i in range(PAIRS)],
                           long_factor=[1.0 + 0.9 * i * i for i in range(PAIRS)]),
                 dict(original_max_position_embeddings=ORIGINAL)),
}
# smollm3 is here for its layers without rotation.
CASES = [(f, r) for f in FAMILIES for r in ROPE_TYPES if f != "smollm3" or r in ("default", "yarn")]


def config_of(family, rope):
    config_class, _, extra, _, _ = FAMILIES[family]
    max_position, scaling, top = ROPE_TYPES[rope]
    return config_class(**{**SIZES, **extra, **top}, rope_theta=1000.0,
                        max_position_embeddings=max_position,
                        rope_scaling=dict(scaling) if scaling else None)


def random_model(family):
    """The weights of a family, the same for every rope type, exact in the dtype they are stored in."""
    _, model_class, _, dtype, _ = FAMILIES[family]
    model = model_class(config_of(family, "default")).float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, family)))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                value = 1.2 + 0.3 * noise
            elif p.dim() == 1:
                value = 0.3 * noise
            elif "q_proj" in name or "k_proj" in name:
                value = 0.3 * noise
            else:
                value = 0.2 * noise
            p.copy_(value.to(dtype).float())
    return model


def write_weights(family, folder):
    model = random_model(family)
    _, _, _, dtype, sharded = FAMILIES[family]
    model.to(dtype).save_pretrained(folder, max_shard_size="40KB" if sharded else "5GB")


def write_config(family, rope, path):
    config = json.loads(config_of(family, rope).to_json_string(use_diff=False))
    keep = {"architectures": FAMILIES[family][1].__name__}
    # The keys that a published config.json of the family has; to_json_string without a diff also
    # writes generation defaults.
    names = set(SIZES) | {
        "model_type", "rope_theta", "rope_scaling", "max_position_embeddings", "hidden_act",
        "original_max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias",
        "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "no_rope_layers",
        "no_rope_layer_interval", "pad_token_id",
    }
    keep = {"architectures": [FAMILIES[family][1].__name__]}
    keep.update({k: v for k, v in config.items() if k in names})
    pathlib.Path(path).write_text(json.dumps(keep, indent=1, sort_keys=True) + "\n")


def transformers_logits(folder, ids, offset):
    """[ids, vocab] float32 of eager attention; a fresh model, since dynamic rope keeps state."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        positions = torch.arange(offset, offset + len(ids))[None]
        return model(torch.tensor([ids]), position_ids=positions, use_cache=False).logits[0].numpy()
