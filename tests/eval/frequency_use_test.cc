// The share of each pair against its definition: every query with every key, one product at a time,
// and against a property that needs no definition: rotation changes no length.
#include "ropewalk/eval/frequency_use.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::RandomText;
using test::Tiny;

struct Captured {  // of one layer, [tokens][heads][head_dim]
  std::vector<std::vector<std::vector<float>>> q, k;
};

void Capture(const TensorView& v, std::vector<std::vector<std::vector<float>>>& out) {
  for (int64_t t = 0; t < v.shape[0]; ++t) {
    out.emplace_back();
    for (int64_t h = 0; h < v.shape[1]; ++h) {
      const float* head = static_cast<const float*>(v.data) + t * v.strides[0] + h * v.strides[1];
      out.back().emplace_back(head, head + v.shape[2]);
    }
  }
}

std::vector<Captured> CaptureAll(const std::vector<int32_t>& ids) {
  const PositionPlan& plan = Tiny().files.config.plan;
  std::vector<Captured> layers(plan.layers.size());
  Sequence sequence(*Tiny().decoder, plan, static_cast<int64_t>(ids.size()),
                    AnglePrecision::kExact);
  sequence.Observe([&](int64_t layer, const TensorView& q, const TensorView& k) {
    Capture(q, layers[static_cast<size_t>(layer)].q);
    Capture(k, layers[static_cast<size_t>(layer)].k);
  });
  Tiny().decoder->Forward(sequence, ids, nullptr, 0);
  return layers;
}

double Length(const std::vector<float>& head, size_t pair) {  // half layout
  return std::sqrt(static_cast<double>(head[pair]) * head[pair] +
                   static_cast<double>(head[pair + 8]) * head[pair + 8]);
}

TEST(FrequencyUse, IsTheMeanOverAllQueriesAndKeys) {
  const std::vector<int32_t> ids = RandomText(80, 3).ids;
  const std::vector<Captured> layers = CaptureAll(ids);
  const FrequencyUse use = MeasureFrequencyUse(*Tiny().decoder, Tiny().files.config.plan, ids);
  EXPECT_EQ(use.tokens, 80);
  ASSERT_EQ(use.share.size(), layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    ASSERT_EQ(layers[l].q.size(), 80u);
    ASSERT_EQ(layers[l].q[0].size(), 2u);
    ASSERT_EQ(layers[l].k[0].size(), 1u);
    std::vector<double> expected(8);
    for (const auto& q : layers[l].q) {
      for (const auto& k : layers[l].k) {
        for (size_t h = 0; h < 2; ++h) {
          for (size_t i = 0; i < 8; ++i) expected[i] += Length(q[h], i) * Length(k[0], i);
        }
      }
    }
    const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
    ASSERT_EQ(use.share[l].size(), 8u);
    // q and k are float32: shares agree to its rounding.
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(use.share[l][i], expected[i] / total, 6e-8);
  }
}

// The first layer sees no positions before its own rotation, so no setting changes its shares; and
// they are the same from one chunk (512 tokens) to the next.
TEST(FrequencyUse, OfTheFirstLayerDependsOnNoSetting) {
  const std::vector<int32_t> ids = RandomText(700, 4).ids;
  const PositionPlan& plain = Tiny().files.config.plan;
  const PositionPlan yarn = WithScaling(plain, FindMethod("yarn").make(16), test::kTinyTrained);
  const FrequencyUse a = MeasureFrequencyUse(*Tiny().decoder, plain, ids);
  const FrequencyUse b = MeasureFrequencyUse(*Tiny().decoder, yarn, ids);
  EXPECT_EQ(a.share[0], b.share[0]);
  EXPECT_NE(a.share[1], b.share[1]);
}

TEST(FrequencyUse, LayersWithoutRotationHaveNone) {
  PositionPlan plan = Tiny().files.config.plan;
  plan.layers[1].rotation.reset();
  const std::vector<int32_t> ids = RandomText(20, 5).ids;
  const FrequencyUse use = MeasureFrequencyUse(*Tiny().decoder, plan, ids);
  EXPECT_EQ(use.share[0].size(), 8u);
  EXPECT_TRUE(use.share[1].empty());
  EXPECT_EQ(use.Mean(), use.share[0]);
}

TEST(FrequencyUse, RefusesAnEmptyText) {
  EXPECT_THROW(MeasureFrequencyUse(*Tiny().decoder, Tiny().files.config.plan, {}), Error);
}

}  // namespace
}  // namespace ropewalk
