// Every family of config.json: positions by layer, what is noted, contradictions, typing errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/config/family_rows.h"
#include "tests/config/plan_facts.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace families_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

ModelConfig Parse(std::string json, const char* file = "config.json") {
  if (const std::size_t at = json.find("SIZES"); at != std::string::npos) {
    json.replace(at, 5, test::kFamilySizes);
  }
  return ParseHfConfig(json, file);
}

TEST(Families, PositionsByLayer) {
  for (const test::FamilyRow& row : test::kFamilyRows) {
    SCOPED_TRACE(row.name);
    try {
      EXPECT_EQ(test::Lines(Parse(row.json).plan), row.lines);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

ModelConfig Find(const std::string& name) {
  for (const test::FamilyRow& row : test::kFamilyRows) {
    if (name == row.name) return Parse(row.json);
  }
  throw std::runtime_error("no row " + name);
}

// "interleaved" of M-RoPE is about sections, not about pairs; GPT-J's is about pairs.
TEST(Families, InterleavedHasTwoMeanings) {
  const RotarySpec vl = *Find("qwen3-vl").plan.layers[0].rotation;
  EXPECT_EQ(vl.layout, PairLayout::kHalf);
  EXPECT_EQ(vl.axes.order, AxisOrder::kInterleaved);
  const RotarySpec gptj = *Find("gpt-j").plan.layers[0].rotation;
  EXPECT_EQ(gptj.layout, PairLayout::kInterleaved);
  EXPECT_TRUE(gptj.axes.sections.empty());
}

// Rotary keys stay in the file of a model whose rotation was removed, and count for nothing.
TEST(Families, Drope) {
  const std::string start = R"({"model_type": "llama_drope", SIZES "head_dim": 64,
      "max_position_embeddings": 4096, )";
  const ModelConfig c = Parse(start + R"("rope_theta": 1e5, "softmax_scale": 0.15,
      "rope_scaling": {"rope_type": "linear", "factor": 2}})");
  EXPECT_EQ(test::Lines(c.plan), "4 x none");
  EXPECT_EQ(c.plan.other, OtherEncoding::kNoPositions);
  EXPECT_EQ(c.plan.trained_length, 4096);
  EXPECT_FLOAT_EQ(static_cast<float>(c.layer.attention.score_scale), 0.15f);
  EXPECT_EQ(c.not_runnable, "");
  EXPECT_THAT(c.not_honoured, Contains(HasSubstr("rope_theta")));
  for (const char* type : {"qk_norm_nope", "q_norm_nope", "k_norm_nope"}) {
    EXPECT_THAT(Parse(start + R"("attention_type": ")" + type + "\"}").not_runnable,
                AllOf(HasSubstr(type), HasSubstr("a norm of q or k is one of all heads together")));
  }
  EXPECT_THAT(Find("drope of qwen2, whose norms the decoder does not compute").not_runnable,
              HasSubstr("qk_norm_nope"));
  const std::string qwen = std::regex_replace(start, std::regex("llama"), "qwen2");
  EXPECT_EQ(Parse(qwen + R"("sliding_window": 4096, "use_sliding_window": false})").not_runnable,
            "");
  EXPECT_TRUE(Parse(qwen + R"("use_sliding_window": false})").layer.attention.qkv_bias);
  EXPECT_THAT(Parse(qwen + R"("use_sliding_window": true})").not_runnable,
              HasSubstr("use_sliding_window is true"));
  for (const char* bad : {R"("attention_type": "rope"})", R"("attention_type": 3})",
                          R"("softmax_scale": 0})", R"("softmax_scale": "x"})"}) {
    EXPECT_THROW(Parse(start + bad), Error) << bad;
  }
}

// Linear attention and state spaces have no keys; three of four layers of Qwen3-Next.
TEST(Families, RecurrentLayers) {
  const ModelConfig next = Parse(R"({"model_type": "qwen3_next", SIZES "head_dim": 64,
      "max_position_embeddings": 64, "layer_types": ["linear_attention", "linear_attention",
      "linear_attention", "full_attention"]})");
  EXPECT_EQ(test::Lines(next.plan), "3 x recurrent; 1 x half 16/64 base 10000");
  EXPECT_THAT(Describe(next.plan, 64), HasSubstr("layers 0-2: recurrent"));
}

