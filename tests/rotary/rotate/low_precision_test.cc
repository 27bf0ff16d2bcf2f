// What positions and tables in 16 bits would cost, and that ours do not pay it: positions are
// integers and the table is float32 whatever the dtype of q and k.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "ropewalk/rotary/rotate.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace rotate_low_precision_test {

template <class T>
double Rounded(double x) {
  return ToDouble(FromDouble<T>(x));
}

Frequencies Llama2() {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 128;
  return Resolve(spec, 4096);
}

double Plain(int64_t pair) { return std::pow(10000.0, -static_cast<double>(pair) / 64); }

TEST(LowPrecision, PositionsAreIntegers) {
  EXPECT_EQ(Rounded<BFloat16>(257), 256);
  EXPECT_EQ(Rounded<BFloat16>(259), 260);
  EXPECT_EQ(Rounded<BFloat16>(4095), 4096);
  EXPECT_EQ(Rounded<Float16>(2049), 2048);
  std::set<double> distinct;
  for (int p = 0; p < 4096; ++p) distinct.insert(Rounded<BFloat16>(p));
  EXPECT_EQ(distinct.size(), 769u);  // 0 .. 256, and 128 in each of four octaves
  EXPECT_EQ(distinct.size(), 257u + 4 * 128);

  // Queries in bf16 of one pair (1, 0): each of the 4096 turns to its own angle, as near as bf16
  // can say it.
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 2;
  const Frequencies f = Resolve(spec, 4096);
  constexpr int64_t kTokens = 4096;
  std::vector<BFloat16> q(2 * kTokens, BFloat16{0});
  for (std::size_t p = 0; p < kTokens; ++p) q[2 * p] = ToBFloat16(1);
  const CosSinTable table(f, 0, kTokens, AnglePrecision::kExact);
  Rotate({.table = &table,
          .layout = PairLayout::kHalf,
          .positions = Positions::From(0),
          .q = TensorView::Of(q.data(), {kTokens, 1, 2})});
  for (std::size_t p = 0; p < kTokens; ++p) {
    EXPECT_NEAR(ToDouble(q[2 * p]), std::cos(static_cast<double>(p)), 0x1p-9 + 1e-6) << p;
    EXPECT_NEAR(ToDouble(q[2 * p + 1]), std::sin(static_cast<double>(p)), 0x1p-9 + 1e-6) << p;
  }
  // With a position in bf16 token 257 would stand on token 256, a radian off.
  EXPECT_NEAR(std::hypot(ToDouble(q[2 * 257]) - std::cos(Rounded<BFloat16>(257)),
                         ToDouble(q[2 * 257 + 1]) - std::sin(Rounded<BFloat16>(257))),
              2 * std::sin(0.5), 0x1p-8);
}

// inv_freq cast to bf16 with the rest of a model: 5.0 radians at position 4095, pair 1.
TEST(LowPrecision, FrequenciesAreNotRounded) {
  EXPECT_NEAR((Rounded<BFloat16>(Plain(1)) - Plain(1)) * 4095, 5.0, 0.05);
  const Frequencies f = Llama2();
  const int64_t far[] = {4095};
  float row[128];
  FillCosSin(f, far, AnglePrecision::kExact, row);
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_NEAR(row[i], std::cos(4095 * Plain(i)), 0x1p-24 + 1e-12) << i;
    EXPECT_NEAR(row[64 + i], std::sin(4095 * Plain(i)), 0x1p-24 + 1e-12) << i;
  }
}

// cos^2 + sin^2 over positions 0 .. 4095: off by 5.5e-3 in bf16, 6.8e-4 in f16, 8.4e-8 in ours.
TEST(LowPrecision, TheTableIsFloat32) {
  const Frequencies f = Llama2();
  std::vector<int64_t> positions(4096);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> rows(positions.size() * 128);
  FillCosSin(f, positions, AnglePrecision::kExact, rows.data());
  double bf16 = 0, f16 = 0, ours = 0;
  for (std::size_t p = 0; p < positions.size(); ++p) {
    for (std::size_t i = 0; i < 64; ++i) {
      const double c = double{rows[p * 128 + i]}, s = double{rows[p * 128 + 64 + i]};
      const auto off = [](double x, double y) { return std::abs(x * x + y * y - 1); };
      bf16 = std::max(bf16, off(Rounded<BFloat16>(c), Rounded<BFloat16>(s)));
      f16 = std::max(f16, off(Rounded<Float16>(c), Rounded<Float16>(s)));
      ours = std::max(ours, off(c, s));
    }
  }
  EXPECT_NEAR(bf16, 5.5e-3, 0.05e-3);
  EXPECT_NEAR(f16, 6.8e-4, 0.05e-4);
  EXPECT_LE(ours, 0x1p-23);
  EXPECT_GT(ours, 1e-9);  // the sums were taken
}

}  // namespace rotate_low_precision_test
}  // namespace ropewalk
