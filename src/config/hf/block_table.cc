// The rows of block.h. Facts are those of transformers 4.57, and of the vendors' own modelling files
// where transformers has none.
#include <algorithm>
#include <cmath>

#include "src/config/block.h"
#include "src/config/gguf/experts.h"
#include "src/config/hf/alibi.h"
#include "src/config/hf/config.h"
#include "src/config/hf/drope.h"
#include "src/config/hf/experts.h"

namespace ropewalk::internal {
namespace {

using Activation = MlpSpec::Activation;

constexpr Flag kAlways = {nullptr, true};
constexpr NormSpec kRmsNorm = {NormSpec::Kind::kRms};
constexpr NormSpec kUnbiasedLayerNorm = {NormSpec::Kind::kLayer, /*bias=*/false};

constexpr Flag kGpt2Only[] = {{"scale_attn_weights", true},
                              {"scale_attn_by_inverse_layer_idx", false},
                              {"add_cross_attention", false}};
constexpr Flag kFalconOnly[] = {{"apply_residual_connection_post_layernorm", false}};
constexpr Flag kQkNormOnly[] = {{"qk_layernorm", false}};
constexpr Flag kOptOnly[] = {{"do_layer_norm_before", true},
                             {"_remove_final_layer_norm", false},
                             {"layer_norm_elementwise_affine", true}};

constexpr Flag kMptOnly[] = {{"no_bias", true}};
constexpr Flag kChatGlmOnly[] = {{"rmsnorm", true},
                                 {"post_layer_norm", true},
                                 {"add_bias_linear", false},
                                 {"apply_residual_connection_post_layernorm", false}};

}  // namespace

constexpr Flag kAttentionBias = {"attention_bias", false};

// `no_bias`: keys of biases that the family has not.
constexpr Block LlamaLike(Flag qkv_bias, Flag out_bias, Flag mlp_bias, const char* no_bias) {
  return {.names = &kLlamaNames,
          .activation = "silu",
          .norm_eps_key = "rms_norm_eps",
          .norm_eps = 1e-6,
          .qkv_bias = qkv_bias,
          .out_bias = out_bias,
          .mlp_bias = mlp_bias,
          .no_bias = no_bias};
}

constexpr Block QkNormed(Block block) {
  block.layer.attention.qk_norm = kRmsNorm;
  return block;
}

constexpr Block kLlamaBlock = LlamaLike(kAttentionBias, kAttentionBias, {"mlp_bias", false}, "");
constexpr Block kRopewalkBlock = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.norm_eps = 1e-5;
  block.tied_head = {"tie_word_embeddings", true};
  return block;
}();
// transformers ties its head unless a file says otherwise; its version 4 leaves true out of the file.
constexpr Block kSmolLm3Block = [] {
  Block block = kLlamaBlock;
  block.tied_head = {"tie_word_embeddings", true};
  return block;
}();
constexpr Block kMistralBlock = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
// Ministral 3 (Mistral AI 2025): its temperature is in the plan.
constexpr Block kMinistral3Block = [] {
  Block block = kMistralBlock;
  block.norm_eps = 1e-5;
  return block;
}();
constexpr Block kQwen2Block = LlamaLike(kAlways, {}, {}, "attention_bias mlp_bias");
constexpr Block kQwen2VlBlock = [] {
  Block block = kQwen2Block;
  block.norm_eps = 1e-5;
  return block;
}();
constexpr Block Dropped(Block block) {
  block.rest = ReadDrope;
  return block;
}
constexpr Block kDropeLlamaBlock = Dropped(kLlamaBlock);
constexpr Block kDropeQwen2Block = Dropped(kQwen2Block);
constexpr Block kQwen3Block = QkNormed(LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias"));

// Gemma (Gemma Team 2024, arXiv 2403.08295). transformers reads hidden_act of the first one.
constexpr Block kGemmaBlock = [] {
  Block block = LlamaLike(kAttentionBias, kAttentionBias, {}, "");
  block.names = &kGemmaNames;
  block.activation_key = "hidden_act";
  block.activation = "gelu_pytorch_tanh";
  block.layer.mlp.activation = Activation::kGeluTanh;
  block.tied_head = {"tie_word_embeddings", true};
  block.scaled_embedding = true;
  return block;
}();

// Gemma 2 (arXiv 2408.00118): norms before and behind, soft caps, a scale of its own.
constexpr Block kGemma2Block = [] {
  Block block = kGemmaBlock;
  block.names = &kGemma2Names;
  block.layer.post_attention = block.layer.post_mlp = kRmsNorm;
  block.activation_key = "hidden_activation";
  block.score_cap = {"attn_logit_softcapping", 50};
  block.logit_cap = {"final_logit_softcapping", 30};
  block.score_divisor = {"query_pre_attn_scalar", 256};
  block.wide_layers = 46;
  return block;
}();

// Gemma 3 (arXiv 2503.19786): norms of q and k in the place of the scores' cap, which transformers
// does not compute there.
constexpr Block kGemma3Block = [] {
  Block block = QkNormed(kGemma2Block);
  block.score_cap = {};
  block.logit_cap = {"final_logit_softcapping", 0};
  block.wide_layers = 62;
  return block;
}();

constexpr Block kGpt2Block = {.names = &kGpt2Names,
                              .layer = PreNorm(kLayerNorm, false),
                              .activation_key = "activation_function",
                              .norm_eps_key = "layer_norm_epsilon",
                              .qkv_bias = kAlways,
                              .out_bias = kAlways,
                              .mlp_bias = kAlways,
                              .tied_head = {"tie_word_embeddings", true},
                              .learned_first_row = 0,
                              .feed_forward_is_4_hidden = true,
                              .only = kGpt2Only,
                              .gguf_names = &kGgufFusedNames};

constexpr Block kGptNeoxBlock = {.names = &kGptNeoxNames,
                                 .layer = PreNorm(kLayerNorm, false),
                                 .activation = "gelu",
                                 .qkv_bias = {"attention_bias", true},
                                 .out_bias = {"attention_bias", true},
                                 .mlp_bias = kAlways,
                                 .parallel = {"use_parallel_residual", true},
                                 .gguf_names = &kGgufFusedNames};

constexpr Block kGptjBlock = {.names = &kGptjNames,
                              .layer = PreNorm(kLayerNorm, false),
                              .head_bias = true,
                              .activation_key = "activation_function",
                              .norm_eps_key = "layer_norm_epsilon",
                              .mlp_bias = kAlways,
                              .parallel = kAlways,
                              .one_norm_if_parallel = true,
                              .feed_forward_is_4_hidden = true};

constexpr Block kFalconBlock = {.names = &kFalconNames,
                                .layer = PreNorm(kLayerNorm, false),
                                .activation_key = "activation",
                                .activation = "gelu",
                                .norm_eps_key = "layer_norm_epsilon",
                                .qkv_bias = {"bias", false},
                                .out_bias = {"bias", false},
                                .mlp_bias = {"bias", false},
                                .tied_head = {"tie_word_embeddings", true},
                                .parallel = {"parallel_attn", true},
                                .one_norm_if_parallel = true,
                                .two_norms = &kFalconTwoNormNames,
                                .feed_forward_is_4_hidden = true,
                                .falcon_alibi = true,
                                .only = kFalconOnly,
                                .gguf_names = &kGgufFusedNames};

constexpr Block kPhiBlock = {.names = &kPhiNames,
                             .layer = PreNorm(kLayerNorm, false),
                             .head_bias = true,
                             .qkv_bias = kAlways,
                             .out_bias = kAlways,
                             .mlp_bias = kAlways,
                             .parallel = kAlways,
                             .one_norm_if_parallel = true,
                             .only = kQkNormOnly};

constexpr Block kStableLmBlock = {.names = &kLlamaNames,
                                  .layer = PreNorm(kLayerNorm, true),
                                  .activation = "silu",
                                  .qkv_bias = {"use_qkv_bias", false},
                                  .parallel = {"use_parallel_residual", false},
                                  .one_norm_if_parallel = true,
                                  .only = kQkNormOnly};

constexpr Block kOptBlock = {.names = &kOptNames,
                             .layer = PreNorm(kLayerNorm, false),
                             .activation_key = "activation_function",
                             .activation = "relu",
                             .norm_eps_key = nullptr,
                             .qkv_bias = {"enable_bias", true},
                             .out_bias = {"enable_bias", true},
                             .mlp_bias = {"enable_bias", true},
                             .tied_head = {"tie_word_embeddings", true},
                             .learned_first_row = 2,
                             .only = kOptOnly};

constexpr Block kBloomBlock = {.names = &kBloomNames,
                               .layer = PreNorm(kLayerNorm, false),
                               .embedding_norm = true,
                               .activation_key = nullptr,
                               .norm_eps_key = "layer_norm_epsilon",
                               .qkv_bias = kAlways,
                               .out_bias = kAlways,
                               .mlp_bias = kAlways,
                               .tied_head = {"tie_word_embeddings", true},
                               .feed_forward_is_4_hidden = true,
                               .gguf_names = &kGgufFusedNames,
                               .rest = ReadBloom};

constexpr Block kMptBlock = {.names = &kMptNames,
                             .layer = PreNorm(kUnbiasedLayerNorm, false),
                             .activation_key = nullptr,
                             .activation = "gelu",
                             .norm_eps_key = "layer_norm_epsilon",
                             .tied_head = {"tie_word_embeddings", true},
                             .feed_forward_is_4_hidden = true,
                             .only = kMptOnly,
                             .gguf_names = &kGgufFusedNames,
                             .gguf_clip = true,
                             .rest = ReadMpt};

// Granite 3 (Granite Team 2024): LLaMA with four multipliers.
constexpr Block kGraniteBlock = [] {
  Block block = kLlamaBlock;
  block.embedding_scale = {"embedding_multiplier", 1};
  block.score_scale = {"attention_multiplier", 1};
  block.residual_scale = {"residual_multiplier", 1};
  block.logit_divisor = {"logits_scaling", 1};
  block.gguf_scales = GgufScales::kGranite;
  return block;
}();

// OLMo (arXiv 2402.00838): LayerNorm without weights.
constexpr Block kOlmoBlock = [] {
  constexpr NormSpec norm = {NormSpec::Kind::kLayer, /*bias=*/false, /*weight=*/false};
  Block block = LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias");
  block.layer.pre_attention = block.layer.pre_mlp = norm;
  block.norm_eps_key = nullptr;
  block.norm_eps = 1e-5;
  block.clip_qkv = {"clip_qkv", 0};
  block.gguf_clip = true;
  return block;
}();

// OLMo 2 and 3 (arXiv 2501.00656): norms behind attention and MLP alone; q and k each as one vector.
constexpr Block kOlmo2Block = [] {
  Block block = QkNormed(LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias"));
  block.names = &kOlmo2Names;
  block.layer.pre_attention = block.layer.pre_mlp = {};
  block.layer.post_attention = block.layer.post_mlp = kRmsNorm;
  block.layer.attention.qk_norm_over = QkNormOver::kAllHeads;
  block.norm_eps = 1e-5;
  return block;
}();

// Command R, R+ and R7B (Cohere 2024): one LayerNorm before attention and MLP side by side.
constexpr Block kCohereBlock = [] {
  Block block = LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias");
  block.layer = PreNorm(kUnbiasedLayerNorm, true);
  block.layer.attention.qk_norm = kUnbiasedLayerNorm;
  block.layer.attention.qk_norm_over = QkNormOver::kEachHead;
  block.qk_norm = {"use_qk_norm", false};
  block.norm_eps_key = "layer_norm_eps";
  block.norm_eps = 1e-5;
  block.parallel = kAlways;
  block.one_norm_if_parallel = true;
  block.logit_scale = {"logit_scale", 0.0625};
  block.tied_head = {"tie_word_embeddings", true};
  block.gguf_scales = GgufScales::kCohere;
  return block;
}();
// R7B's file says 1; transformers does not read it.
void CheckWholeHeads(const HfSource& source, ModelConfig&) {
  const auto share = source.top.Number("rotary_pct", 0, 1);
  if (share && *share != 1) source.top.Fail("rotary_pct", "1: its layers rotate whole heads");
}
constexpr Block kCohere2Block = [] {
  Block block = kCohereBlock;
  block.rest = CheckWholeHeads;
  block.layer.attention.qk_norm = {};
  block.qk_norm = {nullptr, true};
  return block;
}();

// GLM-4 as transformers has it (arXiv 2406.12793): gate and up in one tensor.
constexpr Block kGlmBlock = [] {
  Block block = LlamaLike(kAttentionBias, {}, {}, "mlp_bias");
  block.names = &kGlmNames;
  block.norm_eps = 1.5625e-7;
  block.gguf_names = &kGgufGateUpNames;
  return block;
}();
// GLM-4-0414: the same with norms behind.
constexpr Block kGlm4Block = [] {
  Block block = kGlmBlock;
  block.names = &kGlm4Names;
  block.layer.post_attention = block.layer.post_mlp = kRmsNorm;
  return block;
}();

// Phi-3, 3.5 and 4-mini (arXiv 2404.14219): q, k and v, and gate and up, in one tensor each.
constexpr Block kPhi3Block = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.names = &kPhi3Names;
  block.norm_eps = 1e-5;
  block.gguf_names = &kGgufFusedGateUpNames;
  return block;
}();

// Mixtral (arXiv 2401.04088).
constexpr Block kMixtralBlock = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.names = &kMixtralNames;
  block.norm_eps = 1e-5;
  block.rest = ReadMixtral;
  block.gguf_rest = ReadGgufMixtral;
  return block;
}();

