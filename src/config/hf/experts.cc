// Defaults are those of transformers 4.57; a model without its counts and widths does not run.
#include "src/config/hf/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

// 0 where the key is absent: positions can be read without it, the model cannot be run.
int64_t Required(const JsonObject& top, const char* key, int64_t low, int64_t high,
                 ModelConfig& c) {
  const auto value = top.Int(key, low, high);
  if (!value && c.not_runnable.empty()) {
    c.not_runnable =
        fmt::format("{}: {} is missing: without it the layers are not known", top.where(), key);
  }
  return value.value_or(0);
}

void CheckWord(const JsonObject& top, const char* key, const char* expected) {
  const auto word = top.String(key);
  if (word && *word != expected) top.Fail(key, fmt::format("\"{}\"", expected));
}

// The same width and number in all layers; the router's rule is for the caller.
void ReadExperts(const HfSource& source, const char* count_key, const char* width_key,
                 ModelConfig& c) {
  ExpertsSpec& experts = c.experts;
  const int64_t count = Required(source.top, count_key, 0, kMaxExperts, c);
  experts.chosen = Required(source.top, "num_experts_per_tok", 1, kMaxExperts, c);
  experts.feed_forward = Required(source.top, width_key, 1, kMaxDim, c);
  if (count == 0 || !c.not_runnable.empty()) return;
  experts.count = count;
  experts.layers.assign(c.layers, true);
  if (experts.chosen > experts.count) {
    Contradiction(source.top.where(), "num_experts_per_tok", fmt::format("{}", experts.chosen),
                  count_key, fmt::format("{}", experts.count));
  }
}

// Qwen: every n-th layer, without those of a list.
void ReadSparseLayers(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  const int64_t step = top.Int("decoder_sparse_step", 1, kMaxLayers).value_or(1);
  for (int64_t l = 0; l < static_cast<int64_t>(c.experts.layers.size()); ++l) {
    c.experts.layers[l] = (l + 1) % step == 0;
  }
  const auto dense = top.Numbers("mlp_only_layers", 0, static_cast<double>(c.layers - 1));
  for (const double l : dense.value_or(std::vector<double>())) {
    if (l != static_cast<double>(static_cast<int64_t>(l))) {
      top.Fail("mlp_only_layers", "an array of integers");
    }
    if (c.experts.count > 0) c.experts.layers[static_cast<std::size_t>(l)] = false;
  }
}

// transformers 5 writes num_local_experts where published files of Qwen 3 have num_experts.
const char* QwenCountKey(const JsonObject& top) {
  const auto older = top.Int("num_experts", 0, kMaxExperts);
  const auto newer = top.Int("num_local_experts", 0, kMaxExperts);
  if (older && newer && *older != *newer) {
    Contradiction(top.where(), "num_experts", fmt::format("{}", *older), "num_local_experts",
                  fmt::format("{}", *newer));
  }
  return newer && !older ? "num_local_experts" : "num_experts";
}

void ReadQwenMoe(const HfSource& source, ModelConfig& c, const char* count = "num_experts") {
  ReadExperts(source, count, "moe_intermediate_size", c);
  c.experts.normalized = source.top.Bool("norm_topk_prob").value_or(false);
  ReadSparseLayers(source, c);
}

void ReadGroups(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  ExpertsSpec& experts = c.experts;
  const int64_t groups = Required(top, "n_group", 1, kMaxExperts, c);
  const int64_t chosen = Required(top, "topk_group", 1, kMaxExperts, c);
  if (experts.count == 0 || !c.not_runnable.empty()) return;
  experts.groups = groups;
  experts.chosen_groups = chosen;
  const int64_t size = experts.count / experts.groups;
  const int64_t least = experts.group_by == ExpertsSpec::GroupBy::kTwoLargest ? 2 : 1;
  if (size * experts.groups != experts.count || size < least ||
      experts.chosen_groups > experts.groups || experts.chosen > experts.chosen_groups * size) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: n_group {} and topk_group {}: {} of {} experts cannot be chosen "
                            "from them",
                            top.where(), experts.groups, experts.chosen_groups, experts.chosen,
                            experts.count));
  }
}

