// RMSNorm and silu(gate) * up against double, at sizes around every vector length.
#include "src/model/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ropewalk::internal {
namespace {

std::vector<float> Random(int64_t n, float scale, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(engine);
  return v;
}

TEST(Elementwise, RmsNormWithGroupsAndStrides) {
  for (const int64_t n : {1, 3, 8, 15, 16, 17, 33, 64, 576}) {
    const int64_t rows = 5, groups = 3, stride = groups * n + 7;
    const auto x = Random(rows * stride, 3, 1), weight = Random(n, 1, 2);
    std::vector<float> out = x;  // in place
    RmsNorm({out.data(), stride, out.data(), stride, rows, groups, n, weight.data(), 1e-5f});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const float* in = x.data() + r * stride + g * n;
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += double(in[i]) * in[i];
        const double scale = 1 / std::sqrt(sum / double(n) + 1e-5);
        for (int64_t i = 0; i < n; ++i) {
          const double expected = in[i] * scale * weight[i];
          EXPECT_NEAR(out[r * stride + g * n + i], expected, 4e-7 * std::abs(expected)) << n;
        }
      }
      for (int64_t i = groups * n; i < stride; ++i)
        EXPECT_EQ(out[r * stride + i], x[r * stride + i]);
    }
  }
}

TEST(Elementwise, SiluMul) {
  for (const int64_t n : {1, 3, 8, 15, 16, 17, 33, 1536}) {
    const int64_t rows = 4;
    std::vector<float> x = Random(rows * 2 * n, 20, 3);
    const float extremes[] = {0.0f, -0.0f, 1e-30f, -87, -88,   -89,
                              -103, -200,  88,     200, 1e30f, -1e30f};
    for (int64_t i = 0; i < std::min<int64_t>(n, 12); ++i) x[i] = extremes[i];
    std::vector<float> out(rows * n);
    SiluMul(x.data(), rows, n, out.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double g = x[r * 2 * n + i], u = x[r * 2 * n + n + i];
        const double expected = g / (1 + std::exp(-g)) * u;
        // Below exp(-80) the cut of the exponent may show; |g * u| * 1e-34 is beyond any use.
        EXPECT_NEAR(out[r * n + i], expected, 1e-6 * std::abs(expected) + 1e-34 * std::abs(g * u))
            << "gate " << g << " n " << n;
      }
    }
  }
}

}  // namespace
}  // namespace ropewalk::internal
