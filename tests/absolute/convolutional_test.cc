// Position convolutions against transformers and PyTorch, the formula typed again, and what the
// zeros beyond the border tell about positions.
#include "ropewalk/absolute/convolutional.h"

#include "reference/absolute.h"
#include "tests/absolute/support.h"

namespace ropewalk {
namespace convolutional_test {

TEST(PositionConvolution, IsWav2Vec2s) {
  for (const auto& golden : Golden()["wav2vec2"]) {
    const std::size_t taps = golden["taps"];
    PositionConvolutionSpec spec;
    spec.sizes = {9};
    spec.kernel = {static_cast<int64_t>(taps)};
    spec.channels = 6;
    spec.groups = 3;
    spec.gelu = true;
    const auto g = GoldenValues(taps, 2), v = GoldenValues(12 * taps, 3), bias = GoldenValues(6, 4);
    std::vector<float> weight(12 * taps), y(108), dx(108);
    MergeWeightNorm(v, g, weight);
    const auto x = GoldenValues(108);
    PositionConvolution(spec, x, 2, weight, bias, y);
    ExpectGolden(y, golden["out"], 8);
    std::vector<double> d_weight(12 * taps), d_bias(6), d_v(12 * taps), d_g(taps);
    PositionConvolutionBackward(spec, x, 2, weight, bias, GoldenValues(108, 5), dx, d_weight,
                                d_bias);
    MergeWeightNormBackward(v, g, d_weight, d_v, d_g);
    ExpectGolden(dx, golden["d_x"], 8);
    ExpectGolden(d_v, golden["d_v"], 8);
    ExpectGolden(d_g, golden["d_g"], 8);
    ExpectGolden(d_bias, golden["d_bias"], 8);
  }
}

TEST(PositionConvolution, IsConditionalPositionEncoding) {
  PositionConvolutionSpec spec;
  spec.sizes = {4, 5};
  spec.kernel = {3, 3};
  spec.channels = spec.groups = 3;
  spec.prefix_rows = 1;
  const auto x = GoldenValues(126), weight = GoldenValues(27, 2), bias = GoldenValues(3, 3);
  std::vector<float> y(126), dx(126);
  PositionConvolution(spec, x, 2, weight, bias, y);
  const auto& golden = Golden()["conditional"];
  ExpectGolden(y, golden["out"], 4);
  std::vector<double> d_weight(27), d_bias(3);
  PositionConvolutionBackward(spec, x, 2, weight, bias, GoldenValues(126, 5), dx, d_weight, d_bias);
  ExpectGolden(dx, golden["d_x"], 4);
  ExpectGolden(d_weight, golden["d_weight"], 4);
  ExpectGolden(d_bias, golden["d_bias"], 4);
}

// Every number of channels around the width of the inner loop, depthwise and in groups, both
// borders, wider than the sequence too: each element within the bound of float32 sums of its terms.
TEST(PositionConvolution, AnyShape) {
  for (const int64_t channels : {1, 15, 16, 17, 40, 96}) {
    for (const int64_t per_group : {int64_t{1}, channels, channels % 20 == 0 ? 20 : channels}) {
      for (const int64_t taps : {1, 2, 3, 19}) {
        for (const auto border : {ConvolutionBorder::kZero, ConvolutionBorder::kCircular}) {
          PositionConvolutionSpec spec;
          spec.sizes = {11};
          spec.kernel = {taps};
          spec.channels = channels;
          spec.groups = channels / per_group;
          spec.border = border;
          spec.residual = false;
          const auto x = RandomValues<float>(static_cast<std::size_t>(2 * 11 * channels), 1);
          const auto weight =
              RandomValues<float>(static_cast<std::size_t>(channels * per_group * taps), 2);
          std::vector<float> y(x.size());
          PositionConvolution(spec, x, 2, weight, {}, y);
          for (std::size_t i = 0; i < y.size(); ++i) {
            const int64_t at = static_cast<int64_t>(i) % (11 * channels);
            const auto sequence = std::span(x).subspan(i - static_cast<std::size_t>(at),
                                                       static_cast<std::size_t>(11 * channels));
            const auto want = reference::Convolution(sequence, weight, 11, channels, per_group,
                                                     taps, at / channels, at % channels,
                                                     border == ConvolutionBorder::kCircular);
            ASSERT_NEAR(static_cast<double>(y[i]), want.sum,
                        static_cast<double>(per_group * taps) * 0x1p-24 * want.magnitude)
                << channels << " " << per_group << " " << taps << " " << i;
          }
        }
      }
    }
  }
}

// Far positions: 131072 tokens on two threads' worth of work, whose ends and middle are those of a
// short sequence around them.
TEST(PositionConvolution, LongSequences) {
  PositionConvolutionSpec spec;
  spec.sizes = {131072};
  spec.kernel = {5};
  spec.channels = spec.groups = 2;
  const auto x = RandomValues<float>(2 * 131072, 1), weight = RandomValues<float>(10, 2);
  std::vector<float> y(x.size());
  PositionConvolution(spec, x, 1, weight, {}, y);
  for (const int64_t at : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257},
                           int64_t{2048}, int64_t{65536}, int64_t{131071}}) {
    for (int64_t c = 0; c < 2; ++c) {
      const auto want = reference::Convolution(x, weight, 131072, 2, 1, 5, at, c, false);
      const std::size_t i = static_cast<std::size_t>(at * 2 + c);
      EXPECT_NEAR(static_cast<double>(y[i]), static_cast<double>(x[i]) + want.sum,
                  1e-6 * (1 + want.magnitude));
    }
  }
}