// What keys that are absent mean, in transformers 4.57 and 5 and in DeepSeek's own code.
struct DeepseekDefaults {
  int64_t shared, dense;  // experts, and layers without any
  double scale;
};
constexpr DeepseekDefaults kDeepseekV2 = {2, 0, 1}, kDeepseekV3 = {1, 3, 2.5},
                           kMistral4 = {1, 0, 1};

// DeepSeek's own experts, behind some layers without; those of GLM and Kimi are the same.
void ReadDeepseek(const HfSource& source, const DeepseekDefaults& defaults, ModelConfig& c) {
  const JsonObject& top = source.top;
  ReadLatent(source, std::nullopt, c);
  ReadExperts(source, "n_routed_experts", "moe_intermediate_size", c);
  ExpertsSpec& experts = c.experts;
  // null, unlike an absent key, says that there are none.
  const int64_t absent = top.value().contains("n_shared_experts") ? 0 : defaults.shared;
  const int64_t shared = top.Int("n_shared_experts", 0, kMaxExperts).value_or(absent);
  experts.shared_feed_forward = shared * experts.feed_forward;
  experts.scale = top.Number("routed_scaling_factor", 0, 1e6).value_or(defaults.scale);
  const int64_t dense = top.Int("first_k_dense_replace", 0, kMaxLayers).value_or(defaults.dense);
  std::fill_n(experts.layers.begin(), std::min(dense, static_cast<int64_t>(experts.layers.size())),
              false);
  top.Int("moe_layer_freq", 1, 1);  // transformers reads no other
  c.further_layers = top.Int("num_nextn_predict_layers", 0, kMaxLayers).value_or(0);
}

}  // namespace

void ReadLatent(const HfSource& source, std::optional<int64_t> value_dim, ModelConfig& c) {
  const JsonObject& top = source.top;
  LatentSpec& latent = c.layer.attention.latent;
  latent.kv_rank = Required(top, "kv_lora_rank", 1, kMaxDim, c);
  latent.q_rank = top.Int("q_lora_rank", 1, kMaxDim).value_or(0);
  latent.rotary_dim = Required(top, "qk_rope_head_dim", 2, kMaxHeadDim, c);
  latent.value_dim = value_dim ? top.Int("v_head_dim", 1, kMaxHeadDim).value_or(*value_dim)
                               : Required(top, "v_head_dim", 1, kMaxHeadDim, c);
  latent.down_bias = top.Bool("attention_bias").value_or(false);
  if (c.kv_heads != c.heads && c.not_runnable.empty()) {
    c.not_runnable = fmt::format(
        "{}: num_key_value_heads is {}: latent attention makes a key for each of the {} heads",
        top.where(), c.kv_heads, c.heads);
  }
}

void ReadMixtral(const HfSource& source, ModelConfig& c) {
  ReadExperts(source, "num_local_experts", "intermediate_size", c);
  c.experts.normalized = true;
}

void ReadOlmoe(const HfSource& source, ModelConfig& c) {
  ReadExperts(source, "num_experts", "intermediate_size", c);
  c.experts.normalized = source.top.Bool("norm_topk_prob").value_or(false);
}

void ReadQwen2Moe(const HfSource& source, ModelConfig& c) {
  ReadQwenMoe(source, c);
  c.experts.shared_feed_forward =
      Required(source.top, "shared_expert_intermediate_size", 1, kMaxDim, c);
  c.experts.shared_gate = true;
  if (!source.top.Bool("use_sliding_window").value_or(false)) return;
  c.not_runnable = fmt::format(
      "{}: use_sliding_window is true: in a qwen2_moe model transformers 4 slides all layers, 5 "
      "those from "
      "max_window_layers on; no published model has it",
      source.top.where());
}

void ReadQwen3Moe(const HfSource& source, ModelConfig& c) {
  ReadQwenMoe(source, c, QwenCountKey(source.top));
}