TEST(Families, NotesSayWhatTheFileDoesNot) {
  EXPECT_THAT(Find("gpt2").plan.notes, Contains("no rotation: learned absolute positions"));
  EXPECT_THAT(Find("falcon rw").plan.notes, Contains(HasSubstr("ALiBi")));
  EXPECT_THAT(Find("falcon 7b").plan.notes,
              AllOf(Contains(HasSubstr("max_position_embeddings is absent: 2048")),
                    Contains(HasSubstr("rope_theta is absent: 10000"))));
  EXPECT_THAT(Find("glm-4 9b, its own code").plan.notes,
              Contains(HasSubstr("rope_ratio multiplies the base")));
  const ModelConfig gemma = Find("gemma 3, multimodal, as published: sizes left out");
  EXPECT_EQ(gemma.architecture, "gemma3_text");
  EXPECT_EQ(gemma.plan.configured_length, 131072);
  EXPECT_EQ(gemma.plan.place.text_part, "text_config");
  EXPECT_EQ(Find("qwen3-omni: the text part of a part").plan.place.text_part,
            "thinker_config.text_config");
  EXPECT_EQ(Find("olmo2").plan.place, SettingPlace());
  EXPECT_THAT(Parse(R"({"model_type": "qwen2_vl", SIZES "max_position_embeddings": 64,
      "image_token_id": 5, "vision_start_token_id": 6, "spatial_merge_size": 2})")
                  .unknown_keys,
              ::testing::IsEmpty());
  // At the top of the file, and in the part that transformers makes of it.
  EXPECT_EQ(Find("qwen2-vl").plan.place,
            (SettingPlace{"text_config", true, R"({"mrope_section":[16,24,24]})"}));
  EXPECT_EQ(Find("qwen3-vl").plan.place,
            (SettingPlace{"text_config", false,
                          R"({"mrope_section":[24,20,20],"mrope_interleaved":true})"}));
  EXPECT_THAT(gemma.plan.notes,
              AllOf(Contains(HasSubstr("vision_config is not read")),
                    Contains(HasSubstr("num_attention_heads is absent: 8")),
                    Contains(HasSubstr("rope_local_base_freq is absent: 10000"))));
  EXPECT_THAT(Find("hunyuan-vl").plan.notes, Contains(HasSubstr("four axes")));
  EXPECT_THAT(Find("hunyuan").plan.notes,
              Contains(HasSubstr("beta_fast has no effect beside alpha")));
  const ModelConfig dual = Parse(R"({"model_type": "qwen2", SIZES "max_position_embeddings": 64,
      "dual_chunk_attention_config": {"chunk_size": 32}})");
  EXPECT_THAT(dual.plan.notes, Contains(HasSubstr("vLLM attend by chunks")));
  EXPECT_TRUE(dual.plan.has_dual_chunk_key);
  EXPECT_EQ(Find("qwen 1").plan.trained_length, 8192);
  EXPECT_EQ(Find("qwen 1").plan.configured_length, 32768);
}

