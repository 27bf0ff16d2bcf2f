// Convolutional position encoding: y = x + f(conv(x)). A model learns relative positions from it
// and, through zero padding, absolute ones (Islam et al. 2020, arXiv 2001.08248). wav2vec 2.0
// (Baevski et al. 2020, arXiv 2006.11477, section 2): one axis, kernel size 128, 16 groups, GELU.
// CPE / PEG (Chu et al. 2021, arXiv 2102.10882): two axes, 3 x 3, depthwise, no activation, the
// class token unchanged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

enum class ConvolutionBorder : uint8_t {
  kZero,     // zero padding, as published models have it; encodes absolute positions
  kCircular  // circular padding: encodes no absolute position
};

struct PositionConvolutionSpec {
  std::vector<int64_t> sizes;  // 1 to 3 axes of the tokens, last fastest: {tokens}, {height, width}
  std::vector<int64_t> kernel;  // size k on each axis; tap t reads offset t - k / 2
  int64_t channels = 0;
  int64_t groups = 0;       // divides channels; groups = channels: depthwise
  int64_t prefix_rows = 0;  // rows before each sequence that are copied unchanged
  ConvolutionBorder border = ConvolutionBorder::kZero;
  bool gelu = false;     // f: x Phi(x) with the exact normal distribution, else the identity
  bool residual = true;  // false: y = f(conv(x)) alone
};

// x, y [batch, prefix_rows + product of sizes, channels]; weight [channels, channels / groups,
// kernel...] as in PyTorch, bias [channels] or empty. y has the size of x, also for even kernels
// (wav2vec 2.0 drops the last output there). Sums are in float32. x and y must not overlap. Throws
// Error for sizes that do not fit.
void PositionConvolution(const PositionConvolutionSpec& spec, std::span<const float> x,
                         int64_t batch, std::span<const float> weight, std::span<const float> bias,
                         std::span<float> y);
// dx is overwritten; d_weight and, unless empty, d_bias are added to.
void PositionConvolutionBackward(const PositionConvolutionSpec& spec, std::span<const float> x,
                                 int64_t batch, std::span<const float> weight,
                                 std::span<const float> bias, std::span<const float> dy,
                                 std::span<float> dx, std::span<double> d_weight,
                                 std::span<double> d_bias);

// Weight normalisation as in wav2vec 2.0: the weight [rows, taps], rows = channels * channels /
// groups, is stored as v of that shape and g [taps]: w[:, t] = g[t] v[:, t] / |v[:, t]|.
void MergeWeightNorm(std::span<const float> v, std::span<const float> g, std::span<float> weight);
// Adds the gradients with respect to v and g to d_v and d_g.
void MergeWeightNormBackward(std::span<const float> v, std::span<const float> g,
                             std::span<const double> d_weight, std::span<double> d_v,
                             std::span<double> d_g);

}  // namespace ropewalk
