// The position axis of each pair, and each axis' own frequencies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {
namespace axes_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RotarySpec Spec(int64_t dim, std::vector<int64_t> sections, AxisOrder order) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = 5e6;
  spec.axes.sections = std::move(sections);
  spec.axes.order = order;
  return spec;
}

std::string Axes(const RotarySpec& spec) {
  std::string letters;
  for (const uint8_t axis : Resolve(spec, 1).axis) letters += "thwe"[axis];
  return letters;
}

TEST(Axes, Orders) {
  EXPECT_EQ(Axes(Spec(16, {4, 2, 2}, AxisOrder::kChunked)), "tttthhww");
  EXPECT_EQ(Axes(Spec(16, {4, 2, 2}, AxisOrder::kInterleaved)), "thwthwtt");
  EXPECT_EQ(Axes(Spec(16, {4, 2, 2}, AxisOrder::kErnie)), "hwhwtttt");
  EXPECT_EQ(Axes(Spec(16, {2, 2, 2, 2}, AxisOrder::kChunked)), "tthhwwee");
  EXPECT_EQ(Axes(Spec(8, {0, 2, 2}, AxisOrder::kChunked)), "hhww");
  EXPECT_TRUE(Resolve(Spec(8, {}, AxisOrder::kChunked), 1).axis.empty());
}

// Qwen3-VL's sections: pairs 61 and 62 are time in Hugging Face and vLLM, a fourth axis in ggml.
TEST(Axes, InterleavedTail) {
  RotarySpec spec = Spec(128, {24, 20, 20}, AxisOrder::kInterleaved);
  const std::string hf = Axes(spec);
  EXPECT_EQ(std::count(hf.begin(), hf.end(), 't'), 24);
  EXPECT_EQ(std::count(hf.begin(), hf.end(), 'h'), 20);
  EXPECT_EQ(std::count(hf.begin(), hf.end(), 'w'), 20);
  EXPECT_EQ(hf.substr(58), "hwtttt");
  spec.dialect = Dialect::kLlamaCpp;
  const std::string ggml = Axes(spec);
  EXPECT_EQ(ggml.substr(58), "hwteet");
  EXPECT_EQ(Resolve(spec, 1).axes, 4);
  // What llama.cpp misses: the angle of pair 61 at 32768 and at 262143.
  const double f = Resolve(spec, 1).inv_freq[61].hi;
  EXPECT_NEAR(32768 * f, 0.0135, 5e-5);
  EXPECT_NEAR(262143 * f, 0.108, 5e-4);
  // Sections of Qwen3.5 leave no tail.
  RotarySpec even = Spec(64, {11, 11, 10}, AxisOrder::kInterleaved);
  const std::string both = Axes(even);
  even.dialect = Dialect::kLlamaCpp;
  EXPECT_EQ(Axes(even), both);
}

// M-RoPE keeps the frequencies of 1-D; vision's axes start their own ladders.
TEST(Axes, Ladders) {
  RotarySpec spec = Spec(16, {4, 2, 2}, AxisOrder::kChunked);
  RotarySpec flat = spec;
  flat.axes = {};
  EXPECT_EQ(Resolve(spec, 1).inv_freq_f32, Resolve(flat, 1).inv_freq_f32);
  spec.axes.own_ladders = true;
  const Frequencies own = Resolve(spec, 1);
  const double expected[] = {
      1, std::pow(5e6, -0.25), std::pow(5e6, -0.5), std::pow(5e6, -0.75), 1, std::pow(5e6, -0.5),
      1, std::pow(5e6, -0.5)};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(own.inv_freq[i].hi / expected[i], 1, 1e-15) << i;
  // Each with its own base and scaling.
  spec.axes.scalings = {{1e4, LinearScaling{2}, 0}, {100, NoScaling{}, 0}, {400, NoScaling{}, 0}};
  const Frequencies mixed = Resolve(spec, 1);
  const double wanted[] = {0.5, 0.05, 0.005, 0.0005, 1, 0.1, 1, 0.05};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(mixed.inv_freq[i].hi / wanted[i], 1, 1e-14) << i;
}

TEST(Axes, BadAxesAreErrors) {
  const auto refuses = [](const RotarySpec& spec, const char* says) {
    try {
      Resolve(spec, 1);
      ADD_FAILURE() << says << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  };
  refuses(Spec(16, {4, 2, 1}, AxisOrder::kChunked), "add up");
  refuses(Spec(16, {4, -2, 6}, AxisOrder::kChunked), "add up");
  refuses(Spec(16, {INT64_MAX, INT64_MAX, 10}, AxisOrder::kChunked), "add up");
  refuses(Spec(16, {2, 2, 2, 1, 1}, AxisOrder::kChunked), "at most 4");
  refuses(Spec(16, {4, 4}, AxisOrder::kInterleaved), "three sections");
  refuses(Spec(16, {3, 2, 3}, AxisOrder::kErnie), "must be equal");
  RotarySpec own = Spec(16, {4, 2, 2}, AxisOrder::kInterleaved);
  own.axes.own_ladders = true;
  refuses(own, "chunked");
  RotarySpec scaled = Spec(16, {4, 2, 2}, AxisOrder::kChunked);
  scaled.axes.scalings = {{}, {}, {}};
  refuses(scaled, "own_ladders");
  scaled.axes.own_ladders = true;
  scaled.axes.scalings = {{}, {}};
  refuses(scaled, "one entry");
  scaled.axes.scalings = {{1e4, YarnScaling{4}, 64}, {}, {}};
  refuses(scaled, "amplitudes");
}

}  // namespace axes_test
}  // namespace ropewalk
