// What each pair adds to the scores, against its definition typed again: queries and keys before
// they are rotated, angles in double, one score at a time; and against what has to come out.
#include "ropewalk/eval/logit_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ropewalk/eval/attention_profile.h"
#include "ropewalk/plan/method.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::RandomText;
using test::Tiny;
using testing::HasSubstr;
using Table = std::vector<std::vector<double>>;

constexpr std::size_t kPairs = 8, kHeads = 2;
constexpr double kTurn = 6.283185307179586477;

double Frequency(std::size_t pair) { return std::pow(10000.0, -double(pair) / double(kPairs)); }

struct Layer {
  std::vector<std::vector<float>> q, k;  // [tokens][heads * 16], before rotation
};

std::vector<Layer> Watch(const PositionPlan& plan, const std::vector<int32_t>& ids) {
  std::vector<Layer> layers(2);
  Sequence sequence(*Tiny().decoder, plan, int64_t(ids.size()), AnglePrecision::kExact);
  sequence.Observe([&](int64_t layer, const TensorView& q, const TensorView& k) {
    const auto keep = [](const TensorView& x, std::vector<std::vector<float>>& rows) {
      for (int64_t t = 0; t < x.shape[0]; ++t) {
        const float* row = static_cast<const float*>(x.data) + t * x.strides[0];
        rows.emplace_back(row, row + x.shape[1] * 16);
      }
    };
    keep(q, layers[std::size_t(layer)].q);
    keep(k, layers[std::size_t(layer)].k);
  });
  Tiny().decoder->Forward(sequence, ids, nullptr, 0);
  return layers;
}

// What a pair adds to the score of a query and a key `distance` tokens back.
double Added(const std::vector<float>& q, const std::vector<float>& k, std::size_t head,
             std::size_t pair, double angle) {
  const double qa = q[head * 16 + pair], qb = q[head * 16 + pair + 8];
  const double ka = k[pair], kb = k[pair + 8];
  return ((qa * ka + qb * kb) * std::cos(angle) + (qa * kb - qb * ka) * std::sin(angle)) / 4;
}

struct Variance {
  double all = 0, explained = 0, unseen = 0;
};
// values[query][distance] of one head.
void AddVariance(Table values, const std::function<bool(std::size_t)>& unseen, Variance& sums) {
  for (std::vector<double>& row : values) {
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / double(row.size());
    for (double& x : row) x -= mean;
  }
  const double count = double(values.size());
  for (std::size_t d = 0; d < values[0].size(); ++d) {
    double mean = 0, within = 0;
    for (const auto& row : values) mean += row[d] / count;
    for (const auto& row : values) {
      within += (row[d] - mean) * (row[d] - mean) / (count - 1);
      sums.all += row[d] * row[d];
      if (unseen(d)) sums.unseen += row[d] * row[d];
    }
    sums.explained += count * mean * mean - within;
  }
}

void ExpectDefinition(const PositionPlan& plan, int64_t tokens, int64_t window,
                      const std::function<double(std::size_t)>& frequency) {
  const std::vector<int32_t> ids = RandomText(tokens, 6).ids;
  const AttentionProfile p = MeasureAttentionProfile(
      *Tiny().decoder, plan, ids, {.queries = 6, .trained_length = test::kTinyTrained});
  const std::vector<Layer> layers = Watch(plan, ids);
  const auto most = std::size_t(window > 0 ? window : p.queries.front());
  for (std::size_t l = 0; l < 2; ++l) {
    SCOPED_TRACE("layer " + std::to_string(l));
    const LogitShares& got = p.logits[l];
    ASSERT_EQ(got.absent, "");
    ASSERT_EQ(got.distances, int64_t(most));
    std::vector<Variance> pairs(kPairs);
    Variance whole;
    for (std::size_t h = 0; h < kHeads; ++h) {
      Table scores(6, std::vector<double>(most));
      for (std::size_t i = 0; i < kPairs; ++i) {
        Table values(6, std::vector<double>(most));
        for (std::size_t m = 0; m < 6; ++m) {
          const auto query = std::size_t(p.queries[m]);
          for (std::size_t d = 0; d < most; ++d) {
            values[m][d] =
                Added(layers[l].q[query], layers[l].k[query - d], h, i, frequency(i) * double(d));
            scores[m][d] += values[m][d];
          }
        }
        const double seen = Frequency(i) * double(test::kTinyTrained - 1);
        AddVariance(
            values,
            [&](std::size_t d) {
              const double angle = std::fmod(frequency(i) * double(d), kTurn);
              return frequency(i) > 0 && seen < kTurn && angle > seen + 1e-9;
            },
            pairs[i]);
      }
      AddVariance(
          scores, [](std::size_t) { return false; }, whole);
    }
    double total = 0, incomplete = 0;
    for (const Variance& v : pairs) total += v.all;
    for (std::size_t i = 0; i < kPairs; ++i) {
      SCOPED_TRACE("pair " + std::to_string(i));
      EXPECT_NEAR(got.position[i], pairs[i].explained / total, 1e-6);
      EXPECT_NEAR(got.content[i], (pairs[i].all - pairs[i].explained) / total, 1e-6);
      EXPECT_NEAR(got.unseen[i], pairs[i].unseen / total, 1e-6);
      const bool slow = Frequency(i) * double(test::kTinyTrained) < kTurn;
      EXPECT_EQ(got.incomplete[i] != 0, slow);
      if (slow) incomplete += pairs[i].all / total;
    }
    EXPECT_NEAR(got.by_distance, whole.explained / whole.all, 1e-6);
    EXPECT_NEAR(got.Incomplete(), incomplete, 1e-6);
    EXPECT_NEAR(got.unrotated, 0, 1e-12);
  }
}

