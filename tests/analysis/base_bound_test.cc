// Lower bounds on the base against a search without any cleverness (tests/golden/analysis_make.py),
// the paper's table, and the definition itself.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ropewalk/analysis/analysis.h"

namespace ropewalk {
namespace {

using nlohmann::json;

Frequencies Plain(double base, int64_t d) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = d;
  spec.base = base;
  return Resolve(spec, 1);
}

// The definition, term by term.
bool Supports(double base, int64_t d, int64_t context) {
  for (int64_t m = 1; m <= context; ++m) {
    double sum = 0;
    for (int64_t i = 0; i < d / 2; ++i) {
      sum += std::cos(static_cast<double>(m) *
                      std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(d)));
    }
    if (sum < 0) return false;
  }
  return true;
}

double Bound(int64_t d, int64_t context) { return BaseBounds(d, context).back().base; }

TEST(BaseBound, IsWhatAPlainSearchFinds) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/analysis.json");
  const json golden = json::parse(file);
  for (const json& set : golden["bounds"]) {
    for (const json& row : set["bounds"]) {
      // Both searches are right to their step, 2e-4 and 1e-4.
      EXPECT_NEAR(Bound(set["d"], row["context"]) / row["base"].get<double>(), 1, 4e-4)
          << set["d"] << " " << row["context"];
    }
  }
}

TEST(BaseBound, SupportsItsContextAndBasesJustBelowDoNot) {
  for (const int64_t d : {8, 32, 64, 96, 128}) {
    for (const int64_t context : {255, 256, 257, 1024, 4096}) {
      const double base = Bound(d, context);
      EXPECT_TRUE(Supports(base, d, context)) << d << " " << context << " " << base;
      for (const double below : {1.001, 1.01, 1.1, 1.5, 2.0}) {
        if (base / below < 1.01) continue;
        EXPECT_FALSE(Supports(base / below, d, context)) << d << " " << context << " " << below;
      }
    }
  }
}

// Men et al. 2024, table 2 (head_dim 128). Where the paper's coarser search steps over a window of
// smaller bases that pass, ours is smaller: 2k, 16k, 32k and 128k.
TEST(BaseBound, AgainstThePaper) {
  struct Row {
    int64_t context;
    double paper, ours;
  };
  const Row rows[] = {{1024, 4.3e3, 4.3e3}, {2048, 1.6e4, 1.16e4}, {4096, 2.7e4, 2.7e4},
                      {8192, 8.4e4, 8.4e4}, {16384, 3.1e5, 2.3e5}, {32768, 6.4e5, 6.3e5},
                      {65536, 2.1e6, 2.1e6}};
  const std::vector<BaseBound> bounds = BaseBounds(128, 65536);
  ASSERT_EQ(bounds.size(), std::size(rows));
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(bounds[i].context, rows[i].context);
    EXPECT_NEAR(bounds[i].base / rows[i].ours, 1, 0.02) << rows[i].context;
    EXPECT_LE(bounds[i].base, rows[i].paper * 1.01) << rows[i].context;
    if (i > 0) {
      EXPECT_GE(bounds[i].base, bounds[i - 1].base);
    }
  }
  // 11,588 passes at every distance, by the definition: the paper's 16,000 is not the least.
  EXPECT_TRUE(Supports(bounds[1].base, 128, 2048));
}

TEST(LongestContext, IsTheLastDistanceBeforeTheSumIsNegative) {
  for (const double base : {500.0, 10000.0, 100000.0}) {
    for (const int64_t d : {32, 64, 128}) {
      const Frequencies f = Plain(base, d);
      const int64_t longest = LongestContext(f);
      EXPECT_TRUE(Supports(base, d, longest)) << base << " " << d;
      EXPECT_FALSE(Supports(base, d, longest + 1));
      EXPECT_LT(CosineSum(f, longest + 1), 0);
    }
  }
}

TEST(LongestContext, StopsAtItsLimit) {
  EXPECT_EQ(LongestContext(Plain(1e9, 128), 1000), 1000);
  Frequencies still = Plain(10000, 8);
  for (DoubleDouble& f : still.inv_freq) f = {0, 0};
  EXPECT_EQ(LongestContext(still, 5000), 5000);
}

// Position interpolation stretches the curve: 4 times the context, but for whole positions.
TEST(LongestContext, GrowsWithInterpolation) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 128;
  const int64_t plain = LongestContext(Resolve(spec, 1));
  spec.scaling = LinearScaling{4};
  const int64_t scaled = LongestContext(Resolve(spec, 1));
  EXPECT_GE(scaled, 3 * plain);
  EXPECT_LE(scaled, 4 * plain + 3);
}

}  // namespace
}  // namespace ropewalk