// Islam et al. 2020: a convolution learns where it is from the zeros that it is given beyond the
// border. All tokens alike, one layer of 5 taps: the inner tokens cannot be told apart, those
// within 2 of an end can, and with each further layer 2 more. With a circular border none ever can.
TEST(PositionConvolution, ZeroPaddingLeaksPositions) {
  const int64_t tokens = 40, layers = 6;
  const std::vector<float> weight = {0.3f, -0.2f, 0.5f, 0.7f, 0.4f};
  for (const auto border : {ConvolutionBorder::kZero, ConvolutionBorder::kCircular}) {
    PositionConvolutionSpec spec;
    spec.sizes = {tokens};
    spec.kernel = {5};
    spec.channels = spec.groups = 1;
    spec.border = border;
    std::vector<float> x(tokens, 1.0f), y(tokens);
    for (int64_t layer = 1; layer <= layers; ++layer) {
      PositionConvolution(spec, x, 1, weight, {}, y);
      x = y;
      int64_t told_apart = 0;
      for (const float v : x) told_apart += v != x[tokens / 2] ? 1 : 0;
      EXPECT_EQ(told_apart, border == ConvolutionBorder::kZero ? 4 * layer : 0) << layer;
    }
  }
}

TEST(PositionConvolution, BadInput) {
  PositionConvolutionSpec spec;
  spec.sizes = {4};
  spec.kernel = {3};
  spec.channels = 2;
  spec.groups = 2;
  std::vector<float> x(8), y(8), weight(6);
  const auto run = [&] { PositionConvolution(spec, x, 1, weight, {}, y); };
  run();
  ExpectRefused([&] { PositionConvolution(spec, x, 1, weight, {}, x); }, "memory of its own");
  ExpectRefused([&] { PositionConvolution(spec, x, 2, weight, {}, y); }, "expected [2, 4, 2]");
  ExpectRefused([&] { PositionConvolution(spec, x, 1, weight, x, y); },
                "bias: expected [2], got 8");
  spec.groups = 3;
  ExpectRefused(run, "groups: expected a divisor of 2 channels, got 3");
  spec.groups = 1;
  ExpectRefused(run, "weight of [channels, channels / groups, taps]: expected [2, 2, 3], got 6");
  spec.kernel = {3, 3};
  ExpectRefused(run, "kernel: expected 1 sizes as sizes has, got 2");
  spec.kernel = {0};
  ExpectRefused(run, "kernel: expected 1 to 1024, got 0");
  const std::vector<float> g(4), v(8);
  ExpectRefused([&] { MergeWeightNorm(v, g, y); }, "v: expected a direction at tap 0");
  ExpectRefused([&] { MergeWeightNorm(v, std::span(g).first(3), y); }, "[rows, 3]");
}

}  // namespace convolutional_test
}  // namespace ropewalk