TEST(LogitShares, AreTheDefinition) {
  const PositionPlan& plan = Tiny().files.config.plan;
  ExpectDefinition(plan, 64, 0, Frequency);
  ExpectDefinition(plan, 300, 0, Frequency);
  PositionPlan windows = plan;
  for (LayerPlan& layer : windows.layers) layer.window_tokens = 40;
  ExpectDefinition(windows, 300, 40, Frequency);
  ExpectDefinition(PositionMethod::Parse("linear").Apply(plan, 4), 300, 0,
                   [](std::size_t i) { return Frequency(i) / 4; });
  ExpectDefinition(PositionMethod::Parse("hope").Apply(plan, 1), 300, 0, [](std::size_t i) {
    return Frequency(i) * double(test::kTinyTrained) < kTurn ? 0 : Frequency(i);
  });
}

// Of one token again and again nothing but the distance tells keys apart: all is position, by the
// norms and the phase of one query and one key. HoPE's zero frequencies then carry nothing.
TEST(LogitShares, OfEqualTokensAllIsPosition) {
  const PositionPlan& plan = Tiny().files.config.plan;
  const std::vector<int32_t> ids(200, 65);
  const AttentionProfile p =
      MeasureAttentionProfile(*Tiny().decoder, plan, ids, {.trained_length = test::kTinyTrained});
  const Layer layer = Watch(plan, ids)[0];
  std::vector<double> expected(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      double mean = 0, squares = 0;
      const auto n = double(p.queries.front());
      for (double d = 0; d < n; ++d) {
        const double x = Added(layer.q[9], layer.k[5], h, i, Frequency(i) * d);
        mean += x / n;
        squares += x * x / n;
      }
      expected[i] += squares - mean * mean;
    }
  }
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (std::size_t i = 0; i < kPairs; ++i) {
    EXPECT_NEAR(p.logits[0].position[i], expected[i] / total, 1e-5);
    EXPECT_NEAR(p.logits[0].content[i], 0, 1e-6);
  }
  EXPECT_NEAR(p.logits[0].by_distance, 1, 1e-6);
  EXPECT_NEAR(p.logits[0].Position(), 1, 1e-6);
  EXPECT_GT(p.logits[0].Unseen(), 1e-3);
  const AttentionProfile hope =
      MeasureAttentionProfile(*Tiny().decoder, PositionMethod::Parse("hope").Apply(plan, 1), ids,
                              {.trained_length = test::kTinyTrained});
  EXPECT_NEAR(hope.logits[0].Incomplete(), 0, 1e-9);
  EXPECT_EQ(hope.logits[0].Unseen(), 0);
}

// Bins have the mean of what the distance explains; NaN where no distance is common to the queries.
TEST(LogitShares, ScoresByBin) {
  const std::vector<int32_t> ids(200, 65);
  const AttentionProfile p = MeasureAttentionProfile(*Tiny().decoder, Tiny().files.config.plan, ids,
                                                     {.trained_length = test::kTinyTrained});
  const Layer layer = Watch(Tiny().files.config.plan, ids)[0];
  const auto n = std::size_t(p.queries.front());
  std::vector<double> by_distance(n), slow(n);
  for (std::size_t i = 0; i < kPairs; ++i) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      std::vector<double> x(n);
      for (std::size_t d = 0; d < n; ++d)
        x[d] = Added(layer.q[9], layer.k[5], h, i, Frequency(i) * double(d)) / kHeads;
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / double(n);
      for (std::size_t d = 0; d < n; ++d) {
        by_distance[d] += x[d] - mean;
        if (Frequency(i) * double(test::kTinyTrained) < kTurn) slow[d] += x[d] - mean;
      }
    }
  }
  const LogitShares& got = p.logits[0];
  ASSERT_EQ(got.score.size(), p.edges.size() - 1);
  for (std::size_t b = 0; b + 1 < p.edges.size(); ++b) {
    const auto begin = std::size_t(p.edges[b]), end = std::min(n, std::size_t(p.edges[b + 1]));
    double mean = 0, mean_slow = 0;
    for (std::size_t d = begin; d < end; ++d) {
      mean += by_distance[d] / double(end - begin);
      mean_slow += slow[d] / double(end - begin);
    }
    if (begin >= end) {
      EXPECT_TRUE(std::isnan(got.score[b]));
      continue;
    }
    EXPECT_NEAR(got.score[b], mean, 1e-5);
    EXPECT_NEAR(got.score_incomplete[b], mean_slow, 1e-5);
  }
}

TEST(LogitShares, WhereThereAreNone) {
  PositionPlan plan = Tiny().files.config.plan;
  const std::vector<int32_t> ids = RandomText(100, 2).ids;
  plan.layers[1].rotation.reset();
  AttentionProfile p = MeasureAttentionProfile(*Tiny().decoder, plan, ids);
  EXPECT_EQ(p.logits[0].absent, "");
  EXPECT_TRUE(p.logits[0].unseen.empty());  // the trained length is not given
  EXPECT_THAT(p.logits[1].absent, HasSubstr("rotates nothing"));
  plan = PositionMethod::Parse("rerope:30").Apply(Tiny().files.config.plan, 1);
  p = MeasureAttentionProfile(*Tiny().decoder, plan, ids);
  EXPECT_THAT(p.logits[0].absent, HasSubstr("distance map"));
  plan = Tiny().files.config.plan;
  plan.layers[0].window_tokens = 1;
  p = MeasureAttentionProfile(*Tiny().decoder, plan, ids);
  EXPECT_THAT(p.logits[0].absent, HasSubstr("fewer than two distances"));
  EXPECT_EQ(p.logits[1].absent, "");
}

}  // namespace
}  // namespace ropewalk
