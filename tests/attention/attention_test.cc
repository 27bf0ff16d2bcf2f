#include "ropewalk/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "ropewalk/base/threads.h"
#include "src/attention/kernel/tile.h"
#include "tests/attention/attention_reference.h"
#include "tests/support/sanitizer.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace attention_test {

// Scores are about N(0, 1), |v| below 5. The float32 formula errs by some 1e-6 on such data: a dot
// product of 256 terms by 256^0.5 x 6e-8 x 16, a mean of the values by less.
constexpr double kTolerance = 4e-6;

void ExpectReference(const AttentionProblem& p, double tolerance = kTolerance) {
  EXPECT_LE(MaxDifference(RunAttention(p), ReferenceAttention(p)), tolerance)
      << p.heads << "/" << p.kv_heads << " heads of " << p.head_dim << ", " << p.queries << " of "
      << p.keys << " tokens, window " << p.window;
}

TEST(Attention, EqualsTheReferenceAtOddSizes) {
  for (const int64_t keys : {1, 2, 5, 6, 7, 15, 16, 17, 63, 64, 65, 127, 255, 256, 257, 300, 513}) {
    ExpectReference({3, 1, 20, keys, keys});
    ExpectReference({2, 2, 64, keys, (keys + 1) / 2});
  }
}

TEST(Attention, EqualsTheReferenceForEveryHeadDim) {
  for (const int64_t dim : {1, 3, 8, 16, 20, 32, 48, 64, 80, 96, 128, 192, 256}) {
    ExpectReference({6, 2, dim, 150, 150});
    ExpectReference({6, 2, dim, 331, 3});
  }
}

// Weights over e^32, values whose mean is 1: added up one by one in float32, the many small ones were
// lost beside the sum so far, 1e-4 of the result at these sizes. (So many rows have their keys in one
// span.)
TEST(Attention, ManySmallWeightsAreNotLost) {
  if (UnderAddressSanitizer()) GTEST_SKIP() << "most of a minute, of the reference";
  AttentionProblem p(48, 1, 8, 32768, 32, 0, 4);
  for (float& x : p.v) x += 1;
  const auto expected = ReferenceAttention(p);
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    const auto out = RunAttention(p);
    EXPECT_LE(MaxDifference(out, expected), 8e-6);
    double off = 0;
    for (size_t i = 0; i < out.size(); ++i) off += out[i] - expected[i];
    EXPECT_LE(std::fabs(off / static_cast<double>(out.size())), 1e-6);
  });
}

TEST(Attention, EqualsTheReferenceForEveryGrouping) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {4, 4}, {9, 3}, {8, 1}, {7, 1}, {28, 4}, {10, 2}, {97, 1}, {12, 12}}) {
    ExpectReference({heads, kv_heads, 16, 130, 130});
    ExpectReference({heads, kv_heads, 16, 130, 1});
  }
}

TEST(Attention, EqualsTheReferenceForEveryWindow) {
  for (const int64_t window : {1, 2, 7, 63, 64, 65, 255, 256, 257, 599, 600, 601, 100000}) {
    ExpectReference({4, 2, 32, 600, 600, window});
    ExpectReference({4, 2, 32, 600, 77, window});
    ExpectReference({4, 2, 32, 600, 1, window});
  }
}

TEST(Attention, WindowOfOneCopiesTheValues) {
  const AttentionProblem p(4, 4, 32, 90, 90, 1);
  EXPECT_EQ(MaxDifference(RunAttention(p), p.v), 0.0);
}

// Spans of few queries against many keys are merged; sums run over 131072 weights.
TEST(Attention, EqualsTheReferenceFarAway) {
  ExpectReference({3, 1, 64, 70001, 5});
  ExpectReference({3, 1, 64, 131072, 2});
  ExpectReference({2, 2, 32, 131072, 7, 70000});
  ExpectReference({3, 1, 64, 5000, 200});
}

// Scores of +-1e4: one key takes nearly all, and exp of the rest must neither overflow nor become
// NaN. A score's rounding of 1e4 x 64^0.5 x 6e-8 = 5e-3 changes a weight by as much.
TEST(Attention, SurvivesHugeScores) {
  for (const int64_t queries : {300, 1}) {
    const AttentionProblem p(3, 1, 64, 3000, queries, 0, 5000);
    const auto out = RunAttention(p);
    const auto expected = ReferenceAttention(p);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(std::isfinite(out[i]));
      ASSERT_NEAR(out[i], expected[i], 2e-2);
    }
  }
}

