// What engines compute for a spec, and the warnings of the rules, against numbers that were computed
// independently for the same cases.
#include "ropewalk/engines/engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ropewalk/analysis/analysis.h"
#include "tests/engines/support.h"

namespace ropewalk {
namespace engines_test {

RotarySpec GptOss() { return Spec(150000, 64, 4096, YarnScaling{.factor = 32, .truncate = false}); }

TEST(Engines, TruncateIsIgnoredByLlamaCpp) {
  const std::vector<EngineView> views = CompareEngines(GptOss(), 131072, 131071);
  ASSERT_EQ(views.size(), 3u);
  EXPECT_TRUE(View(views, Dialect::kHuggingFace).Same());
  EXPECT_TRUE(View(views, Dialect::kVllm).Same());
  const EngineView ggml = View(views, Dialect::kLlamaCpp);
  EXPECT_FALSE(ggml.Same());
  const Frequencies native = Resolve(GptOss(), 131072);
  EXPECT_NEAR(native.inv_freq[17].hi, 1.293187012451e-04, 1e-15);
  EXPECT_NEAR(ggml.frequencies.inv_freq[17].hi, 2.279e-4, 0.0005e-4);
  EXPECT_NEAR((ggml.frequencies.inv_freq[17].hi - native.inv_freq[17].hi) * 131071, 12.9, 0.05);
  EXPECT_NEAR(ggml.frequencies.inv_freq[12].hi / native.inv_freq[12].hi, 1.032, 0.0005);
  EXPECT_EQ(ggml.ratio_pair, 17);
  EXPECT_NEAR(ggml.frequency_ratio, 1.76, 0.005);
  EXPECT_DOUBLE_EQ(ggml.amplitude_ratio, 1);
  const auto finding = Warning(GptOss(), 131072, "yarn-truncate");
  ASSERT_TRUE(finding);
  EXPECT_DOUBLE_EQ(finding->value, ggml.angle_rad);
  EXPECT_EQ(finding->position, 131071);
  EXPECT_EQ(finding->unit, "rad");
}

TEST(Engines, AMethodThatAnEngineLacksIsNotReplaced) {
  const RotarySpec spec = Spec(10000, 128, 4096, DynamicNtkScaling{2});
  const EngineView ggml = View(CompareEngines(spec, 8192, 8191), Dialect::kLlamaCpp);
  EXPECT_FALSE(ggml.expressible);
  EXPECT_THAT(ggml.reason, testing::HasSubstr("dynamic"));
  EXPECT_TRUE(View(CompareEngines(spec, 8192, 8191), Dialect::kHuggingFace).Same());
}

TEST(Engines, AttentionFactorIsDropped) {
  YarnScaling yarn{.factor = 64};
  yarn.attention_factor = 1.0;
  const RotarySpec spec = Spec(10000, 128, 4096, yarn);
  const std::vector<EngineView> views = CompareEngines(spec, 262144, 262143);
  EXPECT_TRUE(View(views, Dialect::kHuggingFace).Same());
  EXPECT_NEAR(View(views, Dialect::kVllm).amplitude_ratio, 1.4158883, 5e-8);
  const auto finding = Warning(spec, 262144, "yarn-attention-factor");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->value, 1.4158883, 5e-8);
}

TEST(Engines, MscaleAlone) {
  YarnScaling yarn{.factor = 40};
  yarn.mscale = 0.707;
  const RotarySpec spec = Spec(10000, 64, 4096, yarn);
  const std::vector<EngineView> views = CompareEngines(spec, 163840, 163839);
  EXPECT_NEAR(View(views, Dialect::kHuggingFace).amplitude, 1.3688879, 5e-8);
  const auto finding = Warning(spec, 163840, "yarn-mscale-alone");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->value * 1.3688879454, 1.2608038, 5e-8);
}

TEST(Warnings, YarnRampOfThePaper) {  // up to 3.04 times apart at pair 38 for Llama 2, s 16
  const RotarySpec spec = Spec(10000, 128, 4096, YarnScaling{.factor = 16});
  const auto finding = Warning(spec, 65536, "yarn-paper");
  ASSERT_TRUE(finding);
  EXPECT_GE(finding->value, (1.479993e-3 - 4.866131e-4) * 65535 * 0.999);
}

TEST(Warnings,
     YarnOfMropeTakesFourTimesTheLength) {  // pair 35 of Qwen2.5-VL has a frequency 66 % higher
  RotarySpec spec = Spec(1e6, 128, 32768, YarnScaling{.factor = 4});
  spec.axes.sections = {16, 24, 24};
  const EngineView vllm = View(CompareEngines(spec, 131072, 131071), Dialect::kVllm);
  const Frequencies native = Resolve(spec, 131072);
  EXPECT_NEAR(vllm.frequencies.inv_freq[35].hi / native.inv_freq[35].hi, 1.66, 0.005);
  const auto finding = Warning(spec, 131072, "yarn-mrope");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->value, vllm.angle_rad, 1e-9 * vllm.angle_rad);
}

