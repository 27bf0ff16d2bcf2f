// PoPE and FoPE in the layers of a model of the family ropewalk, against their formulas in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>

#include "ropewalk/model/encoder.h"
#include "ropewalk/model/model.h"
#include "tests/model/reference.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace query_keys_test {

using nlohmann::json;
using test::BiasFn;
using test::MessageOf;
using test::Scored;
using test::Tensors;
using test::Tiny;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kBase = 500, kLimit = 3e-5;
constexpr int64_t kTokens = 90, kKept = 2;

std::string NameOf(int64_t layer, const std::string& parameter) {
  return "model.layers." + std::to_string(layer) + ".self_attn.rotation." + parameter;
}

json ConfigOf(const Tiny& tiny, const std::string& type) {
  json config = tiny.Config();
  config.erase("rope_theta");
  config["model_type"] = "ropewalk";
  config["positions"]["rotation"] = {{"rope_type", type}, {"rope_theta", kBase}};
  return config;
}

void Add(Tensors& all, const std::string& name, std::vector<int64_t> shape, float low, float high,
         uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  test::Tensor t{shape, std::vector<float>(shape[0] * shape[1])};
  for (float& v : t.values) v = draw(engine);
  all.emplace(name, std::move(t));
}

Tensors WeightsOf(const Tiny& tiny, const std::string& type) {
  Tensors all = tiny.Weights();
  for (int64_t l = 0; l < tiny.layers; ++l) {
    const auto seed = static_cast<uint32_t>(100 + l);
    if (type == "pope") {  // some phases lie outside of what they are clipped to
      Add(all, NameOf(l, "phase"), {tiny.kv_heads, tiny.head_dim}, -8, 1.5f, seed);
    } else {
      Add(all, NameOf(l, "cosines"), {kKept, kKept}, -1, 1, seed);
      Add(all, NameOf(l, "sines"), {kKept, kKept}, -1, 1, seed + 50);
    }
  }
  return all;
}

double Frequency(double i, double dim) { return std::pow(kBase, -i / dim); }
double Softplus(double x) { return std::log1p(std::exp(x)); }

// sum over e of softplus(q_e) softplus(k_e) cos((j - i) f_e + phase_e)
double Pope(const Tensors& w, const Scored& s) {
  const test::Tensor& phases = w.at(NameOf(s.layer, "phase"));
  double sum = 0;
  for (int64_t e = 0; e < s.head_dim; ++e) {
    const double phase =
        std::clamp(double(phases.values[s.kv_first + e]), -2 * std::numbers::pi, 0.0);
    const double angle = double(s.j - s.i) * Frequency(double(e), double(s.head_dim)) + phase;
    sum += Softplus(s.Q()[e]) * Softplus(s.K(s.j)[e]) * std::cos(angle);
  }
  return sum;
}

// A pair of a head at a position, by the sums that stand for cos and sin; others are not rotated.
std::pair<double, double> FopePair(const Tensors& w, const Scored& s, const double* x, int64_t d,
                                   int64_t position) {
  const double a = x[d], b = x[d + s.head_dim / 2];
  if (d >= kKept) return {a, b};
  double c = 0, n = 0;
  for (int64_t k = 0; k < kKept; ++k) {
    const double angle = double(position) * Frequency(2 * double(k), double(s.head_dim));
    c += double(w.at(NameOf(s.layer, "cosines")).values[k * kKept + d]) * std::cos(angle);
    n += double(w.at(NameOf(s.layer, "sines")).values[k * kKept + d]) * std::sin(angle);
  }
  return {a * c - b * n, b * c + a * n};
}

double Fope(const Tensors& w, const Scored& s, int64_t first) {
  double sum = 0;
  for (int64_t d = 0; d < s.head_dim / 2; ++d) {
    const auto q = FopePair(w, s, s.Q(), d, first + s.i);
    const auto k = FopePair(w, s, s.K(s.j), d, first + s.j);
    sum += q.first * k.first + q.second * k.second;
  }
  return sum;
}

using Extra = std::function<double(const Scored&)>;

