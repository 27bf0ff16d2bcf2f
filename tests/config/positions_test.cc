// positions.rotation of the family ropewalk: which methods it names, with which settings, and what is
// refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ropewalk/config/config.h"
#include "src/config/hf/positions_write.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace positions_test {

using nlohmann::json;
using test::MessageOf;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kTrained = 64;

json ConfigWith(const json& positions) {
  return {{"model_type", "ropewalk"},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"vocab_size", 50},
          {"tie_word_embeddings", true},
          {"max_position_embeddings", kTrained},
          {"positions", positions}};
}
ModelConfig Parse(const json& positions) {
  return ParseHfConfig(ConfigWith(positions).dump(), "config.json");
}
LayerPlan LayerOf(const json& rotation) {
  return Parse({{"rotation", rotation}}).plan.layers.at(1);
}
std::string Refusal(const json& positions) {
  return MessageOf(ErrorCode::kInvalidConfig, [&] { Parse(positions); });
}

TEST(PositionsRotation, ReadsPope) {
  const LayerPlan layer = LayerOf({{"rope_type", "pope"}, {"rope_theta", 500.0}});
  EXPECT_EQ(layer.encoding, QueryKeyEncoding(PopeLayer{500}));
  EXPECT_FALSE(layer.rotation);
  EXPECT_EQ(LayerOf({{"rope_type", "pope"}}).encoding, QueryKeyEncoding(PopeLayer{10000}));
  EXPECT_EQ(Parse({{"rotation", {{"rope_type", "pope"}}}}).key_dim(), 16);
}

// Of base 500 and heads of 8 the wavelengths are 6.3, 29.7, 140 and 665 tokens: two within 64.
TEST(PositionsRotation, ReadsFope) {
  EXPECT_EQ(LayerOf({{"rope_type", "fope"}, {"rope_theta", 500.0}}).encoding,
            QueryKeyEncoding(FopeLayer{500, 2}));
  EXPECT_EQ(LayerOf({{"rope_type", "fope"}, {"rope_theta", 500.0}, {"frequencies", 3}}).encoding,
            QueryKeyEncoding(FopeLayer{500, 3}));
  EXPECT_EQ(Parse({{"rotation", {{"rope_type", "fope"}}}}).key_dim(), 8);
}

TEST(PositionsRotation, EncodingsHaveHashesOfTheirOwn) {
  const auto hash = [](const json& rotation) {
    return Resolve(Parse({{"rotation", rotation}}).plan, kTrained).hash;
  };
  const std::vector<std::string> hashes = {hash({{"rope_type", "default"}}),
                                           hash({{"rope_type", "pope"}}),
                                           hash({{"rope_type", "pope"}, {"rope_theta", 500.0}}),
                                           hash({{"rope_type", "fope"}}),
                                           hash({{"rope_type", "fope"}, {"frequencies", 1}}),
                                           Resolve(Parse(json::object()).plan, kTrained).hash};
  EXPECT_EQ(std::set<std::string>(hashes.begin(), hashes.end()).size(), hashes.size());
  EXPECT_THAT(Describe(Parse({{"rotation", {{"rope_type", "fope"}}}}).plan, kTrained),
              HasSubstr("no rotation, queries and keys by FoPE, base 10000"));
}

TEST(PositionsRotation, RefusesWhatDoesNotGoWithAnEncoding) {
  for (const char* type : {"pope", "fope"}) {
    SCOPED_TRACE(type);
    for (const char* key :
         {"factor", "partial_rotary_factor", "xpos", "values", "attention_factor"}) {
      EXPECT_THAT(Refusal({{"rotation", {{"rope_type", type}, {key, 2}}}}),
                  AllOf(HasSubstr("positions.rotation: unknown key \"" + std::string(key) + "\""),
                        HasSubstr("rope_theta")));
    }
    EXPECT_THAT(Refusal({{"rotation", {{"rope_type", type}}}, {"map", {{"type", "rerope"}}}}),
                AllOf(HasSubstr("rerope"), HasSubstr("PE, base"), HasSubstr("one of the two")));
  }
  const json pope = {{"rope_type", "pope"}}, fope = {{"rope_type", "fope"}};
  for (const char* bias : {"shaw", "transformer_xl", "deberta", "tupe", "cope"}) {
    SCOPED_TRACE(bias);
    EXPECT_THAT(Refusal({{"rotation", pope}, {"bias", {{"type", bias}}}}),
                HasSubstr("pope makes queries and keys twice as wide"));
    Parse({{"rotation", fope}, {"bias", {{"type", bias}}}});
  }
  EXPECT_THAT(Refusal({{"rotation", {{"rope_type", "fope"}, {"frequencies", 5}}}}),
              HasSubstr("frequencies: expected"));
  json short_one = ConfigWith({{"rotation", fope}});
  short_one["max_position_embeddings"] = 6;  // 2 pi is above it
  EXPECT_THAT(MessageOf([&] { ParseHfConfig(short_one.dump(), "config.json"); }),
              HasSubstr("frequencies: expected 1 to 4: none makes a whole rotation within"));
  json odd = ConfigWith({{"rotation", fope}});
  odd["head_dim"] = 7;
  EXPECT_THAT(MessageOf([&] { ParseHfConfig(odd.dump(), "config.json"); }), HasSubstr("even"));
}