TEST(Families, OnlyTheDecodersOwnRun) {
  const std::set<std::string> run = {"smollm3",
                                     "qwen2-vl",
                                     "qwen2.5-vl, saved again by transformers 4.57",
                                     "qwen3-vl",
                                     "qwen 2.5 with yarn",
                                     "gemma",
                                     "gemma 3, transformers 5",
                                     "gemma 3, multimodal, as published: sizes left out",
                                     "llava: a text_config that says next to nothing",
                                     "gpt-j",
                                     "gpt-j, whole heads",
                                     "pythia",
                                     "gpt-neox, transformers 5",
                                     "stablelm 2",
                                     "falcon 7b",
                                     "falcon rw",
                                     "mpt with a larger bias",
                                     "bloom 560m, as published",
                                     "glm-4, transformers",
                                     "olmo",
                                     "olmo2",
                                     "olmo3: the window's layers are not scaled",
                                     "command-r",
                                     "command-r7b: full layers do not rotate",
                                     "starcoder2 3b",
                                     "phi-4 mini",
                                     "glm-4 9b, its own code",
                                     "chatglm2 32k",
                                     "minicpm",
                                     "deepseek v3",
                                     "qwen 1",
                                     "internlm2",
                                     "drope of llama",
                                     "gpt2",
                                     "opt",
                                     "phi-2, transformers"};
  std::size_t seen = 0;
  for (const test::FamilyRow& row : test::kFamilyRows) {
    const ModelConfig c = Parse(row.json);
    EXPECT_EQ(c.not_runnable.empty(), run.contains(row.name)) << row.name << ": " << c.not_runnable;
    seen += run.count(row.name);
  }
  EXPECT_EQ(seen, run.size());
  const test::TempFolder folder;
  test::Tiny tiny;
  nlohmann::json config = tiny.Config();
  config["model_type"] = "exaone";
  test::Tiny::WriteFolder(folder.path(), config, tiny.Weights());
  const ModelFiles files = OpenModel(folder.path());
  EXPECT_EQ(files.tensors.size(), tiny.Weights().size());
  try {
    Decoder::Load(files);
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), AllOf(HasSubstr(folder.path()), HasSubstr("exaone"),
                                HasSubstr("llama, mistral, qwen2, qwen3, smollm3")));
  }
}

// What the decoder computes of a family is less than what its configuration can say: the rest is
// read, with the reason, and not run.
TEST(Families, WhatTheDecoderDoesNotCompute) {
  const char* kGpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
                          "n_positions": 64, "vocab_size": 100, )";
  const char* kNew = R"({"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4,
                         "num_hidden_layers": 2, "vocab_size": 100, "num_kv_heads": 2, )";
  const std::vector<std::pair<std::string, std::vector<const char*>>> table = {
      {std::string(kGpt2) + R"("scale_attn_by_inverse_layer_idx": true})",
       {"scale_attn_by_inverse_layer_idx is true", "gpt2"}},
      {std::string(kGpt2) + R"("scale_attn_weights": false})", {"scale_attn_weights is false"}},
      {std::string(kGpt2) + R"("add_cross_attention": true})", {"add_cross_attention is true"}},
      {std::string(kNew) + R"("new_decoder_architecture": true, "parallel_attn": false})",
       {"new_decoder_architecture true", "parallel_attn false"}},
      {std::string(kNew) + R"("num_ln_in_parallel_attn": 2})", {"2 norms"}},
      {R"({"model_type": "stablelm", SIZES "max_position_embeddings": 64, "qk_layernorm": true})",
       {"qk_layernorm is true", "stablelm"}},
      {R"({"model_type": "opt", SIZES "max_position_embeddings": 64, "do_layer_norm_before": false})",
       {"do_layer_norm_before is false"}},
      {R"({"model_type": "opt", SIZES "max_position_embeddings": 64, "word_embed_proj_dim": 256})",
       {"word_embed_proj_dim is 256", "512"}},
      {R"({"model_type": "gpt_bigcode", SIZES "n_positions": 64})", {"gpt_bigcode"}},
  };
  for (const auto& [json, reason] : table) {
    const ModelConfig c = Parse(json);
    for (const char* part : reason) EXPECT_THAT(c.not_runnable, HasSubstr(part)) << json;
  }
  try {
    Parse(std::string(kGpt2) + R"("activation_function": "quick_gelu"})");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("activation_function"), HasSubstr("quick_gelu")));
  }
}

