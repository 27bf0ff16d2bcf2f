"""Random tiny models of every family and rope type that both transformers 4.57 and ropewalk know.

Weights are large enough that attention is far from uniform: a wrong rope changes logits by more
than a tenth of their range, which the negative controls of compare.py hold.
"""

import dataclasses
import functools
import inspect
import json
import pathlib

import safetensors.torch
import torch
import transformers
from transformers.models.mpt import modeling_mpt

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
    initializer_range=0.02, bos_token_id=0, eos_token_id=1, attention_dropout=0.0,
)
PAIRS = SIZES["head_dim"] // 2
ORIGINAL = 32  # tokens "trained"



@dataclasses.dataclass
class Family:
    config: type
    model: type
    extra: dict  # of the configuration
    dtype: torch.dtype = torch.bfloat16  # as stored
    sharded: bool = False
    llama: bool = True  # SIZES, rope_theta and the rope types are its keys
    ropes: tuple = ()  # of a family that is not LLaMA's kind; "default" adds nothing
    last_position: int = 1 << 30  # that it has numbers for
    bare: bool = False  # saved without its head, so that names lack their first word
    vendor: "Vendor | None" = None  # whose files these become


@dataclasses.dataclass
class Vendor:
    """A family that transformers 4.57 does not have, and how its files say what one of transformers' has:
    typed from its own modelling file."""
    config: object  # function of transformers' dictionary
    names: dict  # vendor's word -> words of the tensors below each other in it
    grouped: bool = False  # q, k and v: for each key head its queries, itself, its values
    layers: str = "model.layers."
    mxfp4: bool = False  # experts, which are numbers that it has


MXFP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
MXFP4_EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")


def mxfp4_scales(x):
    """The exponent of each block of 32 along the last dimension: its largest number becomes at most 6."""
    largest = x.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return torch.ceil(torch.log2(largest / 6))


def mxfp4_codes(x):
    """(codes, exponents) of the nearest numbers of MXFP4 (OCP Microscaling Formats 1.0)."""
    exponents = mxfp4_scales(x)
    blocks = x.unflatten(-1, (-1, 32)) / 2.0**exponents
    return (blocks[..., None] - MXFP4).abs().argmin(-1), exponents


def rounded_to_mxfp4(x):
    """[experts, in, out], whose blocks run along `in`."""
    codes, exponents = mxfp4_codes(x.mT)
    return (MXFP4[codes] * 2.0**exponents).flatten(-2).mT


def mxfp4_pair(x):
    codes, exponents = mxfp4_codes(x.float().mT)
    return ((codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8).contiguous(),
            (exponents[..., 0] + 127).to(torch.uint8).contiguous())


