// The biases of the family ropewalk, against their formulas in double, with rotated queries and keys.
#include <gtest/gtest.h>

#include "ropewalk/model/model.h"
#include "tests/model/ropewalk_bias_cases.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using nlohmann::json;
using test::BiasFn;
using test::Tensors;
using test::Tiny;
using namespace test::biases;  // NOLINT(google-build-using-namespace)

struct Loaded {
  test::TempFolder folder;
  ModelFiles files;
  std::unique_ptr<Decoder> decoder;
  explicit Loaded(const json& config, const Tensors& weights) {
    Tiny::WriteFolder(folder.path(), config, weights);
    files = OpenModel(folder.path());
    decoder = Decoder::Load(files);
  }
  std::vector<float> Logits(const std::vector<int32_t>& ids, const test::RunOptions& o = {}) const {
    return test::LogitsOf(*decoder, files.config.plan, ids, o);
  }
};

class RopewalkBias : public testing::TestWithParam<Case> {};

TEST_P(RopewalkBias, IsItsFormula) {
  const Tensors weights = WeightsOf(kTiny, GetParam());
  const Loaded model(ConfigOf(kTiny, GetParam().bias), weights);
  const std::vector<int32_t> ids = kTiny.Ids(kTokens);
  const auto reference = [&](const BiasFn& bias) {
    return test::Reference(
        kTiny, weights, ids, 0, 0, {true, true, true}, 1000, [](int64_t) { return 1.0; }, {}, bias);
  };
  const std::vector<float> expected = reference(GetParam().formula(weights));
  const std::vector<float> logits = model.Logits(ids);
  EXPECT_LT(test::Difference(logits, expected), 3e-5);
  EXPECT_GT(test::Difference(logits, reference({})), 1e-2);  // the bias matters
  EXPECT_LT(test::Difference(model.Logits(ids, {.chunk = 1}), expected), 3e-5);
  EXPECT_LT(test::Difference(model.Logits(ids, {.chunk = 7, .final_length = 95}), expected), 3e-5);
}

TEST_P(RopewalkBias, ContinuesWhereItWasCut) {
  const Loaded model(ConfigOf(kTiny, GetParam().bias), WeightsOf(kTiny, GetParam()));
  const std::vector<int32_t> ids = kTiny.Ids(kTokens), other = kTiny.Ids(20, 3);
  Sequence sequence(*model.decoder, model.files.config.plan, kTokens, AnglePrecision::kExact);
  model.decoder->Forward(sequence, {ids.data(), 40}, nullptr, 0);
  model.decoder->Forward(sequence, other, nullptr, 0);
  sequence.Truncate(40);
  const int64_t rows = kTokens - 40;
  std::vector<float> states(rows * kHidden), logits(rows * kTiny.vocab);
  model.decoder->Forward(sequence, {ids.data() + 40, std::size_t(rows)}, states.data(), rows);
  model.decoder->Logits(states.data(), rows, logits.data());
  const std::vector<float> whole = model.Logits(ids);
  EXPECT_LT(test::Difference(logits, {whole.begin() + 40 * kTiny.vocab, whole.end()}), 2e-5);
}