// Multipliers where the file is silent, and ones that would make nothing of a model.
TEST(Families, Multipliers) {
  const char* kSizes = R"(SIZES "max_position_embeddings": 64)";
  const ModelConfig plain = Parse(std::string(R"({"model_type": "granite", )") + kSizes + "}");
  EXPECT_EQ(plain.embedding_scale, 1);
  EXPECT_EQ(plain.layer.residual_scale, 1);
  EXPECT_EQ(plain.layer.attention.score_scale,
            1);  // as transformers has it, not 1 / sqrt(head_dim)
  EXPECT_EQ(plain.logit_scale, 1);
  const ModelConfig granite = Parse(std::string(R"({"model_type": "granite", "logits_scaling": 8,
      "embedding_multiplier": 12, "attention_multiplier": 0.015625, "residual_multiplier": 0.22, )") +
                                    kSizes + "}");
  EXPECT_EQ(granite.not_runnable, "");
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.layer.residual_scale, 0.22);
  EXPECT_EQ(granite.layer.attention.score_scale, 0.015625);
  EXPECT_EQ(granite.logit_scale, 0.125);
  EXPECT_EQ(Parse(std::string(R"({"model_type": "cohere2", "rope_theta": 10000, )") + kSizes + "}")
                .logit_scale,
            0.0625);
  for (const auto& [type, key] : {std::pair{"granite", "embedding_multiplier"},
                                  {"granite", "attention_multiplier"},
                                  {"granite", "residual_multiplier"},
                                  {"granite", "logits_scaling"},
                                  {"cohere", "logit_scale"}}) {
    for (const char* value : {"0", "-1", "null", "\"2\"", "1e300"}) {
      SCOPED_TRACE(std::string(key) + ": " + value);
      try {
        Parse(std::string(R"({"model_type": ")") + type + R"(", ")" + key + "\": " + value +
              R"(, "rope_theta": 10000, )" + kSizes + "}");
        ADD_FAILURE() << "accepted";
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr(key));
      }
    }
  }
}

