// Norms and activations against double, at sizes around every vector length.
#include "src/model/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ropewalk::internal {
namespace elementwise_test {

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

TEST(Elementwise, LayerNorm) {
  for (const int64_t n : {1, 3, 8, 15, 16, 17, 33, 64, 768}) {
    const int64_t rows = 5, stride = n + 7;
    std::vector<float> x = Random(rows * stride, 3, 1);
    for (int64_t i = 0; i < n; ++i) x[i] += 1000;  // a mean far from zero: one pass would cancel
    const auto weight = Random(n, 1, 2), bias = Random(n, 1, 3);
    std::vector<float> out = x;  // in place
    LayerNorm(
        {out.data(), stride, out.data(), stride, rows, 1, n, weight.data(), 1e-5f, bias.data()});
    for (int64_t r = 0; r < rows; ++r) {
      const float* in = x.data() + r * stride;
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < n; ++i) mean += in[i] / double(n);
      for (int64_t i = 0; i < n; ++i) variance += (in[i] - mean) * (in[i] - mean) / double(n);
      const double scale = 1 / std::sqrt(variance + 1e-5);
      // The mean rounds to float32: half a unit in its last place is scaled like the values.
      const double rounding = std::abs(mean) * 1.2e-7 * scale + 1e-6;
      for (int64_t i = 0; i < n; ++i) {
        const double normed = (in[i] - mean) * scale;
        EXPECT_NEAR(out[r * stride + i], normed * weight[i] + bias[i],
                    rounding * (std::abs(weight[i]) * (1 + std::abs(normed)) + std::abs(bias[i])))
            << n;
      }
      for (int64_t i = n; i < stride; ++i) EXPECT_EQ(out[r * stride + i], x[r * stride + i]);
    }
  }
}

double Activated(MlpSpec::Activation activation, double x) {
  switch (activation) {
    case MlpSpec::Activation::kSilu:
      return x / (1 + std::exp(-x));
    case MlpSpec::Activation::kGelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case MlpSpec::Activation::kGeluTanh:
      // x / 2 (1 + tanh u), which has no digits left in double where tanh u is nearly -1.
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case MlpSpec::Activation::kRelu:
      return std::max(x, 0.0);
    case MlpSpec::Activation::kClampedSwiglu:
      return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
  }
  return NAN;
}

// The exponent inside, whose rounding the value inherits.
double Exponent(MlpSpec::Activation activation, double x) {
  if (activation == MlpSpec::Activation::kGelu) return x * x / 2;
  if (activation == MlpSpec::Activation::kRelu) return 0;
  if (activation == MlpSpec::Activation::kClampedSwiglu) return std::abs(1.702 * x);
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return std::abs(activation == MlpSpec::Activation::kSilu ? x : 2 * u);
}

// Relative to the value: GELU of -5 is -1.4e-6 and still right.
TEST(Elementwise, Activations) {
  using Activation = MlpSpec::Activation;
  for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu, Activation::kClampedSwiglu}) {
    for (const int64_t n : {1, 3, 8, 15, 16, 17, 33, 40001}) {
      std::vector<float> x = Random(2 * n, 4, 3);
      const float extremes[] = {0.0f, -0.0f, 1e-30f, -1e-30f, -5,    -9,    -13,
                                -20,  20,    200,    -200,    1e10f, -1e10f};
      for (int64_t i = 0; i < std::min<int64_t>(n, 13); ++i) x[i] = extremes[i];
      std::vector<float> out(2 * n, 7);
      Activate(activation, x.data(), 2, n, out.data());
      for (int64_t i = 0; i < 2 * n; ++i) {
        const double expected = Activated(activation, x[i]);
        // Three roundings of half a unit each in the exponent.
        const double relative = 1e-6 + (x[i] < 0 ? 1.8e-7 * Exponent(activation, x[i]) : 0);
        EXPECT_NEAR(out[i], expected,
                    relative * std::abs(expected) + 1e-34 * std::max(1.0, std::abs(double(x[i]))))
            << "x " << x[i] << " n " << n << " activation " << int(activation);
      }
    }
  }
}

TEST(Elementwise, ActivateGate) {
  using Activation = MlpSpec::Activation;
  for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu, Activation::kClampedSwiglu}) {
    for (const int64_t n : {1, 3, 8, 15, 16, 17, 33, 1536}) {
      const int64_t rows = 4;
      std::vector<float> x = Random(rows * 2 * n, 20, 3);
      const float extremes[] = {0.0f, -0.0f, 1e-30f, -87, -88,   -89,
                                -103, -200,  88,     200, 1e30f, -1e30f};
      for (int64_t i = 0; i < std::min<int64_t>(n, 12); ++i) x[i] = extremes[i];
      std::vector<float> out(rows * n);
      ActivateGate(activation, x.data(), rows, n, out.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          const bool clamped = activation == Activation::kClampedSwiglu;
          const double g = x[r * 2 * n + i], up = x[r * 2 * n + n + i];
          const double u = clamped ? std::clamp(up, -7.0, 7.0) + 1 : up;
          const double expected = Activated(activation, g) * u;
          const bool silu = activation == Activation::kSilu;
          const double relative = 1e-6 + (g < 0 && !silu ? 1.8e-7 * Exponent(activation, g) : 0);
          // Below exp(-80) the cut of the exponent may show; |g * u| * 1e-34 is beyond any use.
          EXPECT_NEAR(out[r * n + i], expected,
                      relative * std::abs(expected) + 1e-34 * std::abs(g * u))
              << "gate " << g << " n " << n << " activation " << int(activation);
        }
      }
    }
  }
}

TEST(Elementwise, SoftCap) {
  for (const float cap : {30.0f, 0.5f}) {
    for (const int64_t n : {1, 15, 17, 4099}) {
      std::vector<float> x = Random(2 * n, 60, 3);
      const float extremes[] = {0.0f, -0.0f, 1e-30f, -1e-6f, 1e30f, -1e30f};
      for (int64_t i = 0; i < std::min<int64_t>(n, 6); ++i) x[i] = extremes[i];
      const std::vector<float> given = x;
      SoftCap(cap, 2, n, x.data());
      for (int64_t i = 0; i < 2 * n; ++i) {
        const double expected = double(cap) * std::tanh(double(given[i]) / double(cap));
        EXPECT_NEAR(x[i], expected, 1e-6 * std::abs(expected)) << given[i];
      }
    }
  }
}

TEST(Elementwise, LargestAndSumExp) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {1, 7, 16, 33, 1000, 49152}) {
    std::vector<float> x = Random(n, 70, 9);
    for (float& v : x) v = std::min(v, 40.0f) - 1;
    for (const int64_t at : {n / 2, n - 1}) {
      x[at] = 40;
      EXPECT_EQ(Largest(x.data(), n), std::max_element(x.begin(), x.end()) - x.begin()) << n;
    }
    double expected = 0;
    for (const float v : x) expected += std::exp(double{v} - 40);
    EXPECT_NEAR(SumExp(x.data(), n, 40), expected, 2e-7 * expected) << n;
    x[0] = -infinity;
    EXPECT_TRUE(std::isfinite(SumExp(x.data(), n, 40))) << n;
    x[n / 3] = nan;
    EXPECT_TRUE(std::isnan(SumExp(x.data(), n, 40))) << n;
    std::fill(x.begin(), x.end(), nan);
    EXPECT_EQ(Largest(x.data(), n), 0) << n;
  }
}

}  // namespace elementwise_test
}  // namespace ropewalk::internal
