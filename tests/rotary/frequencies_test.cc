// Every method against MPFR, and everything Resolve must refuse.
#include "ropewalk/rotary/frequencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "ropewalk/base/error.h"
#include "tests/support/mpfr.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace frequencies_test {

using ::testing::HasSubstr;

RotarySpec Spec(int64_t dim, double base, int64_t trained, Scaling scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = base;
  spec.trained_length = trained;
  spec.scaling = std::move(scaling);
  return spec;
}

Exact Plain(const RotarySpec& s, int64_t i) {
  return Pow(Exact(s.base),
             Exact(-2.0 * static_cast<double>(i)) / Exact(static_cast<double>(s.rotary_dim)));
}

Exact Ntk(const RotarySpec& s, const Exact& factor, int64_t i) {
  const Exact d(static_cast<double>(s.rotary_dim));
  const Exact base = Exact(s.base) * Pow(factor, d / (d - Exact(2)));
  return Pow(base, Exact(-2.0 * static_cast<double>(i)) / d);
}

Exact Clamp(const Exact& x) { return x < Exact(0) ? Exact(0) : Exact(1) < x ? Exact(1) : x; }

Exact ByRotations(const RotarySpec& s, double factor, double low, double high, int64_t i) {
  const Exact f = Plain(s, i);
  const Exact r = Exact(static_cast<double>(s.trained_length)) * f / (Exact(2) * Exact::Pi());
  const Exact kept = Clamp((r - Exact(low)) / (Exact(high) - Exact(low)));
  return (Exact(1) - kept) * f / Exact(factor) + kept * f;
}

Exact PairAt(const RotarySpec& s, double rotations) {
  return Exact(static_cast<double>(s.rotary_dim)) *
         Log(Exact(static_cast<double>(s.trained_length)) /
             (Exact(rotations) * Exact(2) * Exact::Pi())) /
         (Exact(2) * Log(Exact(s.base)));
}

// 1 at `low` and before, 0 at `high` and after.
Exact RampDown(const RotarySpec& s, double fast, double slow, bool truncate, int64_t i) {
  Exact low = PairAt(s, fast);
  Exact high = PairAt(s, slow);
  if (truncate) low = Floor(low), high = Exact(0) - Floor(Exact(0) - high);
  if (low < Exact(0)) low = Exact(0);
  const Exact last(static_cast<double>(s.rotary_dim - 1));
  if (last < high) high = last;
  return Exact(1) - Clamp((Exact(static_cast<double>(i)) - low) / (high - low));
}

Exact Yarn(const RotarySpec& s, const YarnScaling& y, int64_t i) {
  const Exact kept = RampDown(s, y.beta_fast, y.beta_slow, y.truncate, i);
  const Exact f = Plain(s, i);
  return f / Exact(y.factor) * (Exact(1) - kept) + f * kept;
}

Exact ByPartsRepo(const RotarySpec& s, double factor, int64_t i) {
  const Exact f = Plain(s, i);
  const Exact a = RampDown(s, 1.25, 0.75, true, i);
  const Exact b = RampDown(s, 16, 2, true, i);
  const Exact mixed = f / Exact(factor) * (Exact(1) - a) + Ntk(s, Exact(factor), i) * a;
  return mixed * (Exact(1) - b) + f * b;
}

void ExpectExact(const char* name, const RotarySpec& spec, int64_t length,
                 const std::function<Exact(int64_t)>& expected) {
  const Frequencies f = Resolve(spec, length);
  ASSERT_EQ(static_cast<int64_t>(f.inv_freq.size()), spec.rotary_dim / 2);
  for (int64_t i = 0; i < spec.rotary_dim / 2; ++i) {
    const DoubleDouble& x = f.inv_freq[static_cast<std::size_t>(i)];
    const Exact want = expected(i);
    const double error = Abs((Exact(x.hi) + Exact(x.lo) - want) / want).ToDouble();
    EXPECT_LE(error, tolerances::kFrequencyRelative)
        << name << " dim " << spec.rotary_dim << " base " << spec.base << " pair " << i;
    EXPECT_EQ(x.hi, x.hi + x.lo) << "not normalised";
  }
}

