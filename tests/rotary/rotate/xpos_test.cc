// xPos, rotated values, left padding.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ropewalk/rotary/rotate.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rotate/support.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace rotate_xpos_test {

// xPos (arXiv 2212.10554): queries grow and keys shrink, so that a score decays with the distance.
Frequencies Xpos(double centre) {
  RotarySpec spec = SpecOf(128);
  spec.xpos = XposDecay{};
  spec.xpos->centre = centre;
  return Resolve(spec, 2048);
}

TEST(RotateXpos, XposAgainstTheReferenceOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    const Frequencies f = Xpos(1000);
    ASSERT_EQ(f.log_decay.size(), 64u);
    for (const PairLayout layout : kLayouts) {
      for (const Direction direction :
           {Direction::kForward, Direction::kAdjoint, Direction::kInverse}) {
        std::vector<int64_t> p = {0, 1, 255, 256, 257, 1000, 2047, 2048, 2049, 8191};
        std::vector<float> q = RandomValues<float>(p.size() * 128, 13);
        std::vector<float> k = RandomValues<float>(p.size() * 128, 14);
        std::vector<float> v = RandomValues<float>(p.size() * 128, 15);
        const int64_t n = static_cast<int64_t>(p.size());
        const int sign = direction == Direction::kForward ? 1 : -1;
        const int inverse = direction == Direction::kInverse ? -1 : 1;
        const auto want = [&](const std::vector<float>& x, int decay) {
          return Reference(Doubles(x), f, p, 1, 128, layout, 0, sign, decay * inverse);
        };
        const std::vector<double> want_q = want(q, 1), want_k = want(k, -1), want_v = want(v, 0);
        Rotate({.layout = layout,
                .positions = Positions::Each(std::span<const int64_t>(p)),
                .q = TensorView::Of(q.data(), {n, 1, 128}),
                .k = TensorView::Of(k.data(), {n, 1, 128}),
                .direction = direction,
                .frequencies = &f,
                .v = TensorView::Of(v.data(), {n, 1, 128}),
                .values = ValueRotation::kRotate});
        ExpectHeads(q, want_q, 128, Epsilon<float>(), "xPos q");
        ExpectHeads(k, want_k, 128, Epsilon<float>(), "xPos k");
        ExpectHeads(v, want_v, 128, Epsilon<float>(), "xPos v");
      }
    }
  });
}

// The score of one query and key: as far as they are apart, whatever the centre and wherever they
// stand, at a million too. One cached key and one query of a decode step are what a prefill gives
// (lucidrains/rotary-embedding-torch counts a decoded query as position 0: a factor of zeta^1,
// 0.285714 at pair 0, between them).
double XposScore(const Frequencies& f, int64_t query, int64_t key, int64_t pair) {
  std::vector<double> q(128, 0.0), k(128, 0.0);
  q[static_cast<std::size_t>(pair)] = k[static_cast<std::size_t>(pair)] = 1;
  const TensorView none = TensorView::Of(q.data(), {1, 0, 128});
  Rotate({.layout = PairLayout::kHalf,
          .positions = Positions::From(query),
          .q = TensorView::Of(q.data(), {1, 1, 128}),
          .frequencies = &f});
  Rotate({.layout = PairLayout::kHalf,
          .positions = Positions::From(key),
          .q = none,
          .k = TensorView::Of(k.data(), {1, 1, 128}),
          .frequencies = &f});
  double sum = 0;
  for (std::size_t i = 0; i < 128; ++i) sum += q[i] * k[i];
  return sum;
}

