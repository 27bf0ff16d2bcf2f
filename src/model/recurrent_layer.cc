#include "src/model/recurrent_layer.h"

#include <algorithm>
#include <cmath>

namespace ropewalk::internal {
namespace {

std::vector<float> Transposed(std::span<const float> matrix, std::size_t rows, std::size_t cols) {
  std::vector<float> out(matrix.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) out[c * rows + r] = matrix[r * cols + c];
  }
  return out;
}

// out [width] = bias + x matrix, matrix [x.size(), width].
void Multiply(const std::vector<float>& matrix, const std::vector<float>& bias, const float* x,
              std::size_t dim, float* out) {
  const std::size_t width = bias.size();
  std::copy(bias.begin(), bias.end(), out);
  for (std::size_t i = 0; i < dim; ++i) {
    const float* row = matrix.data() + i * width;
    for (std::size_t o = 0; o < width; ++o) out[o] += x[i] * row[o];
  }
}

float Logistic(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

RecurrentLayerWeights::RecurrentLayerWeights(RecurrentCell cell, int64_t dim,
                                             std::span<const float> weight_ih,
                                             std::span<const float> weight_hh,
                                             std::span<const float> bias_ih,
                                             std::span<const float> bias_hh)
    : cell_(cell),
      dim_(static_cast<std::size_t>(dim)),
      width_(static_cast<std::size_t>(Gates(cell)) * dim_),
      weight_ih_(Transposed(weight_ih, width_, dim_)),
      weight_hh_(Transposed(weight_hh, width_, dim_)),
      bias_ih_(bias_ih.begin(), bias_ih.end()),
      bias_hh_(bias_hh.begin(), bias_hh.end()) {}

void RecurrentLayerWeights::Step(const float* x, const float* state, float* out,
                                 std::vector<float>& gates) const {
  float* in = gates.data();
  float* hidden = gates.data() + width_;
  Multiply(weight_ih_, bias_ih_, x, dim_, in);
  Multiply(weight_hh_, bias_hh_, state, dim_, hidden);
  for (std::size_t i = 0; i < dim_; ++i) {
    if (cell_ == RecurrentCell::kTanh) {
      out[i] = std::tanh(in[i] + hidden[i]);
      continue;
    }
    const float reset = Logistic(in[i] + hidden[i]);
    const float update = Logistic(in[dim_ + i] + hidden[dim_ + i]);
    const float fresh = std::tanh(in[2 * dim_ + i] + reset * hidden[2 * dim_ + i]);
    out[i] = (1 - update) * fresh + update * state[i];
  }
}

void RecurrentLayerWeights::Run(const float* state, std::span<float> x) const {
  const std::vector<float> zero(dim_);
  std::vector<float> gates(2 * width_), next(dim_);
  const float* before = state == nullptr ? zero.data() : state;
  for (std::size_t t = 0; t < x.size(); t += dim_) {
    Step(x.data() + t, before, next.data(), gates);
    std::copy(next.begin(), next.end(), x.data() + t);
    before = x.data() + t;
  }
}

int64_t RecurrentLayerWeights::bytes() const {
  return static_cast<int64_t>((weight_ih_.size() + weight_hh_.size() + 2 * width_) * sizeof(float));
}

}  // namespace ropewalk::internal