TEST(Frequencies, HaveOneHundredBits) {
  for (const int64_t dim : {4, 8, 32, 64, 74, 96, 128, 256}) {
    for (const double base : {2.0, 10000.0, 500000.0, 1e7, 40890.5}) {
      const int64_t length = 4096;
      const double s = 3.7;
      RotarySpec spec = Spec(dim, base, length, NoScaling{});
      ExpectExact("none", spec, 1, [&](int64_t i) { return Plain(spec, i); });
      spec.scaling = LinearScaling{s};
      ExpectExact("linear", spec, 1, [&](int64_t i) { return Plain(spec, i) / Exact(s); });
      spec.scaling = NtkScaling{s};
      ExpectExact("ntk", spec, 1, [&](int64_t i) { return Ntk(spec, Exact(s), i); });
      spec.scaling = DynamicNtkScaling{s};
      ExpectExact("dynamic", spec, 30011, [&](int64_t i) {
        return Ntk(spec, Exact(s) * Exact(30011) / Exact(4096) - (Exact(s) - Exact(1)), i);
      });
      spec.scaling = ByPartsScaling{s, 1, 32};
      ExpectExact("by-parts", spec, 1, [&](int64_t i) { return ByRotations(spec, s, 1, 32, i); });
      spec.scaling = Llama3Scaling{s, 1.5, 4.25};
      ExpectExact("llama3", spec, 1, [&](int64_t i) { return ByRotations(spec, s, 1.5, 4.25, i); });
      const double pairs = static_cast<double>(dim / 2);
      spec.scaling = NtkFixedScaling{s};
      ExpectExact("ntk-fixed", spec, 1, [&](int64_t i) {
        const Exact share = Exact(-static_cast<double>(i + 1)) / Exact(pairs);
        return Plain(spec, i) * Pow(Exact(s), share);
      });
      spec.scaling = NtkMixedScaling{s, 0.75};
      ExpectExact("ntk-mixed", spec, 1, [&](int64_t i) {
        const Exact a = Log(Exact(s)) / Pow(Exact(pairs), Exact(0.75));
        const Exact power = Pow(Exact(static_cast<double>(i + 1)), Exact(0.75));
        return Plain(spec, i) * Exp(Exact(0) - a * power);
      });
      spec.scaling = DynamicLinearScaling{};
      ExpectExact("dynamic-linear", spec, 30011,
                  [&](int64_t i) { return Plain(spec, i) * Exact(4096) / Exact(30011); });
      spec.scaling = QwenNtkScaling{};  // 7.33 L: ceil(log2) = 3, alpha = 15
      ExpectExact("qwen", spec, 30011, [&](int64_t i) { return Ntk(spec, Exact(15), i); });
      spec.scaling = BaseScaling{250007};
      const RotarySpec rebased = Spec(dim, 250007, length, NoScaling{});
      ExpectExact("base", spec, 1, [&](int64_t i) { return Plain(rebased, i); });
      if (base < 3) continue;  // the ramps over pair indices need more than one turn a pair
      for (const bool truncate : {true, false}) {
        YarnScaling yarn;
        yarn.factor = s;
        yarn.truncate = truncate;
        spec.scaling = yarn;
        ExpectExact("yarn", spec, 1, [&](int64_t i) { return Yarn(spec, yarn, i); });
      }
      spec.scaling = ByPartsRepoScaling{s};
      ExpectExact("by-parts-repo", spec, 1, [&](int64_t i) { return ByPartsRepo(spec, s, i); });
    }
  }
}

TEST(Frequencies, DivisorsDivide) {
  RotarySpec spec = Spec(8, 10000, 4096, ExplicitScaling{{1, 1.5, 3.3, 8}});
  const double d[] = {1, 1.5, 3.3, 8};
  ExpectExact("explicit", spec, 1, [&](int64_t i) { return Plain(spec, i) / Exact(d[i]); });
  spec.scaling =
      LongRopeScaling{.short_factor = {1, 1, 1, 1}, .long_factor = {1, 1.5, 3.3, 8}, .factor = 2.0};
  ExpectExact("longrope", spec, 4097, [&](int64_t i) { return Plain(spec, i) / Exact(d[i]); });
}