// What experts are chosen by, as published configurations say it, and ones that cannot be.
TEST(Families, Experts) {
  using nlohmann::json;
  const json sizes = {{"hidden_size", 512},       {"num_attention_heads", 8},
                      {"num_hidden_layers", 4},   {"intermediate_size", 1024},
                      {"vocab_size", 1000},       {"max_position_embeddings", 64},
                      {"num_experts_per_tok", 2}, {"num_key_value_heads", 8}};
  const auto with = [&](json base, const json& more) {
    for (const json& part : {sizes, more}) base.update(part);
    return ParseHfConfig(base.dump(), "config.json");
  };
  const json qwen = {
      {"model_type", "qwen3_moe"}, {"num_experts", 4}, {"moe_intermediate_size", 24}};
  const ModelConfig c = with(qwen, {{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
  EXPECT_EQ(c.not_runnable, "");
  EXPECT_EQ(c.experts.layers, (std::vector<bool>{false, true, false, false}));
  EXPECT_FALSE(c.experts.normalized || c.experts.InAll());
  EXPECT_EQ(c.experts.feed_forward, 24);
  EXPECT_EQ(c.feed_forward, 1024);
  EXPECT_TRUE(with(qwen, {{"norm_topk_prob", true}}).experts.normalized);
  EXPECT_EQ(with(qwen, {{"num_experts", 0}}).experts.count, 0);
  json saved_by_5 = qwen;
  saved_by_5.erase("num_experts");
  const ModelConfig renamed = with(saved_by_5, {{"num_local_experts", 4}});
  EXPECT_EQ(renamed.not_runnable, "");
  EXPECT_EQ(renamed.experts.count, 4);

  const json v3 = {{"model_type", "deepseek_v3"},
                   {"n_routed_experts", 8},
                   {"moe_intermediate_size", 24},
                   {"kv_lora_rank", 16},
                   {"qk_nope_head_dim", 32},
                   {"qk_rope_head_dim", 32},
                   {"v_head_dim", 48},
                   {"n_group", 4},
                   {"topk_group", 2}};
  const ModelConfig deepseek = with(v3, {{"first_k_dense_replace", 1},
                                         {"n_shared_experts", 2},
                                         {"num_nextn_predict_layers", 1},
                                         {"routed_scaling_factor", 2.5}});
  EXPECT_EQ(deepseek.not_runnable, "");
  EXPECT_EQ(deepseek.experts.shared_feed_forward, 48);
  EXPECT_EQ(deepseek.experts.scale, 2.5);
  const ModelConfig defaults = with(v3, json::object());
  EXPECT_EQ(defaults.experts.scale, 2.5);
  EXPECT_EQ(defaults.experts.shared_feed_forward, 24);
  EXPECT_EQ(defaults.experts.layers, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(with(v3, {{"n_shared_experts", nullptr}}).experts.shared_feed_forward, 0);
  EXPECT_EQ(deepseek.experts.layers, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(deepseek.experts.group_by, ExpertsSpec::GroupBy::kTwoLargest);
  EXPECT_EQ(deepseek.further_layers, 1);
  EXPECT_EQ(deepseek.layer.attention.latent.value_dim, 48);
  EXPECT_EQ(deepseek.layer.attention.latent.q_rank, 0);

  const json llama4 = {
      {"model_type", "llama4_text"}, {"num_local_experts", 4}, {"intermediate_size_mlp", 2048}};
  const ModelConfig scout = with(llama4, {{"interleave_moe_layer_step", 2}});
  EXPECT_EQ(scout.not_runnable, "");
  EXPECT_EQ(scout.experts.layers, (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(scout.feed_forward, 2048);
  EXPECT_EQ(scout.experts.shared_feed_forward, 1024);
  EXPECT_TRUE(scout.experts.weighs_input && scout.layer.attention.qk_norm_where_rotated);
  EXPECT_EQ(with(llama4, {{"moe_layers", {0, 3}}}).experts.layers,
            (std::vector<bool>{true, false, false, true}));
  EXPECT_FALSE(with(llama4, {{"use_qk_norm", false}}).layer.attention.qk_norm.exists());

  json v2 = v3;
  v2["model_type"] = "deepseek_v2";
  EXPECT_EQ(with(v2, json::object()).experts.scale, 1);
  EXPECT_EQ(with(v2, json::object()).experts.shared_feed_forward, 48);
  EXPECT_TRUE(with(v2, json::object()).experts.InAll());
  const json oss = {{"model_type", "gpt_oss"},
                    {"num_local_experts", 4},
                    {"rope_scaling", {{"rope_type", "default"}}}};
  struct Bad {
    json base, more;
    const char* says;
  };
  const Bad errors[] = {
      {qwen, {{"num_experts", 1}}, "num_experts_per_tok is 2 but num_experts is 1"},
      {qwen, {{"decoder_sparse_step", 0}}, "decoder_sparse_step"},
      {qwen, {{"mlp_only_layers", {4}}}, "mlp_only_layers"},
      {qwen, {{"mlp_only_layers", {0.5}}}, "mlp_only_layers"},
      {qwen, {{"num_experts", 1e9}}, "num_experts"},
      {qwen, {{"num_local_experts", 8}}, "num_experts is 4 but num_local_experts is 8"},
      {v3, {{"n_group", 3}}, "n_group 3"},
      {v3, {{"n_group", 8}}, "n_group 8"},  // no two in a group
      {v3, {{"topk_group", 5}}, "topk_group 5"},
      {v3, {{"num_experts_per_tok", 5}}, "5 of 8 experts"},
      {v3, {{"scoring_func", "softmax"}}, "scoring_func"},
      {v3, {{"topk_method", "greedy"}}, "topk_method"},
      {v3, {{"moe_layer_freq", 2}}, "moe_layer_freq"},
      {v2, {{"topk_method", "noaux_tc"}}, "topk_method"},
      {llama4, {{"moe_layers", {4}}}, "moe_layers"},
      {llama4, {{"interleave_moe_layer_step", 0}}, "interleave_moe_layer_step"},
      {oss, {{"swiglu_limit", 5}}, "swiglu_limit"},
      {oss, {{"experts_per_token", 3}}, "experts_per_token is 3"},
  };
  for (const Bad& bad : errors) {
    try {
      with(bad.base, bad.more);
      ADD_FAILURE() << "accepted: " << bad.more;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(bad.says)) << bad.more;
    }
  }
  const Bad reasons[] = {
      {{{"model_type", "mixtral"}}, json::object(), "num_local_experts is missing"},
      {{{"model_type", "qwen2_moe"}, {"num_experts", 4}, {"moe_intermediate_size", 24}},
       {{"shared_expert_intermediate_size", 8}, {"use_sliding_window", true}},
       "use_sliding_window is true"},
      {{{"model_type", "llama4_text"}, {"num_local_experts", 4}},
       json::object(),
       "intermediate_size_mlp is missing"},
      {v3, {{"num_key_value_heads", 4}}, "num_key_value_heads is 4"},
      {v2, {{"norm_topk_prob", true}}, "norm_topk_prob is true"},
  };
  for (const Bad& bad : reasons) {
    EXPECT_THAT(with(bad.base, bad.more).not_runnable, HasSubstr(bad.says)) << bad.more;
  }
}

// What no key says: which Baichuan a file is of; and what one key means in Qwen 1 alone.
TEST(Families, BaichuanAndQwen) {
  const std::string baichuan = R"({"model_type": "baichuan", SIZES )";
  const ModelConfig seven = Parse(baichuan + R"("max_position_embeddings": 4096})");
  EXPECT_EQ(seven.not_runnable, "");
  EXPECT_TRUE(seven.plan.layers[0].rotation);
  EXPECT_FALSE(seven.normalized_head);
  EXPECT_TRUE(Parse(baichuan + R"("max_position_embeddings": 4096, "model_max_length": 4096,
                                  "z_loss_weight": 0})")
                  .normalized_head);
  const ModelConfig thirteen = Parse(baichuan + R"("model_max_length": 4096})");
  EXPECT_EQ(thirteen.not_runnable, "");
  EXPECT_FALSE(thirteen.plan.layers[0].rotation);
  EXPECT_TRUE(thirteen.plan.layers[0].bias);
  EXPECT_EQ(thirteen.plan.trained_length, 4096);
  EXPECT_EQ(Parse(R"({"model_type": "qwen", SIZES "seq_length": 2048,
                      "max_position_embeddings": 2048})")
                .feed_forward,
            512);
  try {
    Parse(R"({"model_type": "qwen", "hidden_size": 64, "num_attention_heads": 4,
              "num_hidden_layers": 2, "vocab_size": 99, "seq_length": 64,
              "max_position_embeddings": 64, "intermediate_size": 95})");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("intermediate_size"));
  }
}

// Falcon's defaults where the file is silent: one key head, tied, parallel, 4 times as wide.
TEST(Families, FalconDefaults) {
  const ModelConfig c = Parse(R"({"model_type": "falcon", "hidden_size": 64,
      "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100})");
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.feed_forward, 256);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.layer.residual, Residual::kParallel);
  EXPECT_FALSE(c.layer.pre_mlp.exists());
  EXPECT_FALSE(c.layer.attention.qkv_bias || c.layer.attention.out_bias || c.layer.mlp.bias);
}

// Llama 4 Scout: below one turn within 8192 tokens all is divided by 16, above nothing.
TEST(Families, EqualLlama3FactorsAreAStep) {
  const ModelConfig c = Find("llama 4 scout: equal factors are a step");
  const Frequencies f = Resolve(*c.plan.layers[0].rotation, 10485760);
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -i / 64.0);
    const double turns = 8192 * plain / (2 * M_PI);
    EXPECT_NEAR(f.inv_freq[i].hi, turns > 1 ? plain : plain / 16, 1e-13 * plain) << i;
    EXPECT_NEAR(f.inv_freq_f32[i], turns > 1 ? plain : plain / 16, 1e-6 * plain) << i;
  }
}

