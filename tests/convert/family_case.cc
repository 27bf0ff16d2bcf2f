#include "tests/convert/family_case.h"

#include <random>

#include "ropewalk/base/error.h"
#include "src/model/tensor_table.h"
#include "tests/model/support.h"

namespace ropewalk::families_test {

using internal::ExpectedTensor;
using internal::ExpectedTensors;
using internal::Naming;
using nlohmann::json;

namespace {

json Merged(json base, const json& more) {
  base.update(more);
  return base;
}

json Yarn(const json& more) {
  json rope = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  rope.update(more);
  return {{"rope_scaling", rope}, {"max_position_embeddings", 128}};
}

json Latent() {
  return {{"num_key_value_heads", 4}, {"kv_lora_rank", 20}, {"qk_nope_head_dim", 6},
          {"qk_rope_head_dim", 8},    {"v_head_dim", 10},   {"head_dim", 8},
          {"rms_norm_eps", 1e-6}};
}

json Deepseek(const char* type) {
  return Merged(Latent(), {{"model_type", type},
                           {"n_routed_experts", 6},
                           {"num_experts_per_tok", 2},
                           {"moe_intermediate_size", 24},
                           {"n_shared_experts", 2},
                           {"first_k_dense_replace", 1},
                           {"routed_scaling_factor", 1.5},
                           {"tie_word_embeddings", false}});
}

json Ministral3(json rope) {
  const bool scaled = rope["rope_type"] == "yarn";
  rope.update({{"rope_theta", 500.0}, {"llama_4_scaling_beta", 0.1}});
  return {{"model_type", "ministral3"},
          {"rope_parameters", rope},
          {"max_position_embeddings", scaled ? 128 : 16},
          {"tie_word_embeddings", false}};
}

json Mistral4(json rope) {
  const bool scaled = rope["rope_type"] == "yarn";
  rope.update({{"rope_theta", 500.0}, {"llama_4_scaling_beta", 0.1}});
  json config = Deepseek("mistral4");
  config.erase("head_dim");
  config.update({{"q_lora_rank", 16},
                 {"n_group", 3},
                 {"topk_group", 2},
                 {"norm_topk_prob", true},
                 {"rope_parameters", rope},
                 {"max_position_embeddings", scaled ? 128 : 16}});
  return config;
}

json Baichuan(const json& more) {
  return Merged(
      {{"model_type", "baichuan"}, {"num_key_value_heads", 4}, {"tie_word_embeddings", false}},
      more);
}

// Of 4 pairs.
json AxesOf(const std::string& family) {
  if (family == "qwen2") return {{"mrope_section", {1, 1, 2}}};
  return {{"mrope_section", {2, 1, 1}}, {"mrope_interleaved", true}};
}

}  // namespace

std::vector<Case> MixtureCases() {
  const json untied = {{"tie_word_embeddings", false}};
  const json qwen = Merged(
      untied, {{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  const json v3 =
      Merged(Deepseek("deepseek_v3"),
             {{"q_lora_rank", 16}, {"n_group", 3}, {"topk_group", 2}, {"norm_topk_prob", true}});
  return {
      {"mistral", Merged(untied, {{"model_type", "mistral"}, {"sliding_window", nullptr}}), "llama",
       "llama", Yarn(json::object())},
      {"mixtral",
       Merged(untied,
              {{"model_type", "mixtral"}, {"num_local_experts", 5}, {"num_experts_per_tok", 2}}),
       "llama", nullptr, Yarn(json::object())},
      {"qwen3_moe", Merged(qwen, {{"model_type", "qwen3_moe"}, {"norm_topk_prob", true}}),
       "qwen3moe", nullptr, Yarn(json::object())},
      {"qwen2_vl", Merged(untied, {{"model_type", "qwen2_vl"}, {"rope_scaling", AxesOf("qwen2")}}),
       "qwen2vl", "qwen2", Yarn(AxesOf("qwen2"))},
      {"qwen3_vl",
       Merged(untied, {{"model_type", "qwen3_vl_text"}, {"rope_scaling", AxesOf("qwen3")}}),
       "qwen3vl", "qwen3", Yarn(AxesOf("qwen3"))},
      {"qwen3_vl_moe",
       Merged(qwen, {{"model_type", "qwen3_vl_moe_text"}, {"rope_scaling", AxesOf("qwen3")}}),
       "qwen3vlmoe", "qwen3_moe"},
      {"qwen2_moe",
       Merged(qwen, {{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 28}}),
       "qwen2moe"},
      {"olmoe",
       Merged(untied, {{"model_type", "olmoe"},
                       {"num_key_value_heads", 4},
                       {"num_experts", 5},
                       {"num_experts_per_tok", 2}}),
       "olmoe"},
      {"gpt_oss",
       Merged(untied, {{"model_type", "gpt_oss"},
                       {"num_local_experts", 5},
                       {"num_experts_per_tok", 2},
                       {"sliding_window", 20},
                       {"rope_scaling", {{"rope_type", "default"}}}}),
       "gpt-oss", nullptr, Yarn(json::object())},
      {"deepseek_v2", Merged(Deepseek("deepseek_v2"), {{"q_lora_rank", nullptr}}), "deepseek2",
       nullptr, Yarn({{"mscale", 0.707}, {"mscale_all_dim", 0.707}})},
      {"deepseek_v3", v3, "deepseek2", nullptr, Yarn({{"mscale", 1.0}, {"mscale_all_dim", 1.0}})},
      {"mistral4", Mistral4({{"rope_type", "default"}}), "mistral4", nullptr,
       Mistral4({{"rope_type", "yarn"},
                 {"factor", 4.0},
                 {"original_max_position_embeddings", 32},
                 {"mscale", 1.0},
                 {"mscale_all_dim", 1.0}})},
      {"llama4",
       Merged(untied, {{"model_type", "llama4_text"},
                       {"num_local_experts", 5},
                       {"num_experts_per_tok", 1},
                       {"intermediate_size", 24},
                       {"intermediate_size_mlp", 40},
                       {"interleave_moe_layer_step", 2},
                       {"attention_chunk_size", 8192}}),
       "llama4",
       nullptr,
       {{"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 32}}},
        {"max_position_embeddings", 128}}},
      {"minicpm3",
       Merged(Latent(), {{"model_type", "minicpm3"},
                         {"rms_norm_eps", 1e-6},
                         {"q_lora_rank", 16},
                         {"v_head_dim", 8},
                         {"scale_emb", 12},
                         {"scale_depth", 1.4},
                         {"dim_model_base", 256}}),
       "minicpm3",
       nullptr,
       {{"rope_scaling",
         {{"rope_type", "longrope"},
          {"short_factor", {1.0, 1.1, 1.2, 1.3}},
          {"long_factor", {1.0, 2.0, 3.0, 4.0}},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32}}},
        {"max_position_embeddings", 128}}},
      {"ministral3", Ministral3({{"rope_type", "default"}}), "mistral3", nullptr,
       Ministral3({{"rope_type", "yarn"},
                   {"factor", 4.0},
                   {"original_max_position_embeddings", 32},
                   {"beta_fast", 16.0},
                   {"mscale", 1.0},
                   {"mscale_all_dim", 1.0}})},
      {"qwen",
       {{"model_type", "qwen"},
        {"num_key_value_heads", 4},
        {"intermediate_size", 80},
        {"layer_norm_epsilon", 1e-5},
        {"seq_length", 64},
        {"tie_word_embeddings", false},
        {"no_bias", true}},
       "qwen"},
      {"baichuan", Baichuan({{"num_hidden_layers", 32}, {"z_loss_weight", 0}}), "baichuan"},
      {"baichuan_13b", Baichuan({{"num_hidden_layers", 40}, {"model_max_length", 64}}), "baichuan"},
  };
}

json ConfigOf(const Case& c) {
  json config = test::Tiny{.layers = 4, .hidden = 32, .feed_forward = 40}.Config();
  if (std::string(c.name) == "chatglm") {
    config = {{"hidden_size", 32}, {"num_attention_heads", 4}, {"tie_word_embeddings", false}};
  }
  config.update(c.keys);
  // Keys that the code of these families does not read.
  const std::string type = config["model_type"];
  if (type == "gpt_neox" || type == "gpt2" || type == "bloom" || type == "mpt") {
    for (const char* key : {"rope_theta", "head_dim"}) config.erase(key);
  }
  if (type == "ministral3" || type == "mistral4") config.erase("rope_theta");
  if (config.contains("model_max_length")) {  // a Baichuan 13B is told by it
    for (const char* key : {"max_position_embeddings", "rope_theta"}) config.erase(key);
  }
  return config;
}

void WriteModel(const std::string& folder, const json& config) {
  const ModelConfig c = ParseHfConfig(config.dump(), "config.json");
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  test::Tensors tensors;
  for (const ExpectedTensor& t : ExpectedTensors(c, Naming::kHuggingFace)) {
    int64_t size = 1;
    for (const int64_t d : t.shape) size *= d;
    const bool norm = t.shape.size() == 1 && !t.bias;
    test::Tensor tensor{t.shape, std::vector<float>(static_cast<std::size_t>(size))};
    for (float& v : tensor.values) v = (norm ? 1.0f : 0.0f) + (norm ? 0.3f : 0.2f) * normal(engine);
    tensors.emplace(t.name, std::move(tensor));
  }
  test::Tiny::WriteFolder(folder, config, tensors);
}

}  // namespace ropewalk::families_test
