// The family ropewalk: what its positions say, against the families that have the same in keys of
// their own.
#include <gtest/gtest.h>

#include "ropewalk/model/model.h"
#include "tests/model/reference.h"
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

// Queries and keys of pair i decay with zeta^(distance / scale_base); the reference weighs each pair.
TEST(RopewalkFamily, XposDecaysWithTheDistance) {
  const Tiny tiny;
  const json config = Native(
      tiny,
      {{"rotation", {{"rope_theta", 500.0}, {"xpos", {{"scale_base", 20.0}, {"gamma", 0.3}}}}}});
  const auto decay = [&](const test::Scored& s) {
    const int64_t half = tiny.head_dim / 2;
    double sum = 0;
    for (int64_t e = 0; e < tiny.head_dim; ++e) {
      const double zeta = (2.0 * double(e % half) / double(tiny.head_dim) + 0.3) / 1.3;
      sum += s.Q()[e] * s.K(s.j)[e] * (std::pow(zeta, double(s.i - s.j) / 20) - 1);
    }
    return s.scale * sum;
  };
  const std::vector<float> expected =
      test::Reference(tiny, tiny.Weights(), tiny.Ids(90), 0, 0, {true, true, true}, 1000,
                      [](int64_t) { return 1.0; }, {}, {decay, {}, 0});
  const std::vector<float> logits = Logits(tiny, config);
  EXPECT_LT(test::Difference(logits, expected), 3e-5);
  EXPECT_LT(test::Difference(Logits(tiny, config, {.chunk = 1, .final_length = 300}), expected),
            3e-5);
  EXPECT_LT(test::Difference(Logits(tiny, config, {.offset = 100000}), expected), 3e-5);
  EXPECT_GT(
      test::Difference(logits, Logits(tiny, Native(tiny, {{"rotation", {{"rope_theta", 500.0}}}}))),
      1e-2);
}

// Pairs that do not turn once within the trained length do not rotate: of base 500 and heads of 8
// the wavelengths are 6.3, 29.7, 140 and 665 tokens, of which 64 tokens hold two.
TEST(RopewalkFamily, HopeRotatesTheFastPairsAlone) {
  const Tiny tiny;
  const json config = Native(tiny, {{"rotation", {{"rope_type", "hope"}, {"rope_theta", 500.0}}}});
  const auto bias = [&](const test::Scored& s) {
    const int64_t half = tiny.head_dim / 2;
    double sum = 0;
    for (int64_t p = 0; p < half; ++p) {
      const double* q = s.Q() + p;
      const double* k = s.K(s.j) + p;
      const double angle =
          p < 2 ? double(s.i - s.j) * std::pow(500.0, -2.0 * double(p) / double(tiny.head_dim)) : 0;
      sum += (q[0] * k[0] + q[half] * k[half]) * (std::cos(angle) - 1) +
             (q[0] * k[half] - q[half] * k[0]) * std::sin(angle);
    }
    return s.scale * sum;
  };
  const std::vector<float> expected =
      test::Reference(tiny, tiny.Weights(), tiny.Ids(90), 0, 0, {false, false, false}, 1000,
                      [](int64_t) { return 1.0; }, {}, {bias, {}, 0});
  EXPECT_LT(test::Difference(Logits(tiny, config), expected), 3e-5);
  json settings = config;
  settings["positions"]["rotation"]["factor"] = 2;
  EXPECT_NE(test::MessageOf([&] {
              ParseHfConfig(settings.dump(), "config.json");
            }).find("unknown key \"factor\""),
            std::string::npos);
}

// An attention factor, 1.2 here, cancels in the values.
TEST(RopewalkFamily, ValuesAreRotatedAndBack) {
  Tiny tiny;
  tiny.layers = 1;
  const json rope = {{"rope_type", "yarn"},
                     {"rope_theta", 500.0},
                     {"factor", 1.0},
                     {"original_max_position_embeddings", 64},
                     {"attention_factor", 1.2}};
  json rotated = rope;
  rotated["values"] = true;
  // o_i = R_i^T sum a_ij R_j v_j, of a pair: v_j turned by the angle of j - i. In the place of a
  // value the reference adds the difference to it.
  const test::Tensors weights = tiny.Weights();
  std::vector<float> row(tiny.head_dim);
  test::BiasFn values;
  values.scale = 1.44 / std::sqrt(double(tiny.head_dim));
  values.value_row = [&](const test::Scored& s) {
    const test::Tensor& w = weights.at("model.layers.0.self_attn.v_proj.weight");
    std::vector<double> v(tiny.head_dim);
    for (int64_t e = 0; e < tiny.head_dim; ++e) {
      for (int64_t i = 0; i < tiny.hidden; ++i) {
        v[e] += s.input[s.j][i] * double(w.values[(s.kv_first + e) * tiny.hidden + i]);
      }
    }
    const int64_t half = tiny.head_dim / 2;
    for (int64_t p = 0; p < half; ++p) {
      const double angle =
          double(s.j - s.i) * std::pow(500.0, -2.0 * double(p) / double(tiny.head_dim));
      const double a = v[p], b = v[p + half];
      row[p] = float(a * std::cos(angle) - b * std::sin(angle) - a);
      row[p + half] = float(b * std::cos(angle) + a * std::sin(angle) - b);
    }
    return row.data();
  };
  const auto one = [](int64_t) { return 1.0; };
  const std::vector<float> expected =
      test::Reference(tiny, weights, tiny.Ids(90), 0, 0, {true}, 1000, one, {}, values);
  const std::vector<float> logits = Logits(tiny, Native(tiny, {{"rotation", rotated}}));
  EXPECT_LT(test::Difference(logits, expected), 3e-5);
  EXPECT_LT(
      test::Difference(Logits(tiny, Native(tiny, {{"rotation", rotated}}), {.chunk = 7}), expected),
      3e-5);
  EXPECT_GT(test::Difference(logits, Logits(tiny, Native(tiny, {{"rotation", rope}}))), 1e-2);
}

TEST(RopewalkFamily, XposIsReadOrRefused) {
  const auto message = [](const json& rotation, const json& map) {
    json config = Native(Tiny(), {{"rotation", rotation}});
    if (!map.is_null()) config["positions"]["map"] = map;
    return test::MessageOf([&] { ParseHfConfig(config.dump(), "config.json"); });
  };
  const json xpos = {{"xpos", json::object()}};
  EXPECT_NE(message({{"xpos", {{"scale", 3}}}}, {}).find("there are gamma, scale_base"),
            std::string::npos);
  EXPECT_NE(message(xpos, {{"type", "rerope"}, {"window", 20}}).find("xPos"), std::string::npos)
      << message(xpos, {{"type", "rerope"}, {"window", 20}});
  EXPECT_NE(message({{"values", true}}, {{"type", "rerope"}, {"window", 20}}).find("values"),
            std::string::npos);
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
