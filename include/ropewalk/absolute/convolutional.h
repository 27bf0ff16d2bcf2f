// Convolutional position encoding: y = x + f(conv(x)), from which a model learns relative positions
// and, through the zeros beyond the border, absolute ones (Islam et al. 2020, arXiv 2001.08248).
// wav2vec 2.0 (Baevski et al. 2020, arXiv 2006.11477, section 2): one axis, 128 taps, 16 groups,
// GELU. CPE / PEG (Chu et al. 2021, arXiv 2102.10882): two axes, 3 x 3, depthwise, no activation,
// the class token left alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

enum class ConvolutionBorder : uint8_t {
  kZero,     // what everybody does; where the border is leaks into the result
  kCircular  // the other end comes next: no position leaks
};

struct PositionConvolutionSpec {
  std::vector<int64_t> sizes;  // 1 to 3 axes of the tokens, last fastest: {tokens}, {height, width}
  std::vector<int64_t> kernel;  // taps along each; tap t of k reads t - k / 2 further on
  int64_t channels = 0;
  int64_t groups = 0;       // divides channels; channels: depthwise
  int64_t prefix_rows = 0;  // rows in front of each sequence that pass through
  ConvolutionBorder border = ConvolutionBorder::kZero;
  bool gelu = false;     // f: x Phi(x) with the exact normal distribution, else the identity
  bool residual = true;  // false: y = f(conv(x)) alone
};

// x, y [batch, prefix_rows + product of sizes, channels]; weight [channels, channels / groups,
// taps...] as PyTorch keeps it, bias [channels] or empty. The result has the size of x, also for
// even kernels (wav2vec 2.0 drops the last). float32 sums. x and y do not overlap. Throws Error for
// sizes that do not fit.
void PositionConvolution(const PositionConvolutionSpec& spec, std::span<const float> x,
                         int64_t batch, std::span<const float> weight, std::span<const float> bias,
                         std::span<float> y);
// dx is set; d_weight and, unless empty, d_bias are added to.
void PositionConvolutionBackward(const PositionConvolutionSpec& spec, std::span<const float> x,
                                 int64_t batch, std::span<const float> weight,
                                 std::span<const float> bias, std::span<const float> dy,
                                 std::span<float> dx, std::span<double> d_weight,
                                 std::span<double> d_bias);

// wav2vec 2.0 stores its weight [rows, taps] (rows: channels * channels / groups) as a direction v
// and a length g [taps] a tap: w[:, t] = g[t] v[:, t] / |v[:, t]|.
void MergeWeightNorm(std::span<const float> v, std::span<const float> g, std::span<float> weight);
// d_v and d_g += what d_weight gives them.
void MergeWeightNormBackward(std::span<const float> v, std::span<const float> g,
                             std::span<const double> d_weight, std::span<double> d_v,
                             std::span<double> d_g);

}  // namespace ropewalk