// Qwen 1.5 and 2 (arXiv 2407.10671) and 3 (arXiv 2505.09388) with experts.
constexpr Block kQwen2MoeBlock = [] {
  Block block = LlamaLike({"qkv_bias", true}, {}, {}, "attention_bias mlp_bias");
  block.names = &kQwenMoeNames;
  block.rest = ReadQwen2Moe;
  block.gguf_rest = ReadGgufQwen2Moe;
  return block;
}();
constexpr Block kQwen3MoeBlock = [] {
  Block block = kQwen3Block;
  block.names = &kQwenMoeNames;
  block.rest = ReadQwen3Moe;
  block.gguf_rest = ReadGgufQwen3Moe;
  return block;
}();
constexpr Block kQwen3VlMoeBlock = [] {
  Block block = kQwen3MoeBlock;
  block.names = &kQwen3VlMoeNames;
  block.expert_rows = &kQwen3VlMoeRowNames;
  block.rest = ReadQwen3VlMoe;
  return block;
}();

// OLMoE (arXiv 2409.02060): norms of q and k each as one vector, and before attention and experts.
constexpr Block kOlmoeBlock = [] {
  Block block = QkNormed(LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias"));
  block.names = &kQwenMoeNames;
  block.layer.attention.qk_norm_over = QkNormOver::kAllHeads;
  block.norm_eps = 1e-5;
  block.clip_qkv = {"clip_qkv", 0};
  block.rest = ReadOlmoe;
  block.gguf_rest = ReadGgufOlmoe;
  return block;
}();

// DeepSeek V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437): latent attention, shared experts.
constexpr Block kDeepseekV2Block = [] {
  Block block = LlamaLike({}, kAttentionBias, {"mlp_bias", false}, "");
  block.names = &kDeepseekNames;
  block.gguf_names = &kGgufSplitKvNames;
  block.rest = ReadDeepseekV2;
  block.gguf_rest = ReadGgufDeepseek;
  return block;
}();
constexpr Block kDeepseekV3Block = [] {
  Block block = LlamaLike({}, kAttentionBias, {}, "mlp_bias");
  block.names = &kDeepseekNames;
  block.gguf_names = &kGgufSplitKvNames;
  block.rest = ReadDeepseekV3;
  block.gguf_rest = ReadGgufDeepseek;
  return block;
}();

// Mistral 4 (Mistral AI 2026): the same, experts chosen by softmax; its temperature is in the plan.
constexpr Block kMistral4Block = [] {
  Block block = LlamaLike({}, kAttentionBias, {}, "mlp_bias");
  block.names = &kMistral4Names;
  block.gguf_names = &kGgufSplitKvNames;
  block.rest = ReadMistral4;
  block.gguf_rest = ReadGgufMistral4;
  return block;
}();

// gpt-oss (arXiv 2508.10925): sinks, experts with biases and a gate of their own.
constexpr Block kGptOssBlock = [] {
  Block block = LlamaLike({"attention_bias", true}, {"attention_bias", true}, kAlways, "");
  block.names = &kGptOssNames;
  block.mxfp4 = &kGptOssMxfp4Names;
  block.gguf_names = &kGgufGptOssNames;
  block.norm_eps = 1e-5;
  block.rest = ReadGptOss;
  block.gguf_rest = ReadGgufGptOss;
  return block;
}();

// Llama 4 (Meta 2025), its text.
constexpr Block kLlama4Block = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.names = &kLlama4Names;
  block.layer.attention.qk_norm = {NormSpec::Kind::kRms, /*bias=*/false, /*weight=*/false};
  block.norm_eps = 1e-5;
  block.rest = ReadLlama4;
  block.gguf_rest = ReadGgufLlama4;
  return block;
}();

