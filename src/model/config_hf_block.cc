// How the layers of a family beyond LLaMA's are built, out of its configuration. Defaults are those
// of transformers 4.57.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ropewalk/base/error.h"
#include "src/model/block.h"
#include "src/model/config_hf.h"
#include "src/model/config_hf_alibi.h"
#include "src/model/config_hf_vendor.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;
using Activation = BlockStyle::Activation;
using Norm = BlockStyle::Norm;
using Qkv = BlockStyle::Qkv;

constexpr Flag kAlways = {nullptr, true};

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

Activation ReadActivation(const HfSource& source, const Block& block) {
  const std::string name = block.activation_key == nullptr
                               ? block.activation
                               : source.top.String(block.activation_key).value_or(block.activation);
  const std::optional<Activation> found = FindActivation(name);
  const bool silu_alone = block.style.gated;
  if (!found || (silu_alone && *found != Activation::kSilu)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {}: expected {}, got {}", source.top.where(), block.activation_key,
                            silu_alone ? "silu" : "gelu, gelu_new, gelu_fast, relu or silu",
                            Shown(json(name))));
  }
  return *found;
}

// Falcon's newer architecture is parallel and has two norms, unless it says one.
void ReadTwoNorms(const JsonObject& top, const Block& block, ModelConfig& c) {
  const bool newer = top.Bool("new_decoder_architecture").value_or(false);
  const auto norms = top.Int("num_ln_in_parallel_attn", 1, 2);
  if ((newer && !c.block.parallel) || (!newer && norms == 2)) {
    c.not_runnable = fmt::format(
        "{}: new_decoder_architecture {} with parallel_attn {} and {} norms: no "
        "published model has these together, and the decoder does not compute it",
        top.where(), newer, c.block.parallel, norms.value_or(newer ? 2 : 1));
    return;
  }
  if (!newer || norms == 1) return;
  c.block.one_norm = false;
  c.tensor_names = block.two_norms;
}

}  // namespace

std::optional<Activation> FindActivation(std::string_view name) {
  for (const ActivationName& a : kActivations) {
    if (name == a.name) return a.activation;
  }
  return std::nullopt;
}

constexpr Block kGpt2Block = {
    .names = &kGpt2Names,
    .style = {.norm = Norm::kLayer, .qkv = Qkv::kStacked, .gated = false, .transposed = true},
    .activation_key = "activation_function",
    .norm_eps_key = "layer_norm_epsilon",
    .qkv_bias = kAlways,
    .out_bias = kAlways,
    .mlp_bias = kAlways,
    .tied_head = {"tie_word_embeddings", true},
    .learned_first_row = 0,
    .feed_forward_is_4_hidden = true,
    .only = kGpt2Only};

constexpr Block kGptNeoxBlock = {
    .names = &kGptNeoxNames,
    .style = {.norm = Norm::kLayer, .qkv = Qkv::kGrouped, .gated = false},
    .activation = "gelu",
    .qkv_bias = {"attention_bias", true},
    .out_bias = {"attention_bias", true},
    .mlp_bias = kAlways,
    .parallel = {"use_parallel_residual", true}};

constexpr Block kGptjBlock = {.names = &kGptjNames,
                              .style = {.norm = Norm::kLayer, .gated = false, .head_bias = true},
                              .activation_key = "activation_function",
                              .norm_eps_key = "layer_norm_epsilon",
                              .mlp_bias = kAlways,
                              .parallel = kAlways,
                              .one_norm_if_parallel = true,
                              .feed_forward_is_4_hidden = true};

constexpr Block kFalconBlock = {
    .names = &kFalconNames,
    .style = {.norm = Norm::kLayer, .qkv = Qkv::kGrouped, .gated = false},
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
                             .style = {.norm = Norm::kLayer, .gated = false, .head_bias = true},
                             .qkv_bias = kAlways,
                             .out_bias = kAlways,
                             .mlp_bias = kAlways,
                             .parallel = kAlways,
                             .one_norm_if_parallel = true,
                             .only = kQkNormOnly};

constexpr Block kStableLmBlock = {.names = &kLlamaNames,
                                  .style = {.norm = Norm::kLayer},
                                  .activation = "silu",
                                  .qkv_bias = {"use_qkv_bias", false},
                                  .parallel = {"use_parallel_residual", false},
                                  .one_norm_if_parallel = true,
                                  .only = kQkNormOnly};

constexpr Block kOptBlock = {.names = &kOptNames,
                             .style = {.norm = Norm::kLayer, .gated = false},
                             .activation_key = "activation_function",
                             .activation = "relu",
                             .norm_eps_key = nullptr,
                             .qkv_bias = {"enable_bias", true},
                             .out_bias = {"enable_bias", true},
                             .mlp_bias = {"enable_bias", true},
                             .tied_head = {"tie_word_embeddings", true},
                             .learned_first_row = 2,
                             .only = kOptOnly};

constexpr Block kBloomBlock = {
    .names = &kBloomNames,
    .style = {.norm = Norm::kLayer, .qkv = Qkv::kGrouped, .gated = false, .embedding_norm = true},
    .activation_key = nullptr,
    .norm_eps_key = "layer_norm_epsilon",
    .qkv_bias = kAlways,
    .out_bias = kAlways,
    .mlp_bias = kAlways,
    .tied_head = {"tie_word_embeddings", true},
    .feed_forward_is_4_hidden = true,
    .rest = ReadBloom};

constexpr Block kMptBlock = {
    .names = &kMptNames,
    .style = {.norm = Norm::kLayer, .qkv = Qkv::kStacked, .gated = false, .norm_bias = false},
    .activation_key = nullptr,
    .activation = "gelu",
    .norm_eps_key = "layer_norm_epsilon",
    .tied_head = {"tie_word_embeddings", true},
    .feed_forward_is_4_hidden = true,
    .only = kMptOnly,
    .rest = ReadMpt};

void ReadHfBlock(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  const Block& block = *source.family.block;
  c.block = block.style;
  c.tensor_names = block.names;
  c.block.activation = ReadActivation(source, block);
  c.block.parallel = Read(top, block.parallel);
  c.block.one_norm = c.block.parallel && block.one_norm_if_parallel;
  c.qkv_bias = Read(top, block.qkv_bias);
  c.out_bias = Read(top, block.out_bias);
  c.mlp_bias = Read(top, block.mlp_bias);
  c.tied_head = Read(top, block.tied_head);
  c.norm_eps =
      block.norm_eps_key == nullptr ? 1e-5 : top.Number(block.norm_eps_key, 0, 1).value_or(1e-5);
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
  } else if (c.not_runnable.empty()) {
    c.not_runnable = fmt::format("{}: the decoder does not compute its positions: {}",
                                 source.top.where(), instead.words);
  }
}

}  // namespace ropewalk::internal
