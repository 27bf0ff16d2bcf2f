// ALiBi, T5's buckets, KERPLE and Sandwich: what depends on the distance alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/relative.h"
#include "ropewalk/base/error.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/t5.h"
#include "tests/relative/support.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace slopes_and_tables_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A float of a double of any size.
void ExpectRounded(double got, double truth) {
  EXPECT_NEAR(got, truth, std::abs(truth) * 0x1p-23 + 1e-30);
}

TEST(Alibi, SlopesOfEveryCount) {
  for (int64_t heads = 1; heads <= 130; ++heads) {
    for (const double max_bias : {8.0, 16.0}) {
      const std::vector<double> got = AlibiSlopesOf(AlibiSlopes::kPowersOfTwo, heads, max_bias);
      const std::vector<double> truth = reference::AlibiSlopes(heads, max_bias);
      ASSERT_EQ(got.size(), truth.size());
      for (std::size_t h = 0; h < got.size(); ++h) EXPECT_NEAR(got[h] / truth[h], 1, 1e-13);
    }
  }
}

// Twelve heads: .5 .25 .. .003906 then .707107 .. .088388; one library has a geometric
// sequence instead.
TEST(Alibi, TwelveHeadsByBothRules) {
  const std::vector<double> authors = AlibiSlopesOf(AlibiSlopes::kPowersOfTwo, 12);
  const std::vector<double> geometric = AlibiSlopesOf(AlibiSlopes::kGeometric, 12);
  const double expected_authors[] = {.5,       .25,       .125,    .0625,   .03125,  .015625,
                                     .0078125, .00390625, .707107, .353553, .176777, .088388};
  for (int h = 0; h < 12; ++h) EXPECT_NEAR(authors[h], expected_authors[h], 5e-7) << h;
  EXPECT_NEAR(geometric[0], .629961, 5e-7);
  EXPECT_NEAR(geometric[1], .39685, 5e-7);
  EXPECT_NEAR(geometric[2], .25, 1e-15);
  EXPECT_NEAR(geometric[11], .003906, 5e-7);
  EXPECT_EQ(AlibiSlopesOf(AlibiSlopes::kGeometric, 16),
            AlibiSlopesOf(AlibiSlopes::kPowersOfTwo, 16));
}

// Sign and shape, behind and ahead, near and far.
TEST(Alibi, KeysAheadByEachRule) {
  for (const int64_t d : Distances(4096)) {
    const double m = .25;
    const auto form = [](AlibiAhead ahead) { return AlibiBias{.ahead = ahead}.Lower(8, 1 << 20); };
    const auto x = static_cast<double>(d);
    for (const AlibiAhead ahead :
         {AlibiAhead::kCausal, AlibiAhead::kSymmetric, AlibiAhead::kSigned, AlibiAhead::kZero}) {
      EXPECT_EQ(BiasOf(form(ahead), 1, d), -m * x);
    }
    if (d == 0) continue;
    EXPECT_EQ(BiasOf(form(AlibiAhead::kSymmetric), 1, -d), -m * x);
    EXPECT_EQ(BiasOf(form(AlibiAhead::kSigned), 1, -d), m * x);
    EXPECT_EQ(BiasOf(form(AlibiAhead::kZero), 1, -d), 0);
  }
  EXPECT_TRUE(AlibiBias{}.Lower(8, 0).ahead.empty());
  // The signed form is m times the key's position up to a constant of the row (BLOOM, MPT).
  const SlopeForm sign = AlibiBias{.ahead = AlibiAhead::kSigned}.Lower(8, 100);
  for (const int64_t query : {0, 3, 100}) {
    for (const int64_t key : {0, 2, 3, 57, 100}) {
      EXPECT_EQ(BiasOf(sign, 3, query - key) - BiasOf(sign, 3, query), .0625 * key);
    }
  }
}

