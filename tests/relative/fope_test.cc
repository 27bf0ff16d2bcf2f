// FoPE: pairs with learned mixtures of frequencies.
#include "ropewalk/relative/fope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/relative.h"
#include "reference/rotary.h"
#include "ropewalk/base/error.h"
#include "tests/relative/support.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace fope_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Vector = std::vector<double>;

constexpr int64_t kHeads = 4, kHeadDim = 16, kLength = 512;

FopeEncoding MakeFope(int64_t table_heads) {
  FopeEncoding fope{kHeads, kHeadDim, 10000, kLength};
  fope.table_heads = table_heads;
  const int64_t size = table_heads * fope.Kept() * fope.Kept();
  fope.cosines = RandomValues<float>(size, 1);
  fope.sines = RandomValues<float>(size, 2);
  return fope;
}

// The head of one token by the paper.
Vector Truth(const FopeEncoding& fope, const Vector& x, const Vector& cosines, const Vector& sines,
             std::size_t token, int64_t head, int64_t position) {
  const int64_t kept = fope.Kept();
  const int64_t table = head / (kHeads / fope.table_heads) * kept * kept;
  return reference::Fope(reference::Row(x, static_cast<int64_t>(token) * kHeads + head, kHeadDim),
                         std::span(cosines).subspan(table, kept * kept),
                         std::span(sines).subspan(table, kept * kept), kept, position, 10000);
}

TEST(Fope, KeepsPairsThatCompleteATurn) {
  // 10000^(-2 w / 16) above 2 pi / 512 = 0.01227: w = 0 .. 3 (0.0316), not 4 (0.01).
  EXPECT_EQ(MakeFope(1).Kept(), 4);
  EXPECT_EQ((FopeEncoding{kHeads, kHeadDim, 10000, 0, 7}.Kept()), 7);
  EXPECT_EQ((FopeEncoding{kHeads, kHeadDim, 10000, 1 << 20}.Kept()), 8);
  EXPECT_EQ((FopeEncoding{kHeads, kHeadDim, 10000, 6}.Kept()), 0);
}

TEST(Fope, MixturesNearAndFar) {
  const std::vector<int64_t> positions = Distances(kLength);
  for (const int64_t table_heads : {1, 2, 4}) {
    const FopeEncoding fope = MakeFope(table_heads);
    const std::vector<float> x = RandomValues<float>(positions.size() * kHeads * kHeadDim, 3);
    const std::vector<float> got = fope.Encode(x, positions);
    for (std::size_t t = 0; t < positions.size(); ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const Vector truth = Truth(fope, ToDoubles(x), ToDoubles(fope.cosines),
                                   ToDoubles(fope.sines), t, h, positions[t]);
        for (int64_t e = 0; e < kHeadDim; ++e) {
          const double y = got[(t * kHeads + h) * kHeadDim + e];
          EXPECT_NEAR(y, truth[e], 2e-6) << positions[t];
        }
      }
    }
  }
}

TEST(Fope, IdentityIsRotationWithSlowPairsStill) {
  FopeEncoding fope = MakeFope(1);
  for (int i = 0; i < 16; ++i) fope.cosines[i] = fope.sines[i] = i % 5 == 0 ? 1 : 0;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kHeadDim;
  spec.trained_length = kLength;
  spec.scaling = HopeScaling{};
  const Frequencies hope = Resolve(spec, kLength);
  for (const int64_t position : Distances(kLength)) {
    const std::vector<float> x = RandomValues<float>(kHeads * kHeadDim, 4);
    const std::vector<float> got = fope.Encode(x, std::vector<int64_t>{position});
    Vector truth = ToDoubles(x);
    for (int64_t h = 0; h < kHeads; ++h) {
      reference::RotateHead(truth.data() + h * kHeadDim, hope, position, false);
    }
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], truth[i], 5e-7);
  }
}

TEST(Fope, Gradients) {
  const std::vector<int64_t> positions = Distances(kLength);
  const FopeEncoding fope = MakeFope(2);
  const std::vector<float> x = RandomValues<float>(positions.size() * kHeads * kHeadDim, 3);
  const std::vector<float> d_out = RandomValues<float>(x.size(), 4);
  const FopeEncoding::Gradient got = fope.Backward(x, positions, d_out);
  const auto loss = [&](const Vector& at, const Vector& cosines, const Vector& sines) {
    double sum = 0;
    for (std::size_t t = 0; t < positions.size(); ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const Vector y = Truth(fope, at, cosines, sines, t, h, positions[t]);
        for (int64_t e = 0; e < kHeadDim; ++e) {
          sum += d_out[(t * kHeads + h) * kHeadDim + e] * y[e];
        }
      }
    }
    return sum;
  };
  const Vector at = ToDoubles(x);
  const Vector c = ToDoubles(fope.cosines);
  const Vector s = ToDoubles(fope.sines);
  for (std::size_t i = 0; i < at.size(); i += 29) {
    EXPECT_NEAR(got.x[i], Slope([&](const Vector& v) { return loss(v, c, s); }, at, i), 1e-6);
  }
  for (std::size_t i = 0; i < c.size(); ++i) {
    EXPECT_NEAR(got.cosines[i], Slope([&](const Vector& v) { return loss(at, v, s); }, c, i), 1e-6);
    EXPECT_NEAR(got.sines[i], Slope([&](const Vector& v) { return loss(at, c, v); }, s, i), 1e-6);
  }
}

TEST(Fope, BadInput) {
  FopeEncoding fope = MakeFope(1);
  const std::vector<float> x(kHeads * kHeadDim);
  EXPECT_THAT([&] { fope.Encode(x, std::vector<int64_t>{int64_t{1} << 31}); },
              ThrowsMessage<Error>(HasSubstr("positions: expected 0 to 2^31 - 1")));
  EXPECT_THAT([&] { fope.Encode(x, {}); },
              ThrowsMessage<Error>(HasSubstr("FopeEncoding: x: expected 0 numbers, got 64")));
  fope.table_heads = 3;
  EXPECT_THAT([&] { fope.Encode(x, std::vector<int64_t>{1}); },
              ThrowsMessage<Error>(HasSubstr("table_heads: expected a divisor of 4, got 3")));
  EXPECT_THAT(
      [] {
        (FopeEncoding{1, 16, 10000, 0, 9}.Kept());
      },
      ThrowsMessage<Error>(HasSubstr("frequencies: expected 0 to 8, got 9")));
  EXPECT_THAT(
      [] {
        (FopeEncoding{1, 16}.Kept());
      },
      ThrowsMessage<Error>(HasSubstr("trained_length: expected 1 or more")));
  EXPECT_THAT(
      [] {
        (FopeEncoding{1, 15}.Kept());
      },
      ThrowsMessage<Error>(HasSubstr("head_dim: expected an even number")));
}

}  // namespace fope_test
}  // namespace ropewalk
