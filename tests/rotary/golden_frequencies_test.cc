// Frequencies against other programs: Hugging Face bit for bit in float32, and printed values of
// every method in double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ropewalk/rotary/frequencies.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace golden_frequencies_test {

using nlohmann::json;

std::optional<double> Maybe(const json& scaling, const char* key) {
  return scaling.contains(key) ? std::optional(scaling[key].get<double>()) : std::nullopt;
}

Scaling ScalingOf(const json& c) {
  const json& s = c["scaling"];
  const std::string type = c["type"];
  const double factor = s.value("factor", 1.0);
  if (type == "linear") return LinearScaling{factor};
  if (type == "dynamic") return DynamicNtkScaling{factor};
  if (type == "yarn") {
    YarnScaling yarn;
    yarn.factor = factor;
    yarn.beta_fast = s.value("beta_fast", 32.0);
    yarn.beta_slow = s.value("beta_slow", 1.0);
    yarn.truncate = s.value("truncate", true);
    yarn.attention_factor = Maybe(s, "attention_factor");
    yarn.mscale = Maybe(s, "mscale");
    yarn.mscale_all_dim = Maybe(s, "mscale_all_dim");
    return yarn;
  }
  if (type == "llama3") return Llama3Scaling{factor, s["low_freq_factor"], s["high_freq_factor"]};
  if (type == "longrope") {
    return LongRopeScaling{s["short_factor"], s["long_factor"], factor,
                           Maybe(s, "attention_factor")};
  }
  EXPECT_EQ(type, "default");
  return NoScaling{};
}

// ROPEWALK_ROTARY_GOLDENS may name a larger file made by rotary_make.py --many.
TEST(GoldenFrequencies, Float32IsHuggingFaceBitForBit) {
  const char* other = std::getenv("ROPEWALK_ROTARY_GOLDENS");
  std::ifstream file(
      other != nullptr ? other : ROPEWALK_SOURCE_DIR "/tests/golden/rotary_frequencies.json");
  ASSERT_TRUE(file) << "the golden file is missing";
  const json cases = json::parse(file);
  ASSERT_GE(cases.size(), 20u);
  for (const json& c : cases) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = c["rotary_dim"];
    spec.base = c["base"];
    spec.trained_length = c["trained_length"];
    spec.scaling = ScalingOf(c);
    const Frequencies f = Resolve(spec, c["length"]);
    const std::vector<int32_t> bits = c["inv_freq_bits"];
    ASSERT_EQ(f.inv_freq_f32.size(), bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      EXPECT_EQ(std::bit_cast<int32_t>(f.inv_freq_f32[i]), bits[i])
          << c["type"] << " dim " << c["rotary_dim"] << " base " << c["base"] << " pair " << i;
      // The exact frequency is another value of the same formula: float32's rounding apart.
      EXPECT_NEAR(f.inv_freq[i].hi / std::bit_cast<float>(bits[i]), 1, 3e-6)
          << c["type"] << " pair " << i;
    }
    EXPECT_DOUBLE_EQ(f.amplitude, c["attention_factor"].get<double>()) << c["type"];
  }
}

struct Printed {
  const char* name;
  Scaling scaling;
  int64_t length;
  double at[9];  // pairs 1, 20, 21, 24, 32, 40, 45, 46, 63
};

YarnScaling Untruncated() {
  YarnScaling yarn;
  yarn.factor = 4;
  yarn.truncate = false;
  return yarn;
}

