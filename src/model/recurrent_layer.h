// A recurrent layer in front of the layers, as torch.nn.RNN (tanh) and torch.nn.GRU compute it (Cho
// et al. 2014, arXiv 1406.1078).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/plan/absolute.h"

namespace ropewalk::internal {

class RecurrentLayerWeights {
 public:
  // weight_ih and weight_hh [gates * dim, dim], bias_ih and bias_hh [gates * dim], gates in torch's
  // order.
  RecurrentLayerWeights(RecurrentCell cell, int64_t dim, std::span<const float> weight_ih,
                        std::span<const float> weight_hh, std::span<const float> bias_ih,
                        std::span<const float> bias_hh);

  // x [tokens, dim] becomes the states behind each token; `state` [dim] is that in front of the
  // first, null: 0. The same bits for any division of the tokens into calls.
  void Run(const float* state, std::span<float> x) const;
  int64_t bytes() const;

 private:
  void Step(const float* x, const float* state, float* out, std::vector<float>& gates) const;

  RecurrentCell cell_;
  std::size_t dim_, width_;                   // width: gates * dim
  std::vector<float> weight_ih_, weight_hh_;  // [dim, width], transposed: loops run over outputs
  std::vector<float> bias_ih_, bias_hh_;
};

}  // namespace ropewalk::internal