TEST(PositionsRotation, ReadsMethodsByTheNamesOfThisLibrary) {
  const auto scaling = [](const json& rotation) { return LayerOf(rotation).rotation->scaling; };
  EXPECT_EQ(scaling({{"rope_type", "ntk-fixed"}, {"factor", 4.0}}), Scaling(NtkFixedScaling{4}));
  EXPECT_EQ(scaling({{"rope_type", "ntk-mixed"}, {"factor", 4.0}, {"exponent", 0.5}}),
            Scaling(NtkMixedScaling{4, 0.5}));
  EXPECT_EQ(scaling({{"rope_type", "by-parts"}, {"factor", 4.0}, {"beta", 16.0}}),
            Scaling(ByPartsScaling{4, 1, 16}));
  EXPECT_EQ(scaling({{"rope_type", "dynamic-yarn"}, {"truncate", false}}),
            Scaling(DynamicYarnScaling{32, 1, false}));
  EXPECT_EQ(scaling({{"rope_type", "explicit"}, {"divisors", {1.0, 2.0, 3.0, 4.0}}}),
            Scaling(ExplicitScaling{{1, 2, 3, 4}}));
  EXPECT_EQ(scaling({{"rope_type", "hope"}}), Scaling(HopeScaling{}));
  const LayerPlan layer =
      LayerOf({{"rope_type", "hope"}, {"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(layer.rotation->rotary_dim, 4);
  EXPECT_EQ(layer.rotation->base, 500);
  EXPECT_EQ(layer.rotation->trained_length, kTrained);
}

// Every scaling of the library is expressible, by its name or as the page of the format says.
TEST(PositionsRotation, ReadsEveryMethod) {
  for (const MethodInfo& method : Methods()) {
    SCOPED_TRACE(method.name);
    json rope = {{"rope_type", method.name}};
    const std::string name = method.name;
    if (FactorOf(method.make(4)) == 4) rope["factor"] = 4.0;
    if (name == "ntk") rope = {{"rope_type", "dynamic"}, {"alpha", 4.0}};
    if (name == "llama3") rope.update({{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}});
    EXPECT_EQ(LayerOf(rope).rotation->scaling, method.make(4));
  }
}

std::vector<Scaling> WithOddSettings() {
  YarnScaling yarn{4, 16, 2, false};
  yarn.attention_factor = 1.25;
  LongRopeScaling longrope{{1, 1, 1, 2}, {1, 2, 3, 4}};
  longrope.factor = 4;
  return {yarn,
          longrope,
          NtkMixedScaling{4, 0.5},
          ByPartsScaling{4, 0.5, 16},
          Llama3Scaling{4, 2, 3},
          ProportionalScaling{0.5, 2},
          ExplicitScaling{{1, 2, 3, 4.5}}};
}

// What is written of a rotation is read as the same one.
TEST(PositionsRotation, IsWrittenAsItIsRead) {
  std::vector<Scaling> all = WithOddSettings();
  for (const MethodInfo& method : Methods()) all.push_back(method.make(4));
  for (const Scaling& scaling : all) {
    SCOPED_TRACE(Describe(scaling));
    const LayerPlan layer = LayerOf(internal::RotationKeys(scaling, 500));
    EXPECT_EQ(layer.rotation->scaling, scaling);
    EXPECT_EQ(layer.rotation->base, 500);
  }
  const LayerPlan other = LayerOf(internal::RotationKeys(BaseScaling{3000}, 500));
  EXPECT_EQ(other.rotation->scaling, Scaling(NoScaling{}));
  EXPECT_EQ(other.rotation->base, 3000);
  YarnScaling deepseek{4};
  deepseek.softmax_mscale = true;
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, [&] { internal::RotationKeys(deepseek, 500); }),
              HasSubstr("softmax_mscale"));
}

TEST(PositionsRotation, IsPutIntoAFile) {
  json config = ConfigWith({{"bias", {{"type", "alibi"}}},
                            {"rotation",
                             {{"rope_theta", 500.0},
                              {"partial_rotary_factor", 0.5},
                              {"values", true},
                              {"xpos", {{"gamma", 0.3}}}}}});
  config["eos_token_id"] = 7;
  const PositionPlan plan = ParseHfConfig(config.dump(), "config.json").plan;
  const auto written = [&](const PositionPlan& wanted) {
    const std::string text = internal::WithPositions(config.dump(), "config.json", wanted);
    EXPECT_EQ(json::parse(text).at("eos_token_id"), 7);
    return ParseHfConfig(text, "config.json").plan;
  };
  const PositionPlan wanted = WithScaling(plan, ByPartsScaling{4, 1, 16});
  EXPECT_EQ(written(wanted), wanted);
  EXPECT_EQ(written(plan), plan);
  config["positions"]["rotation"] = {{"rope_theta", 500.0}};
  PositionPlan mapped = ParseHfConfig(config.dump(), "config.json").plan;
  for (LayerPlan& layer : mapped.layers) {
    layer.map = DistanceMap(SelfExtend{16, 4});
    layer.temperature = QueryTemperature{QueryTemperature::Kind::kMscale, 0.2, 3, 0};
  }
  EXPECT_EQ(written(mapped), mapped);
  // A trained length that is not max_position_embeddings is said where there is a key.
  const PositionPlan longer = WithScaling(mapped, YarnScaling{4}, 32);
  EXPECT_EQ(written(longer), longer);
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported,
                        [&] { written(WithScaling(mapped, ByPartsScaling{4}, 32)); }),
              AllOf(HasSubstr("by-parts"), HasSubstr("trained length of 32")));
}

