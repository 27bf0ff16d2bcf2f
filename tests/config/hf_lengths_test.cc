// Which length and which dictionary of config.json counts, where it says more than one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/config/config.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace hf_lengths_test {

using testing::Contains;
using testing::HasSubstr;

ModelConfig Parse(const char* type, const std::string& extra) {
  return ParseHfConfig(R"({"model_type": ")" + std::string(type) + "\", " + extra +
                           R"(, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05})",
                       "dir/config.json");
}

const RotarySpec& Spec(const ModelConfig& c, int layer) { return *c.plan.layers[layer].rotation; }

// As transformers does: of dynamic scaling the length is max_position_embeddings.
TEST(HfLengths, DynamicScalingCountsFromTheStatedLength) {
  const ModelConfig plain = Parse("llama", R"("rope_scaling": {"type": "dynamic", "factor": 2})");
  for (
      const char* keys :
      {R"("rope_scaling": {"type": "dynamic", "factor": 2, "original_max_position_embeddings": 16})",
       R"("rope_scaling": {"type": "dynamic", "factor": 2}, "original_max_position_embeddings": 16)"}) {
    const ModelConfig c = Parse("llama", keys);
    for (const int64_t length : {32, 4096, 16384}) {
      EXPECT_EQ(Resolve(c.plan, length).hash, Resolve(plain.plan, length).hash) << keys;
    }
    EXPECT_THAT(c.not_honoured, Contains(HasSubstr("original_max_position_embeddings = 16")));
  }
}

// Each layer type has the original length of its own dictionary.
TEST(HfLengths, OriginalLengthsByLayerType) {
  const std::string head = R"("sliding_window": 256, "layer_types": ["sliding_attention",
      "full_attention", "sliding_attention", "full_attention"], "rope_parameters": )";
  const auto yarn = [](int original) {
    return R"({"rope_type": "yarn", "factor": 4, "rope_theta": 10000,
               "original_max_position_embeddings": )" +
           std::to_string(original) + "}";
  };
  const auto with = [&](const std::string& full, const std::string& sliding) {
    return Parse("mistral", head + R"({"full_attention": )" + full + R"(, "sliding_attention": )" +
                                sliding + "}");
  };
  const ModelConfig two = with(yarn(1024), yarn(512));
  EXPECT_EQ(two.plan.trained_length, 1024);
  EXPECT_EQ(Spec(two, 0).trained_length, 512);
  EXPECT_EQ(Spec(two, 1).trained_length, 1024);
  const std::string dynamic = R"({"rope_type": "dynamic", "factor": 2, "rope_theta": 10000})";
  const ModelConfig mixed = with(dynamic, yarn(512));
  EXPECT_EQ(Spec(mixed, 0).trained_length, 512);
  EXPECT_EQ(Spec(mixed, 1).trained_length, mixed.plan.trained_length);
  EXPECT_EQ(mixed.plan.trained_length, mixed.plan.stated_length);
  const ModelConfig reversed = with(yarn(512), dynamic);
  EXPECT_EQ(Spec(reversed, 0).trained_length, reversed.plan.stated_length);
  EXPECT_EQ(reversed.plan.trained_length, 512);
}

// transformers 5 writes the keys of one dictionary beside those of each layer type.
TEST(HfLengths, FlatKeysBesideLayerTypes) {
  const auto with = [](const std::string& flat) {
    return Parse("olmo3", R"("sliding_window": 256, "layer_types": ["sliding_attention",
        "sliding_attention", "sliding_attention", "full_attention"], "rope_parameters": {)" +
                              flat + R"("full_attention": {"rope_type": "default",
        "rope_theta": 500000}, "sliding_attention": {"rope_type": "default",
        "rope_theta": 500000}})");
  };
  const std::string hash = Resolve(with("").plan, 4096).hash;
  const ModelConfig same = with(R"("rope_theta": 500000, "rope_type": "default", )");
  EXPECT_EQ(Resolve(same.plan, 4096).hash, hash);
  EXPECT_THAT(same.not_honoured, testing::IsEmpty());
  const ModelConfig other = with(R"("rope_theta": 777, "rope_type": "default", )");
  EXPECT_EQ(Resolve(other.plan, 4096).hash, hash);
  EXPECT_THAT(other.not_honoured, testing::ElementsAre(HasSubstr("rope_theta = 777")));
  EXPECT_THAT(test::MessageOf([&] { with(R"("rope_thta": 777, )"); }),
              HasSubstr("unknown key \"rope_thta\" beside"));
}

}  // namespace hf_lengths_test
}  // namespace ropewalk