// rotary_dim 128, base 10000, trained at 4096, factor 4 (dynamic: 2 at length 8192), computed apart
// in double from the papers' and the repositories' formulas.
TEST(GoldenFrequencies, DoubleValuesOfEveryMethod) {
  const Printed table[] = {
      {"none",
       NoScaling{},
       1,
       {8.659643234e-01, 5.623413252e-02, 4.869675252e-02, 3.162277660e-02, 1.000000000e-02,
        3.162277660e-03, 1.539926526e-03, 1.333521432e-03, 1.154781985e-04}},
      {"linear",
       LinearScaling{4},
       1,
       {2.164910808e-01, 1.405853313e-02, 1.217418813e-02, 7.905694150e-03, 2.500000000e-03,
        7.905694150e-04, 3.849816315e-04, 3.333803580e-04, 2.886954962e-05}},
      {"ntk",
       NtkScaling{4},
       1,
       {8.471171852e-01, 3.621344522e-02, 3.067703178e-02, 1.864849605e-02, 4.945289841e-03,
        1.311413615e-03, 5.720805059e-04, 4.846192278e-04, 2.886954962e-05}},
      {"dynamic",
       DynamicNtkScaling{2},
       8192,
       {8.509942913e-01, 3.967646167e-02, 3.376444238e-02, 2.080843997e-02, 5.723381508e-03,
        1.574221611e-03, 7.025853725e-04, 5.978961412e-04, 3.849273282e-05}},
      {"by-parts-repo",
       ByPartsRepoScaling{4},
       1,
       {8.659643234e-01, 5.623413252e-02, 4.869675252e-02, 3.162277660e-02, 7.788564305e-03,
        1.427092617e-03, 4.972409561e-04, 3.938759059e-04, 2.886954962e-05}},
      {"by-parts",
       ByPartsScaling{4},
       1,
       {8.659643234e-01, 5.623413252e-02, 4.839673388e-02, 2.291236843e-02, 3.835238662e-03,
        8.717801120e-04, 3.851260376e-04, 3.333803580e-04, 2.886954962e-05}},
      {"yarn",
       YarnScaling{4},
       1,
       {8.659643234e-01, 5.623413252e-02, 4.729203850e-02, 2.797399469e-02, 6.538461538e-03,
        1.337886702e-03, 4.294025890e-04, 3.333803580e-04, 2.886954962e-05}},
      {"yarn without truncation",
       Untruncated(),
       1,
       {8.659643234e-01, 5.623413252e-02, 4.861255519e-02, 2.861360881e-02, 6.556971521e-03,
        1.285632031e-03, 3.862708049e-04, 3.333803580e-04, 2.886954962e-05}},
      {"llama3",
       Llama3Scaling{4, 1, 4},
       1,
       {8.659643234e-01, 5.623413252e-02, 4.869675252e-02, 3.162277660e-02, 1.000000000e-02,
        1.629746617e-03, 3.864738275e-04, 3.333803580e-04, 2.886954962e-05}},
  };
  const int pairs[] = {1, 20, 21, 24, 32, 40, 45, 46, 63};
  for (const Printed& row : table) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = 128;
    spec.trained_length = 4096;
    spec.scaling = row.scaling;
    const Frequencies f = Resolve(spec, row.length);
    for (int i = 0; i < 9; ++i) {
      EXPECT_NEAR(f.inv_freq[static_cast<std::size_t>(pairs[i])].hi / row.at[i], 1,
                  tolerances::kPrintedFrequency)
          << row.name << " pair " << pairs[i];
    }
  }
}

TEST(GoldenFrequencies, Llama31AndGptOss) {
  RotarySpec llama(PairLayout::kHalf);
  llama.head_dim = llama.rotary_dim = 128;
  llama.base = 500000;
  llama.trained_length = 8192;
  llama.scaling = Llama3Scaling{8, 1, 4};
  const Frequencies f = Resolve(llama, 1);
  const std::pair<std::size_t, double> expected[] = {{28, 3.211445994753e-03},
                                                     {29, 2.166570763503e-03},
                                                     {32, 5.248461609930e-04},
                                                     {34, 1.785078127680e-04},
                                                     {35, 9.556212353965e-05}};
  for (const auto& [pair, value] : expected) EXPECT_NEAR(f.inv_freq[pair].hi / value, 1, 1e-12);

  RotarySpec oss(PairLayout::kHalf);
  oss.head_dim = oss.rotary_dim = 64;
  oss.base = 150000;
  oss.trained_length = 4096;
  YarnScaling yarn;
  yarn.factor = 32;
  yarn.truncate = false;
  oss.scaling = yarn;
  const Frequencies g = Resolve(oss, 1);
  const std::pair<std::size_t, double> oss_expected[] = {{8, 5.081327481546e-02},
                                                         {9, 3.170569618466e-02},
                                                         {12, 6.794959489732e-03},
                                                         {17, 1.293187012451e-04},
                                                         {18, 3.830881237375e-05}};
  for (const auto& [pair, value] : oss_expected) EXPECT_NEAR(g.inv_freq[pair].hi / value, 1, 1e-12);
  EXPECT_NEAR(g.amplitude, 1.3465735903, 5e-11);
}