// Two keys with values 0 and 1 and scores 0 and -x: the result is e^-x / (1 + e^-x). Weights are
// right to 2 ULP; the score's own rounding, of relative 2^-23 or so, moves them by x times that.
// From 2^-90 = e^-62.4 on they are 0.
TEST(Attention, WeightsAreExponentials) {
  for (int i = 0; i <= 8700; ++i) {
    AttentionProblem p(1, 1, 1, 2, 1);
    p.q[0] = 1.0f;
    p.scale = 1.0f;
    p.k = {-0.01f * static_cast<float>(i), 0.0f};
    p.v = {1.0f, 0.0f};
    const double weight = std::exp(double{p.k[0]});
    const double expected = weight / (1 + weight);
    const double tolerance = i < 6238 ? expected * (5e-7 - 2.5e-7 * p.k[0]) : expected;
    ASSERT_NEAR(RunAttention(p)[0], expected, tolerance) << p.k[0];
    if (i > 6239) {
      ASSERT_EQ(RunAttention(p)[0], 0) << p.k[0];
    }
  }
}

// All keys the same: every weight is 1 / n whatever the score, and the result is the mean.
TEST(Attention, EqualScoresOfAnySizeGiveTheMean) {
  for (const float score : {0.0f, 1e4f, -1e4f, 1e30f, -1e30f}) {
    AttentionProblem p(1, 1, 8, 1000, 1000);
    std::fill(p.q.begin(), p.q.end(), 0.0f);
    std::fill(p.k.begin(), p.k.end(), 0.0f);
    for (int64_t t = 0; t < p.keys; ++t) p.q[t * 8] = score, p.k[t * 8] = 1.0f;
    ExpectReference(p);
  }
}

// Scores that fall or rise by 200 a key: each tile of keys replaces the running maximum, or none
// does.
TEST(Attention, RunningMaximumMovesEveryKey) {
  for (const float step : {200.0f, -200.0f, 0.01f, -0.01f}) {
    AttentionProblem p(1, 1, 8, 700, 700);
    std::fill(p.k.begin(), p.k.end(), 0.0f);
    for (int64_t t = 0; t < p.keys; ++t) {
      p.q[t * 8] = 1.0f;
      p.k[t * 8] = step * static_cast<float>(t);
    }
    ExpectReference(p);
  }
}

TEST(Attention, NaNStaysNaN) {
  AttentionProblem p(1, 1, 16, 40, 40);
  p.q[20 * 16 + 3] = NAN;
  const auto out = RunAttention(p);
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_FALSE(std::isnan(out[19 * 16 + i]));
    EXPECT_TRUE(std::isnan(out[20 * 16 + i]));
    EXPECT_FALSE(std::isnan(out[21 * 16 + i]));
  }
}

// The same sequence in chunks: every query must get what it gets in one call.
std::vector<float> InChunks(const AttentionProblem& p, const std::vector<int64_t>& chunks) {
  KvCache cache(p.kv_heads, p.head_dim, p.keys);
  std::vector<float> out(p.q.size());
  const int64_t row = p.heads * p.head_dim;
  for (int64_t first = 0, i = 0; first < p.keys; ++i) {
    const int64_t count = std::min(chunks[i % chunks.size()], p.keys - first);
    cache.Append(p.K(first, count), p.V(first, count));
    AttentionArgs args;
    args.q = TensorView::Of(p.q.data() + first * row, {count, p.heads, p.head_dim});
    args.out = TensorView::Of(out.data() + first * row, {count, p.heads, p.head_dim});
    args.cache = &cache;
    args.scale = p.scale;
    args.window_tokens = p.window;
    Attention(args);
    first += count;
  }
  return out;
}

TEST(Attention, ChunksAndDecodingEqualOneCall) {
  for (const int64_t window : {0, 100}) {
    const AttentionProblem p(9, 3, 64, 1200, 1200, window);
    const auto whole = RunAttention(p);
    EXPECT_LE(MaxDifference(whole, ReferenceAttention(p)), kTolerance);
    std::vector<int64_t> prefill_then_decode(101, 1);
    prefill_then_decode[0] = 1100;
    for (const auto& chunks :
         std::vector<std::vector<int64_t>>{{512}, {300, 1, 7}, {64}, prefill_then_decode}) {
      EXPECT_LE(MaxDifference(InChunks(p, chunks), whole), 1e-6);
    }
  }
}

// Where no call is cut into spans a query's bits depend on its keys alone.
TEST(Attention, ChunksGiveTheSameBitsBelowOneSpan) {
  const AttentionProblem p(9, 3, 64, 500, 500);
  const auto whole = RunAttention(p);
  for (const auto& chunks : std::vector<std::vector<int64_t>>{{128}, {33, 1, 7}, {1}}) {
    EXPECT_EQ(MaxDifference(InChunks(p, chunks), whole), 0.0);
  }
}

