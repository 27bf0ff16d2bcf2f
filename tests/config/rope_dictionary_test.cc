// A rope dictionary given beside a model: it replaces scaling, base and rotated share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"

namespace ropewalk {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace ropewalk