// Where YaRN's ramp begins and ends, read off the frequencies: kept - 1 / s of a pair over 1 - 1 /
// s falls along a line from 1 at `low` to 0 at `high`.
TEST(GoldenFrequencies, YarnCorrectionRanges) {
  struct Row {
    const char* model;
    int64_t d;
    double base;
    int64_t trained;
    double fast, low, high;  // not rounded
    int first, last;         // rounded
  };
  const Row rows[] = {{"Llama 2", 128, 1e4, 4096, 32, 20.944, 45.027, 20, 46},
                      {"Qwen2.5", 128, 1e6, 32768, 32, 23.596, 39.651, 23, 40},
                      {"gpt-oss", 64, 150000, 4096, 32, 8.093, 17.398, 8, 18},
                      {"DeepSeek-V3", 64, 1e4, 4096, 32, 10.472, 22.513, 10, 23},
                      {"trained at 2048", 128, 1e4, 2048, 32, 16.128, 40.210, 16, 41},
                      {"beta_fast 4", 128, 1e6, 4096, 4, 23.596, 30.018, 23, 31}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.model);
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = row.d;
    spec.base = row.base;
    spec.trained_length = row.trained;
    YarnScaling yarn{4};
    yarn.beta_fast = row.fast;
    const auto kept = [&](int i) {
      const double plain = std::pow(row.base, -2.0 * i / static_cast<double>(row.d));
      spec.scaling = yarn;
      return (Resolve(spec, 1).inv_freq[static_cast<std::size_t>(i)].hi / plain - 0.25) / 0.75;
    };
    EXPECT_NEAR(kept(row.first), 1, 1e-12);
    EXPECT_LT(kept(row.first + 1), 1 - 1e-3);
    EXPECT_GT(kept(row.last - 1), 1e-3);
    EXPECT_NEAR(kept(row.last), 0, 1e-12);
    yarn.truncate = false;
    const int a = row.first + 1, b = row.last - 1;
    const double slope = (kept(b) - kept(a)) / (b - a);
    EXPECT_NEAR(a + (1 - kept(a)) / slope, row.low, 6e-4);
    EXPECT_NEAR(a - kept(a) / slope, row.high, 6e-4);
  }
}

TEST(GoldenFrequencies, YarnAmplitudes) {
  const std::pair<double, double> expected[] = {{4, 1.1386294361},
                                                {16, 1.2772588722},
                                                {32, 1.3465735903},
                                                {40, 1.3688879454},
                                                {64, 1.4158883083}};
  for (const auto& [s, amplitude] : expected) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = 128;
    spec.trained_length = 4096;
    spec.scaling = YarnScaling{s};
    EXPECT_NEAR(Resolve(spec, 1).amplitude, amplitude, 5e-11) << s;
    EXPECT_NEAR(0.1 * std::log(s) + 1, amplitude, 5e-11) << s;
  }
}

// Dynamic NTK with s = 2 at twice the trained length is NTK-aware with s = 3.
TEST(GoldenFrequencies, DynamicAtTwiceTheLengthIsNtkOfThree) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 128;
  spec.trained_length = 4096;
  spec.scaling = DynamicNtkScaling{2};
  const Frequencies dynamic = Resolve(spec, 8192);
  spec.scaling = NtkScaling{3};
  const Frequencies ntk = Resolve(spec, 8192);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(dynamic.inv_freq[i].hi, ntk.inv_freq[i].hi) << i;
  }
  // Up to the trained length it is no scaling at all.
  spec.scaling = DynamicNtkScaling{2};
  const Frequencies at = Resolve(spec, 4096);
  spec.scaling = NoScaling{};
  const Frequencies none = Resolve(spec, 4096);
  EXPECT_EQ(at.inv_freq_f32, none.inv_freq_f32);
}

// LongRoPE: the long list beyond the trained length, the amplitude for both.
TEST(GoldenFrequencies, LongRopeAmplitude) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 4;
  spec.trained_length = 4096;
  spec.scaling = LongRopeScaling{{1, 2}, {3, 4}, 32.0, std::nullopt};
  EXPECT_NEAR(Resolve(spec, 4096).amplitude, 1.1902380714, 5e-11);
  EXPECT_NEAR(Resolve(spec, 4096).inv_freq[1].hi, 0.01 / 2, 1e-17);
  EXPECT_NEAR(Resolve(spec, 4097).inv_freq[1].hi, 0.01 / 4, 1e-17);
}

}  // namespace golden_frequencies_test
}  // namespace ropewalk