// llama3 is NTK-by-parts with alpha = low and beta = high (YaRN paper).
TEST(Frequencies, Llama3IsByParts) {
  const Frequencies a = Resolve(Spec(128, 500000, 8192, Llama3Scaling{8, 1, 4}), 1);
  const Frequencies b = Resolve(Spec(128, 500000, 8192, ByPartsScaling{8, 1, 4}), 1);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(a.inv_freq[i].hi, b.inv_freq[i].hi);
}

// A factor of 1 scales nothing up to the trained length, whatever the method.
TEST(Frequencies, FactorOneIsNoScaling) {
  const Frequencies none = Resolve(Spec(64, 10000, 2048, NoScaling{}), 2048);
  for (const MethodInfo& method : Methods()) {
    if (std::string(method.name) == "hope") continue;  // drops pairs, whatever the length
    const Frequencies f = Resolve(Spec(64, 10000, 2048, method.make(1)), 2048);
    EXPECT_EQ(f.amplitude, 1) << method.name;
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_NEAR(f.inv_freq[i].hi / none.inv_freq[i].hi, 1, 1e-15) << method.name << i;
    }
  }
}

TEST(Frequencies, YarnRamp) {
  // low == high without truncation: a step, finite everywhere.
  YarnScaling step;
  step.factor = 4;
  step.truncate = false;
  step.beta_fast = step.beta_slow = 4;
  const Frequencies f = Resolve(Spec(128, 10000, 4096, step), 1);
  const Frequencies plain = Resolve(Spec(128, 10000, 4096, NoScaling{}), 1);
  for (std::size_t i = 0; i < 64; ++i) {
    const double ratio = plain.inv_freq[i].hi / f.inv_freq[i].hi;
    EXPECT_NEAR(ratio, i <= 35 ? 1 : 4, 1e-14) << i;  // low = high = 35.39
  }
  // Rounded outwards the ends never meet: a ramp for every head, base and length that is in use.
  for (const int64_t d : {16, 32, 64, 80, 96, 128}) {
    for (const double base : {1e4, 1e5, 5e5, 1e6, 1e7}) {
      for (int64_t trained = 64; trained <= 8192; trained *= 2) {
        const Frequencies g = Resolve(Spec(d, base, trained, YarnScaling{4}), 1);
        for (int64_t i = 0; i < d / 2; ++i) {
          const double whole = std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(d));
          const double ratio = whole / g.inv_freq[static_cast<std::size_t>(i)].hi;
          EXPECT_TRUE(ratio >= 1 - 1e-13 && ratio <= 4 + 1e-13)
              << d << " " << base << " " << trained;
        }
      }
    }
  }
  // mscale without mscale_all_dim is not used, as in Hugging Face.
  YarnScaling half;
  half.factor = 40;
  half.mscale = 0.707;
  EXPECT_NEAR(Resolve(Spec(64, 10000, 4096, half), 1).amplitude, 1.3688879454, 5e-11);
  half.mscale_all_dim = 0.707;
  EXPECT_EQ(Resolve(Spec(64, 10000, 4096, half), 1).amplitude, 1);
  half.attention_factor = 1.0;
  EXPECT_EQ(Resolve(Spec(64, 10000, 4096, half), 1).amplitude, 1);
}

TEST(Frequencies, Methods) {
  const char* names[] = {"none",    "linear",         "ntk",    "ntk-fixed", "ntk-mixed",
                         "dynamic", "dynamic-linear", "qwen",   "by-parts",  "by-parts-repo",
                         "yarn",    "dynamic-yarn",   "llama3", "hope"};
  const std::vector<std::string> without_factor = {"none", "qwen", "dynamic-yarn", "hope"};
  ASSERT_GE(Methods().size(), std::size(names));  // more may follow
  for (std::size_t i = 0; i < std::size(names); ++i) {
    EXPECT_STREQ(Methods()[i].name, names[i]);
    const Scaling scaling = FindMethod(names[i]).make(4);
    const bool fixed =
        std::find(without_factor.begin(), without_factor.end(), names[i]) != without_factor.end();
    EXPECT_EQ(FactorOf(scaling), fixed ? 1 : 4);
    EXPECT_EQ(IsLengthDependent(scaling), Methods()[i].length_dependent);
    EXPECT_EQ(Describe(scaling).rfind(names[i], 0), 0u) << Describe(scaling);
  }
  EXPECT_EQ(Describe(Scaling(YarnScaling{4})),
            "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)");
  try {
    FindMethod("yarm");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("by-parts-repo"));
    EXPECT_THAT(e.what(), HasSubstr("yarm"));
  }
}

