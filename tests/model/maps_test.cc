// Distance maps and temperatures in the decoder, against a naive decoder in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"
#include "tests/model/reference.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace maps_test {

using test::Difference;
using test::LogitsOf;
using test::Reference;
using test::Tiny;
using testing::AllOf;
using testing::HasSubstr;

struct Model {
  explicit Model(const nlohmann::json& config = Tiny().Config()) {
    Tiny::WriteFolder(folder.path(), config, Tiny().Weights());
    files = OpenModel(folder.path());
    decoder = Decoder::Load(files);
  }
  PositionPlan Plan(const std::string& method, double factor = 16) const {
    return PositionMethod::Parse(method).Apply(files.config.plan, factor);
  }
  test::TempFolder folder;
  ModelFiles files;
  std::unique_ptr<Decoder> decoder;
};

constexpr double kUnseen = std::numeric_limits<double>::quiet_NaN();
double Log2N(int64_t n) { return std::max(1.0, std::log(double(n) + 1) / std::log(64.0)); }
double One(int64_t) { return 1; }

// The method as words, and its distances and temperatures as the papers have them.
struct Case {
  const char* method;
  test::RelativeFn relative;
  double (*temperature)(int64_t) = One;
};

std::vector<Case> Cases() {
  using Fn = test::RelativeFn;
  const Fn rerope = [](int64_t i, int64_t j) { return double(std::min<int64_t>(i - j, 20)); };
  return {
      {"none", [](int64_t i, int64_t j) { return double(i - j); }},
      {"log-n", [](int64_t i, int64_t j) { return double(i - j); }, Log2N},
      {"rerope:20", rerope},
      {"rerope:20+log-n", rerope, Log2N},
      {"linear:2+rerope:20", [=](int64_t i, int64_t j) { return rerope(i, j) / 2; }},
      {"leaky-rerope:20,factor=6",
       [](int64_t i, int64_t j) { return reference::LeakyRerope(i - j, 20, 6); }},
      {"self-extend:window=20,group=5",
       [](int64_t i, int64_t j) { return double(reference::SelfExtend(i, j, 20, 5)); }},
      {"linear:2+self-extend:window=20,group=5",
       [](int64_t i, int64_t j) { return double(reference::SelfExtend(i, j, 20, 5)) / 2; }},
      {"string:20,window=6",
       [](int64_t i, int64_t j) { return double(reference::String(i - j, 20, 6)); }},
      {"lampe:head=20,mapped=30,tail=10,length=150",
       [](int64_t i, int64_t j) { return double(reference::Lampe(i, j, 20, 30, 10, 150)); }},
      {"string:20,window=6+mscale",
       [](int64_t i, int64_t j) { return double(reference::String(i - j, 20, 6)); },
       [](int64_t) { return std::pow(1 + 0.1 * std::log(2.0), 2); }},
      // One group for all pairs is Self-Extend.
      {"dpe:20,group1=5,group2=5,group3=5,group4=5,group5=5,group6=5,group7=5,group8=5",
       [](int64_t i, int64_t j) { return double(reference::SelfExtend(i, j, 20, 5)); }},
      {"dual-chunk:chunk=48,limit=63",
       [](int64_t i, int64_t j) { return double(reference::DualChunk(i, j, 48, 63)); }},
      // Places within a cache of 4 + 40.
      {"sinks:4,window=40",
       [](int64_t i, int64_t j) {
         if (i - j < 40) return double(i - j);
         return j < 4 ? double(std::min<int64_t>(i, 43) - j) : kUnseen;
       }},
  };
}

TEST(DecoderMaps, EqualScalarReference) {
  const Tiny tiny;
  const auto weights = tiny.Weights();
  const auto ids = tiny.Ids(Decoder::kChunkTokens + 61);
  const Model model;
  const auto plain = LogitsOf(*model.decoder, model.Plan("none"), ids);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.method);
    const auto expected =
        Reference(tiny, weights, ids, 0, 0, {true, true, true}, 1000, c.temperature, c.relative);
    const PositionPlan plan = model.Plan(c.method);
    EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, ids), expected), 1e-5);
    if (std::string(c.method) != "none") {
      EXPECT_GT(Difference(plain, expected), 0.005);
    }
  }
}

TEST(DecoderMaps, AnyChunkingGivesTheSameLogits) {
  const Model model;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.method);
    const PositionPlan plan = model.Plan(c.method);
    const auto few = Tiny().Ids(150);
    const auto few_whole = LogitsOf(*model.decoder, plan, few);
    for (const int64_t chunk : {1, 7, 64}) {
      EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, few, {.chunk = chunk}), few_whole), 1e-5)
          << chunk;
    }
    const auto ids = Tiny().Ids(Decoder::kChunkTokens + 61);
    const auto whole = LogitsOf(*model.decoder, plan, ids);
    for (const int64_t chunk : {511, 512, 513}) {
      EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, ids, {.chunk = chunk}), whole), 1e-5)
          << chunk;
    }
    // A declared length beyond what is read changes nothing.
    EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, few, {.final_length = 4096}), few_whole),
              1e-5);
  }
}