// StarCoder 2 (arXiv 2402.19173).
constexpr Block kStarCoder2Block = {.names = &kStarCoder2Names,
                                    .layer = PreNorm(kLayerNorm, false),
                                    .activation = "gelu_pytorch_tanh",
                                    .norm_eps_key = "norm_epsilon",
                                    .qkv_bias = {"use_bias", true},
                                    .out_bias = {"use_bias", true},
                                    .mlp_bias = {"use_bias", true},
                                    .tied_head = {"tie_word_embeddings", true}};

// InternLM 2 and 2.5 (arXiv 2403.17297), by their own modelling file.
constexpr Block kInternLm2Block = [] {
  Block block = LlamaLike({"bias", true}, {"bias", true}, {}, "");
  block.names = &kInternLm2Names;
  return block;
}();

// MiniCPM (arXiv 2404.06395), by its own modelling file: what layers add shrinks with their number,
// logits with the width.
void ReadMiniCpm(const HfSource& source, ModelConfig& c) {
  const double depth = ReadMultiplier(source.top, {"scale_depth", 1});
  const double base = ReadMultiplier(source.top, {"dim_model_base", 1});
  c.layer.residual_scale = depth / std::sqrt(static_cast<double>(c.layers));
  c.logit_scale = base / static_cast<double>(c.hidden);
}
constexpr Block kMiniCpmBlock = [] {
  Block block = LlamaLike(kAttentionBias, kAttentionBias, {}, "mlp_bias");
  block.embedding_scale = {"scale_emb", 1};
  block.tied_head = {"tie_word_embeddings", true};
  block.rest = ReadMiniCpm;
  block.gguf_scales = GgufScales::kMiniCpm;
  return block;
}();

