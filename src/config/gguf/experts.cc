#include "src/config/gguf/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "src/config/family.h"
#include "src/config/number_keys.h"

namespace ropewalk::internal {
namespace {

using Scores = ExpertsSpec::Scores;
// llama.cpp's numbers of what makes scores of a router's logits.
constexpr int64_t kSoftmax = 1, kSigmoid = 2, kOtherScores = 1000;

void Stop(const GgufKeys& keys, const char* key, const std::string& why, ModelConfig& c) {
  if (c.not_runnable.empty()) {
    c.not_runnable = fmt::format("{}: {}: {}", keys.File(), keys.Name(key), why);
  }
}

// Numbers that may differ by layer; the decoder has one for all. 0: the key is absent.
int64_t ReadForAll(const GgufKeys& keys, const char* key, int64_t low, int64_t high,
                   ModelConfig& c) {
  const auto list = keys.Ints(key, low, high);
  if (!list || list->empty()) return 0;
  const int64_t blocks = c.layers + c.further_layers;
  if (keys.IsArray(key) && static_cast<int64_t>(list->size()) != blocks) {
    keys.Fail(key, fmt::format("a number, or an array of one for each of {} layers, got {}", blocks,
                               list->size()));
  }
  if (std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
    Stop(keys, key, "it differs by layer: the decoder computes one number for all of them", c);
  }
  return list->front();
}

// 0 where the key is absent: positions can be read without it, the model cannot be run.
int64_t Required(const GgufKeys& keys, const char* key, int64_t low, int64_t high, ModelConfig& c) {
  const int64_t value = ReadForAll(keys, key, low, high, c);
  if (value == 0 && !keys.Has(key)) {
    Stop(keys, key, "it is missing: without it the layers are not known", c);
  }
  return value;
}

// Groups that experts are chosen from: llama.cpp takes the two largest scores of each, whatever the
// architecture.
void ReadGroups(const GgufKeys& keys, ModelConfig& c) {
  ExpertsSpec& experts = c.experts;
  const int64_t groups = keys.Int("expert_group_count", 0, kMaxExperts).value_or(0);
  const int64_t chosen = keys.Int("expert_group_used_count", 0, kMaxExperts).value_or(0);
  if (groups <= 1) return;
  const int64_t size = experts.count / groups;
  if (size * groups != experts.count || size < 2 || chosen < 1 || chosen > groups ||
      experts.chosen > chosen * size) {
    keys.Fail("expert_group_count",
              fmt::format("groups of 2 or more, of which {} hold {} of {} experts, got {}", chosen,
                          experts.chosen, experts.count, groups));
  }
  experts.groups = groups;
  experts.chosen_groups = chosen;
  experts.group_by = ExpertsSpec::GroupBy::kTwoLargest;
  if (experts.scores == Scores::kSoftmax && keys.prefix() == "deepseek2.") {
    c.plan.notes.push_back(
        "groups of experts are chosen by their two largest scores, as in llama.cpp; DeepSeek V2's "
        "own code takes the largest one");
  }
}

// All that architectures with experts have alike; the width of an expert is `width`.
void ReadExperts(const GgufKeys& keys, Scores scores, bool normalized, int64_t width,
                 ModelConfig& c) {
  ExpertsSpec& experts = c.experts;
  const int64_t count = Required(keys, "expert_count", 1, kMaxExperts, c);
  experts.chosen = Required(keys, "expert_used_count", 1, kMaxExperts, c);
  if (count == 0 || experts.chosen == 0 || width == 0) return;
  if (experts.chosen > count) {
    keys.Fail("expert_used_count",
              fmt::format("at most expert_count ({}), got {}", count, experts.chosen));
  }
  experts.count = count;
  experts.feed_forward = width;
  experts.layers.assign(static_cast<std::size_t>(c.layers), true);
  experts.scores = scores;
  experts.normalized = normalized;
  const double scale = keys.Number("expert_weights_scale", 0, 1e6).value_or(0);
  experts.scale = scale == 0 ? 1 : ShortestDecimal(scale);
  const auto wanted = scores == Scores::kSigmoid ? kSigmoid : kSoftmax;
  const int64_t func = keys.Int("expert_gating_func", 0, kOtherScores).value_or(wanted);
  if (func != 0 && func != wanted) {
    Stop(keys, "expert_gating_func",
         fmt::format("it is {}; the decoder computes {} there ({})", func, wanted,
                     wanted == kSigmoid ? "a sigmoid" : "a softmax"),
         c);
  }
  ReadGroups(keys, c);
}

// Of architectures with a key of its own for the width, which older files may lack.
int64_t OwnWidth(const GgufKeys& keys, bool required, ModelConfig& c) {
  if (required) return Required(keys, "expert_feed_forward_length", 1, kMaxDim, c);
  const int64_t width = ReadForAll(keys, "expert_feed_forward_length", 1, kMaxDim, c);
  if (width > 0) return width;
  const int64_t chosen = ReadForAll(keys, "expert_used_count", 1, kMaxExperts, c);
  return std::max<int64_t>(1, c.feed_forward / std::max<int64_t>(1, chosen));
}

// Without the key, what llama.cpp has of the architecture; with another value it would be ignored.
void CheckNormalized(const GgufKeys& keys, ModelConfig& c) {
  const auto said = keys.Bool("expert_weights_norm");
  if (!said || *said == c.experts.normalized) return;
  Stop(keys, "expert_weights_norm",
       fmt::format("it is {}; llama.cpp does not read it of this architecture and takes {}", *said,
                   c.experts.normalized),
       c);
}

bool HasTensor(const GgufKeys& keys, int64_t layer, const char* name) {
  return keys.gguf().tensors.contains(fmt::format("blk.{}.{}", layer, name));
}

void ReadLatent(const GgufKeys& keys, int64_t value_dim, ModelConfig& c) {
  LatentSpec& latent = c.layer.attention.latent;
  latent.kv_rank = Required(keys, "attention.kv_lora_rank", 1, kMaxDim, c);
  latent.q_rank = keys.Int("attention.q_lora_rank", 0, kMaxDim).value_or(0);
  if (HasTensor(keys, 0, "attn_q.weight")) latent.q_rank = 0;
  latent.rotary_dim = Required(keys, "rope.dimension_count", 2, c.head_dim, c);
  latent.value_dim = value_dim;
  latent.norm_eps = c.norm_eps;  // the file has one
  if (latent.rotary_dim >= c.head_dim) {
    keys.Fail("rope.dimension_count", fmt::format("less than the {} dimensions of a key, got {}",
                                                  c.head_dim, latent.rotary_dim));
  }
  c.kv_heads = c.heads;  // newer files have 1: one vector for all
}

// llama.cpp computes YaRN of this architecture for files with a multiplier on scores.
void CheckLatentYarn(const GgufKeys& keys, ModelConfig& c) {
  if (keys.String("rope.scaling.type") != "yarn") return;
  const double log = keys.Number("rope.scaling.yarn_log_multiplier", 0, 1e3).value_or(0);
  const double factor = keys.Number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
  if (log != 0 && factor == 1) return;
  Stop(keys, "rope.scaling.yarn_log_multiplier",
       fmt::format("it is {:g} and rope.scaling.attn_factor {:g}: what scores are multiplied by is "
                   "computed for a multiplier above 0 and a factor of 1",
                   log, factor),
       c);
}

}  // namespace

bool HasGgufExperts(const GgufKeys& keys) {
  return keys.Int("expert_count", 0, kMaxExperts).value_or(0) > 0;
}

void ReadGgufMixtral(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSoftmax, true, c.feed_forward, c);
  CheckNormalized(keys, c);
}