// `first`: the position of token 0.
std::vector<float> Expected(
    const Tiny& tiny, const std::string& type, const Tensors& w, int64_t first = 0,
    const Extra& extra = {},
    const std::function<double(int64_t)>& warm = [](int64_t) { return 1.0; }) {
  const auto score = [&](const Scored& s) {
    double plain = 0;  // what the reference adds already
    for (int64_t e = 0; e < s.head_dim; ++e) plain += s.Q()[e] * s.K(s.j)[e];
    const double encoded = type == "pope" ? Pope(w, s) : Fope(w, s, first);
    return s.scale * (warm(first + s.i) * encoded - plain) + (extra ? extra(s) : 0);
  };
  return test::Reference(tiny, w, tiny.Ids(kTokens), 0, 0, std::vector<bool>(tiny.layers, false),
                         1000, [](int64_t) { return 1.0; }, {}, {score, {}, 0});
}

struct Loaded {
  test::TempFolder folder;
  ModelFiles files;
  std::unique_ptr<Decoder> decoder;
  Loaded(const json& config, const Tensors& weights) {
    Tiny::WriteFolder(folder.path(), config, weights);
    files = OpenModel(folder.path());
    decoder = Decoder::Load(files);
  }
  std::vector<float> Logits(const test::RunOptions& o = {}) const {
    return test::LogitsOf(*decoder, files.config.plan, Tiny().Ids(kTokens), o);
  }
};

class QueryKeys : public testing::TestWithParam<const char*> {};

TEST_P(QueryKeys, IsItsFormula) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Tensors weights = WeightsOf(tiny, type);
  const Loaded model(ConfigOf(tiny, type), weights);
  const std::vector<float> expected = Expected(tiny, type, weights);
  EXPECT_LT(test::Difference(model.Logits(), expected), kLimit);
  EXPECT_LT(test::Difference(model.Logits({.chunk = 1}), expected), kLimit);
  EXPECT_LT(test::Difference(model.Logits({.chunk = 7, .final_length = 300}), expected), kLimit);
  // What was learned matters.
  const Loaded other(ConfigOf(tiny, type), [&] {
    Tensors changed = weights;
    for (auto& [name, tensor] : changed) {
      if (name.find(".rotation.") == std::string::npos) continue;
      for (float& v : tensor.values) v *= 0.5f;
    }
    return changed;
  }());
  EXPECT_GT(test::Difference(other.Logits(), expected), 1e-2);
}

TEST_P(QueryKeys, IsItsFormulaFarAway) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Tensors weights = WeightsOf(tiny, type);
  const Loaded model(ConfigOf(tiny, type), weights);
  for (const int64_t first : {64 - 1, 64, 64 + 1, 131071, 1048575}) {
    EXPECT_LT(test::Difference(model.Logits({.chunk = 40, .offset = first}),
                               Expected(tiny, type, weights, first)),
              kLimit)
        << first;
  }
}

TEST_P(QueryKeys, AddsABiasAndWarmsQueries) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Tensors weights = WeightsOf(tiny, type);
  json config = ConfigOf(tiny, type);
  config["positions"]["bias"] = {{"type", "alibi"}};
  config["positions"]["temperature"] = {{"type", "log-n"}, {"period", 4}};
  const Loaded model(config, weights);
  const auto alibi = [](const Scored& s) {  // 4 heads: slopes 2^-2, 2^-4, 2^-6, 2^-8
    return -std::pow(2.0, -2.0 * double(s.head + 1)) * double(s.i - s.j);
  };
  const auto warm = [](int64_t n) {
    return std::max(1.0, std::log(double(n + 1)) / std::log(4.0));
  };
  EXPECT_LT(
      test::Difference(model.Logits({.chunk = 11}), Expected(tiny, type, weights, 0, alibi, warm)),
      kLimit);
}