// Every alternative of Scaling has a row, and what it says of itself is so.
TEST(Frequencies, RowsOfTheScalings) {
  ASSERT_EQ(ScalingMethods().size(), std::variant_size_v<Scaling>);
  for (const MethodInfo& info : ScalingMethods()) {
    const Scaling scaling = info.make(4);
    EXPECT_STREQ(InfoOf(scaling).name, info.name);
    EXPECT_EQ(scaling, info.make(4));
    EXPECT_EQ(Describe(scaling).rfind(info.name, 0), 0u);
    EXPECT_EQ(FactorOf(TrainedScaling(scaling)), 1) << info.name;
    if (!info.by_factor) continue;
    RotarySpec spec = Spec(64, 10000, 2048, scaling);
    const Frequencies near = Resolve(spec, 4096), far = Resolve(spec, 8192);
    EXPECT_EQ(near != far, info.length_dependent) << info.name;
    spec.trained_length = 0;
    if (info.needs_trained_length) {
      EXPECT_THROW(Resolve(spec, 4096), Error) << info.name;
    } else {
      EXPECT_EQ(Resolve(spec, 4096), near) << info.name;
    }
  }
}

// Articles draw it: all pairs rotate alike, by one radian per token.
TEST(Frequencies, BaseOfOne) {
  const Frequencies f = Resolve(Spec(64, 1, 2048, NoScaling{}), 1);
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    EXPECT_EQ(f.inv_freq[i], (DoubleDouble{1, 0}));
    EXPECT_EQ(f.inv_freq_f32[i], 1.0f);
  }
  EXPECT_EQ(Resolve(Spec(64, 1, 2048, LinearScaling{4}), 1).inv_freq[31].hi, 0.25);
  EXPECT_EQ(Resolve(Spec(64, 10000, 2048, BaseScaling{1}), 1), f);
  for (const Scaling& ramp : {Scaling(YarnScaling{4}), Scaling(ByPartsRepoScaling{4})}) {
    EXPECT_THROW(Resolve(Spec(64, 1, 2048, ramp), 1), Error) << Describe(ramp);
  }
}

TEST(Frequencies, ExactAngleIsReducedRight) {
  const Frequencies f = Resolve(Spec(64, 500000, 2048, YarnScaling{4}), 1);
  const int64_t positions[] = {0,    1,    255,  256,    257,     2047,       2048,
                               2049, 8192, -257, 131071, 1048575, 2147483647, -2147483647};
  for (const DoubleDouble& x : f.inv_freq) {
    for (const int64_t p : positions) {
      const Exact turn = Exact(2) * Exact::Pi();
      const Exact whole = (Exact(x.hi) + Exact(x.lo)) * Exact(static_cast<double>(p));
      Exact rest = whole - Floor(whole / turn) * turn;  // [0, 2 pi)
      if (Exact::Pi() < rest) rest = rest - turn;
      const double got = ExactAngle(x, p);
      EXPECT_LE(std::abs(got), std::numbers::pi);
      const double error = Abs(rest - Exact(got)).ToDouble();
      EXPECT_LE(std::min(error, 2 * std::numbers::pi - error), 0x1p-51) << x.hi << " at " << p;
    }
  }
}

struct Refused {
  const char* what;
  RotarySpec spec;
  int64_t length;
  const char* says;
};

RotarySpec With(RotarySpec spec, const std::function<void(RotarySpec&)>& change) {
  change(spec);
  return spec;
}