TEST(Alibi, BeforeTheScaleAndLearned) {
  const double scale = 1 / std::sqrt(64.0);
  EXPECT_EQ(AlibiBias{.scale = scale}.Lower(8, 1).behind[0], .5f * .125f);
  const AlibiBias learned{.ahead = AlibiAhead::kSigned, .scale = scale, .slopes = {.3f, .1f}};
  EXPECT_FLOAT_EQ(learned.Lower(2, 1).behind[1], .0125f);
  // loss = sum of g times what the form holds; by hand: scale (behind - ahead).
  const std::vector<double> d = learned.Backward(SlopeForm{{3, 5}, {1, -2}});
  EXPECT_DOUBLE_EQ(d[0], scale * 2);
  EXPECT_DOUBLE_EQ(d[1], scale * 7);
  EXPECT_DOUBLE_EQ((AlibiBias{.slopes = {1}}.Backward(SlopeForm{{3}, {}})[0]), 3);
}

// The line and the products in bfloat16 agree as long as eight bits hold them.
TEST(Alibi, InBfloat16) {
  const AlibiBias alibi{.bfloat16 = true};
  const std::vector<float> slopes = alibi.Lower(12, 1).behind;
  EXPECT_EQ(slopes[8], 0.70703125f);               // of 0.70710678
  const PairForm form = alibi.LowerInBfloat16(8);  // powers of two
  const std::vector<int64_t> keys = {0, 1, 2, 255, 256, 257};
  const int64_t query = 258;
  std::vector<float> bias(keys.size());
  form.function->Evaluate(0, {&query, 1}, keys, bias.data(), 6);
  for (std::size_t i = 0; i + 1 < keys.size(); ++i) EXPECT_EQ(bias[i], -.5f * (258 - keys[i])) << i;
  EXPECT_EQ(bias[5], -1);  // 257 is 256 there, ties to even
  EXPECT_EQ(form.function->parameters(), 0);
  EXPECT_THAT([] { AlibiBias{}.LowerInBfloat16(8); },
              ThrowsMessage<Error>(HasSubstr("AlibiBias.bfloat16: expected true")));
}

TEST(Alibi, BadInput) {
  EXPECT_THAT([] { AlibiBias{}.Lower(0, 1); },
              ThrowsMessage<Error>(HasSubstr("heads: expected 1 to 65536, got 0")));
  EXPECT_THAT([] { AlibiBias{}.Lower(4, -1); }, ThrowsMessage<Error>(HasSubstr("max_distance")));
  EXPECT_THAT(
      [] {
        (AlibiBias{.slopes = {1, 2}}.Lower(3, 1));
      },
      ThrowsMessage<Error>(HasSubstr("AlibiBias.slopes: expected 3 numbers, got 2")));
  EXPECT_THAT([] { (AlibiBias{.max_bias = -8}.Lower(3, 1)); },
              ThrowsMessage<Error>(HasSubstr("max_bias: expected a number above 0")));
  EXPECT_THAT([] { (AlibiBias{.scale = NAN}.Lower(3, 1)); },
              ThrowsMessage<Error>(HasSubstr("AlibiBias.scale")));
}

// The table of the articles: 32 buckets to 128, both directions.
TEST(T5, BucketsOfTheArticles) {
  const T5Bias t5;
  const int expected[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  8,  8,  8,  9,  9,  9, 9,
                          10, 10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 11, 11};
  for (int d = 0; d <= 30; ++d) {
    EXPECT_EQ(t5.Bucket(d), expected[d]) << d;
    EXPECT_EQ(t5.Bucket(-d), (d > 0 ? 16 : 0) + expected[d]) << d;
  }
  EXPECT_EQ(t5.Bucket(127), 15);
  EXPECT_EQ(t5.Bucket(1048575), 15);
  EXPECT_EQ(t5.Bucket(-1048575), 31);
  EXPECT_EQ(t5.Bucket(INT64_MAX), 15);
  EXPECT_EQ(t5.Bucket(INT64_MIN), 31);
}

TEST(T5, BucketsOfAnyCountAgainstIntegerPowers) {
  for (const int64_t buckets : {4, 7, 8, 16, 32, 33, 64}) {
    for (const int64_t last : {40, 64, 100, 128, 500, 800}) {
      for (const bool bidirectional : {true, false}) {
        const T5Bias t5{buckets, last, bidirectional, {}};
        for (int64_t d = -2000; d <= 2000; ++d) {
          ASSERT_EQ(t5.Bucket(d), reference::T5Bucket(d, bidirectional, buckets, last))
              << buckets << " to " << last << ", distance " << d;
        }
        for (const int64_t d : Distances(4096)) {
          ASSERT_EQ(t5.Bucket(d), reference::T5Bucket(d, bidirectional, buckets, last)) << d;
        }
      }
    }
  }
}

