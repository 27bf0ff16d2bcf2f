#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::RandomText;
using test::ReferenceNll;
using test::Tiny;

PositionPlan Yarn() {
  return WithScaling(Tiny().files.config.plan, FindMethod("yarn").make(16), test::kTinyTrained);
}

Protocol Aligned(int64_t k, int64_t anchors) {
  Protocol p = Protocol::Parse("aligned:" + std::to_string(k));
  p.anchors = anchors;
  return p;
}

// Far beyond one chunk of the decoder (512), and beyond one chunk of rows of the head.
TEST(Perplexity, EqualsDecodingTokenByToken) {
  const PositionPlan plan = Yarn();
  for (const char* name : {"aligned:40", "windows", "half", "sliding:700"}) {
    Protocol protocol = Protocol::Parse(name);
    const bool sliding = protocol.kind == Protocol::Kind::kSliding;
    const TokenText text = RandomText(sliding ? 1100 : 3000, 5);  // 700: a short last window
    protocol.anchors = 2;
    const int64_t length = 1025;
    const PerplexityResult result =
        MeasurePerplexity(*Tiny().engine, plan, text, protocol, length, length, {});
    const auto windows = MakeWindows(text, protocol, length, length, {});
    size_t i = 0;
    for (size_t w = 0; w < windows.size(); ++w) {
      const std::vector<double> truth = ReferenceNll(*Tiny().decoder, plan, windows[w].ids);
      const auto size = static_cast<int64_t>(windows[w].ids.size());
      for (int64_t p = windows[w].score_begin; p < size; ++p, ++i) {
        ASSERT_LT(i, result.tokens.size());
        EXPECT_EQ(result.tokens[i].window, static_cast<int32_t>(w));
        EXPECT_EQ(result.tokens[i].position, p);
        EXPECT_EQ(result.tokens[i].id, windows[w].ids[p]);
        EXPECT_NEAR(result.tokens[i].nll, truth[p], 2e-4 * (1 + truth[p])) << name << " " << p;
      }
    }
    EXPECT_EQ(i, result.tokens.size());
  }
}

TEST(Perplexity, MeanErrorAndBitsByTheirFormulas) {
  TokenText text = RandomText(900, 6);
  for (size_t i = 0; i < text.ids.size(); ++i) text.token_bytes.push_back(1 + i % 3);
  const PerplexityResult r = MeasurePerplexity(*Tiny().engine, Tiny().files.config.plan, text,
                                               Aligned(20, 5), 128, 256, {});
  ASSERT_EQ(r.tokens.size(), 100u);
  const auto windows = MakeWindows(text, Aligned(20, 5), 128, 256, {});
  double sum = 0, bytes = 0;
  std::vector<double> means(5, 0.0);
  for (const ScoredToken& t : r.tokens) {
    sum += t.nll;
    means[t.window] += t.nll / 20.0;
    bytes += text.token_bytes[windows[t.window].text_begin + t.position];
  }
  EXPECT_NEAR(r.mean_nll, sum / 100, 1e-12);
  EXPECT_NEAR(r.perplexity, std::exp(sum / 100), 1e-9);
  EXPECT_NEAR(r.bits_per_byte, sum / std::log(2.0) / bytes, 1e-12);
  // Windows of equal size: the standard error of the mean of their means.
  double variance = 0;
  for (size_t w = 0; w < 5; ++w) {
    EXPECT_NEAR(r.window_nll[w], means[w], 1e-12);
    variance += (means[w] - sum / 100) * (means[w] - sum / 100) / 4;
  }
  EXPECT_NEAR(r.standard_error, std::sqrt(variance / 5), 1e-12);
  EXPECT_GT(r.standard_error, 0);
}

TEST(Perplexity, OneWindowHasNoStandardErrorAndIdsHaveNoBytes) {
  const PerplexityResult r = MeasurePerplexity(*Tiny().engine, Tiny().files.config.plan,
                                               RandomText(64, 6), Aligned(20, 1), 64, 64, {});
  EXPECT_TRUE(std::isnan(r.standard_error));
  EXPECT_TRUE(std::isnan(r.bits_per_byte));
  EXPECT_TRUE(std::isfinite(r.perplexity));
}

TEST(Perplexity, LossByPositionCoversEveryPosition) {
  const TokenText text = RandomText(900, 7);
  RunOptions options;
  options.by_position = true;
  const int64_t length = 200;  // no multiple of the number of buckets
  const PerplexityResult r = MeasurePerplexity(*Tiny().engine, Tiny().files.config.plan, text,
                                               Aligned(20, 3), length, length, options);
  ASSERT_EQ(r.tokens.size(), 60u);
  ASSERT_EQ(r.bucket_edges.size(), r.bucket_nll.size() + 1);
  EXPECT_EQ(r.bucket_edges.front(), 0);
  EXPECT_EQ(r.bucket_edges.back(), length);
  std::vector<double> sums(r.bucket_nll.size(), 0.0), counts(sums);
  for (const EvalWindow& w : MakeWindows(text, Aligned(20, 3), length, length, {})) {
    const std::vector<double> truth =
        ReferenceNll(*Tiny().decoder, Tiny().files.config.plan, w.ids);
    for (int64_t p = 1; p < length; ++p) {
      size_t b = 0;
      while (r.bucket_edges[b + 1] <= p) ++b;
      sums[b] += truth[p];
      counts[b] += 1;
    }
  }
  for (size_t b = 0; b < sums.size(); ++b) {
    EXPECT_NEAR(r.bucket_nll[b], sums[b] / counts[b], 1e-3) << b;
  }
  // The losses that the protocol scores do not change because others are looked at.
  const PerplexityResult plain = MeasurePerplexity(*Tiny().engine, Tiny().files.config.plan, text,
                                                   Aligned(20, 3), length, length, {});
  EXPECT_NEAR(plain.mean_nll, r.mean_nll, 1e-6);
  EXPECT_TRUE(plain.bucket_nll.empty());
}

TEST(Perplexity, EqualRunsGiveEqualBits) {
  const TokenText text = RandomText(3000, 8);
  const auto run = [&] {
    return MeasurePerplexity(*Tiny().engine, Yarn(), text, Protocol::Parse("windows"), 700, 700,
                             {});
  };
  const PerplexityResult a = run(), b = run();
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < a.tokens.size(); ++i) EXPECT_EQ(a.tokens[i].nll, b.tokens[i].nll);
  EXPECT_EQ(a.mean_nll, b.mean_nll);
}

TEST(Perplexity, ProgressCountsEveryTokenAndInterrupts) {
  const TokenText text = RandomText(3000, 8);
  RunOptions options;
  int64_t last = -1, all = 0, calls = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
    ++calls;
    return true;
  };
  MeasurePerplexity(*Tiny().engine, Yarn(), text, Aligned(8, 3), 1000, 1000, options);
  EXPECT_EQ(last, 3 * 999);
  EXPECT_EQ(all, 3 * 999);
  EXPECT_EQ(calls, 1 + 3 * 2);  // two chunks of at most 512 in each window
  options.progress = [&](int64_t done, int64_t) { return done < 600; };
  EXPECT_THROW(MeasurePerplexity(*Tiny().engine, Yarn(), text, Aligned(8, 3), 1000, 1000, options),
               Interrupted);
}

TEST(Perplexity, IdsOutsideTheVocabularyAreAnError) {
  TokenText text = TextOfIds({1, 2, 3, 4, 5, 6, 7, 260});
  try {
    MeasurePerplexity(*Tiny().engine, Yarn(), text, Aligned(2, 1), 8, 8, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("260"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ropewalk
