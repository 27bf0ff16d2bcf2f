// --layout of folders: which models have another layout to go to, and that code which rotates
// consecutive elements reads the interleaved one right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/base/error.h"
#include "tests/convert/family_case.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk::families_test {
namespace {

using nlohmann::json;
using test::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

json Untied(const char* type, const json& more = json::object()) {
  json config = ConfigOf({"", {{"model_type", type}, {"tie_word_embeddings", false}}, ""});
  config.update(more);
  return config;
}

json Mixture(const std::string& name, const json& more = json::object()) {
  for (const Case& c : MixtureCases()) {
    if (name != c.name) continue;
    json config = ConfigOf(c);
    config.update(more);
    return config;
  }
  throw std::runtime_error("no case " + name);
}

std::string Permuted(const json& config, PairLayout to) {
  const test::TempFolder folder;
  WriteModel(folder / "hf", config);
  const ModelFiles files = OpenEitherLayout(folder / "hf");
  const std::string message = MessageOf([&] { PermuteFolder(files, folder / "out", to); });
  EXPECT_FALSE(test::fs::exists(folder / "out/model.safetensors"));
  return message;
}

TEST(Layout, ARotationOfNeighboursIsInterleavedAlready) {
  const json cohere = Untied("cohere", {{"logit_scale", 0.25}, {"tie_word_embeddings", true}});
  json said = cohere;
  said["rope_interleaved"] = true;
  for (const json& config :
       {cohere, said, Untied("glm", {{"partial_rotary_factor", 0.5}, {"attention_bias", false}}),
        Mixture("llama4")}) {
    const std::string family = config["model_type"];
    EXPECT_THAT(Permuted(config, PairLayout::kInterleaved),
                AllOf(HasSubstr("its rotation is interleaved already"), HasSubstr(family)));
    EXPECT_THAT(
        Permuted(config, PairLayout::kHalf),
        AllOf(HasSubstr("no key can say that rows are in the half layout"), HasSubstr(family)));
  }
  const test::TempFolder folder;
  WriteModel(folder / "hf", said);
  EXPECT_FALSE(OpenEitherLayout(folder / "hf").config.permuted_qk);
}

TEST(Layout, LatentAttentionIsRefusedByName) {
  for (const json& rank : {json(16), json()}) {
    for (const bool interleaved : {false, true}) {
      const json config =
          Mixture("deepseek_v3", {{"rope_interleave", interleaved}, {"q_lora_rank", rank}});
      for (const PairLayout to : {PairLayout::kHalf, PairLayout::kInterleaved}) {
        EXPECT_THAT(Permuted(config, to), HasSubstr("the model is of latent attention"));
      }
    }
  }
  const test::TempFolder folder;  // one file, whose configuration nobody knows
  WriteModel(folder / "hf", Mixture("deepseek_v3", {{"q_lora_rank", nullptr}}));
  EXPECT_THAT(MessageOf([&] {
                PermuteSafetensors(folder / "hf/model.safetensors", folder / "out.safetensors",
                                   {14, 8}, PairLayout::kHalf);
              }),
              HasSubstr("kv_a_proj_with_mqa.weight' is of latent attention"));
}

// Rows as they are stored, rotated as pairs of consecutive elements: what the folder is for. The
// same rotation of rows that nobody moved is another model.
TEST(Layout, RotatedAsStoredIsTheSameModel) {
  const test::TempFolder folder;
  WriteModel(folder / "hf",
             Untied("stablelm", {{"partial_rotary_factor", 0.5}, {"use_qkv_bias", true}}));
  const std::vector<float> logits = ProbeLogits(OpenModel(folder / "hf"));
  PermuteFolder(OpenEitherLayout(folder / "hf"), folder / "out", PairLayout::kInterleaved);
  EXPECT_EQ(ProbeLogits(OpenEitherLayout(folder / "out")), logits);
  const ModelFiles stored = RotatedAsStored(OpenEitherLayout(folder / "out"));
  EXPECT_FALSE(stored.config.permuted_qk);
  EXPECT_EQ(stored.config.plan.layers[0].rotation->layout, PairLayout::kInterleaved);
  EXPECT_LT(test::Difference(ProbeLogits(stored), logits), 1e-5);
  ModelFiles unmoved = OpenEitherLayout(folder / "hf");
  unmoved.config.permuted_qk = true;
  EXPECT_GT(test::Difference(ProbeLogits(RotatedAsStored(std::move(unmoved))), logits), 1e-2);
}

}  // namespace
}  // namespace ropewalk::families_test