TEST(PositionsRotation, RefusesSettingsByName) {
  EXPECT_THAT(Refusal({{"rotation", {{"rope_type", "ntk-fixed"}, {"factor", 4}, {"beta", 1}}}}),
              AllOf(HasSubstr("unknown key \"beta\""), HasSubstr("factor")));
  EXPECT_THAT(Refusal({{"rotation", {{"rope_type", "hope"}, {"factor", 4}}}}),
              HasSubstr("unknown key \"factor\""));
  EXPECT_THAT(MessageOf([] { LayerOf({{"rope_type", "ntk-fixed"}}); }), HasSubstr("factor"));
  EXPECT_THAT(MessageOf([] {
                LayerOf({{"rope_type", "explicit"}, {"divisors", {1.0, 2.0}}});
              }),
              HasSubstr("expected one divisor per pair, 4, got 2"));
  EXPECT_THAT(MessageOf([] {
                LayerOf({{"rope_type", "poope"}});
              }),
              AllOf(HasSubstr("rope_type: unknown type \"poope\""), HasSubstr("yarn"),
                    HasSubstr(", pope, fope, none, ntk-fixed")));
  EXPECT_THAT(MessageOf([] {
                LayerOf({{"rope_type", "base"}, {"base", 5e5}});
              }),
              HasSubstr("unknown type \"base\""));
}

TEST(PositionsRotation, MethodsOfASweepAreRefusedBesideAnEncoding) {
  const PositionPlan plan = Parse({{"rotation", {{"rope_type", "pope"}}}}).plan;
  EXPECT_THAT(
      MessageOf(ErrorCode::kUnsupported, [&] { WithScaling(plan, YarnScaling{4}); }),
      AllOf(HasSubstr("queries and keys by PoPE"), HasSubstr("only the method none applies")));
  EXPECT_EQ(WithScaling(plan, NoScaling{}), plan);
}

}  // namespace positions_test
}  // namespace ropewalk
