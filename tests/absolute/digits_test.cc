// Positions as digits: the articles' example, its three extensions, far positions, gradients.
#include "ropewalk/absolute/digits.h"

#include <set>

#include "ropewalk/absolute/sinusoidal.h"
#include "tests/absolute/support.h"

namespace ropewalk {
namespace digits_test {

std::vector<float> Digits(const DigitSpec& spec, int64_t position) {
  std::vector<float> out(static_cast<std::size_t>(spec.digits));
  DigitRows(spec, std::vector<int64_t>{position}, out);
  return out;
}

// kexue.fm/archives/9675: three decimal digits, to be read to 2000.
TEST(Digits, TheArticlesExample) {
  const DigitSpec trained;
  EXPECT_EQ(Digits(trained, 749), (std::vector<float>{7, 4, 9}));
  EXPECT_EQ(DigitCapacity(trained), 1000);
  const auto extended = [&](DigitExtension e) { return ExtendDigits(trained, 2000, e); };
  EXPECT_EQ(Digits(extended(DigitExtension::kExtrapolate), 1749), (std::vector<float>{1, 7, 4, 9}));
  EXPECT_EQ(Digits(extended(DigitExtension::kInterpolate), 1749), (std::vector<float>{8, 7, 4.5}));
  // The article takes base 16, where 1749 is [6, 13, 5]; 13 is the smallest with room: 13^3 = 2197.
  EXPECT_EQ(Digits({16, 3, 1}, 1749), (std::vector<float>{6, 13, 5}));
  EXPECT_EQ(extended(DigitExtension::kChangeBase).base, 13);
  EXPECT_EQ(Digits(extended(DigitExtension::kChangeBase), 1749), (std::vector<float>{10, 4, 7}));
}

// What the article says of the three: a base change keeps neighbours one apart, interpolation does
// not, extrapolation uses a dimension that training left at 0.
TEST(Digits, WhatExtensionsDoToNeighbours) {
  const DigitSpec trained;
  const auto step = [&](DigitExtension e, int64_t position) {
    const DigitSpec spec = ExtendDigits(trained, 4000, e);
    return Digits(spec, position + 1).back() - Digits(spec, position).back();
  };
  EXPECT_EQ(step(DigitExtension::kExtrapolate, 1742), 1);
  EXPECT_EQ(step(DigitExtension::kInterpolate, 1742), 0.25f);
  EXPECT_EQ(step(DigitExtension::kChangeBase, 1742), 1);
  const DigitSpec longer = ExtendDigits(trained, 4000, DigitExtension::kExtrapolate);
  for (const int64_t position : {0, 1, 255, 256, 257, 999}) {
    EXPECT_EQ(Digits(longer, position).front(), 0);
  }
  EXPECT_EQ(Digits(longer, 1000).front(), 1);
  const DigitSpec same = ExtendDigits(trained, 1000, DigitExtension::kChangeBase);
  EXPECT_EQ(same.base, 10);
}

// Digits are the number: their sum of digit * base^place is position / factor.
TEST(Digits, AreTheNumber) {
  for (const DigitSpec spec : {DigitSpec{2, 31, 1}, DigitSpec{7, 12, 1}, DigitSpec{10, 9, 2.5},
                               DigitSpec{512, 4, 1}, DigitSpec{16, 6, 3}}) {
    for (const int64_t position : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257},
                                   int64_t{511}, int64_t{512}, int64_t{513}, int64_t{2048},
                                   int64_t{131071}, int64_t{1048575}, DigitCapacity(spec) - 1}) {
      double value = 0;
      for (const float digit : Digits(spec, position)) {
        EXPECT_LT(digit, static_cast<float>(spec.base) + 1e-6f);
        value = value * static_cast<double>(spec.base) + static_cast<double>(digit);
      }
      EXPECT_NEAR(value, static_cast<double>(position) / spec.factor, 1e-6) << position;
    }
  }
  std::set<std::vector<float>> seen;
  for (int64_t p = 0; p < 2187; ++p) seen.insert(Digits({3, 7, 1}, p));
  EXPECT_EQ(seen.size(), 2187u);
}

// The article's reading of sinusoids: digit i in base b is periodic in the position with b^(i+1),
// and so is angle i of a sinusoid with base b^(dim/2), with period 2 pi b^i.
TEST(Digits, SinusoidsArePeriodicAsDigitsAre) {
  const DigitSpec spec{10, 4, 1};
  for (const int64_t position : {0, 7, 256, 999}) {
    EXPECT_EQ(Digits(spec, position)[3], Digits(spec, position + 10)[3]);
    EXPECT_EQ(Digits(spec, position)[2], Digits(spec, position + 100)[2]);
  }
  SinusoidalSpec sinusoidal(SinusoidalLayout::kInterleaved);
  sinusoidal.dim = 8;
  sinusoidal.base = 10000;
  const Sinusoidal encoding(sinusoidal);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(encoding.frequencies()[i - 1].hi / encoding.frequencies()[i].hi, 10, 1e-14);
  }
}

TEST(Digits, ProjectionAndItsGradient) {
  const DigitSpec spec{8, 3, 1.5};
  const std::vector<int64_t> positions = {0, 1, 255, 256, 257, 767};
  const auto weight = RandomValues<float>(4 * 3, 1), dy = RandomValues<float>(6 * 4, 2);
  std::vector<float> rows(6 * 3), out(6 * 4);
  DigitRows(spec, positions, rows);
  ProjectDigits(spec, weight, 4, positions, out);
  std::vector<double> d_weight(12, 1.0);
  ProjectDigitsBackward(spec, 4, positions, dy, d_weight);
  for (std::size_t e = 0; e < 4; ++e) {
    for (std::size_t t = 0; t < 6; ++t) {
      const double want =
          Dot(std::span(weight).subspan(e * 3, 3), std::span(rows).subspan(t * 3, 3));
      EXPECT_NEAR(static_cast<double>(out[t * 4 + e]), want, 1e-6 * (1 + std::abs(want)));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      double want = 1;
      for (std::size_t t = 0; t < 6; ++t) {
        want += static_cast<double>(dy[t * 4 + e]) * static_cast<double>(rows[t * 3 + i]);
      }
      EXPECT_NEAR(d_weight[e * 3 + i], want, 1e-5);
    }
  }
}

TEST(Digits, BadInput) {
  std::vector<float> out(3);
  const auto rows = [&](const DigitSpec& spec, int64_t position) {
    return [&, spec, position] { DigitRows(spec, std::vector<int64_t>{position}, out); };
  };
  ExpectRefused(rows({10, 3, 1}, 1000), "expected 0 to 999, got 1000 at 0; ExtendDigits");
  ExpectRefused(rows({10, 3, 1}, -1), "got -1");
  ExpectRefused(rows({1, 3, 1}, 0), "base: expected 2 to");
  ExpectRefused(rows({10, 0, 1}, 0), "digits");
  ExpectRefused(rows({10, 3, 0.5}, 0), "factor: expected 1 or more");
  ExpectRefused(rows({10, 3, NAN}, 0), "factor");
  ExpectRefused(rows({10, 4, 1}, 0), "out: expected [1, 4], got 3");
  ExpectRefused([] { ExtendDigits({}, 0, DigitExtension::kChangeBase); }, "length");
}

}  // namespace digits_test
}  // namespace ropewalk