// A scaling whose factor was forgotten is not one that scales nothing; an explicit 1 is.
TEST(Frequencies, FactorIsRequired) {
  const std::pair<const char*, Scaling> forgotten[] = {{"linear", LinearScaling{}},
                                                       {"ntk", NtkScaling{}},
                                                       {"ntk-fixed", NtkFixedScaling{}},
                                                       {"ntk-mixed", NtkMixedScaling{}},
                                                       {"dynamic", DynamicNtkScaling{}},
                                                       {"by-parts", ByPartsScaling{}},
                                                       {"by-parts-repo", ByPartsRepoScaling{}},
                                                       {"yarn", YarnScaling{}},
                                                       {"llama3", Llama3Scaling{}}};
  for (const auto& [name, scaling] : forgotten) {
    try {
      Resolve(Spec(64, 10000, 2048, scaling), 1);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), (std::string("rotary: ") + name +
                              ": factor is required and not set: the target length over the "
                              "trained length, such as 4 (1 scales nothing)")
                                 .c_str());
    }
    EXPECT_NO_THROW(Resolve(Spec(64, 10000, 2048, FindMethod(name).make(1)), 1)) << name;
  }
  // It takes s from the length, but Megatron's divides by its factor at any length.
  RotarySpec growing = Spec(64, 10000, 2048, DynamicLinearScaling{});
  EXPECT_NO_THROW(Resolve(growing, 4096));
  growing.dialect = Dialect::kMegatron;
  try {
    Resolve(growing, 4096);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("dynamic-linear: megatron requires factor"));
  }
}

