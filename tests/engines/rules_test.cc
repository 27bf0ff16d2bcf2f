// Rules of inspect that engines_test.cc does not test: each with a case that fires it, its value by
// a formula typed again, and a case that does not fire it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "ropewalk/base/error.h"
#include "tests/engines/support.h"

namespace ropewalk {
namespace rules_test {

using testing::HasSubstr;

// gpt-oss' setting inside a dictionary per layer type, beside layers with another base.
TEST(Rules, TruncateInsideALayerTypeIsIgnored) {
  const RotarySpec oss = Spec(150000, 64, 4096, YarnScaling{.factor = 32, .truncate = false});
  PositionPlan plan = Plan(oss, 131072);
  plan.layers[1].rotation = Spec(10000, 64, 4096, NoScaling{});
  const std::vector<Finding> findings = WarningsOf(plan, 131072);
  const auto finding = Find(findings, "yarn-truncate-nested");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->rotation, 0);
  const auto yarn = [](bool truncate) {
    return [=](int64_t i) { return TypedYarn(150000, 64, 4096, 32, i, truncate); };
  };
  const double want = LargestAngle(32, 131071, yarn(true), yarn(false));
  EXPECT_NEAR(finding->value, want, 1e-9 * want);
  EXPECT_NEAR((yarn(true)(17) - yarn(false)(17)) * 131071, 12.9, 0.05);
  // One dictionary for all layers is read.
  EXPECT_FALSE(Warning(oss, 131072, "yarn-truncate-nested"));
  EXPECT_TRUE(Warning(oss, 131072, "yarn-truncate"));
}

// Layers without rotation but with keys, and layers that have no keys at all.
TEST(Rules, ShiftOfLayersWithoutRotation) {
  PositionPlan plan = Plan(Spec(10000, 128, 4096, NoScaling{}), 4096);
  plan.layers.resize(8);
  const auto shifted = [&] { return Find(WarningsOf(plan, 4096), "shift-nope"); };
  for (std::size_t l = 2; l < 8; ++l) plan.layers[l].recurrent = true;  // as in Qwen3-Next
  EXPECT_FALSE(shifted());
  plan.layers[3].recurrent = plan.layers[7].recurrent = false;
  ASSERT_TRUE(shifted());
  EXPECT_EQ(shifted()->value, 2);
  plan.layers[3].bias = LayerBias{8, AlibiBias{}};  // nothing there is shifted by a rotation
  EXPECT_EQ(shifted()->value, 1);
}

TEST(Rules, Float32Angles) {  // 2.8e-3 to 7.0e-3 radians at 131071 with base 500000
  const auto finding = Warning(Spec(500000, 128, 131072, NoScaling{}), 131072, "float32-angles");
  ASSERT_TRUE(finding);
  EXPECT_GT(finding->value, 2.8e-3);
  EXPECT_LT(finding->value, 7.0e-3);
  EXPECT_FALSE(Warning(Spec(500000, 128, 8192, NoScaling{}), 8192, "float32-angles"));
}

// Without rope_freqs.weight Llama 3.1 runs plain.
TEST(Rules, Llama3LostInConversion) {
  const RotarySpec spec = Spec(500000, 128, 8192, Llama3Scaling{8, 1, 4});
  const auto finding = Warning(spec, 131072, "llama3-tensor");
  ASSERT_TRUE(finding);
  const auto plain = [](int64_t i) { return std::pow(500000, -static_cast<double>(i) / 64); };
  const auto scaled = [&](int64_t i) {
    const double turns = 8192 * plain(i) / (2 * std::numbers::pi);
    const double t = (turns - 1) / (4 - 1);
    return turns > 4 ? plain(i) : turns < 1 ? plain(i) / 8 : (1 - t) * plain(i) / 8 + t * plain(i);
  };
  EXPECT_NEAR(plain(29) / scaled(29), 1.20748387, 5e-9);
  const double want = LargestAngle(64, 131071, plain, scaled);
  EXPECT_NEAR(finding->value, want, 1e-9 * want);
  EXPECT_FALSE(Warning(Spec(500000, 128, 8192, NoScaling{}), 8192, "llama3-tensor"));
}

LongRopeScaling LongRope(double factor) {
  LongRopeScaling scaling{std::vector<double>(64, 1.0), std::vector<double>(64, 2.0)};
  scaling.factor = factor;
  return scaling;
}

// 6144 / 4096 is 1 in integers, so that the amplitude is 1.0 instead of 1.0240834.
TEST(Rules, LongRopeFactorOfIntegers) {
  const auto finding = Warning(Spec(10000, 128, 4096, LongRope(1.5)), 6144, "longrope-integer");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->value, 1 / 1.0240834, 5e-8);
  EXPECT_NEAR(finding->value, 1 / std::sqrt(1 + std::log(1.5) / std::log(4096)), 1e-12);
  const auto more = Warning(Spec(10000, 128, 4096, LongRope(2.5)), 10240, "longrope-integer");
  ASSERT_TRUE(more);
  EXPECT_NEAR(more->value,
              std::sqrt((1 + std::log(2) / std::log(4096)) / (1 + std::log(2.5) / std::log(4096))),
              1e-12);
  EXPECT_FALSE(Warning(Spec(10000, 128, 4096, LongRope(32)), 131072, "longrope-integer"));
}

