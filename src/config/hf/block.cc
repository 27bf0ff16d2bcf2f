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
#include "src/config/hf/vendor.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;
using Activation = MlpSpec::Activation;

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
  const double divisor = ReadMultiplier(top, block.score_divisor);
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

double ReadMultiplier(const JsonObject& top, const Number& number) {
  const double value = Read(top, number);
  if (number.key != nullptr && value <= 0) top.Fail(number.key, "a number above 0");
  return value;
}

std::optional<Activation> FindActivation(std::string_view name) {
  for (const ActivationName& a : kActivations) {
    if (name == a.name) return a.activation;
  }
  return std::nullopt;
}

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
