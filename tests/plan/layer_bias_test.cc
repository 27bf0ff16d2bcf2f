// A layer's bias as a configuration tells it: what its hash covers, its words, its form.
#include "ropewalk/plan/layer_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

// What a configuration tells of a learned bias counts, and so do its numbers where they are there.
TEST(LayerBias, OfALearnedKind) {
  const auto hash = [](const LayerBias& bias) {
    PositionPlan plan;
    plan.layers.resize(2);
    for (LayerPlan& layer : plan.layers) layer.bias = bias;
    EXPECT_EQ(Resolve(plan, 64).hash, Resolve(plan, 1048576).hash);
    return Resolve(plan, 64).hash;
  };
  PositionPlan bare;
  bare.layers.resize(2);
  std::set<std::string> seen = {Resolve(bare, 64).hash};
  int count = 1;
  const auto differs = [&](const LayerBias& bias) {
    EXPECT_TRUE(seen.insert(hash(bias)).second) << Describe(bias);
    EXPECT_EQ(hash(bias), hash(bias));
    ++count;
  };
  differs({8, AlibiBias{}});
  differs({8, T5LayerBias{}});
  differs({4, T5LayerBias{}});
  differs({8, T5LayerBias{{.buckets = 16}}});
  differs({8, T5LayerBias{{.last_distance = 256}}});
  differs({8, T5LayerBias{{.bidirectional = false}}});
  differs({8, T5LayerBias{{}, /*per_layer=*/true}});
  T5Bias learned{.embedding = std::vector<float>(32 * 8)};
  differs({8, T5LayerBias{learned}});
  learned.embedding.back() = 1;
  differs({8, T5LayerBias{learned}});
  const DebertaLayerBias both{{}, true, true};
  differs({8, both});
  differs({8, DebertaLayerBias{{}, true}});
  differs({8, DebertaLayerBias{{}, false, true}});
  differs({8, DebertaLayerBias{{}, true, true, /*shared_keys=*/true}});
  differs({8, DebertaLayerBias{{}, true, true, false, /*normalized_embedding=*/true}});
  differs({8, DebertaLayerBias{{.buckets = 256}, true, true}});
  differs({8, DebertaLayerBias{{.max_position = 256}, true, true}});
  differs({8, DebertaLayerBias{{.embedding = {1}}, true, true}});
  differs({8, DebertaLayerBias{{.key_projection = {1}}, true, true}});
  differs({8, TransformerXlBias{.model_dim = 64}});
  differs({8, TransformerXlBias{.model_dim = 128}});
  differs({8, TransformerXlBias{.model_dim = 64, .causal = false}});
  differs({8, TransformerXlBias{.model_dim = 64, .clamp_distance = 50}});
  differs({8, NezhaLayerBias{64, 32}});
  differs({8, NezhaLayerBias{65, 32}});
  differs({8, NezhaLayerBias{64, 64}});
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));

  EXPECT_EQ(both.Terms(), 3);
  EXPECT_THAT(Describe({8, both}), HasSubstr("content to position and position to content; one row "
                                             "per distance up to 512; matrices of their own"));
  EXPECT_THAT(Describe({8, TransformerXlBias{.clamp_distance = 50}}),
              HasSubstr("only keys before the query, clamped to distance 50"));
  EXPECT_THAT(Describe({8, NezhaLayerBias{64, 32}}), HasSubstr("distances clipped to 64"));
  EXPECT_THAT(
      [&] {
        hash({8, NezhaLayerBias{64, 31}});
      },
      testing::ThrowsMessage<Error>(HasSubstr("head_dim")));
  EXPECT_THAT(
      [&] {
        hash({8, T5LayerBias{{.buckets = 1}}});
      },
      testing::ThrowsMessage<Error>(HasSubstr("buckets")));
  EXPECT_THAT(
      [&] {
        hash({8, DebertaLayerBias{{.buckets = 256, .max_position = 100}}});
      },
      testing::ThrowsMessage<Error>(HasSubstr("max_position")));
  // Numbers that lie in tensors have to be put in before it can be used.
  EXPECT_THAT(
      [] {
        Lower({8, T5LayerBias{}}, 64, AnglePrecision::kExact);
      },
      testing::ThrowsMessage<Error>(HasSubstr("embedding")));
  const ScoreForm form = Lower({8, T5LayerBias{learned}}, 64, AnglePrecision::kExact);
  EXPECT_EQ(std::get<DistanceForm>(form).values.size() % 8, 0u);
}

TEST(LayerBias, LowersToAForm) {
  const LayerBias bias{8, AlibiBias{.scale = 0.125, .bfloat16 = true}};
  const ScoreForm exact = Lower(bias, 4096, AnglePrecision::kExact);
  EXPECT_EQ(std::get<SlopeForm>(exact).behind[0], 0.0625f);
  const ScoreForm products = Lower(bias, 4096, AnglePrecision::kFloat32);
  EXPECT_EQ(std::get<PairForm>(products).function->heads(), 8);
  const LayerBias plain{8, AlibiBias{}};
  for (const AnglePrecision angles : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
    EXPECT_TRUE(std::holds_alternative<SlopeForm>(Lower(plain, 1, angles)));
  }
}

}  // namespace
}  // namespace ropewalk