TEST(Families, ContradictionsShowBoth) {
  struct Bad {
    const char* json;
    std::vector<const char*> message;
  };
  const std::vector<Bad> table = {
      {R"({"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4,
           "num_hidden_layers": 2, "max_position_embeddings": 64, "rotary_emb_base": 10000,
           "rope_theta": 500, "intermediate_size": 64, "vocab_size": 100})",
       {"rope_theta is 500", "rotary_emb_base is 10000"}},
      {R"({"model_type": "gptj", "n_embd": 64, "hidden_size": 128, "n_head": 4, "n_layer": 2,
           "n_positions": 64})",
       {"hidden_size is 128", "n_embd is 64"}},
      {R"({"model_type": "gemma3_text", SIZES "head_dim": 64, "max_position_embeddings": 64,
           "sliding_window": 8, "sliding_window_pattern": 2, "layer_types": ["sliding_attention",
           "sliding_attention", "sliding_attention", "full_attention"]})",
       {"layer_types[1] is sliding_attention", "2"}},
      {R"({"model_type": "gemma3_text", SIZES "head_dim": 64, "max_position_embeddings": 64,
           "rope_local_base_freq": 500, "rope_parameters": {"full_attention": {"rope_theta": 1000},
           "sliding_attention": {"rope_theta": 100}}})",
       {"rope_local_base_freq", "500", "100"}},
      {R"({"model_type": "llava", "rope_theta": 500, "text_config": {"model_type": "llama",
           "rope_theta": 1000}})",
       {"rope_theta is 500", "text_config: rope_theta is 1000"}},
      {R"({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", SIZES
           "head_dim": 128, "max_position_embeddings": 64, "rope_theta": 5e6,
           "rope_scaling": {"mrope_interleaved": false, "mrope_section": [24, 20, 20], "rope_type": "default"}}})",
       {"mrope_interleaved is false", "qwen3_vl"}},
      {R"({"model_type": "qwen2_vl", SIZES "max_position_embeddings": 64, "rope_scaling": {"type":
           "mrope", "mrope_section": [16, 24, 24]}})",
       {"mrope_section", "is 64", "is 32"}},
      {R"({"model_type": "deepseek_v3", SIZES "head_dim": 96, "max_position_embeddings": 64,
           "qk_nope_head_dim": 128, "qk_rope_head_dim": 64})",
       {"head_dim is 96", "128 + 64"}},
      {R"({"model_type": "minimax_m2", SIZES "head_dim": 16, "max_position_embeddings": 64,
           "rotary_dim": 8, "partial_rotary_factor": 0.25})",
       {"rotary_dim is 8", "partial_rotary_factor is 0.25"}},
      {R"({"model_type": "hunyuan_v1_dense", SIZES "max_position_embeddings": 64, "rope_scaling":
           {"type": "dynamic", "alpha": 1000, "factor": 4}})",
       {"alpha is 1000", "factor 4"}},
      {R"({"model_type": "qwen", SIZES "kv_channels": 64, "max_position_embeddings": 64,
           "use_dynamic_ntk": true, "rope_scaling": {"type": "linear", "factor": 2}})",
       {"use_dynamic_ntk is qwen", "linear(factor 2)"}},
      {R"({"model_type": "gpt_oss", SIZES "max_position_embeddings": 64, "initial_context_length":
           32, "rope_scaling": {"rope_type": "yarn", "factor": 2,
           "original_max_position_embeddings": 16}})",
       {"original_max_position_embeddings", "16", "32"}},
      {R"({"model_type": "cohere", SIZES "max_position_embeddings": 64})",
       {"rope_theta", "missing", "versions 4 and 5"}},
      {R"({"model_type": "gpt_oss", SIZES "max_position_embeddings": 64})",
       {"rope_parameters", "missing", "a scaling of its own"}},
      {R"({"model_type": "gemma2", SIZES "max_position_embeddings": 64, "rope_scaling": {"rope_type":
           "gptj"}})",
       {"gptj", "gemma2", "halves"}},
      {R"({"model_type": "llama", SIZES "max_position_embeddings": 64, "rope_scaling": {"rope_type":
           "yarn", "factor": 2, "llama_4_scaling_beta": 0.1}})",
       {"llama_4_scaling_beta = 0.1", "llama"}},
  };
  for (const Bad& bad : table) {
    try {
      Parse(bad.json, "dir/config.json");
      ADD_FAILURE() << "accepted: " << bad.json;
    } catch (const Error& e) {
      for (const char* part : bad.message) EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_THAT(e.what(), HasSubstr("dir/config.json"));
    }
  }
}

TEST(Families, NearestKnownName) {
  struct Typo {
    const char* model;
    const char* key;
    const char* near;
  };
  for (const Typo& t : {Typo{"gpt_neox", "rotary_pc", "rotary_pct"},
                        Typo{"gemma3_text", "rope_local_base_frequ", "rope_local_base_freq"},
                        Typo{"llama4_text", "attn_temperature_tunning", "attn_temperature_tuning"},
                        Typo{"chatglm", "rope_ratios", "rope_ratio"},
                        Typo{"mistral", "sliding_windows", "sliding_window"}}) {
    nlohmann::json config = test::Tiny{}.Config();
    config["model_type"] = t.model;
    config.erase("head_dim");
    config["hidden_size"] = 64;
    config[t.key] = 1;
    try {
      ParseHfConfig(config.dump(), "config.json");
      ADD_FAILURE() << t.key << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr(t.key), HasSubstr(t.near), HasSubstr("did you mean")));
    }
  }
}

}  // namespace families_test
}  // namespace ropewalk