// The exact bucket is that of each engine's float32 logarithm, at every distance to 300
// and far: transformers' and ggml's orders of operations, and an epsilon inside
// (TransformerEngine).
TEST(T5, FloatLogarithmsOfEveryEngine) {
  std::vector<int64_t> distances = Distances(4096);
  for (int64_t d = 0; d <= 300; ++d) distances.push_back(d);
  for (const bool bidirectional : {true, false}) {
    const T5Bias t5{.bidirectional = bidirectional};
    const int64_t side = bidirectional ? 16 : 32, exact = side / 2;
    for (const int64_t d : distances) {
      if (d < exact) continue;
      const auto n = static_cast<float>(d), e = static_cast<float>(exact);
      const auto wide = static_cast<float>(side - exact);
      const float logarithms[] = {
          std::log(n / e) / static_cast<float>(std::log(128.0 / static_cast<double>(exact))) * wide,
          std::log(n / e) * wide / std::log(128.0f / e),
          std::log(n / e + 0x1p-23f) / std::log(128.0f / e) * wide};
      for (const float x : logarithms) {
        EXPECT_EQ(t5.Bucket(d), std::min(side - 1, exact + static_cast<int64_t>(x))) << d;
      }
    }
  }
}

// Sign and shape, and the distance of the own position: 0 here, 1 in some engines. Softmax ignores
// the difference.
TEST(Alibi, TheOwnPositionCostsNothing) {
  const SlopeForm form = AlibiBias{}.Lower(8, 1 << 20);
  for (const int64_t length : {1, 2, 257, 4097, 131072}) {
    for (int64_t h = 0; h < 8; ++h) {
      EXPECT_EQ(BiasOf(form, h, 0), 0);
      double here = 0, there = 0;  // denominators, both over the own key's term
      for (int64_t d = 0; d < length; ++d) {
        here += std::exp(BiasOf(form, h, d));
        there += std::exp(BiasOf(form, h, d + 1) - BiasOf(form, h, 1));
      }
      EXPECT_NEAR(there / here, 1, 1e-12) << length;
    }
  }
}

TEST(T5, TableAndGradient) {
  for (const bool bidirectional : {true, false}) {
    for (const int64_t max_distance : {5, 60, 4096}) {
      const int64_t heads = 3;
      const T5Bias t5{16, 64, bidirectional, RandomValues<float>(16 * heads, 1)};
      const DistanceForm form = t5.Lower(heads, max_distance);
      CheckForm(form, heads, 8);
      EXPECT_LE(form.columns, 129);
      for (int64_t d = bidirectional ? -max_distance : 0; d <= max_distance; ++d) {
        for (int64_t h = 0; h < heads; ++h) {
          ASSERT_EQ(BiasOf(form, h, d),
                    t5.embedding[reference::T5Bucket(d, bidirectional, 16, 64) * heads + h]);
        }
      }
      DistanceForm g = form;
      g.values = RandomValues<float>(g.values.size(), 2);
      const std::vector<double> d = t5.Backward(g);
      const auto loss = [&](const std::vector<double>& embedding) {
        double sum = 0;
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t c = 0; c < g.columns; ++c) {
            sum += g.values[h * g.columns + c] *
                   embedding[reference::T5Bucket(g.first + c, bidirectional, 16, 64) * heads + h];
          }
        }
        return sum;
      };
      for (std::size_t i = 0; i < d.size(); ++i) {
        EXPECT_NEAR(d[i], Slope(loss, ToDoubles(t5.embedding), i), 1e-7);
      }
    }
  }
}