def vendor_files(vendor, config, source, folder):
    """Tensors of transformers' folder `source` under the vendor's names, into `folder`."""
    tensors, out = safetensors.torch.load_file(source / "model.safetensors"), {}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    for name in sorted(tensors):
        if vendor.mxfp4 and name.endswith(MXFP4_EXPERTS):
            out[name + "_blocks"], out[name + "_scales"] = mxfp4_pair(tensors[name])
            continue
        word = next((w for w, parts in vendor.names.items() if parts[0] in name), None)
        if word is None:
            if not any(part in name for parts in vendor.names.values() for part in parts):
                out[name] = tensors[name]
            continue
        parts = [tensors[name.replace(vendor.names[word][0], part)] for part in vendor.names[word]]
        if vendor.grouped and len(parts) == 3:
            q, k, v = (p.unflatten(0, (groups, -1)) for p in parts)
            q = q.unflatten(1, (heads // groups, -1))
            stacked = torch.cat([q, k[:, None], v[:, None]], 1).flatten(0, 2)
        else:
            stacked = torch.cat(parts)
        out[name.replace(vendor.names[word][0], word)] = stacked.contiguous()
    out = {name.replace("model.layers.", vendor.layers): tensor for name, tensor in out.items()}
    safetensors.torch.save_file(out, folder / "model.safetensors")


def as_transformers(folder):
    """Where transformers' files of a vendor's model are."""
    folder = pathlib.Path(folder)
    return folder.with_name(folder.name + "-as-transformers")


def internlm2_config(c):
    return dict({k: c[k] for k in LLAMA_KEYS}, model_type="internlm2", bias=c["attention_bias"],
                rope_scaling=c["rope_scaling"])


def minicpm_config(c):
    return dict({k: c[k] for k in LLAMA_KEYS}, model_type="minicpm", rope_scaling=c["rope_scaling"],
                scale_emb=c["embedding_multiplier"],
                scale_depth=c["residual_multiplier"] * c["num_hidden_layers"] ** 0.5,
                dim_model_base=c["hidden_size"] / c["logits_scaling"])


def orion_config(c):
    return dict({k: c[k] for k in LLAMA_KEYS if k != "rms_norm_eps"}, model_type="orion",
                rms_norm_eps=c["layer_norm_eps"], rope_scaling=c["rope_scaling"])


def chatglm_config(c):
    return dict(model_type="chatglm", num_layers=c["num_hidden_layers"], hidden_size=c["hidden_size"],
                num_attention_heads=c["num_attention_heads"], multi_query_attention=True,
                multi_query_group_num=c["num_key_value_heads"], kv_channels=c["head_dim"],
                ffn_hidden_size=c["intermediate_size"], padded_vocab_size=c["vocab_size"],
                seq_length=c["max_position_embeddings"], layernorm_epsilon=c["rms_norm_eps"],
                add_qkv_bias=c["attention_bias"], add_bias_linear=False, rmsnorm=True,
                post_layer_norm=True, apply_residual_connection_post_layernorm=False,
                apply_query_key_layer_scaling=True, original_rope=True,
                rope_ratio=c["rope_theta"] / 10000, tie_word_embeddings=False)


def baichuan_config(c):
    """Baichuan 2 7B's: the first one's lacks z_loss_weight."""
    return dict({k: c[k] for k in LLAMA_KEYS if k not in ("rope_theta", "num_key_value_heads")},
                model_type="baichuan", z_loss_weight=0)


def baichuan_13b_config(c):
    """The first one's: ALiBi, and a length by another name."""
    config = baichuan_config(c)
    del config["z_loss_weight"]
    return dict(config, model_max_length=config.pop("max_position_embeddings"))


def qwen_config(c):
    return dict(model_type="qwen", hidden_size=c["hidden_size"], vocab_size=c["vocab_size"],
                intermediate_size=2 * c["intermediate_size"], kv_channels=8,
                num_attention_heads=c["num_attention_heads"], layer_norm_epsilon=c["rms_norm_eps"],
                num_hidden_layers=c["num_hidden_layers"], rotary_emb_base=c["rope_theta"],
                rotary_pct=1.0, no_bias=True, seq_length=c["max_position_embeddings"],
                max_position_embeddings=c["max_position_embeddings"], use_dynamic_ntk=False,
                use_logn_attn=False, scale_attn_weights=True, tie_word_embeddings=False)


BETA = 0.1  # of Ministral 3's temperature


def ministral3_config(c):
    """As transformers 5 writes it; 4.57 does not know the family."""
    rope = {k: v for k, v in c["rope_scaling"].items() if k != "attention_factor"}
    return dict({k: c[k] for k in LLAMA_KEYS if k != "rope_theta"}, model_type="ministral3",
                head_dim=c["head_dim"],
                rope_parameters=dict(rope, rope_theta=c["rope_theta"], llama_4_scaling_beta=BETA))


def minicpm3_config(c):
    """Its multipliers are 1 here: DeepSeek has none."""
    keys = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    return dict({k: c[k] for k in (*LLAMA_KEYS, *keys)}, model_type="minicpm3",
                rope_scaling=c["rope_scaling"], scale_emb=1,
                scale_depth=c["num_hidden_layers"] ** 0.5, dim_model_base=c["hidden_size"])


LLAMA_KEYS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
              "num_hidden_layers", "vocab_size", "rms_norm_eps", "rope_theta", "hidden_act",
              "max_position_embeddings", "tie_word_embeddings")
QKV = [f"self_attn.{x}_proj" for x in "qkv"]
INTERNLM2 = Vendor(internlm2_config, {
    "tok_embeddings": ["embed_tokens"], "attention.wqkv": QKV, "attention.wo": ["self_attn.o_proj"],
    "feed_forward.w1": ["mlp.gate_proj"], "feed_forward.w3": ["mlp.up_proj"],
    "feed_forward.w2": ["mlp.down_proj"], "attention_norm": ["input_layernorm"],
    "ffn_norm": ["post_attention_layernorm"], "output": ["lm_head"]}, grouped=True)
def gpt_oss_config(c):
    return dict({k: v for k, v in c.items() if k in (*LLAMA_KEYS, *GPT_OSS_KEYS)},
                quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"]))


GPT_OSS_KEYS = ("model_type", "head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window",
                "layer_types", "rope_scaling", "attention_bias")
BAICHUAN = {"self_attn.W_pack": QKV}
QWEN = Vendor(qwen_config, {
    "transformer.wte": ["model.embed_tokens"], "transformer.ln_f": ["model.norm"],
    "attn.c_attn": QKV, "attn.c_proj": ["self_attn.o_proj"], "mlp.w2": ["mlp.gate_proj"],
    "mlp.w1": ["mlp.up_proj"], "mlp.c_proj": ["mlp.down_proj"], "ln_1": ["input_layernorm"],
    "ln_2": ["post_attention_layernorm"]}, layers="transformer.h.")
CHATGLM = Vendor(chatglm_config, {
    "transformer.embedding.word_embeddings": ["model.embed_tokens"],
    "transformer.encoder.final_layernorm": ["model.norm"], "transformer.output_layer": ["lm_head"],
    "self_attention.query_key_value": QKV, "self_attention.dense": ["self_attn.o_proj"],
    "mlp.dense_h_to_4h": ["mlp.gate_up_proj"], "mlp.dense_4h_to_h": ["mlp.down_proj"]},
    layers="transformer.encoder.layers.")


# Names of the sizes in the three dialects.
SMALL = dict(vocab_size=64, initializer_range=0.02, bos_token_id=0, eos_token_id=1)
GPT = dict(SMALL, n_embd=32, n_head=4, n_layer=2, n_inner=48)
NEOX = dict(SMALL, hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
            intermediate_size=48, max_position_embeddings=128)
FALCON = dict(SMALL, hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
              ffn_hidden_size=48, max_position_embeddings=128, rope_theta=1000.0)
GEMMA = dict(SMALL, hidden_size=32, intermediate_size=48, num_attention_heads=4,
             num_hidden_layers=2, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
             rope_theta=1000.0, max_position_embeddings=128)
DENSE = dict(SMALL, hidden_size=32, intermediate_size=48, num_attention_heads=4,
             num_hidden_layers=2, num_key_value_heads=2, rope_theta=1000.0,
             max_position_embeddings=128, pad_token_id=2)
LATENT = dict(DENSE, num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=16,
              qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=8,
              n_shared_experts=2, moe_intermediate_size=16, first_k_dense_replace=1)
MPT = dict(SMALL, d_model=24, n_layers=2, max_seq_len=32)

FAMILIES = {
    "llama": Family(transformers.LlamaConfig, transformers.LlamaForCausalLM,
                    dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "mistral": Family(transformers.MistralConfig, transformers.MistralForCausalLM,
                      dict(tie_word_embeddings=True, sliding_window=24), torch.float16),
    "qwen2": Family(transformers.Qwen2Config, transformers.Qwen2ForCausalLM,
                    dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=20,
                         max_window_layers=1), torch.float32, True),
    "qwen3": Family(transformers.Qwen3Config, transformers.Qwen3ForCausalLM,
                    dict(tie_word_embeddings=False, use_sliding_window=False)),
    "smollm3": Family(transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM,
                      dict(tie_word_embeddings=True, num_hidden_layers=4, pad_token_id=2)),
    # Norms before and behind with weights 1 + w, scaled embeddings, a GELU gate, windows; soft caps;
    # norms of q and k, two bases of which the scalings reach one, a scale of the scores.
    "gemma": Family(transformers.GemmaConfig, transformers.GemmaForCausalLM, GEMMA, llama=False,
                    ropes=("linear",)),
    "gemma2": Family(transformers.Gemma2Config, transformers.Gemma2ForCausalLM,
                     dict(GEMMA, sliding_window=20, query_pre_attn_scalar=24,
                          attn_logit_softcapping=5.0, final_logit_softcapping=12.0),
                     torch.float16, llama=False, ropes=("yarn",)),
    "gemma3": Family(transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM,
                     dict(GEMMA, num_hidden_layers=4, num_key_value_heads=1, sliding_window=20,
                          sliding_window_pattern=2, rope_local_base_freq=100.0,
                          query_pre_attn_scalar=24),
                     llama=False, ropes=("linear", "yarn", "llama3")),
    # Four multipliers; a norm without weights; norms behind alone, of all heads as one vector, and
    # sliding layers that no scaling reaches; norms with weights for each head; full layers that do
    # not rotate.
    "granite": Family(transformers.GraniteConfig, transformers.GraniteForCausalLM,
                      dict(DENSE, attention_bias=True, mlp_bias=True, embedding_multiplier=3.0,
                           attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=4.0),
                      llama=False, ropes=("yarn",)),
    "olmo": Family(transformers.OlmoConfig, transformers.OlmoForCausalLM,
                   dict(DENSE, attention_bias=True, clip_qkv=1.5), torch.float16, llama=False),
    "olmo2": Family(transformers.Olmo2Config, transformers.Olmo2ForCausalLM,
                    dict(DENSE, attention_bias=True, tie_word_embeddings=True), llama=False),
    "olmo3": Family(transformers.Olmo3Config, transformers.Olmo3ForCausalLM,
                    dict(DENSE, num_hidden_layers=4, sliding_window=20), llama=False,
                    ropes=("yarn",)),
    "cohere": Family(transformers.CohereConfig, transformers.CohereForCausalLM,
                     dict(DENSE, use_qk_norm=True, logit_scale=0.25), llama=False,
                     ropes=("dynamic",)),
    "cohere_plain": Family(transformers.CohereConfig, transformers.CohereForCausalLM,
                           dict(DENSE, attention_bias=True, tie_word_embeddings=False),
                           torch.float16, llama=False),
    "cohere2": Family(transformers.Cohere2Config, transformers.Cohere2ForCausalLM,
                      dict(DENSE, num_hidden_layers=4, sliding_window=20), llama=False,
                      ropes=("linear",)),
    # Part of a head in pairs; gate and up in one tensor; norms behind too; q, k and v in one tensor.
    "glm": Family(transformers.GlmConfig, transformers.GlmForCausalLM,
                  dict(DENSE, head_dim=16, attention_bias=True), llama=False, ropes=("linear",)),
    "glm4": Family(transformers.Glm4Config, transformers.Glm4ForCausalLM,
                   dict(DENSE, head_dim=16, partial_rotary_factor=0.75), torch.float16, llama=False,
                   ropes=("yarn",)),
    "phi3": Family(transformers.Phi3Config, transformers.Phi3ForCausalLM,
                   dict(DENSE, hidden_size=64, sliding_window=24), llama=False,
                   ropes=("longrope_by_type",)),
    "phi3_partial": Family(transformers.Phi3Config, transformers.Phi3ForCausalLM,
                           dict(DENSE, partial_rotary_factor=0.5, tie_word_embeddings=True),
                           torch.float16, llama=False),
    "starcoder2": Family(transformers.Starcoder2Config, transformers.Starcoder2ForCausalLM,
                         dict(DENSE, sliding_window=20), llama=False, ropes=("linear",)),
    # Mixtures of experts: weights that sum to 1 or do not, layers without experts, a shared expert with
    # a gate and without, experts in groups, latent attention, sinks.
    "mixtral": Family(transformers.MixtralConfig, transformers.MixtralForCausalLM,
                      dict(DENSE, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                           sliding_window=20),
                      llama=False, ropes=("yarn",)),
    "qwen2_moe": Family(transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM,
                        dict(DENSE, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2,
                             moe_intermediate_size=24, shared_expert_intermediate_size=40,
                             mlp_only_layers=[1]), torch.float16, llama=False),
    "qwen3_moe": Family(transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM,
                        dict(DENSE, head_dim=16, num_hidden_layers=4, num_experts=8,
                             num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                             decoder_sparse_step=2), llama=False, ropes=("yarn",)),
    "olmoe": Family(transformers.OlmoeConfig, transformers.OlmoeForCausalLM,
                    dict(DENSE, num_key_value_heads=4, num_experts=8, num_experts_per_tok=3,
                         intermediate_size=24, clip_qkv=1.5), llama=False),
    "deepseek_v2": Family(transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM,
                          dict(LATENT, q_lora_rank=None, n_group=4, topk_group=2,
                               topk_method="group_limited_greedy", num_experts_per_tok=3,
                               routed_scaling_factor=1.7), llama=False, ropes=("yarn",)),
    "deepseek_v2_greedy": Family(transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM,
                                 dict(LATENT, q_lora_rank=24, num_experts_per_tok=2,
                                      attention_bias=True, mlp_bias=True), torch.float16,
                                 llama=False),
    "deepseek_v3": Family(transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM,
                          dict(LATENT, q_lora_rank=24, n_group=4, topk_group=2,
                               num_experts_per_tok=3, routed_scaling_factor=2.5), llama=False,
                          ropes=("yarn_options",)),
    "gpt_oss": Family(transformers.GptOssConfig, transformers.GptOssForCausalLM,
                      dict(DENSE, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                           sliding_window=20, tie_word_embeddings=False), llama=False,
                      ropes=("yarn",)),
    "gpt_oss_mxfp4": Family(transformers.GptOssConfig, transformers.GptOssForCausalLM,
                            dict(DENSE, head_dim=16, num_local_experts=3, num_experts_per_tok=2,
                                 hidden_size=64, intermediate_size=32, sliding_window=20,
                                 tie_word_embeddings=False), llama=False,
                            vendor=Vendor(gpt_oss_config, {}, mxfp4=True)),
    # Layers with experts between those without, chunks, layers that do not rotate and have a temperature.
    "llama4": Family(transformers.Llama4TextConfig, transformers.Llama4ForCausalLM,
                     dict(DENSE, head_dim=16, intermediate_size=24, intermediate_size_mlp=48,
                          num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=2,
                          interleave_moe_layer_step=2, attention_chunk_size=24, floor_scale=16,
                          attn_scale=0.3), llama=False),
    "llama4_one": Family(transformers.Llama4TextConfig, transformers.Llama4ForCausalLM,
                         dict(DENSE, head_dim=8, intermediate_size=24, intermediate_size_mlp=48,
                              num_hidden_layers=3, num_local_experts=3, num_experts_per_tok=1,
                              use_qk_norm=False, attn_temperature_tuning=False,
                              no_rope_layers=[1, 0, 1], attention_chunk_size=4096),
                         torch.float16, llama=False),
    # Those with modelling files of their own.
    "internlm2": Family(transformers.LlamaConfig, transformers.LlamaForCausalLM,
                        dict(DENSE, attention_bias=True, tie_word_embeddings=False), llama=False,
                        ropes=("dynamic",), vendor=INTERNLM2),
    "minicpm": Family(transformers.GraniteConfig, transformers.GraniteForCausalLM,
                      dict(DENSE, embedding_multiplier=3.0, residual_multiplier=0.7,
                           attention_multiplier=8**-0.5, logits_scaling=4.0,
                           tie_word_embeddings=True), torch.float16, llama=False,
                      vendor=Vendor(minicpm_config, {})),
    "ministral3": Family(transformers.MistralConfig, transformers.MistralForCausalLM,
                         dict(DENSE, head_dim=16, tie_word_embeddings=False, sliding_window=None,
                              rope_scaling=dict(rope_type="yarn", factor=4.0, mscale=1.0,
                                                mscale_all_dim=1.0,
                                                original_max_position_embeddings=ORIGINAL)),
                         llama=False, vendor=Vendor(ministral3_config, {})),
    "minicpm3": Family(transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM,
                       dict(LATENT, q_lora_rank=24, v_head_dim=8, first_k_dense_replace=3,
                            n_group=1, topk_group=1, num_experts_per_tok=1, rope_interleave=False),
                       llama=False, ropes=("linear",), vendor=Vendor(minicpm3_config, {})),
    "baichuan2": Family(transformers.LlamaConfig, transformers.LlamaForCausalLM,
                        dict(DENSE, num_key_value_heads=4, rope_theta=10000.0,
                             tie_word_embeddings=False), llama=False,
                        vendor=Vendor(baichuan_config, BAICHUAN)),
    "baichuan_13b": Family(transformers.LlamaConfig, transformers.LlamaForCausalLM,
                           dict(DENSE, num_key_value_heads=4, tie_word_embeddings=False),
                           torch.float16, llama=False,
                           vendor=Vendor(baichuan_13b_config, BAICHUAN)),
    "qwen": Family(transformers.Qwen2Config, transformers.Qwen2ForCausalLM,
                   dict(DENSE, num_key_value_heads=4, tie_word_embeddings=False), llama=False,
                   vendor=QWEN),
    "orion": Family(transformers.StableLmConfig, transformers.StableLmForCausalLM,
                    dict(DENSE, partial_rotary_factor=1.0, tie_word_embeddings=False), llama=False,
                    ropes=("linear",), vendor=Vendor(orion_config, {})),
    "chatglm": Family(transformers.GlmConfig, transformers.GlmForCausalLM,
                      dict(DENSE, head_dim=16, attention_bias=True, rope_theta=30000.0), llama=False,
                      vendor=CHATGLM),
    # Learned positions: none beyond the table.
    "gpt2": Family(transformers.GPT2Config, transformers.GPT2LMHeadModel,
                   dict(GPT, n_positions=320), llama=False, last_position=319),
    "gpt2_bare": Family(transformers.GPT2Config, transformers.GPT2LMHeadModel,
                        dict(GPT, n_positions=320, n_inner=None, activation_function="gelu"),
                        torch.float16, llama=False, last_position=319, bare=True),
    "opt": Family(transformers.OPTConfig, transformers.OPTForCausalLM,
                  dict(SMALL, hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
                       ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=320),
                  llama=False, last_position=319),
    # One tensor for q, k and v, per head.
    "gpt_neox": Family(transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM,
                       dict(NEOX, rotary_pct=0.5, rotary_emb_base=1000), llama=False,
                       ropes=("linear", "dynamic", "yarn")),
    "gpt_neox_sequential": Family(
        transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM,
        dict(NEOX, rotary_pct=0.75, rotary_emb_base=1000, use_parallel_residual=False,
             attention_bias=False, hidden_act="gelu_fast", tie_word_embeddings=True), llama=False),
    # Its table of cos and sin ends at n_positions; its base is always 10000.
    "gptj": Family(transformers.GPTJConfig, transformers.GPTJForCausalLM,
                   dict(GPT, n_positions=1048640, rotary_dim=4), llama=False),
    # 7B, 40B, 11B, and one that is neither parallel nor multi-query, as the RW models but for ALiBi.
    "falcon": Family(transformers.FalconConfig, transformers.FalconForCausalLM, FALCON,
                     llama=False, ropes=("yarn",)),
    "falcon_new": Family(transformers.FalconConfig, transformers.FalconForCausalLM,
                         dict(FALCON, new_decoder_architecture=True, num_kv_heads=2,
                              tie_word_embeddings=False), llama=False, ropes=("dynamic",)),
    "falcon_one_norm": Family(transformers.FalconConfig, transformers.FalconForCausalLM,
                              dict(FALCON, new_decoder_architecture=True, num_kv_heads=1,
                                   num_ln_in_parallel_attn=1), llama=False),
    "falcon_sequential": Family(transformers.FalconConfig, transformers.FalconForCausalLM,
                                dict(FALCON, multi_query=False, parallel_attn=False, bias=True,
                                     ffn_hidden_size=None), llama=False),
    # ALiBi: counts of heads that are no power of two; slopes that bfloat16 rounds; a residual that
    # is the norm's result; q, k and v clipped; a scale of its own.
    "bloom": Family(transformers.BloomConfig, transformers.BloomForCausalLM,
                    dict(SMALL, hidden_size=24, n_head=6, n_layer=2), llama=False),
    "bloom_bare": Family(transformers.BloomConfig, transformers.BloomForCausalLM,
                         dict(SMALL, hidden_size=32, n_head=4, n_layer=2,
                              apply_residual_connection_post_layernorm=True),
                         torch.float16, llama=False, bare=True),
    "mpt": Family(transformers.MptConfig, transformers.MptForCausalLM,
                  dict(MPT, n_heads=6, attn_config=dict(clip_qkv=1.5)), llama=False),
    "mpt_max_16": Family(transformers.MptConfig, transformers.MptForCausalLM,
                         dict(MPT, n_heads=4, tie_word_embeddings=False,
                              attn_config=dict(alibi_bias_max=16, softmax_scale=0.3)), llama=False),
    "falcon_rw": Family(transformers.FalconConfig, transformers.FalconForCausalLM,
                        dict(FALCON, hidden_size=48, num_attention_heads=12, alibi=True,
                             multi_query=False, parallel_attn=False, bias=True,
                             ffn_hidden_size=24), llama=False),
    "falcon_alibi": Family(transformers.FalconConfig, transformers.FalconForCausalLM,
                           dict(FALCON, alibi=True, new_decoder_architecture=True,
                                num_kv_heads=2), llama=False),
    "phi": Family(transformers.PhiConfig, transformers.PhiForCausalLM,
                  dict(NEOX, rope_theta=1000.0, num_key_value_heads=2), llama=False,
                  ropes=("linear",)),
    "stablelm": Family(transformers.StableLmConfig, transformers.StableLmForCausalLM,
                       dict(NEOX, rope_theta=1000.0, num_key_value_heads=2, use_qkv_bias=True,
                            partial_rotary_factor=0.5),
                       llama=False, ropes=("linear",)),
    "stablelm_parallel": Family(transformers.StableLmConfig, transformers.StableLmForCausalLM,
                                dict(NEOX, rope_theta=1000.0, num_key_value_heads=4,
                                     use_parallel_residual=True,
                                     partial_rotary_factor=0.5), llama=False),
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
    "longrope_by_type": (128, dict(type="longrope",
                                   short_factor=[1.0 + 0.03 * i for i in range(PAIRS)],
                                   long_factor=[1.0 + 0.9 * i * i for i in range(PAIRS)]),
                         dict(original_max_position_embeddings=ORIGINAL)),
}
# smollm3 is here for its layers without rotation.
CASES = [(f, r) for f, family in FAMILIES.items() if family.llama for r in ROPE_TYPES
         if r != "longrope_by_type" and (f != "smollm3" or r in ("default", "yarn"))]
CASES += [(f, r) for f, family in FAMILIES.items() if not family.llama
          for r in ("default", *family.ropes)]


def config_of(name, rope):
    family = FAMILIES[name]
    max_position, scaling, top = ROPE_TYPES[rope]
    if not family.llama:
        rotary = {} if rope == "default" else dict(
            top, rope_scaling=dict(scaling), max_position_embeddings=max_position)
        return family.config(**{**family.extra, **rotary})
    return family.config(**{**SIZES, **family.extra, **top}, rope_theta=1000.0,
                         max_position_embeddings=max_position,
                         rope_scaling=dict(scaling) if scaling else None)


def random_model(name):
    """The weights of a family, the same for every rope type, exact in the dtype they are stored in."""
    family = FAMILIES[name]
    model = family.model(config_of(name, "default")).float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if parameter.endswith("bias"):
                value = 0.3 * noise
            elif p.dim() == 1 or "_norm." in parameter:  # of a norm; Gemma's are less 1
                value = (0.2 if name.startswith("gemma") else 1.2) + 0.3 * noise
            elif any(n in parameter for n in ("q_proj", "k_proj", "c_attn", "query_key_value",
                                               "qkv_proj", "Wqkv")):
                value = 0.3 * noise
            elif any(n in parameter for n in ("wpe", "embed_positions")):
                value = 0.5 * noise
            else:
                value = 0.2 * noise
            value = value.to(family.dtype).float()
            if family.vendor is not None and family.vendor.mxfp4 and parameter.endswith(MXFP4_EXPERTS):
                value = rounded_to_mxfp4(value)
            p.copy_(value)
        for buffer, b in model.named_buffers():
            if buffer.endswith("e_score_correction_bias"):
                b.copy_(0.05 * torch.randn(b.shape, generator=generator).to(family.dtype).float())
    return model


def write_weights(name, folder):
    family = FAMILIES[name]
    model = random_model(name).to(family.dtype)
    if family.bare:
        model = model.base_model
    target = folder if family.vendor is None else as_transformers(folder)
    model.save_pretrained(target, max_shard_size="40KB" if family.sharded else "5GB")
    if family.vendor is not None:
        vendor_files(family.vendor, model.config.to_dict(), target, pathlib.Path(folder))


def write_config(name, rope, path):
    family = FAMILIES[name]
    config = json.loads(config_of(name, rope).to_json_string(use_diff=not family.llama))
    if family.vendor is not None:
        whole = json.loads(config_of(name, rope).to_json_string(use_diff=False))
        path = pathlib.Path(path)
        path.write_text(json.dumps(family.vendor.config(whole), indent=1, sort_keys=True) + "\n")
        (as_transformers(path.parent) / "config.json").write_text(json.dumps(config))
        return
    # The keys that a published config.json of the family has; to_json_string without a diff also
    # writes generation defaults.
    names = set(SIZES) | {
        "model_type", "rope_theta", "rope_scaling", "max_position_embeddings", "hidden_act",
        "original_max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias",
        "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "no_rope_layers",
        "no_rope_layer_interval", "pad_token_id",
    }
    keep = {"architectures": [family.model.__name__]}
    keep.update({k: v for k, v in config.items() if not family.llama or k in names})
    pathlib.Path(path).write_text(json.dumps(keep, indent=1, sort_keys=True) + "\n")


def masked(seen, bias=0.0):
    return torch.where(seen, bias, torch.finfo(torch.float32).min)[None]


def far_in_chunks(model, offset, tokens):
    """Llama 4 behind `offset` tokens: its chunks and temperatures count from them."""
    positions = torch.arange(offset, offset + tokens)
    seen = positions[:, None] >= positions
    chunks = positions // model.config.attention_chunk_size
    return dict(cache_position=positions, attention_mask={
        "full_attention": masked(seen[None]),
        "chunked_attention": masked((seen & (chunks[:, None] == chunks))[None])})


def alibi_in_llama(heads, tokens):
    """Nothing rotates; slopes of a power of two of heads (Press et al. 2022) over the key's number."""
    keys = torch.arange(tokens)
    slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))
    return dict(position_ids=torch.zeros_like(keys)[None],
                attention_mask=masked((keys[:, None] >= keys)[None], slopes[:, None, None] * keys))


