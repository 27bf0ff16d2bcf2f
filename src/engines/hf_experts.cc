#include "src/engines/hf_experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;
using GroupBy = ExpertsSpec::GroupBy;

// What no family but DeepSeek's has a key for.
void CheckUsual(const ModelConfig& c) {
  if (c.experts.scale != 1) {
    FailFor(c.architecture, fmt::format("weights of experts multiplied by {:g}", c.experts.scale));
  }
  if (c.experts.groups > 1) FailFor(c.architecture, "groups of experts");
}

void WriteCounts(const ModelConfig& c, const char* count_key, Json& j) {
  j[count_key] = c.experts.count;
  j["num_experts_per_tok"] = c.experts.chosen;
}

void WriteQwen(const ModelConfig& c, Json& j) {
  CheckUsual(c);
  WriteCounts(c, "num_experts", j);
  j["moe_intermediate_size"] = c.experts.feed_forward;
  j["norm_topk_prob"] = c.experts.normalized;
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = Json::array();
}

void WriteLatent(const ModelConfig& c, Json& j) {
  const LatentSpec& latent = c.layer.attention.latent;
  for (const char* key : {"head_dim", "partial_rotary_factor"}) j.erase(key);
  j["q_lora_rank"] = latent.q_rank > 0 ? Json(latent.q_rank) : Json();
  j["kv_lora_rank"] = latent.kv_rank;
  j["qk_nope_head_dim"] = c.head_dim - latent.rotary_dim;
  j["qk_rope_head_dim"] = latent.rotary_dim;
  j["v_head_dim"] = latent.value_dim;
}

void WriteDeepseek(const ModelConfig& c, Json& j) {
  const ExpertsSpec& experts = c.experts;
  WriteLatent(c, j);
  if (experts.count == 0) FailFor(c.architecture, "no experts");
  WriteCounts(c, "n_routed_experts", j);
  j["moe_intermediate_size"] = experts.feed_forward;
  j["n_shared_experts"] = experts.shared_feed_forward / experts.feed_forward;
  j["routed_scaling_factor"] = experts.scale;
  const auto& layers = experts.layers;
  j["first_k_dense_replace"] = std::find(layers.begin(), layers.end(), true) - layers.begin();
  j["moe_layer_freq"] = 1;
  j["norm_topk_prob"] = experts.normalized;
}

}  // namespace

void FailFor(const std::string& family, const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("no key of config.json says that a {} model has {}", family, what));
}

void FinishMixtral(const ModelConfig& c, Json& j) {
  CheckUsual(c);
  WriteCounts(c, "num_local_experts", j);
}

void FinishOlmoe(const ModelConfig& c, Json& j) {
  CheckUsual(c);
  WriteCounts(c, "num_experts", j);
  j["norm_topk_prob"] = c.experts.normalized;
}

void FinishQwen2Moe(const ModelConfig& c, Json& j) {
  WriteQwen(c, j);
  j["shared_expert_intermediate_size"] = c.experts.shared_feed_forward;
}

void FinishQwen3Moe(const ModelConfig& c, Json& j) { WriteQwen(c, j); }

void FinishGptOss(const ModelConfig& c, Json& j) {
  CheckUsual(c);
  WriteCounts(c, "num_local_experts", j);
  j["swiglu_limit"] = 7.0;
  j["rope_scaling"] = {{"rope_type", "default"}};  // without it transformers has the 20B's YaRN
}

void FinishDeepseekV2(const ModelConfig& c, Json& j) {
  if (c.plan.layers[0].temperature) FailFor(c.architecture, "a temperature of its queries");
  if (c.experts.normalized) FailFor(c.architecture, "weights of experts that sum to 1");
  if (c.experts.groups > 1 && c.experts.group_by != GroupBy::kLargest) {
    FailFor(c.architecture, "groups of experts that their two largest scores choose");
  }
  if (c.experts.choice_bias) FailFor(c.architecture, "a bias in the choice of experts");
  WriteDeepseek(c, j);
  j["topk_method"] = "greedy";
  j["scoring_func"] = "softmax";
}

void FinishDeepseekV3(const ModelConfig& c, Json& j) {
  if (!c.experts.choice_bias) FailFor(c.architecture, "no bias in the choice of experts");
  WriteDeepseek(c, j);
  j["n_group"] = c.experts.groups;
  j["topk_group"] = c.experts.chosen_groups;
  j["topk_method"] = "noaux_tc";
  j["scoring_func"] = "sigmoid";
}

// As Hugging Face's transformers 5, which has it, wants it: all of the rotation in one dictionary.
void FinishMinistral3(const ModelConfig& c, Json& j) {
  j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", j["rope_theta"]}};
  for (const char* key : {"rope_theta", "rope_scaling"}) j.erase(key);
  const auto& temperature = c.plan.layers[0].temperature;
  if (temperature) j["rope_parameters"]["llama_4_scaling_beta"] = temperature->beta;
}

void FinishMistral4(const ModelConfig& c, Json& j) {
  if (c.experts.scores != ExpertsSpec::Scores::kSoftmax || c.experts.choice_bias) {
    FailFor(c.architecture, "experts that are not chosen by a softmax");
  }
  WriteDeepseek(c, j);
  j["n_group"] = c.experts.groups;
  j["topk_group"] = c.experts.chosen_groups;
  FinishMinistral3(c, j);
}

void FinishMiniCpm3(const ModelConfig& c, Json& j) { WriteLatent(c, j); }

void FinishLlama4(const ModelConfig& c, Json& j) {
  CheckUsual(c);
  WriteCounts(c, "num_local_experts", j);
  j["intermediate_size"] = c.experts.feed_forward;
  j["intermediate_size_mlp"] = c.feed_forward;
  j["use_qk_norm"] = c.layer.attention.qk_norm.exists();
  std::vector<int64_t> with_experts, rotate;
  int64_t chunk = 0;
  bool tempered = false;
  for (int64_t l = 0; l < c.layers; ++l) {
    const LayerPlan& layer = c.plan.layers[static_cast<std::size_t>(l)];
    if (c.experts.In(l)) with_experts.push_back(l);
    rotate.push_back(layer.rotation ? 1 : 0);
    chunk = std::max(chunk, layer.chunk_tokens);
    tempered = tempered || layer.temperature.has_value();
  }
  j["moe_layers"] = with_experts;
  j["no_rope_layers"] = rotate;
  j["attention_chunk_size"] = chunk > 0 ? Json(chunk) : Json();
  j["attn_temperature_tuning"] = tempered;
}

}  // namespace ropewalk::internal