void ReadGgufOlmoe(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSoftmax, false, c.feed_forward, c);
  CheckNormalized(keys, c);
}

void ReadGgufQwen2Moe(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSoftmax, false, OwnWidth(keys, false, c), c);
  CheckNormalized(keys, c);
  const int64_t shared = ReadForAll(keys, "expert_shared_feed_forward_length", 0, kMaxDim, c);
  c.experts.shared_feed_forward = shared > 0 ? shared : c.feed_forward;
  c.experts.shared_gate = true;
}

void ReadGgufQwen3Moe(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSoftmax, true, OwnWidth(keys, false, c), c);
  CheckNormalized(keys, c);
}

// llama.cpp's softmax over the chosen logits is one over all of them, made to sum to 1.
void ReadGgufGptOss(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSoftmax, true, OwnWidth(keys, true, c), c);
  c.experts.router_bias = true;
  c.layer.mlp.bias = true;
  c.layer.mlp.activation = MlpSpec::Activation::kClampedSwiglu;
  c.layer.attention.sinks = true;
}

void ReadGgufDeepseek(const GgufKeys& keys, ModelConfig& c) {
  CheckLatentYarn(keys, c);
  const auto value = keys.Int("attention.value_length_mla", 1, kMaxHeadDim);
  const auto old = keys.Int("attention.value_length", 1, kMaxHeadDim);
  ReadLatent(keys, value ? *value : old.value_or(c.hidden / c.heads), c);
  const int64_t dense = keys.Int("leading_dense_block_count", 0, kMaxLayers).value_or(0);
  const int64_t shared = keys.Int("expert_shared_count", 0, kMaxExperts).value_or(0);
  const int64_t width = OwnWidth(keys, true, c);
  if (dense >= c.layers) return;  // no experts at all
  const bool sigmoid = keys.Int("expert_gating_func", 0, kOtherScores) == kSigmoid;
  const bool normalized = keys.Bool("expert_weights_norm").value_or(false);
  ReadExperts(keys, sigmoid ? Scores::kSigmoid : Scores::kSoftmax, normalized, width, c);
  if (c.experts.count == 0) return;
  c.experts.shared_feed_forward = shared * width;
  std::fill_n(c.experts.layers.begin(), dense, false);
  c.experts.choice_bias =
      keys.gguf().tensors.empty() ? sigmoid : HasTensor(keys, dense, "exp_probs_b.bias");
}

