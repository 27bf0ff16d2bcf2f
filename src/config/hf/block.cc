// How the layers of a family are built, out of its configuration. Defaults are those of
// transformers 4.57.
#include "src/config/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ropewalk/base/error.h"
#include "src/config/hf/alibi.h"
#include "src/config/hf/config.h"
#include "src/config/hf/drope.h"
#include "src/config/hf/vendor.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;
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

struct ActivationName {
  const char* name;
  Activation activation;
};
constexpr ActivationName kActivations[] = {
    {"gelu", Activation::kGelu},          {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},          {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
};

bool Read(const JsonObject& top, const Flag& flag) {
  return flag.key == nullptr ? flag.otherwise : top.Bool(flag.key).value_or(flag.otherwise);
}

double Read(const JsonObject& top, const Number& number) {
  if (number.key == nullptr) return number.otherwise;
  const bool null = top.value().contains(number.key) && top.Find(number.key) == nullptr;
  return null ? 0 : top.Number(number.key, 0, 1e9).value_or(number.otherwise);
}

double ReadMultiplier(const JsonObject& top, const Number& number) {
  const double value = Read(top, number);
  if (number.key != nullptr && value <= 0) top.Fail(number.key, "a number above 0");
  return value;
}

// What happens to embeddings, scores, what layers add, and logits.
void ReadScales(const JsonObject& top, const Block& block, ModelConfig& c) {
  c.embedding_scale = ReadMultiplier(top, block.embedding_scale);
  if (block.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  c.layer.residual_scale = ReadMultiplier(top, block.residual_scale);
  c.logit_scale = ReadMultiplier(top, block.logit_scale) / ReadMultiplier(top, block.logit_divisor);
  c.layer.attention.score_scale = ReadMultiplier(top, block.score_scale);
  c.layer.attention.clip_qkv = Read(top, block.clip_qkv);
  c.layer.attention.soft_cap = Read(top, block.score_cap);
  c.logit_cap = Read(top, block.logit_cap);
  if (block.score_divisor.key == nullptr) return;
  const double divisor = Read(top, block.score_divisor);
  if (divisor <= 0) top.Fail(block.score_divisor.key, "a number above 0");
  if (divisor != static_cast<double>(c.head_dim)) {
    c.layer.attention.score_scale = 1 / std::sqrt(divisor);
  }
}

Activation ReadActivation(const HfSource& source, const Block& block) {
  const std::string name = block.activation_key == nullptr
                               ? block.activation
                               : source.top.String(block.activation_key).value_or(block.activation);
  const std::optional<Activation> found = FindActivation(name);
  const bool silu_alone = std::string_view(block.activation) == "silu";
  if (!found || (silu_alone && *found != Activation::kSilu)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {}: expected {}, got {}", source.top.where(), block.activation_key,
                            silu_alone ? "silu" : "gelu, gelu_new, gelu_fast, relu or silu",
                            Shown(json(name))));
  }
  return *found;
}

void CheckNoBias(const JsonObject& top, const Family& family) {
  for (const std::string& key : WordsOf(family.block->no_bias)) {
    if (!top.Bool(key.c_str()).value_or(false)) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {}: a {} model has no such bias", top.where(), key, family.name));
  }
}

// Falcon's newer architecture is parallel and has two norms, unless it says one.
void ReadTwoNorms(const JsonObject& top, const Block& block, ModelConfig& c) {
  const bool newer = top.Bool("new_decoder_architecture").value_or(false);
  const auto norms = top.Int("num_ln_in_parallel_attn", 1, 2);
  const bool parallel = c.layer.residual == Residual::kParallel;
  if ((newer && !parallel) || (!newer && norms == 2)) {
    c.not_runnable = fmt::format(
        "{}: new_decoder_architecture {} with parallel_attn {} and {} norms: no "
        "published model has these together, and the decoder does not compute it",
        top.where(), newer, parallel, norms.value_or(newer ? 2 : 1));
    return;
  }
  if (!newer || norms == 1) return;
  c.layer.pre_mlp = c.layer.pre_attention;
  c.tensor_names = block.two_norms;
}

}  // namespace

std::optional<Activation> FindActivation(std::string_view name) {
  for (const ActivationName& a : kActivations) {
    if (name == a.name) return a.activation;
  }
  return std::nullopt;
}

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
          .no_bias = no_bias,
          .gguf = true};
}

constexpr Block QkNormed(Block block) {
  block.layer.attention.qk_norm = kRmsNorm;
  return block;
}

constexpr Block kLlamaBlock = LlamaLike(kAttentionBias, kAttentionBias, {"mlp_bias", false}, "");
// transformers ties its head unless a file says otherwise; its version 4 leaves true out of the file.
constexpr Block kSmolLm3Block = [] {
  Block block = kLlamaBlock;
  block.tied_head = {"tie_word_embeddings", true};
  return block;
}();
constexpr Block kMistralBlock = LlamaLike({}, {}, {}, "attention_bias mlp_bias");
constexpr Block kQwen2Block = LlamaLike(kAlways, {}, {}, "attention_bias mlp_bias");
constexpr Block Dropped(Block block) {
  block.gguf = false;
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
                              .only = kGpt2Only};