// Two layer types with LongRoPE, asked on both sides of the switch and again.
TEST(Rules, LongRopePerLayerType) {
  PositionPlan plan = Plan(Spec(10000, 128, 4096, LongRope(32)), 131072);
  plan.layers[1].rotation = Spec(1e6, 128, 4096, LongRope(32));
  const auto first = [&](int64_t length) { return Resolve(plan, length); };
  for (int again = 0; again < 2; ++again) {
    for (const std::size_t layer : {0, 1}) {
      EXPECT_EQ(first(4096).rotations[layer].frequencies.inv_freq[0].hi, 1);
      EXPECT_EQ(first(4097).rotations[layer].frequencies.inv_freq[0].hi, 0.5);
      EXPECT_EQ(first(131072).rotations[layer].frequencies.inv_freq[0].hi, 0.5);
    }
  }
  const auto finding = Find(WarningsOf(plan, 131072), "longrope-layer-types");
  ASSERT_TRUE(finding);
  EXPECT_FALSE(Warning(Spec(10000, 128, 4096, LongRope(32)), 131072, "longrope-layer-types"));
}

TEST(Rules, XposCentre) {  // what a wrong centre costs is in rotate_xpos_test.cc
  RotarySpec spec = Spec(10000, 128, 4096, NoScaling{});
  EXPECT_FALSE(Warning(spec, 4096, "xpos-centre"));
  spec.xpos = XposDecay{};
  ASSERT_TRUE(Warning(spec, 4096, "xpos-centre"));
}

TEST(Rules, MegatronsYarnIgnoresThePart) {
  RotarySpec spec = Spec(10000, 128, 4096, YarnScaling{.factor = 4});
  EXPECT_FALSE(Warning(spec, 16384, "yarn-partial"));
  spec.rotary_dim = 64;
  const auto finding = Warning(spec, 16384, "yarn-partial");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, HasSubstr("64 of 128"));
  // Ours are those of 64 dims, Megatron's the first of 128: pair 8 has frequency 0.1 and not 0.316.
  const double own = Resolve(spec, 16384).inv_freq[8].hi;
  EXPECT_NEAR(own, TypedYarn(1e4, 64, 4096, 4, 8, true), 1e-15);
  EXPECT_NEAR(own, 0.1, 1e-15);
  EXPECT_NEAR(TypedYarn(1e4, 128, 4096, 4, 8, true), 0.3162277660, 1e-10);
  spec.dialect = Dialect::kMegatron;
  EXPECT_THROW(Resolve(spec, 16384), Error);
}

// Head 512, p 0.25, base 1e6 against a rotary of 128 dims.
TEST(Rules, ProportionalIsNotPartial) {
  const auto finding =
      Warning(Spec(1e6, 512, 131072, ProportionalScaling{0.25}), 131072, "proportional-partial");
  ASSERT_TRUE(finding);
  const auto whole = [](int64_t i) { return std::pow(1e6, -static_cast<double>(i) / 256); };
  const auto part = [](int64_t i) { return std::pow(1e6, -static_cast<double>(i) / 64); };
  EXPECT_NEAR(whole(1), 0.9474635257, 5e-11);
  EXPECT_NEAR(part(1), 0.8058421878, 5e-11);
  const double want = LargestAngle(64, 131071, whole, part);
  EXPECT_NEAR(finding->value, want, 1e-9 * want);
}

TEST(Rules, YarnKeysThatFewKnow) {
  YarnScaling yarn{.factor = 16};
  yarn.attn_factor = 2;
  const auto factor = Warning(Spec(10000, 128, 4096, yarn), 65536, "yarn-attn-factor");
  ASSERT_TRUE(factor);
  EXPECT_EQ(factor->value, 0.5);
  YarnScaling deepseek{.factor = 40};
  deepseek.mscale = deepseek.mscale_all_dim = 1;
  deepseek.softmax_mscale = true;
  const auto softmax = Warning(Spec(10000, 64, 4096, deepseek), 163840, "yarn-softmax");
  ASSERT_TRUE(softmax);
  EXPECT_NEAR(softmax->value, std::pow(0.1 * std::log(40) + 1, 2), 1e-12);
}

TEST(Rules, NoTrainedLength) {
  const RotarySpec spec = Spec(10000, 128, 0, NoScaling{});
  EXPECT_TRUE(Warning(spec, 4096, "no-trained-length"));
  EXPECT_FALSE(Warning(Spec(10000, 128, 4096, NoScaling{}), 4096, "no-trained-length"));
}

}  // namespace rules_test
}  // namespace ropewalk
