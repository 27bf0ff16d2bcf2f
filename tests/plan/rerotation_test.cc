#include "ropewalk/plan/rerotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

// Four layers, the last without rotation, as in SmolLM3 and Llama 4.
PositionPlan PlanOf(const Scaling& scaling) {
  PositionPlan plan;
  for (int layer = 0; layer < 4; ++layer) {
    LayerPlan l;
    if (layer != 3) {
      l.rotation = RotarySpec(PairLayout::kHalf);
      l.rotation->head_dim = l.rotation->rotary_dim = 64;
      l.rotation->trained_length = 2048;
      if (layer > 0) l.rotation->scaling = scaling;
    }
    plan.layers.push_back(l);
  }
  return plan;
}

TEST(Rerotation, FixedFrequenciesMove) {
  for (const Scaling& s : std::vector<Scaling>{NoScaling{}, LinearScaling{2}, NtkScaling{4},
                                               YarnScaling{4}, Llama3Scaling{8}}) {
    EXPECT_EQ(CanRerotate(PlanOf(s)), "");
    EXPECT_EQ(CanRerotate(PlanOf(s), 100, 100000), "");
  }
}

TEST(Rerotation, LengthDependentFrequenciesDoNotUnlessTheyStay) {
  const PositionPlan plan = PlanOf(DynamicNtkScaling{2});
  EXPECT_THAT(CanRerotate(plan), HasSubstr("layer 1"));
  EXPECT_THAT(CanRerotate(plan), HasSubstr("declared length"));
  EXPECT_EQ(CanRerotate(plan, 4097, 4097), "");
  EXPECT_EQ(CanRerotate(plan, 100, 2048), "");  // up to the trained length all are plain
  EXPECT_THAT(CanRerotate(plan, 2048, 2049), HasSubstr("at length 2049 than at 2048"));
  // LongRoPE's switch from short to long factors.
  const PositionPlan longrope =
      PlanOf(LongRopeScaling{std::vector<double>(32, 1), std::vector<double>(32, 2), 4.0});
  EXPECT_EQ(CanRerotate(longrope, 2000, 2048), "");
  EXPECT_THAT(CanRerotate(longrope, 2048, 2049), HasSubstr("layer 1"));
}

TEST(Rerotation, XposDoesNot) {
  PositionPlan plan = PlanOf(NoScaling{});
  plan.layers[2].rotation->xpos = XposDecay{};
  EXPECT_THAT(CanRerotate(plan), HasSubstr("layer 2: xPos"));
  EXPECT_THAT(CanRerotate(plan, 100, 100), HasSubstr("layer 2: xPos"));
}

TEST(Rerotation, EncodedKeysDoNot) {
  PositionPlan plan = PlanOf(NoScaling{});
  plan.layers[3].encoding = PopeLayer{500};
  EXPECT_THAT(CanRerotate(plan), HasSubstr("layer 3: keys hold their position by PoPE, base 500"));
  EXPECT_THAT(CanRerotate(plan, 100, 100), HasSubstr("layer 3"));
}

TEST(Rerotation, LayersWithoutRotationAreLeftOut) {
  const ResolvedPlan plan = Resolve(PlanOf(YarnScaling{4}), 4096);
  const std::vector<LayerRerotation> layers = RerotatedLayers(plan);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].layer, 0);
  EXPECT_EQ(layers[2].layer, 2);
  EXPECT_EQ(layers[0].rotation->frequencies.amplitude, 1);
  EXPECT_GT(layers[1].rotation->frequencies.amplitude, 1.1);
}

// Their caches hold unrotated keys.
TEST(Rerotation, LayersWithADistanceMapAreLeftOut) {
  PositionPlan plan = PlanOf(YarnScaling{4});
  plan.layers[1].map = Rerope{64};
  const ResolvedPlan resolved = Resolve(plan, 4096);
  for (const LayerRerotation& layer : RerotatedLayers(resolved)) EXPECT_NE(layer.layer, 1);
  EXPECT_EQ(RerotatedLayers(resolved).size(), 2u);
  EXPECT_EQ(CanRerotate(plan), "");
}

}  // namespace
}  // namespace ropewalk
