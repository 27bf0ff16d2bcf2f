// A rope dictionary given beside a model: it replaces scaling, base and rotated share.
#include "src/config/rope_dictionary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"

namespace ropewalk {
namespace rope_dictionary_test {

using nlohmann::json;
using testing::HasSubstr;

ModelConfig WithBoth(const json& scaling, const json& parameters) {
  json config = json::parse(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 4096,
          "rope_theta": 10000.0})");
  config["rope_scaling"] = scaling;
  config["rope_parameters"] = parameters;
  return ParseHfConfig(config.dump(), "config.json");
}

struct Dictionary {
  const char* text;
  std::vector<std::pair<const char*, json>> changes;  // key, another value
};

const std::vector<Dictionary>& Dictionaries() {
  static const std::vector<Dictionary> all = {
      {R"({"rope_type": "linear", "factor": 4})", {{"factor", 8}}},
      {R"({"rope_type": "dynamic", "factor": 4})", {{"factor", 8}}},
      {R"({"rope_type": "dynamic", "alpha": 4})", {{"alpha", 8}}},
      {R"({"rope_type": "ntk", "factor": 4})", {{"factor", 8}}},
      {R"({"rope_type": "ntk", "factor": 4, "mixed_b": 0.75})", {{"factor", 8}, {"mixed_b", 0.5}}},
      {R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 1024})",
       {{"factor", 8},
        {"beta_fast", 16},
        {"beta_slow", 2},
        {"truncate", false},
        {"attention_factor", 1.5},
        {"attn_factor", 1.5},
        {"mscale", 0.7},
        {"mscale_all_dim", 0.7},
        {"original_max_position_embeddings", 2048}}},
      {R"({"rope_type": "llama3", "factor": 4, "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": 1024})",
       {{"factor", 8}, {"low_freq_factor", 2}, {"high_freq_factor", 8}}},
      {R"({"rope_type": "longrope", "factor": 4, "short_factor": [1, 1, 1, 1, 1, 1, 1, 2],
           "long_factor": [1, 1, 2, 3, 4, 5, 6, 7], "short_mscale": 1.1, "long_mscale": 1.2,
           "original_max_position_embeddings": 1024})",
       {{"factor", 8},
        {"short_factor", {1, 1, 1, 1, 1, 1, 1, 3}},
        {"long_factor", {1, 1, 2, 3, 4, 5, 6, 8}},
        {"attention_factor", 1.5},
        {"short_mscale", 1.2},
        {"long_mscale", 1.3}}},
      {R"({"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2})",
       {{"partial_rotary_factor", 0.25}, {"factor", 4}}}};
  return all;
}

// Transformers 5 keeps rope_scaling beside rope_parameters when it saves.
TEST(RopeDictionary, TwoThatDifferInOneFieldAreAConflict) {
  std::set<std::string> met, fields;
  for (const Dictionary& d : Dictionaries()) {
    const json base = json::parse(d.text);
    EXPECT_NO_THROW(WithBoth(base, base)) << d.text;
    json elsewhere = base;  // what the newer form holds beside a scaling
    elsewhere["rope_theta"] = 10000;
    EXPECT_NO_THROW(WithBoth(base, elsewhere)) << d.text;
    const auto parse = [](const json& dictionary) {
      internal::RopeContext context;
      context.max_position = 4096;
      return internal::ParseRope(internal::JsonObject(dictionary, "given"), context).scaling;
    };
    const Scaling before = parse(base);
    for (const auto& [key, value] : d.changes) {
      json changed = base;
      changed[key] = value;
      for (const bool first : {true, false}) {
        try {
          first ? WithBoth(changed, base) : WithBoth(base, changed);
          ADD_FAILURE() << d.text << " and another " << key << " were accepted";
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr(key + std::string(" is "))) << d.text;
          EXPECT_THAT(e.what(), HasSubstr("remove the wrong one")) << d.text;
        }
      }
      const Scaling after = parse(changed);
      std::visit(
          [&]<class S>(const S& s) {
            VisitFields<S>([&](const auto& field) {
              const std::string name = std::string(InfoOf(after).name) + "." + field.name;
              fields.insert(name);
              if (s.*field.member != std::get<S>(after).*field.member) met.insert(name);
            });
          },
          before);
    }
  }
  // A dictionary has no key for these.
  fields.erase("yarn.softmax_mscale");
  fields.erase("yarn.extrapolation_factor");
  EXPECT_EQ(met, fields);
}