TEST(RotateXpos, XposScoresDecayWithTheDistanceAlone) {
  for (const int64_t pair : {0, 31, 63}) {
    const double i = static_cast<double>(pair);
    const double zeta = (2 * i / 128 + 0.4) / 1.4;
    for (const int64_t distance : {0, 1, 255, 512, 1023}) {
      const double d = static_cast<double>(distance);
      const double want = std::pow(zeta, d / 512) * std::cos(d * std::pow(10000.0, -2 * i / 128));
      for (const int64_t key : {0, 1000, 8191}) {
        EXPECT_NEAR(XposScore(Xpos(0), key + distance, key, pair), want, 1e-6);
        EXPECT_NEAR(XposScore(Xpos(4096), key + distance, key, pair), want, 1e-6);
      }
      EXPECT_NEAR(XposScore(Xpos(1048575), 1048575 + distance, 1048575, pair), want, 1e-6);
    }
  }
  const Frequencies f = Xpos(0);
  EXPECT_NEAR(std::exp(512 * f.log_decay[0]), 0.285714, 1e-6);
  EXPECT_NEAR(std::exp(512 * f.log_decay[31]), 0.631696, 1e-6);
  EXPECT_NEAR(std::exp(512 * f.log_decay[63]), 0.988839, 1e-6);
  // That library's centre is half of the keys: zeta^(1024 / 2 / 512) as above, with 4096 keys this.
  EXPECT_NEAR(std::exp(4096 / 2 * f.log_decay[0]), 0.00666, 5e-6);
  EXPECT_TRUE(std::isfinite(XposScore(Xpos(1048575), 1048575, 1048575 - 200000, 0)));
}

// Rotated values and an output rotated back where the query stands: the mix of values depends on
// distances alone. Without the way back it carries where they stand.
TEST(RotateXpos, ValuesAbsoluteAndRelative) {
  const int64_t dim = 32, keys = 5;
  const Frequencies f = FrequenciesOf(dim, YarnScaling{4});
  const double weights[] = {0.1, 0.3, 0.2, 0.15, 0.25};
  const auto output = [&](int64_t first, bool back) {
    std::vector<double> v = RandomValues<double>(static_cast<std::size_t>(keys * dim), 16);
    std::vector<double> empty(1);
    const TensorView none = TensorView::Of(empty.data(), {keys, 0, dim});
    Rotate({.layout = PairLayout::kHalf,
            .positions = Positions::From(first),
            .q = none,
            .frequencies = &f,
            .v = TensorView::Of(v.data(), {keys, 1, dim}),
            .values = ValueRotation::kRotate});
    std::vector<double> out(static_cast<std::size_t>(dim), 0.0);
    for (std::size_t n = 0; n < 5; ++n) {
      for (std::size_t i = 0; i < 32; ++i) out[i] += weights[n] * v[n * 32 + i];
    }
    if (back) {
      Rotate({.layout = PairLayout::kHalf,
              .positions = Positions::From(first + keys - 1),
              .q = TensorView::Of(empty.data(), {1, 0, dim}),
              .direction = Direction::kInverse,
              .frequencies = &f,
              .v = TensorView::Of(out.data(), {1, 1, dim}),
              .values = ValueRotation::kRotate});
    }
    return out;
  };
  const std::vector<double> near = output(3, true), far = output(1048575, true);
  double moved = 0;
  for (std::size_t i = 0; i < near.size(); ++i) {
    EXPECT_NEAR(near[i], far[i], 20 * 0x1p-24);
    moved += std::abs(output(3, false)[i] - output(1048575, false)[i]);
  }
  EXPECT_GT(moved, 1);
}

TEST(RotateXpos, LeftPaddedEqualsWithoutPads) {
  const int64_t dim = 16, tokens = 6;
  const Frequencies f = FrequenciesOf(dim);
  const CosSinTable table(f, 0, 8, AnglePrecision::kExact);
  const std::vector<float> x = RandomValues<float>(3 * tokens * 16, 17);
  std::vector<float> padded = x;
  const int64_t pads[] = {2, 0, 6};
  Rotate({.table = &table,
          .layout = PairLayout::kHalf,
          .positions = Positions::LeftPadded(pads),
          .q = TensorView::Of(padded.data(), {3, tokens, 1, dim})});
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> one(x.begin() + (b * tokens + t) * dim,
                             x.begin() + (b * tokens + t + 1) * dim);
      Rotate({.table = &table,
              .layout = PairLayout::kHalf,
              .positions = Positions::From(std::max<int64_t>(0, t - pads[b])),
              .q = TensorView::Of(one.data(), {1, 1, dim})});
      EXPECT_TRUE(std::equal(one.begin(), one.end(), padded.begin() + (b * tokens + t) * dim));
    }
  }
}

}  // namespace rotate_xpos_test
}  // namespace ropewalk