TEST_P(QueryKeys, ContinuesWhereItWasCut) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Loaded model(ConfigOf(tiny, type), WeightsOf(tiny, type));
  const std::vector<int32_t> ids = tiny.Ids(kTokens), other = tiny.Ids(20, 3);
  Sequence sequence(*model.decoder, model.files.config.plan, kTokens, AnglePrecision::kExact);
  model.decoder->Forward(sequence, {ids.data(), 40}, nullptr, 0);
  model.decoder->Forward(sequence, other, nullptr, 0);
  sequence.Truncate(40);
  const int64_t rows = kTokens - 40;
  std::vector<float> states(rows * tiny.hidden), logits(rows * tiny.vocab);
  model.decoder->Forward(sequence, {ids.data() + 40, std::size_t(rows)}, states.data(), rows);
  model.decoder->Logits(states.data(), rows, logits.data());
  const std::vector<float> whole = model.Logits();
  EXPECT_LT(test::Difference(logits, {whole.begin() + 40 * tiny.vocab, whole.end()}), 2e-5);
}

// Keys ahead of the query are seen too, and nothing else differs.
TEST_P(QueryKeys, RunsInTheTwin) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Tensors weights = WeightsOf(tiny, type);
  json config = ConfigOf(tiny, type);
  config["bidirectional"] = true;
  const test::TempFolder folder;
  Tiny::WriteFolder(folder.path(), config, weights);
  const ModelFiles files = OpenModel(folder.path());
  const auto encoder = Encoder::Load(files, {.masked_head = true});
  std::vector<float> states(kTokens * tiny.hidden), logits(kTokens * tiny.vocab);
  encoder->Forward(tiny.Ids(kTokens), states.data());
  encoder->Logits(states.data(), kTokens, logits.data());
  BiasFn both;
  both.ahead = true;
  both.score = [&](const Scored& s) {
    double plain = 0;
    for (int64_t e = 0; e < s.head_dim; ++e) plain += s.Q()[e] * s.K(s.j)[e];
    return s.scale * ((type == "pope" ? Pope(weights, s) : Fope(weights, s, 0)) - plain);
  };
  const std::vector<float> expected = test::Reference(
      tiny, weights, tiny.Ids(kTokens), 0, 0, std::vector<bool>(tiny.layers, false), 1000,
      [](int64_t) { return 1.0; }, {}, both);
  EXPECT_LT(test::Difference(logits, expected), kLimit);
}

TEST_P(QueryKeys, NamesATensorThatIsMissing) {
  const Tiny tiny;
  const std::string type = GetParam();
  Tensors weights = WeightsOf(tiny, type);
  const std::string name = NameOf(1, type == "pope" ? "phase" : "sines");
  weights.erase(name);
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidFile, [&] { Loaded(ConfigOf(tiny, type), weights); }),
              HasSubstr("'" + name + "' is missing"));
}

TEST_P(QueryKeys, OfAnotherModelIsRefused) {
  const Tiny tiny;
  const std::string type = GetParam();
  const Loaded model(ConfigOf(tiny, type), WeightsOf(tiny, type));
  PositionPlan plan = model.files.config.plan;
  std::visit([](auto& e) { e.base = 1000; }, *plan.layers[2].encoding);
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch,
                        [&] { Sequence(*model.decoder, plan, 10, AnglePrecision::kExact); }),
              HasSubstr("layer 2"));
}

INSTANTIATE_TEST_SUITE_P(All, QueryKeys, testing::Values("pope", "fope"),
                         [](const auto& test) { return std::string(test.param); });

// Keys take twice the room of values, in what the cache holds.
TEST(PopeKeys, AreCachedTwiceAsWide) {
  const Tiny tiny;
  const Loaded pope(ConfigOf(tiny, "pope"), WeightsOf(tiny, "pope"));
  const Loaded fope(ConfigOf(tiny, "fope"), WeightsOf(tiny, "fope"));
  EXPECT_EQ(pope.files.config.key_dim(), 2 * tiny.head_dim);
  EXPECT_EQ(fope.files.config.key_dim(), tiny.head_dim);
  const auto bytes = [](const Loaded& model) {
    return Sequence(*model.decoder, model.files.config.plan, 64, AnglePrecision::kExact).bytes();
  };
  // 64 keys of 2 heads of 8 more elements in 3 layers, and 8 frequencies in the place of 2.
  EXPECT_EQ(bytes(pope) - bytes(fope), 64 * (2 * 8 * 3 + 2 * (8 - 2)) * 4);
}

}  // namespace query_keys_test
}  // namespace ropewalk
