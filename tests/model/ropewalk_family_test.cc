// The family ropewalk: what its positions say, against the families that have the same in keys of
// their own.
#include <gtest/gtest.h>

#include "ropewalk/model/model.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using nlohmann::json;
using test::Tiny;

json Native(const Tiny& tiny, const json& positions) {
  json config = tiny.Config();
  config.erase("rope_theta");
  config["model_type"] = "ropewalk";
  config["positions"] = positions;
  return config;
}

std::vector<float> Logits(const Tiny& tiny, const json& config, const test::RunOptions& o = {}) {
  const test::TempFolder folder;
  Tiny::WriteFolder(folder.path(), config, tiny.Weights());
  const ModelFiles files = OpenModel(folder.path());
  const auto decoder = Decoder::Load(files);
  return test::LogitsOf(*decoder, files.config.plan, tiny.Ids(90), o);
}

TEST(RopewalkFamily, RotationIsThatOfLlama) {
  const Tiny tiny;
  const json rope = {{"rope_type", "yarn"},
                     {"rope_theta", 500.0},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 16}};
  json llama = tiny.Config();
  llama["rope_scaling"] = rope;
  const std::vector<float> expected = Logits(tiny, llama);
  EXPECT_EQ(Logits(tiny, Native(tiny, {{"rotation", rope}})), expected);
  EXPECT_GT(test::Difference(Logits(tiny, Native(tiny, json::object())), expected), 1e-2);
}

TEST(RopewalkFamily, ReadsBiasMapAndTemperature) {
  const Tiny tiny;
  const json config = Native(tiny, {{"rotation", {{"rope_theta", 500.0}}},
                                    {"bias", {{"type", "alibi"}}},
                                    {"map", {{"type", "leaky-rerope"}, {"window", 20}}},
                                    {"temperature", {{"type", "log-n"}, {"period", 16}}}});
  const LayerPlan layer = ParseHfConfig(config.dump(), "config.json").plan.layers.at(2);
  EXPECT_EQ(layer.bias, (LayerBias{tiny.heads, AlibiBias{}}));
  EXPECT_EQ(layer.map, DistanceMap(LeakyRerope{20, 16}));
  EXPECT_EQ(layer.temperature, (QueryTemperature{QueryTemperature::Kind::kLogN, 0.1, 16, 0}));
  EXPECT_LT(test::Difference(Logits(tiny, config, {.chunk = 1}), Logits(tiny, config)), 1e-5);
}

TEST(RopewalkFamily, TheTwinIsNotRunAsADecoder) {
  json config = Native(Tiny(), json::object());
  config["bidirectional"] = true;
  EXPECT_NE(ParseHfConfig(config.dump(), "config.json").not_runnable.find("bidirectional"),
            std::string::npos);
}

TEST(RopewalkFamily, RefusesByName) {
  const Tiny tiny;
  const auto message = [&](const json& config) {
    return test::MessageOf([&] { ParseHfConfig(config.dump(), "config.json"); });
  };
  EXPECT_EQ(
      message(Native(tiny, {{"bias", {{"type", "alibbi"}}}})),
      "config.json: positions.bias: type: unknown type \"alibbi\" (did you mean \"alibi\"?); "
      "there are alibi, t5, kerple, sandwich, fire, shaw, transformer_xl, deberta, tupe, cope, "
      "gate");
  EXPECT_NE(message(Native(tiny, {{"rotations", 1}})).find("unknown key \"rotations\""),
            std::string::npos);
  EXPECT_NE(message(Native(tiny, {{"map", {{"type", "rerope"}}}})).find("layer that rotates"),
            std::string::npos);
  json outer = Native(tiny, json::object());
  outer["rope_theta"] = 1e4;
  EXPECT_NE(message(outer).find("unknown key \"rope_theta\""), std::string::npos);
  outer.erase("rope_theta");
  outer.erase("positions");
  EXPECT_NE(message(outer).find("positions: expected an object"), std::string::npos);
}

}  // namespace
}  // namespace ropewalk