// DroPE: no layer rotates; softmax_scale takes the place of 1 / sqrt(head_dim).
TEST(DecoderMaps, DropeEqualsScalarReference) {
  const Tiny tiny;
  const auto weights = tiny.Weights();
  const auto ids = tiny.Ids(Decoder::kChunkTokens + 61);
  for (const double scale : {0.0, 0.7}) {
    nlohmann::json config = tiny.Config();
    config["model_type"] = "llama_drope";
    if (scale > 0) config["softmax_scale"] = scale;
    const Model model(config);
    const auto temperature = [&](int64_t) {
      return scale > 0 ? scale * std::sqrt(double(tiny.head_dim)) : 1;
    };
    const auto expected =
        Reference(tiny, weights, ids, 0, 0, {false, false, false}, 1000, temperature);
    const PositionPlan& plan = model.files.config.plan;
    const auto whole = LogitsOf(*model.decoder, plan, ids);
    EXPECT_LE(Difference(whole, expected), 1e-5);
    EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, ids, {.chunk = 1}), whole), 1e-5);
    const std::string message = [&]() -> std::string {
      try {
        model.Plan("yarn", 4);
      } catch (const Error& e) {
        return e.what();
      }
      return "nothing was thrown";
    }();
    EXPECT_THAT(message, HasSubstr("rotat"));
  }
}

// A window that holds the whole sequence is no map.
TEST(DecoderMaps, WideWindowsAreNoMap) {
  const Model model;
  for (const AnglePrecision angles : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
    const auto ids = Tiny().Ids(40);
    const test::RunOptions o = {.angles = angles};
    const auto plain = LogitsOf(*model.decoder, model.Plan("none"), ids, o);
    for (const char* method :
         {"rerope:40", "leaky-rerope:40", "self-extend:40,group=7", "dual-chunk:40,limit=50",
          "sinks:4,window=40", "string:40", "lampe:40", "dpe:40", "log-n"}) {
      EXPECT_LE(Difference(LogitsOf(*model.decoder, model.Plan(method), ids, o), plain), 2e-6)
          << method;
    }
  }
}

TEST(DecoderMaps, TruncatedSequencesGoOn) {
  const Model model;
  const auto ids = Tiny().Ids(120);
  const int64_t hidden = model.decoder->config().hidden;
  for (const char* method : {"rerope", "self-extend", "dual-chunk", "sinks:4,window=40", "string",
                             "lampe", "dpe:30,group3=5,group7=9"}) {
    Sequence sequence(*model.decoder, model.Plan(method), 120, AnglePrecision::kExact);
    std::vector<float> once(hidden), again(hidden);
    model.decoder->Forward(sequence, ids, once.data(), 1);
    sequence.Truncate(70);
    model.decoder->Forward(sequence, std::span(ids).subspan(70), again.data(), 1);
    EXPECT_LE(Difference(again, once), 1e-5) << method;
  }
}

// Layers whose sliding window is within the trained length keep their rotation beside others.
TEST(DecoderMaps, MixedLayers) {
  const Tiny tiny;
  nlohmann::json config = tiny.Config();
  config["model_type"] = "smollm3";  // a llama whose code reads these keys
  config["sliding_window"] = 17;
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  config["no_rope_layers"] = {1, 1, 0};
  const Model model(config);
  const PositionPlan plan = model.Plan("rerope+log-n");
  EXPECT_TRUE(plan.layers[0].map && plan.layers[0].temperature);
  EXPECT_FALSE(plan.layers[1].map || plan.layers[1].temperature);
  EXPECT_FALSE(plan.layers[2].map);
  const auto ids = tiny.Ids(200);
  const auto whole = LogitsOf(*model.decoder, plan, ids);
  EXPECT_LE(Difference(LogitsOf(*model.decoder, plan, ids, {.chunk = 1}), whole), 1e-5);
  EXPECT_GT(Difference(LogitsOf(*model.decoder, model.Plan("none"), ids), whole), 0.01);
}

TEST(DecoderMaps, MemoryCountsTheTablesOfKeys) {
  const Model model;
  const auto bytes = [&](const char* method) {
    return Sequence(*model.decoder, model.Plan(method), 1000, AnglePrecision::kExact).bytes();
  };
  const int64_t table = 4096 * 8 * 4;  // cos and sin of 4 pairs, in parts of 4096 tokens
  EXPECT_EQ(bytes("rerope") - bytes("none"), table);  // near keys; far ones stand at 0
  EXPECT_EQ(bytes("leaky-rerope") - bytes("none"), 2 * table);
  EXPECT_EQ(bytes("self-extend") - bytes("none"), 2 * table);
  EXPECT_EQ(bytes("dual-chunk") - bytes("none"), table);  // its views place keys alike
  EXPECT_EQ(bytes("sinks") - bytes("none"), table);
  EXPECT_EQ(bytes("string") - bytes("none"), table);
  EXPECT_EQ(bytes("lampe") - bytes("none"),
            2 * table);  // its farthest keys stand where its near do
  EXPECT_EQ(bytes("dpe") - bytes("none"), 2 * table);
}

TEST(DecoderMaps, Refusals) {
  const Model model;
  const auto message = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  PositionPlan part = model.Plan("rerope");
  for (LayerPlan& layer : part.layers) layer.rotation->rotated_heads = 1;
  EXPECT_THAT(message([&] { Sequence(*model.decoder, part, 100, AnglePrecision::kExact); }),
              HasSubstr("layer 0: rerope(window 32): expected a layer whose heads all rotate"));
  Sequence sequence(*model.decoder, model.Plan("rerope"), 100, AnglePrecision::kExact);
  EXPECT_THAT(message([&] { sequence.OffsetPositions(5); }),
              AllOf(HasSubstr("rerope(window 32)"), HasSubstr("begins at position 0")));
}

}  // namespace maps_test
}  // namespace ropewalk
