// FIRE, TUPE and Swin: functions of the pair of positions, a tile at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "ropewalk/relative/fire.h"
#include "ropewalk/relative/swin.h"
#include "ropewalk/relative/tupe.h"
#include "src/relative/tupe_cpu.h"
#include "tests/relative/support.h"
#include "tests/support/targets.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace pairs_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Vector = std::vector<double>;
using Positions = std::vector<int64_t>;

std::vector<float> Random(int64_t n, uint64_t seed) { return RandomValues<float>(n, seed); }

Positions Range(int64_t first, int64_t count) {
  Positions p(count);
  std::iota(p.begin(), p.end(), first);
  return p;
}

// A tile with a stride wider than it needs, whose other elements must stay as they are.
std::vector<float> Tile(const PairForm& form, int64_t head, const Positions& queries,
                        const Positions& keys) {
  const auto columns = static_cast<int64_t>(keys.size());
  std::vector<float> wide(queries.size() * (columns + 3), 77.f);
  form.function->Evaluate(head, queries, keys, wide.data(), columns + 3);
  std::vector<float> tile;
  for (std::size_t r = 0; r < queries.size(); ++r) {
    const auto row = wide.begin() + static_cast<int64_t>(r) * (columns + 3);
    tile.insert(tile.end(), row, row + columns);
    EXPECT_EQ(row[columns], 77.f);
  }
  return tile;
}

FireBias MakeFire(int64_t heads, int64_t width) {
  FireBias fire;
  fire.w1 = Random(width, 1);
  fire.b1 = Random(width, 2);
  for (float& b : fire.b1) b *= .4f;  // most switches between 0 and 1
  fire.w1[0] = 0;                     // units that never switch
  fire.b1[1] = 0;
  fire.w2 = Random(heads * width, 3);
  fire.b2 = Random(heads, 4);
  fire.threshold = 300.5;
  return fire;
}

reference::FireNetwork Network(const FireBias& fire) {
  return {ToDoubles(fire.w1), ToDoubles(fire.b1), ToDoubles(fire.w2), ToDoubles(fire.b2), fire.c,
          fire.threshold};
}