// MiniCPM 3, by its own modelling file: the same with latent attention.
void ReadMiniCpm3(const HfSource& source, ModelConfig& c) {
  ReadMiniCpm(source, c);
  ReadLatent(source, c.hidden / std::max<int64_t>(1, c.heads), c);
}
constexpr Block kMiniCpm3Block = [] {
  Block block = kMiniCpmBlock;
  block.names = &kDeepseekNames;
  block.qkv_bias = {};
  block.rest = ReadMiniCpm3;
  block.gguf_scales = GgufScales::kMiniCpm3;
  block.gguf_rest = ReadGgufMiniCpm3;
  return block;
}();

// Qwen (arXiv 2309.16609), by its own modelling file: its width counts gate and up together.
void ReadQwen1(const HfSource& source, ModelConfig& c) {
  if (c.feed_forward % 2 != 0) source.top.Fail("intermediate_size", "an even integer");
  c.feed_forward /= 2;
}
constexpr Flag kQwen1Only[] = {{"no_bias", true}};
constexpr Block kQwen1Block = {.names = &kQwen1Names,
                               .activation_key = nullptr,
                               .activation = "silu",
                               .norm_eps_key = "layer_norm_epsilon",
                               .norm_eps = 1e-6,
                               .qkv_bias = kAlways,
                               .only = kQwen1Only,
                               .gguf_names = &kGgufFusedNames,
                               .rest = ReadQwen1,
                               .gguf_rest = ReadGgufQwen1};

