// Position convolutions by oneDNN, a block of tokens at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "src/absolute/convolution_shape.h"

namespace ropewalk::internal {

struct OneDnnConvolution {
  const PositionConvolutionSpec& spec;
  const ConvolutionShape& shape;
  int64_t batch;

  // Whether a sequence is worth it and oneDNN has compiled code for it; of the shape alone.
  bool Fast(bool backward) const;

  // conv(x) of every token to f(its first element in x, its sums). Mirrored: the gradient of x from
  // that of conv(x). f runs on several threads.
  using TokenWork = std::function<void(int64_t at, float* sums)>;
  void ForTokens(const float* x, std::span<const float> weight, bool mirrored,
                 const TokenWork& f) const;

  // d_weight += the gradient of the weight, g being that of conv(x): float32 sums over a block of
  // tokens, added up in double.
  void AddWeightGradient(const float* x, const float* g, std::span<double> d_weight) const;
};

}  // namespace ropewalk::internal