TEST(Fire, SegmentsAreTheNetwork) {
  for (const int64_t width : {2, 8, 32}) {
    const FireBias fire = MakeFire(2, width);
    const reference::FireNetwork network = Network(fire);
    // The table ends within the tiles, before them, and behind them.
    for (const int64_t table : {0, 260, 1048575}) {
      const PairForm form = fire.Lower(2, table);
      CheckForm(form, 2, 8);
      for (const int64_t query : Distances(512)) {
        for (const int64_t first : {query - 300, query - 100000, int64_t{0}}) {
          if (first < 0) continue;
          // Runs of keys that end behind, at and ahead of the query, and keys apart from each
          // other.
          const Positions apart = {first, first + 1, first + 9, first + 400, first + 401};
          // As many as a run would have, but one comes twice and one is missing.
          Positions twice = Range(first, 350);
          twice[1] = first;
          for (const Positions& keys : {Range(first, 350), Range(first, 1), apart, twice}) {
            const Positions queries = {query, query + 1, query + 70};
            for (int64_t h = 0; h < 2; ++h) {
              const std::vector<float> tile = Tile(form, h, queries, keys);
              for (std::size_t r = 0; r < queries.size(); ++r) {
                for (std::size_t c = 0; c < keys.size(); ++c) {
                  const double truth = reference::Fire(network, h, queries[r], keys[c]);
                  // A few roundings of a line whose slope is at most `width` times a normal number.
                  ASSERT_NEAR(tile[r * keys.size() + c], truth, 4e-6 * static_cast<double>(width))
                      << queries[r] << ", " << keys[c] << ", table " << table;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(Fire, Gradients) {
  const int64_t heads = 2;
  const int64_t width = 6;
  const FireBias fire = MakeFire(heads, width);
  const PairForm form = fire.Lower(heads, 4096);
  // Queries on both sides of the threshold, keys on both sides of the queries.
  const Positions queries = {0, 5, 299, 300, 301, 302, 4000};
  const Positions keys = {0, 0, 2, 7, 250, 300, 3999};
  const std::vector<float> g = Random(queries.size() * keys.size(), 9);
  Vector sums(form.function->parameters());
  for (int64_t h = 0; h < heads; ++h) {
    form.function->Backward(h, queries, keys, g.data(), static_cast<int64_t>(keys.size()), sums);
  }
  const FireBias::Gradient got = fire.Backward(sums);
  const auto loss = [&](const reference::FireNetwork& n) {
    double sum = 0;
    for (int64_t h = 0; h < heads; ++h) {
      for (std::size_t r = 0; r < queries.size(); ++r) {
        for (std::size_t c = 0; c < keys.size(); ++c) {
          sum += g[r * keys.size() + c] * reference::Fire(n, h, queries[r], keys[c]);
        }
      }
    }
    return sum;
  };
  using Member = Vector reference::FireNetwork::*;
  const std::pair<Member, const Vector*> parts[] = {{&reference::FireNetwork::w1, &got.w1},
                                                    {&reference::FireNetwork::b1, &got.b1},
                                                    {&reference::FireNetwork::w2, &got.w2},
                                                    {&reference::FireNetwork::b2, &got.b2}};
  const reference::FireNetwork at = Network(fire);
  for (const auto& part : parts) {
    const Member member = part.first;
    const Vector* gradient = part.second;
    ASSERT_EQ(gradient->size(), (at.*member).size());
    for (std::size_t i = 0; i < gradient->size(); ++i) {
      // At x = 0 the unit without a bias stands on its switch: the slope is not defined there.
      if (member == &reference::FireNetwork::b1 && i == 1) continue;
      const auto changed = [&](const Vector& x) {
        reference::FireNetwork n = at;
        n.*member = x;
        return loss(n);
      };
      EXPECT_NEAR((*gradient)[i], Slope(changed, at.*member, i, 1e-6), 2e-5);
    }
  }
  const auto changed = [&](const Vector& x) {
    reference::FireNetwork n = at;
    n.c = x[0];
    n.threshold = x[1];
    return loss(n);
  };
  EXPECT_NEAR(got.c, Slope(changed, {at.c, at.threshold}, 0, 1e-7), 2e-4);
  EXPECT_NEAR(got.threshold, Slope(changed, {at.c, at.threshold}, 1, 1e-4), 1e-6);
}

TEST(Fire, BadInput) {
  FireBias fire = MakeFire(2, 4);
  EXPECT_THAT([&] { fire.Lower(3, 9); },
              ThrowsMessage<Error>(HasSubstr("FireBias.w2: expected 12 numbers, got 8")));
  EXPECT_THAT([&] { fire.Backward(Vector(3)); },
              ThrowsMessage<Error>(HasSubstr("gradient: expected 20 numbers, got 3")));
  fire.threshold = 0;
  EXPECT_THAT([&] { fire.Lower(2, 9); },
              ThrowsMessage<Error>(HasSubstr("FireBias.threshold: expected a number above 0")));
  EXPECT_THAT([] { FireBias{}.Lower(2, 9); },
              ThrowsMessage<Error>(HasSubstr("FireBias.w1: size: expected 1 or more")));
}

constexpr int64_t kHeads = 2, kHeadDim = 3, kModelDim = 5, kPositions = 300;

TupeBias MakeTupe(bool relative, bool reset, int64_t head_dim = kHeadDim) {
  TupeBias tupe{kPositions, kModelDim, head_dim};
  tupe.embedding = Random(kPositions * kModelDim, 1);
  tupe.query_projection = Random(kHeads * head_dim * kModelDim, 2);
  tupe.query_projection_bias = Random(kHeads * head_dim, 3);
  tupe.key_projection = Random(kHeads * head_dim * kModelDim, 4);
  if (relative) tupe.relative = T5Bias{8, 64, true, Random(8 * kHeads, 5)};
  if (reset) {
    tupe.from_cls = Random(kHeads, 6);
    tupe.to_cls = Random(kHeads, 7);
  }
  return tupe;
}

// Everything learned, in the order of TupeBias::Gradient.
std::vector<Vector> Learned(const TupeBias& t) {
  return {ToDoubles(t.embedding),
          ToDoubles(t.query_projection),
          ToDoubles(t.query_projection_bias),
          ToDoubles(t.key_projection),
          ToDoubles(t.key_projection_bias),
          t.relative ? ToDoubles(t.relative->embedding) : Vector{},
          ToDoubles(t.from_cls),
          ToDoubles(t.to_cls)};
}

// Ke et al. 2020, section 3.
double TupeTruth(const std::vector<Vector>& p, int64_t head, int64_t i, int64_t j,
                 int64_t head_dim = kHeadDim) {
  if (!p[6].empty() && i == 0) return p[6][head];
  if (!p[7].empty() && j == 0) return p[7][head];
  const Vector q = reference::Linear(p[1], p[2], reference::Row(p[0], i, kModelDim));
  const Vector k = reference::Linear(p[3], p[4], reference::Row(p[0], j, kModelDim));
  double score =
      reference::Dot(reference::Row(q, head, head_dim), reference::Row(k, head, head_dim)) /
      std::sqrt(2.0 * static_cast<double>(head_dim));
  if (!p[5].empty()) score += p[5][reference::T5Bucket(i - j, true, 8, 64) * kHeads + head];
  return score;
}

TEST(Tupe, TilesWithAndWithoutClsAndGradients) {
  const std::pair<Positions, Positions> tiles[] = {
      {Range(0, 4), Range(0, 5)},
      {Range(255, 3), Range(250, 50)},
      {{0, 3, 299}, {0, 2, 3, 256, 257, 299}},
      {{299}, {1}},
  };
  for (const bool relative : {false, true}) {
    for (const bool reset : {false, true}) {
      const TupeBias tupe = MakeTupe(relative, reset);
      const PairForm form = tupe.Lower(kHeads, kPositions);
      CheckForm(form, kHeads, kHeadDim);
      EXPECT_EQ(form.function->positions(), kPositions);
      const std::vector<Vector> learned = Learned(tupe);
      Vector sums(form.function->parameters());
      const std::vector<float> g = Random(400, 9);
      for (const auto& [queries, keys] : tiles) {
        for (int64_t h = 0; h < kHeads; ++h) {
          const std::vector<float> tile = Tile(form, h, queries, keys);
          for (std::size_t r = 0; r < queries.size(); ++r) {
            for (std::size_t c = 0; c < keys.size(); ++c) {
              const double truth = TupeTruth(learned, h, queries[r], keys[c]);
              EXPECT_NEAR(tile[r * keys.size() + c], truth, 1e-5);
            }
          }
          form.function->Backward(h, queries, keys, g.data(), static_cast<int64_t>(keys.size()),
                                  sums);
        }
      }
      const TupeBias::Gradient got = tupe.Backward(sums);
      const std::vector<Vector> gradients = {got.embedding,
                                             got.query_projection,
                                             got.query_projection_bias,
                                             got.key_projection,
                                             got.key_projection_bias,
                                             got.relative,
                                             got.from_cls,
                                             got.to_cls};
      for (std::size_t which = 0; which < learned.size(); ++which) {
        ASSERT_EQ(gradients[which].size(), learned[which].size()) << which;
        const auto loss = [&](const Vector& x) {
          std::vector<Vector> p = learned;
          p[which] = x;
          double sum = 0;
          for (const auto& [queries, keys] : tiles) {
            for (int64_t h = 0; h < kHeads; ++h) {
              for (std::size_t r = 0; r < queries.size(); ++r) {
                for (std::size_t c = 0; c < keys.size(); ++c) {
                  sum += g[r * keys.size() + c] * TupeTruth(p, h, queries[r], keys[c]);
                }
              }
            }
          }
          return sum;
        };
        const std::size_t step = learned[which].size() > 100 ? 37 : 1;
        for (std::size_t i = 0; i < learned[which].size(); i += step) {
          EXPECT_NEAR(gradients[which][i], Slope(loss, learned[which], i), 2e-5) << which;
        }
      }
    }
  }
}

// Tiles of every size around the kernel's, of positions one after another, apart and repeated: the
// bits of a pair depend on the pair alone, and gradients are those of its pairs one at a time.
TEST(Tupe, TilesOfAnySizeOnEveryTarget) {
  const Positions mixed = {0, 0, 1, 2, 2, 4, 90, 91, 92, 257, 299};
  const std::pair<Positions, Positions> tiles[] = {
      {Range(3, 192), Range(40, 256)}, {Range(0, 7), Range(0, 33)}, {Range(255, 13), Range(1, 31)},
      {Range(290, 1), Range(5, 17)},   {mixed, Range(0, 70)},       {mixed, mixed},
      {Range(280, 20), mixed}};
  for (const int64_t head_dim : {1, 20, 33}) {
    const TupeBias tupe = MakeTupe(true, true, head_dim);
    const std::vector<Vector> learned = Learned(tupe);
    const PairForm form = tupe.Lower(kHeads, kPositions);
    const std::vector<float> g = Random(192 * 256, 9);
    ForEachTarget(internal::TupeTarget, [&](const char* name) {
      SCOPED_TRACE(name);
      const std::vector<float> all = Tile(form, 1, Range(0, kPositions), Range(0, kPositions));
      for (int64_t i = 0; i < kPositions; i += 23) {
        for (int64_t j = 0; j < kPositions; ++j) {
          ASSERT_NEAR(all[i * kPositions + j], TupeTruth(learned, 1, i, j, head_dim), 4e-5);
        }
      }
      for (const auto& [queries, keys] : tiles) {
        const auto columns = static_cast<int64_t>(keys.size());
        const std::vector<float> tile = Tile(form, 1, queries, keys);
        Vector sums(form.function->parameters()), one(sums);
        form.function->Backward(1, queries, keys, g.data(), columns, sums);
        for (std::size_t r = 0; r < queries.size(); ++r) {
          for (std::size_t c = 0; c < keys.size(); ++c) {
            const std::size_t at = r * keys.size() + c;
            ASSERT_EQ(tile[at], all[queries[r] * kPositions + keys[c]]);
            form.function->Backward(1, {&queries[r], 1}, {&keys[c], 1}, &g[at], 1, one);
          }
        }
        for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], one[i], 2e-4) << i;
      }
    });
  }
}

TEST(Tupe, BadInput) {
  TupeBias tupe = MakeTupe(true, true);
  const PairForm form = tupe.Lower(kHeads, 10);
  float out[4];
  EXPECT_THAT(
      [&] {
        form.function->Evaluate(0, Positions{1, 300}, Positions{2}, out, 1);
      },
      ThrowsMessage<Error>(HasSubstr("TupeBias: positions: expected 0 to 299, got 300")));
  EXPECT_THAT([&] { tupe.Lower(3, 10); },
              ThrowsMessage<Error>(HasSubstr("query_projection: expected 45 numbers, got 30")));
  EXPECT_THAT([&] { tupe.Backward(Vector(3)); }, ThrowsMessage<Error>(HasSubstr("got 3")));
  tupe.to_cls.clear();
  EXPECT_THAT([&] { tupe.Lower(kHeads, 10); },
              ThrowsMessage<Error>(HasSubstr("TupeBias.to_cls: expected 2 numbers, got 0")));
}

double SwinTruth(const SwinBias& s, const std::vector<Vector>& p, int64_t head, int64_t i,
                 int64_t j) {
  const int64_t reach_y = s.pretrained_height > 0 ? s.pretrained_height : s.height;
  const int64_t reach_x = s.pretrained_width > 0 ? s.pretrained_width : s.width;
  return reference::Swin(reference::SwinCoordinate(i / s.width - j / s.width, reach_y),
                         reference::SwinCoordinate(i % s.width - j % s.width, reach_x), p[0], p[1],
                         reference::Row(p[2], head, static_cast<int64_t>(p[1].size())));
}

TEST(Swin, EveryPairOfAWindowAndGradients) {
  const int64_t heads = 2;
  const int64_t hidden = 7;
  struct Window {
    int64_t height, width, pretrained_height, pretrained_width;
  };
  for (const Window& w : {Window{3, 5, 0, 0}, {3, 5, 8, 4}, {1, 6, 0, 0}, {1, 1, 0, 0}}) {
    SwinBias swin{w.height, w.width, w.pretrained_height, w.pretrained_width};
    swin.w1 = Random(2 * hidden, 1);
    swin.b1 = Random(hidden, 2);
    swin.w2 = Random(heads * hidden, 3);
    for (float& x : swin.w2) x *= .3f;
    const PairForm form = swin.Lower(heads, 0);
    CheckForm(form, heads, 8);
    const Positions all = Range(0, w.height * w.width);
    const std::vector<Vector> learned = {ToDoubles(swin.w1), ToDoubles(swin.b1),
                                         ToDoubles(swin.w2)};
    const auto n = static_cast<int64_t>(all.size());
    const std::vector<float> g = Random(n * n, 4);
    Vector sums(form.function->parameters());
    for (int64_t h = 0; h < heads; ++h) {
      const std::vector<float> tile = Tile(form, h, all, all);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          EXPECT_NEAR(tile[i * n + j], SwinTruth(swin, learned, h, i, j), 2e-6);
        }
      }
      form.function->Backward(h, all, all, g.data(), n, sums);
    }
    const SwinBias::Gradient got = swin.Backward(sums);
    const Vector* gradients[] = {&got.w1, &got.b1, &got.w2};
    for (std::size_t which = 0; which < learned.size(); ++which) {
      const auto loss = [&](const Vector& x) {
        std::vector<Vector> p = learned;
        p[which] = x;
        double sum = 0;
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) sum += g[i * n + j] * SwinTruth(swin, p, h, i, j);
          }
        }
        return sum;
      };
      for (std::size_t i = 0; i < learned[which].size(); ++i) {
        EXPECT_NEAR((*gradients[which])[i], Slope(loss, learned[which], i, 1e-6), 1e-4) << which;
      }
    }
  }
}

TEST(Swin, BadInput) {
  SwinBias swin{2, 2, 0, 0, Random(6, 1), Random(3, 2), Random(6, 3)};
  float out[1];
  const PairForm form = swin.Lower(2, 0);
  EXPECT_THAT([&] { form.function->Evaluate(0, Positions{4}, Positions{0}, out, 1); },
              ThrowsMessage<Error>(HasSubstr("SwinBias: positions: expected 0 to 3, got 4")));
  EXPECT_THAT([&] { swin.Lower(3, 0); },
              ThrowsMessage<Error>(HasSubstr("SwinBias.w2: expected 9 numbers, got 6")));
  swin.width = 0;
  EXPECT_THAT([&] { swin.Lower(2, 0); },
              ThrowsMessage<Error>(HasSubstr("SwinBias.width: expected 1 or more, got 0")));
}

}  // namespace pairs_test
}  // namespace ropewalk