TEST(RopeDictionary, ReplacesScalingAndBase) {
  const PositionPlan plan =
      ParseHfConfig(R"({"model_type": "smollm3", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
          "max_position_embeddings": 4096, "rope_theta": 10000.0, "no_rope_layers": [1, 0, 1, 1]})",
                    "config.json")
          .plan;
  const PositionPlan yarn =
      ParseRopeDictionary(R"({"rope_type": "yarn", "factor": 4.0})", "--rope-scaling", plan);
  ASSERT_TRUE(std::holds_alternative<YarnScaling>(yarn.layers[0].rotation->scaling));
  EXPECT_FALSE(yarn.layers[1].rotation);
  EXPECT_EQ(yarn.trained_length, 4096);
  EXPECT_EQ(yarn.layers[0].rotation->base, 10000);
  const PositionPlan other = ParseRopeDictionary(
      R"({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 2048, "rope_theta": 5e5})",
      "--rope-scaling", plan);
  EXPECT_EQ(other.trained_length, 2048);
  EXPECT_EQ(other.layers[0].rotation->trained_length, 2048);
  EXPECT_EQ(other.layers[0].rotation->base, 5e5);
  const PositionPlan still = ParseRopeDictionary(
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})", "--rope-scaling", plan);
  EXPECT_EQ(still.layers[0].rotation->rotary_dim, 16);
  EXPECT_EQ(Resolve(*still.layers[0].rotation, 64).inv_freq[2].hi, 0);
  for (const char* bad :
       {"{\"factor\": 4}", "{\"rope_type\": \"yarn\"}", "4", "{\"rope_type\": \"x\"}",
        "{\"rope_type\": \"linear\", \"factor\": 4, \"extra\": 1}",
        "{\"rope_type\": \"default\", \"mrope_section\": [2, 3, 3]}",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"llama_4_scaling_beta\": 0.1}"}) {
    try {
      ParseRopeDictionary(bad, "--rope-scaling", plan);
      ADD_FAILURE() << bad << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("--rope-scaling")) << bad;
    }
  }
}

TEST(RopeDictionary, KeepsTheScoresMultiplierOfLatentAttention) {
  const PositionPlan plan =
      ParseHfConfig(R"({"model_type": "deepseek_v2", "hidden_size": 64, "num_attention_heads": 4,
          "intermediate_size": 96, "vocab_size": 100,
          "num_hidden_layers": 2, "max_position_embeddings": 163840, "qk_nope_head_dim": 16,
          "qk_rope_head_dim": 16, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707,
          "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}})",
                    "config.json")
          .plan;
  EXPECT_NEAR(Resolve(*plan.layers[0].rotation, 4096).softmax_multiplier, 1.5896262, 1e-7);
  const PositionPlan other = ParseRopeDictionary(
      R"({"rope_type": "yarn", "factor": 40, "mscale": 1, "mscale_all_dim": 1})", "given", plan);
  EXPECT_NEAR(Resolve(*other.layers[0].rotation, 4096).softmax_multiplier, 1.8738542, 1e-7);
}

// Gemma 3's sliding layers have a base of their own, which no setting reaches: as config.json with
// the same setting says it.
TEST(RopeDictionary, LeavesLocalBasesAlone) {
  const auto parse = [](const std::string& scaling) {
    return ParseHfConfig(
               R"({"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
        "vocab_size": 100, "max_position_embeddings": 4096, "sliding_window": 16, "rope_scaling": )" +
                   scaling + "}",
               "config.json")
        .plan;
  };
  const std::string yarn =
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096})";
  const PositionPlan plan = parse("null"), expected = parse(yarn);
  const PositionPlan given = ParseRopeDictionary(yarn, "given", plan);
  const PositionPlan made = WithScaling(plan, YarnScaling{.factor = 4});
  for (const PositionPlan* other : {&given, &made}) {
    EXPECT_EQ(Resolve(*other, 16384).hash, Resolve(expected, 16384).hash);
    EXPECT_TRUE(std::holds_alternative<NoScaling>(other->layers[0].rotation->scaling));
    EXPECT_TRUE(std::holds_alternative<YarnScaling>(other->layers[5].rotation->scaling));
  }
  const PositionPlan base =
      ParseRopeDictionary(R"({"rope_type": "default", "rope_theta": 5e6})", "given", plan);
  EXPECT_EQ(base.layers[0].rotation->base, 1e4);
  EXPECT_EQ(base.layers[5].rotation->base, 5e6);
}

}  // namespace rope_dictionary_test
}  // namespace ropewalk