constexpr Block kGptNeoxBlock = {.names = &kGptNeoxNames,
                                 .layer = PreNorm(kLayerNorm, false),
                                 .activation = "gelu",
                                 .qkv_bias = {"attention_bias", true},
                                 .out_bias = {"attention_bias", true},
                                 .mlp_bias = kAlways,
                                 .parallel = {"use_parallel_residual", true}};

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
                                .only = kFalconOnly};

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
                               .rest = ReadBloom};

constexpr Block kMptBlock = {.names = &kMptNames,
                             .layer = PreNorm(kUnbiasedLayerNorm, false),
                             .activation_key = nullptr,
                             .activation = "gelu",
                             .norm_eps_key = "layer_norm_epsilon",
                             .tied_head = {"tie_word_embeddings", true},
                             .feed_forward_is_4_hidden = true,
                             .only = kMptOnly,
                             .rest = ReadMpt};

// Granite 3 (Granite Team 2024): LLaMA with four multipliers.
constexpr Block kGraniteBlock = [] {
  Block block = kLlamaBlock;
  block.embedding_scale = {"embedding_multiplier", 1};
  block.score_scale = {"attention_multiplier", 1};
  block.residual_scale = {"residual_multiplier", 1};
  block.logit_divisor = {"logits_scaling", 1};
  block.gguf = false;
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
  block.gguf = false;
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
  block.gguf = false;
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
  block.gguf = false;
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
  block.gguf = false;
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
  block.gguf = false;
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

void ReadHfBlock(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  const Block& block = *source.family.block;
  c.tensor_names = block.names;
  c.layer = block.layer;
  c.final_norm =
      block.layer.pre_attention.exists() ? block.layer.pre_attention : block.layer.post_attention;
  if (block.embedding_norm) c.embedding_norm = block.layer.pre_attention;
  c.head_bias = block.head_bias;
  c.layer.mlp.activation = ReadActivation(source, block);
  if (Read(top, block.parallel)) {
    c.layer.residual = Residual::kParallel;
    if (block.one_norm_if_parallel) c.layer.pre_mlp = {};
  }
  CheckNoBias(top, source.family);
  if (!Read(top, block.qk_norm)) c.layer.attention.qk_norm = {};
  c.layer.attention.qkv_bias = Read(top, block.qkv_bias);
  c.layer.attention.out_bias = Read(top, block.out_bias);
  c.layer.mlp.bias = Read(top, block.mlp_bias);
  c.tied_head = Read(top, block.tied_head);
  c.norm_eps = block.norm_eps;
  if (block.norm_eps_key != nullptr) {
    c.norm_eps = top.Number(block.norm_eps_key, 0, 1).value_or(block.norm_eps);
  }
  ReadScales(top, block, c);
  if (block.two_norms != nullptr) ReadTwoNorms(top, block, c);
  for (const Flag& flag : block.only) {
    if (Read(top, flag) == flag.otherwise) continue;
    c.not_runnable =
        fmt::format("{}: {} is {}: the decoder computes {} models with {} alone", top.where(),
                    flag.key, !flag.otherwise, source.family.name, flag.otherwise);
  }
  // OPT 350M: embeddings narrower than the layers.
  const auto width = top.Int("word_embed_proj_dim", 1, kMaxDim);
  if (width && *width != c.hidden) {
    c.not_runnable = fmt::format(
        "{}: word_embed_proj_dim is {}: the decoder computes models "
        "whose embeddings are as wide as their layers ({}) alone",
        top.where(), *width, c.hidden);
  }
  if (block.rest != nullptr) block.rest(source, c);
}

void ReadHfOther(const HfSource& source, const InsteadOfRotation& instead, ModelConfig& c) {
  RopeContext context;
  ReadLengths(source, context, c.plan);
  c.plan.layers.resize(c.layers);
  c.plan.other = instead.other;
  c.plan.notes.push_back(fmt::format("no rotation: {}", instead.words));
  const Block* block = source.family.block;
  if (block != nullptr && block->learned_first_row >= 0) {
    if (context.max_position == 0) source.top.Fail("max_position_embeddings", "an integer");
    c.plan.learned = LearnedPositions{context.max_position, block->learned_first_row};
  } else if (instead.other == OtherEncoding::kAlibi && c.heads > 0) {
    ReadAlibi(source, c);
  } else if (c.not_runnable.empty() && source.family.other != OtherEncoding::kNoPositions) {
    c.not_runnable = fmt::format("{}: the decoder does not compute its positions: {}",
                                 source.top.where(), instead.words);
  }
}

}  // namespace ropewalk::internal
