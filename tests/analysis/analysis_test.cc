// Every number of the analyses against the same number typed again with mpmath and numpy
// (tests/golden/analysis_make.py), against papers, and against printed values of other programs.
#include "ropewalk/analysis/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace analysis_test {

using nlohmann::json;

const json& Golden() {
  static const json golden = [] {
    std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/analysis.json");
    return json::parse(file);
  }();
  return golden;
}

RotarySpec Spec(double base, int64_t d, int64_t trained = 0, Scaling scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = d;
  spec.base = base;
  spec.trained_length = trained;
  spec.scaling = std::move(scaling);
  return spec;
}
Frequencies Plain(double base, int64_t d) { return Resolve(Spec(base, d), 1); }

TEST(Pairs, WavelengthsAndRotationsAreExact) {
  for (const json& c : Golden()["pairs"]) {
    const Frequencies f = Plain(c["base"], c["d"]);
    const int64_t length = c["length"];
    const std::vector<PairInfo> rows = Pairs(f, length, f, 4 * length);
    ASSERT_EQ(rows.size(), c["rows"].size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_DOUBLE_EQ(rows[i].frequency, c["rows"][i]["frequency"].get<double>());
      EXPECT_DOUBLE_EQ(rows[i].wavelength_tokens, c["rows"][i]["wavelength"].get<double>());
      EXPECT_DOUBLE_EQ(rows[i].trained_rotations, c["rows"][i]["rotations"].get<double>());
      EXPECT_DOUBLE_EQ(rows[i].target_rotations, 4 * rows[i].trained_rotations);
    }
  }
}

TEST(Pairs, APairThatStandsStillHasNoWavelength) {
  const Frequencies f = Resolve(Spec(10000, 128, 4096, HopeScaling{}), 4096);
  const std::vector<PairInfo> rows = Pairs(f, 4096, f, 4096);
  EXPECT_EQ(rows[46].frequency, 0);
  EXPECT_TRUE(std::isinf(rows[46].wavelength_tokens));
  EXPECT_EQ(rows[46].trained_rotations, 0);
  EXPECT_EQ(rows[46].unseen_share, 0);
}

// arXiv 2310.05209: LLaMA 2 (base 10000, 128 dims, trained at 4096) has critical dimension 92.
TEST(CriticalDimension, IsThePapers) {
  EXPECT_EQ(Critical(Plain(10000, 128), 4096).dimension, 92);
  for (const double base : {500.0, 10000.0, 150000.0, 500000.0, 1e7}) {
    for (const int64_t d : {8, 32, 64, 96, 128}) {
      for (const int64_t length : {256, 2048, 4096, 8192, 32768, 131072}) {
        const CriticalDimension c = Critical(Plain(base, d), length);
        const double pairs = static_cast<double>(d) / 2 *
                             std::log(static_cast<double>(length) / (2 * std::numbers::pi)) /
                             std::log(base);
        const int64_t expected = std::min<int64_t>(d, 2 * static_cast<int64_t>(std::ceil(pairs)));
        EXPECT_EQ(c.dimension, expected) << base << " " << d << " " << length;
        EXPECT_EQ(c.incomplete_pairs, (d - expected) / 2);
      }
    }
  }
}

TEST(CriticalDimension, NoPairOrAll) {
  EXPECT_EQ(Critical(Plain(10000, 128), 1).first_pair, 0);
  EXPECT_EQ(Critical(Plain(10000, 128), 1).incomplete_pairs, 64);
  EXPECT_EQ(Critical(Plain(10000, 128), int64_t{1} << 30).first_pair, 64);
  EXPECT_EQ(Critical(Plain(10000, 128), int64_t{1} << 30).incomplete_pairs, 0);
}

TEST(Unseen, IsTheCountedShare) {
  for (const json& c : Golden()["unseen"]) {
    const double share = UnseenShare(c["trained"], c["trained_length"], c["now"], c["length"]);
    EXPECT_NEAR(share, c["share"].get<double>(), 2e-6) << c;  // counted at 4,000,000 points
  }
}