TEST(T5, BadInput) {
  EXPECT_THAT(
      [] {
        (T5Bias{2, 128, true, {}}.Bucket(1));
      },
      ThrowsMessage<Error>(HasSubstr("T5Bias.buckets: expected 4 or more, got 2")));
  EXPECT_THAT(
      [] {
        (T5Bias{32, 16, false, {}}.Bucket(1));
      },
      ThrowsMessage<Error>(HasSubstr("last_distance: expected more than the 16")));
  EXPECT_THAT(
      [] {
        (T5Bias{32, 128, true, {1, 2}}.Lower(2, 9));
      },
      ThrowsMessage<Error>(HasSubstr("T5Bias.embedding: expected 64 numbers, got 2")));
  const T5Bias t5{4, 8, true, std::vector<float>(8)};
  EXPECT_THAT(
      [&] {
        t5.Backward({0, 2, {1, 2, 3}});
      },
      ThrowsMessage<Error>(HasSubstr("gradient.values: expected 4 numbers, got 3")));
}

TEST(Kerple, BothKernelsFarAndGradients) {
  for (const bool power : {true, false}) {
    for (const bool causal : {true, false}) {
      const KerpleBias kerple{power ? KerpleKernel::kPower : KerpleKernel::kLog,
                              {.5f, 1.25f},
                              {.01f, power ? 1.5f : 3.f},
                              causal};
      const DistanceForm form = kerple.Lower(2, 1048575);
      for (const int64_t d : Distances(4096)) {
        for (const int64_t side : {1, -1}) {
          if (causal && side < 0) continue;
          for (int h = 0; h < 2; ++h) {
            ExpectRounded(BiasOf(form, h, side * d),
                          reference::Kerple(d, power, kerple.r1[h], kerple.r2[h]));
          }
        }
      }
      DistanceForm g = kerple.Lower(2, 300);
      g.values = RandomValues<float>(g.values.size(), 3);
      const KerpleBias::Gradient d = kerple.Backward(g);
      for (int h = 0; h < 2; ++h) {
        const auto loss = [&](const std::vector<double>& r) {
          double sum = 0;
          for (int64_t c = 0; c < g.columns; ++c) {
            sum += g.values[h * g.columns + c] * reference::Kerple(g.first + c, power, r[0], r[1]);
          }
          return sum;
        };
        const std::vector<double> at = {kerple.r1[h], kerple.r2[h]};
        const double r1 = Slope(loss, at, 0);
        const double r2 = Slope(loss, at, 1, 1e-6);
        EXPECT_NEAR(d.r1[h], r1, 1e-6 * (1 + std::abs(r1)));
        EXPECT_NEAR(d.r2[h], r2, 1e-6 * (1 + std::abs(r2)));
      }
    }
  }
}

TEST(Kerple, BadInput) {
  EXPECT_THAT(
      [] {
        (KerpleBias{KerpleKernel::kLog, {1}, {0}}.Lower(1, 9));
      },
      ThrowsMessage<Error>(HasSubstr("KerpleBias.r2[0]: expected a number above 0")));
  EXPECT_THAT(
      [] {
        (KerpleBias{KerpleKernel::kPower, {1, 1}, {1, 2.5}}.Lower(2, 9));
      },
      ThrowsMessage<Error>(HasSubstr("KerpleBias.r2[1]: expected at most 2")));
  EXPECT_THAT(
      [] {
        (KerpleBias{KerpleKernel::kLog, {1}, {1, 1}}.Lower(2, 9));
      },
      ThrowsMessage<Error>(HasSubstr("KerpleBias.r1: expected 2 numbers, got 1")));
}

TEST(Sandwich, FarAndBothSides) {
  const SandwichBias sandwich{.causal = false};
  const DistanceForm form = sandwich.Lower(3, 1048575);
  for (const int64_t d : Distances(4096)) {
    for (int h = 0; h < 3; ++h) {
      const double truth = reference::Sandwich(d, h + 1, 3, 128, 10000);
      EXPECT_NEAR(BiasOf(form, h, d), truth, 1e-5) << d;
      EXPECT_EQ(BiasOf(form, h, -d), BiasOf(form, h, d));
    }
  }
  // At distance 0 all cosines are 1: 64 H / 8 h.
  EXPECT_EQ((SandwichBias{}.Lower(4, 0).values), (std::vector<float>{32, 16, 32.f / 3, 8}));
  EXPECT_THAT([] { (SandwichBias{.dim = 7}.Lower(3, 1)); },
              ThrowsMessage<Error>(HasSubstr("SandwichBias.dim: expected an even number")));
}

}  // namespace slopes_and_tables_test
}  // namespace ropewalk
