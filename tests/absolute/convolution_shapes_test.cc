// Position convolutions of the sizes that oneDNN computes, forward and backward, against the
// formula typed again in double on up to three axes.
#include <numbers>

#include "ropewalk/absolute/convolutional.h"
#include "tests/absolute/support.h"

namespace ropewalk {
namespace convolution_shapes_test {

using Vector = std::vector<double>;

struct Sum {
  double value = 0, magnitude = 0;
  void Add(double term) { value += term, magnitude += std::abs(term); }
};

// Everything as y = x + f(conv(x)) of one spec says, and the magnitude of the terms of each sum.
struct Truth {
  const PositionConvolutionSpec& spec;
  int64_t size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t tokens = 1, taps = 1, inputs = 1;

  explicit Truth(const PositionConvolutionSpec& s) : spec(s), inputs(s.channels / s.groups) {
    for (std::size_t a = 0; a < s.sizes.size(); ++a) {
      tokens *= size[a] = s.sizes[a];
      taps *= kernel[a] = s.kernel[a];
    }
  }

  // The token that `token` reads by this tap, or -1.
  int64_t Source(int64_t token, int64_t tap) const {
    int64_t at[3], t[3], place = 0;
    for (int a = 2; a >= 0; --a) {
      at[a] = token % size[a], t[a] = tap % kernel[a];
      token /= size[a], tap /= kernel[a];
    }
    for (int a = 0; a < 3; ++a) {
      int64_t p = at[a] + t[a] - kernel[a] / 2;
      while (spec.border == ConvolutionBorder::kCircular && p < 0) p += size[a];
      while (spec.border == ConvolutionBorder::kCircular && p >= size[a]) p -= size[a];
      if (p < 0 || p >= size[a]) return -1;
      place = place * size[a] + p;
    }
    return place;
  }

  // f(output, input, weight): the indices of every product of one sequence.
  template <class F>
  void ForProducts(const F& f) const {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t from = Source(t, tap);
        if (from < 0) continue;
        for (int64_t c = 0; c < spec.channels; ++c) {
          for (int64_t i = 0; i < inputs; ++i) {
            f(static_cast<std::size_t>(t * spec.channels + c),
              static_cast<std::size_t>(from * spec.channels + c / inputs * inputs + i),
              static_cast<std::size_t>((c * inputs + i) * taps + tap));
          }
        }
      }
    }
  }
};

void ExpectWithin(double got, const Sum& want, double terms) {
  if (testing::Test::HasFatalFailure()) return;  // one of millions is enough
  ASSERT_NEAR(got, want.value, (terms + 8) * 0x1p-24 * (want.magnitude + std::abs(want.value)));
}

void CheckShape(const PositionConvolutionSpec& spec, int64_t batch) {
  const Truth truth(spec);
  const std::size_t prefix = static_cast<std::size_t>(spec.prefix_rows * spec.channels);
  const std::size_t grid = static_cast<std::size_t>(truth.tokens * spec.channels);
  const std::size_t all = static_cast<std::size_t>(batch) * (prefix + grid);
  const auto x = RandomValues<float>(all, 1), dy = RandomValues<float>(all, 2);
  auto weight =
      RandomValues<float>(static_cast<std::size_t>(spec.channels * truth.inputs * truth.taps), 3);
  for (float& w : weight) w /= 16;
  const auto bias = RandomValues<float>(static_cast<std::size_t>(spec.channels), 4);
  std::vector<float> y(all), dx(all);
  Vector d_weight(weight.size()), d_bias(bias.size());
  PositionConvolution(spec, x, batch, weight, bias, y);
  PositionConvolutionBackward(spec, x, batch, weight, bias, dy, dx, d_weight, d_bias);

  std::vector<Sum> w_sums(weight.size()), b_sums(bias.size());
  const double terms = static_cast<double>(truth.inputs * truth.taps);
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b) {
    const std::size_t begin = b * (prefix + grid) + prefix;
    for (std::size_t i = begin - prefix; i < begin; ++i) {
      ASSERT_EQ(y[i], x[i]);
      ASSERT_EQ(dx[i], dy[i]);
    }
    std::vector<Sum> sums(grid), x_sums(grid);
    Vector g(grid);
    truth.ForProducts([&](std::size_t o, std::size_t i, std::size_t w) {
      sums[o].Add(static_cast<double>(weight[w]) * static_cast<double>(x[begin + i]));
    });
    for (std::size_t o = 0; o < grid; ++o) {
      const std::size_t c = o % bias.size();
      sums[o].Add(static_cast<double>(bias[c]));
      const double v = sums[o].value, out = static_cast<double>(dy[begin + o]);
      const double normal = 0.5 * std::erfc(-v / std::numbers::sqrt2);
      const double density = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
      g[o] = spec.gelu ? out * (normal + v * density) : out;
      Sum want{spec.gelu ? v * normal : v, sums[o].magnitude};
      if (spec.residual) want.Add(static_cast<double>(x[begin + o]));
      ExpectWithin(static_cast<double>(y[begin + o]), want, 2 * terms);
      if (spec.residual) x_sums[o].Add(out);
      b_sums[c].Add(g[o]);
    }
    truth.ForProducts([&](std::size_t o, std::size_t i, std::size_t w) {
      x_sums[i].Add(g[o] * static_cast<double>(weight[w]));
      w_sums[w].Add(g[o] * static_cast<double>(x[begin + i]));
    });
    for (std::size_t i = 0; i < grid; ++i) {
      ExpectWithin(static_cast<double>(dx[begin + i]), x_sums[i], 2 * terms);
    }
  }
  for (std::size_t w = 0; w < w_sums.size(); ++w) ExpectWithin(d_weight[w], w_sums[w], 64);
  for (std::size_t c = 0; c < b_sums.size(); ++c) ExpectWithin(d_bias[c], b_sums[c], 64);
}

TEST(PositionConvolution, LargeShapesForwardAndBackward) {
  struct Shape {
    const char* name;
    std::vector<int64_t> sizes, kernel;
    int64_t channels, groups, prefix_rows, batch;
    ConvolutionBorder border;
    bool gelu, residual;
  };
  const auto zero = ConvolutionBorder::kZero, circular = ConvolutionBorder::kCircular;
  const Shape shapes[] = {
      {"groups as wav2vec 2.0's, blocks with a rest", {700}, {10}, 96, 2, 0, 2, zero, true, true},
      {"depthwise, one axis", {1500}, {19}, 40, 40, 0, 1, circular, false, false},
      {"CPE, prefix, blocks with a rest", {33, 40}, {3, 3}, 100, 100, 1, 2, zero, false, true},
      {"short sequences together", {14, 14}, {3, 3}, 64, 4, 0, 5, circular, false, true},
      {"odd channels", {700}, {2}, 60, 2, 2, 1, zero, true, false},
      {"taps beyond both ends", {100}, {128}, 32, 2, 0, 1, circular, false, true},
      {"three axes", {9, 10, 8}, {3, 2, 4}, 72, 3, 0, 1, circular, false, true},
      {"three axes, depthwise", {9, 10, 8}, {3, 3, 3}, 64, 64, 0, 1, zero, false, true},
      {"one group", {600}, {3}, 32, 1, 0, 1, zero, false, false},
  };
  for (const Shape& s : shapes) {
    SCOPED_TRACE(s.name);
    PositionConvolutionSpec spec{s.sizes,       s.kernel, s.channels, s.groups,
                                 s.prefix_rows, s.border, s.gelu,     s.residual};
    CheckShape(spec, s.batch);
    if (HasFatalFailure()) return;
  }
}

}  // namespace convolution_shapes_test
}  // namespace ropewalk