def warm_queries(model, positions):
    """Ministral 3's temperature: a factor of each query, which commutes with the rotation."""
    original = model.config.rope_scaling["original_max_position_embeddings"]
    factors = 1 + BETA * torch.log(1 + torch.floor(positions / original))
    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(
            lambda module, inputs, out: out * factors[None, :, None])


def transformers_logits(folder, ids, offset):
    """[ids, vocab] float32 of eager attention; a fresh model, since dynamic rope keeps state."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    folder = as_transformers(folder) if as_transformers(folder).exists() else folder
    # Falcon's eager attention adds ALiBi twice in 4.57: by itself, and with the mask that has it.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32,
        attn_implementation="sdpa" if config.get("alibi") else "eager").eval()
    with torch.no_grad():
        args = dict(use_cache=False)
        if "position_ids" in inspect.signature(model.forward).parameters:
            args["position_ids"] = torch.arange(offset, offset + len(ids))[None]
        if model.config.model_type == "llama4_text" and offset > 0:
            args.update(far_in_chunks(model, offset, len(ids)))
        if "model_max_length" in config:  # Baichuan 13B
            args.update(alibi_in_llama(config["num_attention_heads"], len(ids)))
        if config["model_type"] == "ministral3":
            warm_queries(model, torch.arange(offset, offset + len(ids)))
        if "z_loss_weight" in config:  # Baichuan 2
            head = model.lm_head.weight
            head.copy_(torch.nn.functional.normalize(head))
        if model.config.model_type == "mpt":
            # Its bias ends at max_seq_len, and nobody hands it alibi_bias_max (4.57): what its
            # authors' own code computes takes both.
            model.config.max_seq_len = max(model.config.max_seq_len, len(ids))
            model.transformer.build_mpt_alibi_tensor = functools.partial(
                modeling_mpt.build_mpt_alibi_tensor,
                alibi_bias_max=model.config.attn_config.alibi_bias_max)
        return model(torch.tensor([ids]), **args).logits[0].numpy()