TEST(Warnings, InterleavedMropeTail) {  // 0.0135 rad at 32768, 0.108 at 262143
  RotarySpec spec = Spec(5e6, 128, 262144, NoScaling{});
  spec.axes.sections = {24, 20, 20};
  spec.axes.order = AxisOrder::kInterleaved;
  const auto near = Warning(spec, 32769, "mrope-tail");
  ASSERT_TRUE(near);
  EXPECT_NEAR(near->value, 0.0135, 0.00005);
  EXPECT_NEAR(Warning(spec, 262144, "mrope-tail")->value, 0.108, 0.0005);
  EXPECT_EQ(View(CompareEngines(spec, 32769, 32768), Dialect::kLlamaCpp).axis_pairs, 2);
  spec.rotary_dim = spec.head_dim = 64;
  spec.axes.sections = {11, 11, 10};
  EXPECT_FALSE(Warning(spec, 32769, "mrope-tail"));
}

TEST(Warnings, Llama3ConvertedWithTheWrongLength) {  // pair 41 has twice the frequency
  const RotarySpec spec = Spec(10000, 128, 4096, Llama3Scaling{4});
  const auto finding = Warning(spec, 16384, "llama3-converter");
  ASSERT_TRUE(finding);
  EXPECT_GE(finding->value, (2.444e-3 - 1.222e-3) * 16383 * 0.999);
  EXPECT_FALSE(Warning(Spec(10000, 128, 8192, Llama3Scaling{4}), 32768, "llama3-converter"));
}

TEST(Warnings, ShiftedKeysGrowByTheAmplitude) {
  const auto yarn =
      Warning(Spec(10000, 128, 4096, YarnScaling{.factor = 4}), 16384, "shift-amplitude");
  ASSERT_TRUE(yarn);
  EXPECT_NEAR(yarn->value, 1.1386294361, 1e-10);
  // The key had the amplitude already: 1.2965 in all after one shift, 1.6809 after three.
  EXPECT_NEAR(yarn->value * yarn->value, 1.2965, 5e-5);
  EXPECT_NEAR(std::pow(yarn->value, 4), 1.6809, 5e-5);
  LongRopeScaling longrope{std::vector<double>(64, 1.0), std::vector<double>(64, 2.0)};
  longrope.factor = 32;
  const auto lr = Warning(Spec(10000, 128, 4096, longrope), 131072, "shift-amplitude");
  ASSERT_TRUE(lr);
  EXPECT_NEAR(lr->value, 1.1902380714, 1e-10);
  EXPECT_FALSE(Warning(Spec(10000, 128, 4096, LinearScaling{4}), 16384, "shift-amplitude"));
}

TEST(Warnings, LongRopeSwitches) {  // at 4097, whichever length is asked for
  LongRopeScaling longrope{std::vector<double>(64, 1.0), std::vector<double>(64, 2.0)};
  longrope.factor = 32;
  for (const int64_t length : {4096, 4097, 131072}) {
    const auto finding = Warning(Spec(10000, 128, 4096, longrope), length, "longrope-switch");
    ASSERT_TRUE(finding);
    EXPECT_NEAR(finding->value, 4096 * 0.5, 1e-9);  // pair 0: frequency 1 against 1 / 2
    EXPECT_EQ(finding->position, 4096);
    EXPECT_THAT(finding->text, testing::HasSubstr("4097"));
  }
}

TEST(Warnings, DynamicNtk) {  // bases 10004.960337 at 4097, 30527.736749 at 8192
  const RotarySpec spec = Spec(10000, 128, 4096, DynamicNtkScaling{2});
  const auto cache = Warning(spec, 8192, "dynamic-cache");
  ASSERT_TRUE(cache);
  double largest = 0, state = 0;
  for (int i = 0; i < 64; ++i) {
    const double now = std::pow(30527.736749, -i / 64.0);
    largest = std::max(largest, (std::pow(10004.960337, -i / 64.0) - now) * 8191);
    state = std::max(state, (std::pow(10000, -i / 64.0) - now) * 8191);
  }
  EXPECT_NEAR(cache->value, largest, 1e-5 * largest);
  EXPECT_NEAR(Warning(spec, 8192, "dynamic-state")->value, state, 1e-5 * state);
  // Up to the trained length nothing is scaled, but vLLM's table still is, as if at s L
  // tokens.
  EXPECT_FALSE(Warning(spec, 4096, "dynamic-cache"));
  EXPECT_FALSE(Warning(spec, 4096, "dynamic-state"));
  const auto still = Warning(spec, 4096, "dynamic-static");
  ASSERT_TRUE(still);
  EXPECT_GT(still->value, 100);
}