TEST(Frequencies, BadSpecsAreErrors) {
  const RotarySpec good = Spec(64, 10000, 2048, NoScaling{});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  YarnScaling swapped{4};
  swapped.beta_fast = 1;
  swapped.beta_slow = 32;
  YarnScaling negative{4};
  negative.attention_factor = -1;
  ByPartsRepoScaling repo{4};
  std::swap(repo.gamma_0, repo.gamma_1);
  const double infinity = std::numeric_limits<double>::infinity();
  ByPartsRepoScaling no_share{4}, large_share{4};
  no_share.ntk_factor = nan;
  large_share.extrapolation_factor = 1.5;
  const auto scaled = [](Scaling s) { return Spec(64, 10000, 2048, std::move(s)); };
  const std::vector<double> ones(32, 1.0);
  const Refused cases[] = {
      {"odd", With(good, [](RotarySpec& s) { s.rotary_dim = 35; }), 1, "even"},
      {"zero", With(good, [](RotarySpec& s) { s.rotary_dim = 0; }), 1, "even"},
      {"negative", With(good, [](RotarySpec& s) { s.rotary_dim = -2; }), 1, "even"},
      {"past the head", With(good, [](RotarySpec& s) { s.first_dim = 2; }), 1, "within the head"},
      // head_dim - rotary_dim would overflow, and 2^30 pairs would be made.
      {"no head",
       With(good,
            [](RotarySpec& s) {
              s.head_dim = std::numeric_limits<int64_t>::min();
              s.rotary_dim = int64_t{1} << 31;
            }),
       1, "within the head"},
      {"before the head", With(good, [](RotarySpec& s) { s.first_dim = -1; }), 1, "within"},
      {"huge head", With(good, [](RotarySpec& s) { s.head_dim = s.rotary_dim = INT64_MAX - 1; }), 1,
       "limit"},
      {"base below 1", With(good, [](RotarySpec& s) { s.base = 0.5; }), 1, "base"},
      {"base nan", With(good, [&](RotarySpec& s) { s.base = nan; }), 1, "base"},
      {"length", good, 0, "length"},
      {"factor below 1", scaled(LinearScaling{0.5}), 1, "factor"},
      {"factor nan", scaled(NtkScaling{nan}), 1, "factor"},
      {"swapped betas", scaled(swapped), 1, "swapped"},
      {"bad amplitude", scaled(negative), 1, "amplitude"},
      {"alpha == beta", scaled(ByPartsScaling{4, 2, 2}), 1, "alpha"},
      {"gammas swapped", scaled(repo), 1, "swapped"},
      {"share nan", scaled(no_share), 1, "ntk_factor"},
      {"share above 1", scaled(large_share), 1, "from 0 to 1"},
      {"no number", scaled(ByPartsScaling{4, 1, infinity}), 1, "beta must be a number"},
      {"no number", scaled(ByPartsScaling{4, -infinity, 32}), 1, "alpha must be a number"},
      {"no number", scaled(Llama3Scaling{8, 1, infinity}), 1, "high_freq_factor must be"},
      {"overflow", scaled(DynamicNtkScaling{1e308}), 9000, "numbers, got"},
      {"overflow", scaled(NtkMixedScaling{4, 1e308}), 1, "numbers, got"},
      {"low above high", scaled(Llama3Scaling{8, 5, 4}), 1, "low_freq_factor"},
      {"ntk of 2", Spec(2, 10000, 2048, NtkScaling{4}), 1, "at least 4"},
      {"dynamic of 2", Spec(2, 10000, 2048, DynamicNtkScaling{4}), 1, "at least 4"},
      {"no length", Spec(64, 10000, 0, YarnScaling{4}), 1, "trained_length"},
      {"no length", Spec(64, 10000, 0, DynamicNtkScaling{4}), 1, "trained_length"},
      {"no length", Spec(64, 10000, 0, Llama3Scaling{4}), 1, "trained_length"},
      {"short length", Spec(64, 10000, 2, YarnScaling{4}), 1, "too short"},
      {"long length", Spec(64, 10, 32768, YarnScaling{4}), 1, "too long for beta_fast"},
      {"short length", Spec(64, 10000, 2, ByPartsRepoScaling{4}), 1, "too short"},
      {"divisors", scaled(ExplicitScaling{{1, 2}}), 1, "32"},
      {"divisor 0", scaled(ExplicitScaling{std::vector<double>(32, 0.0)}), 1, "positive"},
      {"fraction", scaled(ProportionalScaling{0}), 1, "fraction"},
      {"partial",
       With(good,
            [](RotarySpec& s) {
              s.rotary_dim = 32;
              s.scaling = ProportionalScaling{0.5};
            }),
       1, "head_dim"},
      {"exponent", scaled(NtkMixedScaling{4, -1}), 1, "exponent"},
      {"new base", scaled(BaseScaling{0.5}), 1, "base"},
      {"no length", Spec(64, 10000, 0, QwenNtkScaling{}), 1, "trained_length"},
      {"no length", Spec(64, 10000, 0, HopeScaling{}), 1, "trained_length"},
      {"no length", Spec(64, 10000, 0, DynamicYarnScaling{}), 1, "trained_length"},
      {"heads", With(good, [](RotarySpec& s) { s.rotated_heads = -1; }), 1, "rotated_heads"},
      {"xpos", With(good, [](RotarySpec& s) { s.xpos = XposDecay{.scale_base = 0}; }), 1, "xpos"},
      {"short_factor", scaled(LongRopeScaling{{1}, ones, 2.0}), 1, "short_factor"},
      {"long_factor", scaled(LongRopeScaling{ones, {1}, 2.0}), 1, "long_factor"},
      {"no factor", scaled(LongRopeScaling{ones, ones}), 1, "attention_factor"},
  };
  for (const Refused& c : cases) {
    try {
      Resolve(c.spec, c.length);
      ADD_FAILURE() << c.what << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(c.says)) << c.what;
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST(Frequencies, QwenTakesEveryLength) {
  const RotarySpec spec = Spec(64, 10000, 4096, QwenNtkScaling{});
  // alpha = 2^(m + 1) - 1 for the smallest m with 4096 2^m >= length.
  for (const auto& [length, alpha] : std::vector<std::pair<int64_t, double>>{
           {4096, 1}, {4097, 3}, {8192, 3}, {8193, 7}, {INT64_MAX, std::exp2(52)}}) {
    const Frequencies f = Resolve(spec, length);
    const Frequencies ntk = Resolve(Spec(64, 10000, 4096, NtkScaling{alpha}), 1);
    EXPECT_NEAR(f.inv_freq[31].hi / ntk.inv_freq[31].hi, 1, 1e-14) << length;
  }
}

}  // namespace frequencies_test
}  // namespace ropewalk