// llama.cpp takes mscale for 1 in this architecture, and multiplies scores by its square.
void ReadGgufMistral4(const GgufKeys& keys, ModelConfig& c) {
  ReadGgufDeepseek(keys, c);
  const auto log = keys.Number("rope.scaling.yarn_log_multiplier", 0, 1e3);
  if (keys.String("rope.scaling.type") == "yarn" && log && LatentMscale(*log) != 1) {
    Stop(keys, "rope.scaling.yarn_log_multiplier",
         fmt::format("it is {:g}, a tenth of mscale_all_dim; llama.cpp takes mscale for 1 there, "
                     "and what it then multiplies scores by is computed for 1 alone",
                     *log),
         c);
  }
  if (keys.Has("attention.temperature_scale")) return;
  c.plan.notes.push_back(
      "attention.temperature_scale is missing, as in files of llama.cpp's own converter, which "
      "leaves llama_4_scaling_beta out: queries have no temperature, as in llama.cpp");
}

void ReadGgufLlama4(const GgufKeys& keys, ModelConfig& c) {
  ReadExperts(keys, Scores::kSigmoid, false, OwnWidth(keys, true, c), c);
  CheckNormalized(keys, c);
  ExpertsSpec& experts = c.experts;
  experts.weighs_input = true;
  experts.shared_feed_forward = experts.feed_forward;
  const int64_t step = Required(keys, "interleave_moe_layer_step", 0, kMaxLayers, c);
  if (experts.count == 0) return;
  for (int64_t l = 0; l < c.layers; ++l) {
    experts.layers[static_cast<std::size_t>(l)] = step > 0 && (l + 1) % step == 0;
  }
  AttentionSpec& attention = c.layer.attention;
  attention.qk_norm_where_rotated = true;
  constexpr int64_t kMaverick = 128;  // llama.cpp knows it by this number, and that it has no norms
  if (experts.count == kMaverick) attention.qk_norm = {};
}

// Its multipliers are constants of llama.cpp: those of the 4B.
void ReadGgufMiniCpm3(const GgufKeys& keys, ModelConfig& c) {
  const auto value = keys.Int("attention.value_length", 1, kMaxHeadDim);
  ReadLatent(keys, value.value_or(c.hidden / c.heads), c);
}

// No experts: its feed_forward_length counts gate and up.
void ReadGgufQwen1(const GgufKeys& keys, ModelConfig& c) {
  if (c.feed_forward % 2 != 0) {
    keys.Fail("feed_forward_length", fmt::format("an even number, got {}", c.feed_forward));
  }
  c.feed_forward /= 2;
}

}  // namespace ropewalk::internal