TEST(Attention, SameBitsForAnyThreads) {
  const int threads = NumThreads();
  const AttentionProblem prefill(9, 3, 64, 1000, 1000), decode(9, 3, 64, 9000, 1);
  SetNumThreads(1);
  const auto prefill1 = RunAttention(prefill), decode1 = RunAttention(decode);
  for (const int n : {2, 3, 5}) {
    SetNumThreads(n);
    EXPECT_EQ(MaxDifference(RunAttention(prefill), prefill1), 0.0);
    EXPECT_EQ(MaxDifference(RunAttention(decode), decode1), 0.0);
  }
  SetNumThreads(threads);
}

TEST(Attention, AnyStridesAndOutOverQ) {
  const AttentionProblem p(6, 2, 20, 333, 140);
  const auto expected = RunAttention(p);
  // q, k and v side by side in one row, as a fused projection leaves them.
  const int64_t width = (6 + 2 + 2) * 20 + 7;
  std::vector<float> fused(static_cast<size_t>(p.keys * width), NAN);
  for (int64_t t = 0; t < p.keys; ++t) {
    std::copy_n(p.k.data() + t * 40, 40, fused.data() + t * width + 120);
    std::copy_n(p.v.data() + t * 40, 40, fused.data() + t * width + 160);
  }
  float* q = fused.data() + (p.keys - p.queries) * width;
  for (int64_t t = 0; t < p.queries; ++t) {
    std::copy_n(p.q.data() + t * 120, 120, q + t * width);
  }
  const auto view = [&](float* data, int64_t tokens, int64_t heads) {
    TensorView x = TensorView::Of(data, {tokens, heads, 20});
    x.strides[0] = width;
    return x;
  };
  KvCache cache(2, 20, p.keys);
  cache.Append(view(fused.data() + 120, p.keys, 2), view(fused.data() + 160, p.keys, 2));
  AttentionArgs args;
  args.q = args.out = view(q, p.queries, 6);
  args.cache = &cache;
  args.scale = p.scale;
  Attention(args);
  for (int64_t t = 0; t < p.queries; ++t) {
    for (int64_t i = 0; i < 120; ++i) ASSERT_EQ(q[t * width + i], expected[t * 120 + i]);
    for (int64_t i = 200; i < 207; ++i) ASSERT_TRUE(std::isnan(q[t * width + i]));
  }
  // Heads outermost: [heads, tokens, head_dim] in memory.
  std::vector<float> swapped(p.q.size());
  TensorView out = TensorView::Of(swapped.data(), {p.queries, 6, 20});
  out.strides[0] = 20;
  out.strides[1] = p.queries * 20;
  args.q = p.Q();
  args.out = out;
  Attention(args);
  for (int64_t t = 0; t < p.queries; ++t) {
    for (int64_t h = 0; h < 6; ++h) {
      for (int64_t i = 0; i < 20; ++i) {
        ASSERT_EQ(swapped[(h * p.queries + t) * 20 + i], expected[(t * 6 + h) * 20 + i]);
      }
    }
  }
}

TEST(Attention, TruncatedCacheForgets) {
  const AttentionProblem p(2, 2, 32, 200, 200), other(2, 2, 32, 150, 150);
  KvCache cache(2, 32, 200);
  cache.Append(p.K(0, 70), p.V(0, 70));
  cache.Append(other.K(0, 110), other.V(0, 110));
  cache.Truncate(70);
  EXPECT_EQ(cache.tokens(), 70);
  cache.Append(p.K(70, 130), p.V(70, 130));
  std::vector<float> out(p.q.size());
  AttentionArgs args;
  args.q = p.Q();
  args.out = TensorView::Of(out.data(), {200, 2, 32});
  args.cache = &cache;
  args.scale = p.scale;
  Attention(args);
  EXPECT_EQ(MaxDifference(out, RunAttention(p)), 0.0);
}

// Every SIMD target that was compiled and that this machine has. Fails when one never ran.
TEST(Attention, EveryTargetEqualsTheReference) {
  const AttentionProblem prefill(9, 3, 80, 301, 301), window(4, 2, 20, 300, 300, 65),
      decode(6, 2, 64, 2000, 1);
  const auto prefill_expected = ReferenceAttention(prefill);
  const auto window_expected = ReferenceAttention(window);
  const auto decode_expected = ReferenceAttention(decode);
  ForEachTarget(internal::AttentionTarget, [&](const char* name) {
    SCOPED_TRACE(name);
    EXPECT_LE(MaxDifference(RunAttention(prefill), prefill_expected), kTolerance);
    EXPECT_LE(MaxDifference(RunAttention(window), window_expected), kTolerance);
    EXPECT_LE(MaxDifference(RunAttention(decode), decode_expected), kTolerance);
  });
}

}  // namespace attention_test
}  // namespace ropewalk