void ReadQwen3VlMoe(const HfSource& source, ModelConfig& c) {
  ReadQwenMoe(source, c, QwenCountKey(source.top));
  c.experts.normalized = true;  // transformers has no other
  if (source.top.Bool("norm_topk_prob").value_or(true)) return;
  c.not_runnable = fmt::format(
      "{}: norm_topk_prob is false: transformers takes it for true in a {} model; no published "
      "model has it",
      source.top.where(), source.family.name);
}

void ReadDeepseekV2(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  ReadDeepseek(source, kDeepseekV2, c);
  c.experts.biased_by_files = c.layer.mlp.bias;
  CheckWord(top, "scoring_func", "softmax");
  const std::string method = top.String("topk_method").value_or("greedy");
  if (method == "group_limited_greedy") {
    ReadGroups(source, c);
  } else if (method == "greedy") {
    top.Find("n_group");
    top.Find("topk_group");
  } else {
    top.Fail("topk_method", "\"greedy\" or \"group_limited_greedy\"");
  }
  if (!top.Bool("norm_topk_prob").value_or(false)) return;
  c.not_runnable = fmt::format(
      "{}: norm_topk_prob is true: transformers ignores it in a deepseek_v2 model, DeepSeek's code "
      "does "
      "not; no published model has it",
      top.where());
}

void ReadDeepseekV3(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  ReadDeepseek(source, kDeepseekV3, c);
  CheckWord(top, "scoring_func", "sigmoid");
  CheckWord(top, "topk_method", "noaux_tc");
  c.experts.scores = ExpertsSpec::Scores::kSigmoid;
  c.experts.choice_bias = true;
  c.experts.normalized = top.Bool("norm_topk_prob").value_or(true);
  c.experts.group_by = ExpertsSpec::GroupBy::kTwoLargest;
  ReadGroups(source, c);
}

// DeepSeek's groups of experts, by softmax and without a bias on the choice.
void ReadMistral4(const HfSource& source, ModelConfig& c) {
  Required(source.top, "n_shared_experts", 0, kMaxExperts, c);  // transformers' default is 1
  ReadDeepseek(source, kMistral4, c);
  c.experts.normalized = source.top.Bool("norm_topk_prob").value_or(true);
  c.experts.group_by = ExpertsSpec::GroupBy::kTwoLargest;
  ReadGroups(source, c);
}

void ReadGptOss(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  ReadExperts(source, "num_local_experts", "intermediate_size", c);
  c.experts.normalized = c.experts.router_bias = true;
  c.layer.attention.sinks = true;
  c.layer.mlp.activation = MlpSpec::Activation::kClampedSwiglu;
  top.Number("swiglu_limit", 7, 7);
  const auto chosen = top.Int("experts_per_token", 1, kMaxExperts);  // OpenAI's own word
  if (chosen && *chosen != c.experts.chosen) {
    Contradiction(top.where(), "experts_per_token", fmt::format("{}", *chosen),
                  "num_experts_per_tok", fmt::format("{}", c.experts.chosen));
  }
}

// Norms of q and k without weights, in layers that rotate; one expert reads what its score multiplies.
void ReadLlama4(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  ExpertsSpec& experts = c.experts;
  ReadExperts(source, "num_local_experts", "intermediate_size", c);
  experts.scores = ExpertsSpec::Scores::kSigmoid;
  experts.weighs_input = true;
  experts.shared_feed_forward = experts.feed_forward;
  c.feed_forward = Required(top, "intermediate_size_mlp", 1, kMaxDim, c);
  AttentionSpec& attention = c.layer.attention;
  attention.qk_norm_where_rotated = true;
  if (!top.Bool("use_qk_norm").value_or(true)) attention.qk_norm = {};
  const int64_t step = top.Int("interleave_moe_layer_step", 1, kMaxLayers).value_or(1);
  const auto listed = top.Numbers("moe_layers", 0, static_cast<double>(c.layers - 1));
  for (std::size_t l = 0; l < experts.layers.size(); ++l) {
    experts.layers[l] =
        listed ? std::find(listed->begin(), listed->end(), static_cast<double>(l)) != listed->end()
               : (static_cast<int64_t>(l) + 1) % step == 0;
  }
}

}  // namespace ropewalk::internal
