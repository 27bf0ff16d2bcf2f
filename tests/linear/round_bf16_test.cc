#include "src/linear/round_bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/support/targets.h"

namespace ropewalk {
namespace {

// Every upper half, so every sign, exponent, infinity and NaN, with lower halves on both sides of
// each decision, against the definition in integers.
TEST(RoundToBf16, EqualsTheDefinitionOnEveryTarget) {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const int64_t n = static_cast<int64_t>(x.size());
  ForEachTarget(internal::RoundToBf16Target, [&](const char* name) {
    std::vector<BFloat16> y(x.size());
    internal::RoundToBf16(x.data(), n, 1, n, y.data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) wrong += y[i].bits != ToBFloat16(x[i]).bits ? 1 : 0;
    EXPECT_EQ(wrong, 0) << name;
  });
}

// Rows with gaps become dense ones; nothing behind them is written, whatever the length.
TEST(RoundToBf16, RowsOfAnyLength) {
  ForEachTarget(internal::RoundToBf16Target, [&](const char* name) {
    for (int64_t n = 1; n <= 70; ++n) {
      const int64_t rows = 3, stride = n + 2;
      std::vector<float> x(static_cast<size_t>(rows * stride));
      for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(i) - 5.0f;
      std::vector<BFloat16> y(static_cast<size_t>(rows * n + 1), BFloat16{0x1234});
      internal::RoundToBf16(x.data(), stride, rows, n, y.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(y[r * n + i].bits, ToBFloat16(x[r * stride + i]).bits) << name << ' ' << n;
        }
      }
      ASSERT_EQ(y.back().bits, 0x1234) << name << ' ' << n;
    }
  });
}

}  // namespace
}  // namespace ropewalk