// Baichuan 1 and 2 (arXiv 2309.10305), by their own modelling files. What the second one's file says
// that the first one's does not: the weight of a loss, and a larger vocabulary.
void ReadBaichuan(const HfSource& source, ModelConfig& c) {
  c.normalized_head = source.top.Has("z_loss_weight") || c.vocab == 125696;
}
constexpr Block kBaichuanBlock = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.names = &kBaichuanNames;
  block.rest = ReadBaichuan;
  return block;
}();

// Orion 14B (arXiv 2401.12246), by its own modelling file: LLaMA with LayerNorm.
constexpr Block kOrionBlock = [] {
  Block block = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
  block.layer = PreNorm(kLayerNorm, true);
  block.norm_eps = 1e-5;
  return block;
}();

// ChatGLM 2 and 3 and GLM-4 9B (arXiv 2406.12793), by their own modelling file.
constexpr Block kChatGlmBlock = {.names = &kChatGlmNames,
                                 .activation_key = nullptr,
                                 .activation = "silu",
                                 .norm_eps_key = "layernorm_epsilon",
                                 .qkv_bias = {"add_qkv_bias", false},
                                 .only = kChatGlmOnly,
                                 .gguf_names = &kGgufFusedGateUpNames};

}  // namespace ropewalk::internal