TEST(Warnings, TemperaturesDifferByOnePosition) {  // 1.0693147 against 1 at position 8191
  PositionPlan plan = Plan(Spec(500000, 128, 8192, NoScaling{}), 8192);
  plan.layers[1].rotation.reset();
  plan.layers[1].temperature = QueryTemperature{};
  plan.layers[1].temperature->offset = 1;
  const std::vector<Finding> findings = WarningsOf(plan, 8192);
  const auto finding = Find(findings, "query-temperature");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->position, 8191);
  EXPECT_NEAR(finding->value, 1 / 1.0693147, 1e-7);
  EXPECT_EQ(Find(findings, "shift-nope")->value, 1);
}

TEST(Warnings, OldHuggingFaceTookTheConfiguredLength) {
  const auto finding =
      Warning(Spec(10000, 128, 4096, YarnScaling{.factor = 32}), 131072, "yarn-max-positions");
  ASSERT_TRUE(finding);
  const double want = LargestAngle(
      64, 131071, [](int64_t i) { return TypedYarn(1e4, 128, 4096, 32, i, true); },
      [](int64_t i) { return TypedYarn(1e4, 128, 131072, 32, i, true); });
  EXPECT_NEAR(finding->value, want, 1e-9 * want);
  EXPECT_FALSE(
      Warning(Spec(1e4, 128, 4096, YarnScaling{.factor = 32}), 4096, "yarn-max-positions"));
}

TEST(Warnings, UnseenAnglesOfAPlainModel) {
  const RotarySpec plain = Spec(10000, 128, 4096, NoScaling{});
  EXPECT_FALSE(Warning(plain, 4096, "unseen-angles"));
  const auto finding = Warning(plain, 16384, "unseen-angles");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->value, 18);  // pairs 46 to 63 make less than one rotation in 4096 tokens
  EXPECT_FALSE(Warning(Spec(10000, 128, 4096, LinearScaling{4}), 16384, "unseen-angles"));
}

// Layers with a window never meet a longer distance, so their short base is no fault at any length.
TEST(Warnings, WindowsBoundTheDistance) {
  PositionPlan plan = Plan(Spec(10000, 128, 4096, NoScaling{}), 131072);
  for (LayerPlan& layer : plan.layers) layer.window_tokens = 1024;
  EXPECT_EQ(Reach(Resolve(plan, 131072), 0), 1024);
  EXPECT_FALSE(Find(WarningsOf(plan, 131072), "unseen-angles"));
  plan.layers[1].window_tokens = 0;
  plan.layers[1].chunk_tokens = 8192;
  EXPECT_EQ(Reach(Resolve(plan, 131072), 0), 8192);
  EXPECT_TRUE(Find(WarningsOf(plan, 131072), "unseen-angles"));
  EXPECT_EQ(Reach(Resolve(plan, 255), 0), 255);
}

TEST(Warnings, PastWhatTheFileClaims) {
  const RotarySpec plain = Spec(10000, 128, 4096, NoScaling{});
  EXPECT_FALSE(Find(WarningsOf(Plan(plain, 4096), 4096), "past-configured"));
  EXPECT_EQ(Find(WarningsOf(Plan(plain, 4096), 8192), "past-configured")->value, 2);
}

// Base 10000 with 128 dims falls below 0 at a distance before 4096 (arXiv 2405.14591 asks for
// 27000).
TEST(Warnings, BaseTooSmallForTheContext) {
  const auto finding = Warning(Spec(10000, 128, 4096, NoScaling{}), 4096, "base-bound");
  ASSERT_TRUE(finding);
  const Frequencies f = Resolve(Spec(10000, 128, 4096, NoScaling{}), 1);
  EXPECT_LT(CosineSum(f, static_cast<int64_t>(finding->value) + 1), 0);
  EXPECT_FALSE(Warning(Spec(26960, 128, 4096, NoScaling{}), 4096, "base-bound"));
}

TEST(Warnings, APlainModelAtItsLengthHasNone) {
  const std::vector<Finding> findings =
      WarningsOf(Plan(Spec(500000, 128, 4096, NoScaling{}), 4096), 4096);
  for (const Finding& f : findings) ADD_FAILURE() << f.id << ": " << f.text;
}

TEST(Warnings, EveryRuleHasItsOwnName) {
  std::set<std::string> ids;
  for (const RuleInfo& rule : Rules()) EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
  EXPECT_GE(ids.size(), 20u);
}

}  // namespace engines_test
}  // namespace ropewalk