TEST(Unseen, NothingWithinTrainingAndNothingPastAWholeTurn) {
  for (const int64_t length : {1, 2, 255, 256, 257, 4095, 4096}) {
    EXPECT_EQ(UnseenShare(1e-3, 4096, 1e-3, length), 0);
  }
  EXPECT_GT(UnseenShare(1e-3, 4096, 1e-3, 4097), 0);
  EXPECT_LT(UnseenShare(1e-3, 4096, 1e-3, 4097), 1.0 / 4096 + 1e-9);
  // Interpolation by the ratio of the lengths sees nothing new.
  EXPECT_EQ(UnseenShare(1e-4, 4097, 1e-4 / 4, 16385), 0);
  EXPECT_EQ(UnseenShare(2 * std::numbers::pi / 4095 * 1.0001, 4096, 1, 1 << 20), 0);
  // A pair that did not move in training and moves now is new everywhere but at 0.
  EXPECT_EQ(UnseenShare(0, 4096, 1e-6, 4096), 1);
}

TEST(Decay, BoundAndExpectedScore) {
  for (const json& c : Golden()["decay"]) {
    const double factor = c["ntk_factor"];
    const Frequencies f = factor > 1 ? Resolve(Spec(c["base"], c["d"], 0, NtkScaling{factor}), 1)
                                     : Plain(c["base"], c["d"]);
    std::vector<int64_t> distances;
    for (const json& row : c["rows"]) distances.push_back(row["distance"]);
    const std::vector<DecayPoint> points = Decay(f, distances);
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_NEAR(points[i].bound, c["rows"][i]["bound"].get<double>(), 1e-12) << distances[i];
      EXPECT_NEAR(points[i].expected, c["rows"][i]["expected"].get<double>(), 1e-12);
      EXPECT_NEAR(CosineSum(f, distances[i]),
                  points[i].expected * static_cast<double>(f.inv_freq.size()), 1e-11);
    }
    // At distance 0 all terms point one way: (1 + 2 + ... + h) / h, and 1.
    EXPECT_DOUBLE_EQ(points[0].bound, (static_cast<double>(f.inv_freq.size()) + 1) / 2);
    EXPECT_DOUBLE_EQ(points[0].expected, 1);
  }
}

TEST(Decay, Distances) {
  EXPECT_THAT(LogDistances(0), testing::ElementsAre(0));
  EXPECT_THAT(LogDistances(1), testing::ElementsAre(0, 1));
  EXPECT_THAT(LogDistances(9), testing::ElementsAre(0, 1, 2, 3, 4, 6, 8, 9));
  EXPECT_EQ(LogDistances(131071).back(), 131071);
  EXPECT_THAT(LogDistances(INT64_MAX), testing::SizeIs(1 + 63 + 62 + 1));
  EXPECT_EQ(LogDistances(INT64_MAX).back(), INT64_MAX);
}

TEST(AnalysisErrors, NameWhatIsWrong) {
  const Frequencies f = Plain(10000, 128);
  EXPECT_THROW(Pairs(f, 0, f, 4096), Error);
  EXPECT_THROW(Pairs(f, 4096, f, 0), Error);
  EXPECT_THROW(Pairs(f, 4096, Plain(10000, 64), 4096), Error);
  EXPECT_THROW(UnseenShare(1, 0, 1, 1), Error);
  EXPECT_THROW(Critical(f, 0), Error);
  EXPECT_THROW(BaseBounds(127, 4096), Error);
  EXPECT_THROW(BaseBounds(0, 4096), Error);
  EXPECT_THROW(BaseBounds(128, 0), Error);
  // One pair, whose frequency no base changes.
  EXPECT_TRUE(BaseBounds(2, 2).empty());
  EXPECT_TRUE(BaseBounds(2, 1 << 20).empty());
  ASSERT_EQ(BaseBounds(2, 1).size(), 1u);
  EXPECT_EQ(BaseBounds(4, 2048).size(), 2u);
  EXPECT_THROW(BaseBounds(128, (1 << 22) + 1), Error);
  try {
    Pairs(f, 4096, Plain(10000, 64), 4096);
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("64"), testing::HasSubstr("32")));
  }
}

}  // namespace analysis_test
}  // namespace ropewalk
