// The description and the plan hash of every scaling, distance map, temperature and bias: neither
// may change without being noticed, since results, files and caches name plans by them.
// tests/golden/method_plans.txt has a line per setting.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "ropewalk/plan/plan.h"

namespace ropewalk {
namespace {

std::vector<Scaling> Scalings() {
  YarnScaling all{.factor = 4, .beta_fast = 16, .beta_slow = 2, .truncate = false};
  all.attn_factor = 0.5;
  all.mscale = 0.707;
  all.mscale_all_dim = 0.5;
  all.softmax_mscale = true;
  all.extrapolation_factor = 0.75;
  YarnScaling given{.factor = 4};
  given.attention_factor = 1.25;
  LongRopeScaling longrope;
  for (int i = 0; i < 8; ++i) {
    longrope.short_factor.push_back(1 + 0.05 * i);
    longrope.long_factor.push_back(1 + 0.75 * i);
  }
  longrope.factor = 4;
  LongRopeScaling mscales = longrope;
  mscales.short_mscale = 1.1;
  mscales.long_mscale = 1.2;
  longrope.attention_factor = 1.5;
  return {NoScaling{},
          LinearScaling{4},
          NtkScaling{4},
          NtkFixedScaling{4},
          NtkMixedScaling{4},
          DynamicNtkScaling{2},
          DynamicLinearScaling{},
          DynamicLinearScaling{2},
          QwenNtkScaling{},
          ByPartsScaling{4},
          ByPartsRepoScaling{4},
          YarnScaling{4},
          all,
          given,
          DynamicYarnScaling{},
          Llama3Scaling{8},
          longrope,
          mscales,
          ProportionalScaling{0.5},
          HopeScaling{},
          BaseScaling{500000},
          ExplicitScaling{{1, 1, 1.25, 1.5, 2, 3, 8, 8}}};
}

LayerPlan Layer(const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 16;
  spec.trained_length = 4096;
  spec.scaling = scaling;
  LayerPlan layer;
  layer.rotation = spec;
  return layer;
}

std::vector<LayerPlan> Layers() {
  std::vector<LayerPlan> layers;
  for (const Scaling& scaling : Scalings()) layers.push_back(Layer(scaling));
  const DistanceMap maps[] = {Rerope{512},
                              LeakyRerope{512, 16},
                              SelfExtend{512, 8},
                              DualChunk{3072, 4095},
                              AttentionSinks{4, 1020},
                              StringMap{1365, 128},
                              Lampe{},
                              Dpe{}};
  for (const DistanceMap& map : maps) layers.emplace_back(Layer()).map = map;
  layers.emplace_back(Layer()).temperature = QueryTemperature{};
  layers.emplace_back(Layer()).temperature =
      QueryTemperature{QueryTemperature::Kind::kLogN, 0, 4096, 0};
  layers.emplace_back(Layer()).temperature =
      QueryTemperature{QueryTemperature::Kind::kMscale, 0.1, 2, 0};
  T5LayerBias t5;
  t5.per_layer = true;
  DebertaLayerBias deberta;
  deberta.content_to_position = deberta.position_to_content = true;
  TransformerXlBias xl;
  xl.model_dim = 32;
  xl.head_dim = 8;
  for (const LayerBias& bias :
       {LayerBias{12, AlibiBias{}}, LayerBias{12, t5}, LayerBias{12, deberta}, LayerBias{12, xl}}) {
    layers.emplace_back().bias = bias;
  }
  LayerPlan& special = layers.emplace_back(Layer());
  special.window_tokens = 1024;
  special.rotation->rotary_dim = 8;
  special.rotation->first_dim = 8;
  special.rotation->layout = PairLayout::kInterleaved;
  special.rotation->rotated_heads = 2;
  special.rotation->dialect = Dialect::kHuggingFace;
  LayerPlan& axes = layers.emplace_back(Layer());
  axes.chunk_tokens = 2048;
  axes.rotation->axes.sections = {4, 2, 2};
  axes.rotation->xpos = XposDecay{};
  layers.emplace_back().recurrent = true;
  return layers;
}

std::string Text() {
  std::string text;
  for (const LayerPlan& layer : Layers()) {
    PositionPlan plan;
    plan.layers = {layer};
    text += Describe(plan, 16384);
  }
  PositionPlan plan;
  plan.layers = Layers();
  plan.learned = LearnedPositions{2048, 2};
  return text + Describe(plan, 16384);
}

// ROPEWALK_WRITE_GOLDEN=1 writes the file anew.
TEST(MethodGolden, DescriptionsAndHashesStay) {
  const std::string path = ROPEWALK_SOURCE_DIR "/tests/golden/method_plans.txt";
  if (std::getenv("ROPEWALK_WRITE_GOLDEN") != nullptr) std::ofstream(path) << Text();
  std::ifstream file(path);
  const std::string golden((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  EXPECT_EQ(Text(), golden);
}

}  // namespace
}  // namespace ropewalk