TEST_P(RopewalkBias, NamesATensorThatIsMissing) {
  if (GetParam().parameters.empty()) return;
  Tensors weights = WeightsOf(kTiny, GetParam());
  const std::string name = NameOf(1, GetParam().parameters.back().name);
  weights.erase(name);
  const std::string message = test::MessageOf(
      ErrorCode::kInvalidFile, [&] { Loaded(ConfigOf(kTiny, GetParam().bias), weights); });
  EXPECT_NE(message.find("'" + name + "' is missing"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(All, RopewalkBias, testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

const Case& CaseOf(const std::string& name) {
  for (const Case& c : Cases()) {
    if (name == c.name) return c;
  }
  throw std::runtime_error(name);
}

// Shaw's rows and the like multiply rotated queries, so that there an offset counts.
TEST(RopewalkBiases, OffsetsMoveDistancesNotAbsolutePositions) {
  const std::vector<int32_t> ids = kTiny.Ids(30);
  for (const char* name : {"kerple_log", "t5", "gate"}) {
    const Loaded model(ConfigOf(kTiny, CaseOf(name).bias), WeightsOf(kTiny, CaseOf(name)));
    EXPECT_LT(test::Difference(model.Logits(ids, {.offset = 1000}), model.Logits(ids)), 1e-4)
        << name;
  }
  for (const char* name : {"fire", "tupe"}) {
    const Loaded model(ConfigOf(kTiny, CaseOf(name).bias), WeightsOf(kTiny, CaseOf(name)));
    EXPECT_NE(test::MessageOf(ErrorCode::kUnsupported, [&] { model.Logits(ids, {.offset = 5}); })
                  .find("begins at position 0"),
              std::string::npos);
  }
}

TEST(RopewalkBiases, TemperatureMultipliesScoresOfContentAlone) {
  const Case& c = CaseOf("shaw");
  json config = ConfigOf(kTiny, c.bias);
  config["positions"]["temperature"] = {{"type", "log-n"}, {"period", 4}};
  const Tensors weights = WeightsOf(kTiny, c);
  const Loaded model(config, weights);
  const auto warm = [](int64_t n) {
    return std::max(1.0, std::log(double(n + 1)) / std::log(4.0));
  };
  const std::vector<float> expected =
      test::Reference(kTiny, weights, kTiny.Ids(kTokens), 0, 0, {true, true, true}, 1000, warm, {},
                      c.formula(weights));
  EXPECT_LT(test::Difference(model.Logits(kTiny.Ids(kTokens)), expected), 3e-5);
}

TEST(RopewalkBiases, ForgetNothingOfSkippedTokens) {
  const Loaded model(ConfigOf(kTiny, CaseOf("gate").bias), WeightsOf(kTiny, CaseOf("gate")));
  Sequence sequence(*model.decoder, model.files.config.plan, 64, AnglePrecision::kExact);
  sequence.Skip(50);
  const std::vector<int32_t> ids = kTiny.Ids(10);
  std::vector<float> states(10 * kHidden);
  model.decoder->Forward(sequence, ids, states.data(), 10);
  for (const float v : states) ASSERT_TRUE(std::isfinite(v));
  EXPECT_EQ(sequence.tokens(), 60);
}

TEST(RopewalkBiases, RefusesByName) {
  const auto message = [&](const json& config) {
    return test::MessageOf([&] { ParseHfConfig(config.dump(), "config.json"); });
  };
  const auto refused = [&](const json& bias, const char* words) {
    const std::string text = message(ConfigOf(kTiny, bias));
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  refused({{"type", "kerple"}, {"kernel", "pow"}}, "there are log, power");
  refused({{"type", "sandwich"}, {"dim", 7}}, "an even number");
  refused({{"type", "fire"}, {"widht", 7}}, "unknown key \"widht\"");
  refused({{"type", "alibi"}, {"slopes", 7}}, "there are learned, type");
  for (const char* type : {"cope", "gate"}) {
    json twin = ConfigOf(kTiny, {{"type", type}});
    twin["bidirectional"] = true;
    EXPECT_NE(message(twin).find("bidirectional"), std::string::npos) << type;
  }
  for (const char* type : {"shaw", "transformer_xl", "deberta", "cope"}) {
    json mapped = ConfigOf(kTiny, {{"type", type}});
    mapped["positions"]["map"] = {{"type", "rerope"}, {"window", 20}};
    EXPECT_NE(message(mapped).find("a map leaves keys unrotated"), std::string::npos) << type;
  }
}

TEST(RopewalkBiases, TupeEndsWithItsTable) {
  const Loaded model(ConfigOf(kTiny, CaseOf("tupe").bias), WeightsOf(kTiny, CaseOf("tupe")));
  EXPECT_NE(test::MessageOf(ErrorCode::kInvalidArgument, [&] { model.Logits(kTiny.Ids(97)); })
                .find("vectors for 96 positions"),
            std::string::npos);
}

TEST(RopewalkBiases, OfAnotherModelAreRefused) {
  const Loaded model(ConfigOf(kTiny, CaseOf("t5").bias), WeightsOf(kTiny, CaseOf("t5")));
  PositionPlan plan = model.files.config.plan;
  std::get<T5LayerBias>(plan.layers[2].bias->method).bias.buckets = 9;
  EXPECT_NE(test::MessageOf(ErrorCode::kMismatch,
                            [&] { Sequence(*model.decoder, plan, 10, AnglePrecision::kExact); })
                .find("layer 2"),
            std::string::npos);
}

}  // namespace
}  // namespace ropewalk
