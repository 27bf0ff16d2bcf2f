// Positions that depend on what stands between key and query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

// Forgetting gate (Lin et al. 2025, arXiv 2503.02130, section 3) and data-dependent ALiBi, which is
// the same: each token has a gate, and a score falls by the logarithms of the gates after the key.
//
//   bias = sum over j < l <= i of ln sigmoid(w_h . x_l + b_h)
struct ForgetGateBias {
  int64_t model_dim = 0;
  std::vector<float> weight = {};  // [heads, model_dim]
  std::vector<float> bias = {};    // [heads]

  // x [tokens, model_dim]: what the layer reads, of all keys from the first. No max_distance: the
  // form has one number a token and head.
  RunningForm Lower(int64_t heads, std::span<const float> x) const;
  struct Gradient {
    std::vector<double> weight, bias, x;  // of the shapes above
  };
  // Of a form with gradients in the place of log_gates.
  Gradient Backward(const RunningForm& gradient, std::span<const float> x) const;
};

// CoPE: a position is a count of the tokens that a query finds worth counting (Golovneva et al.
// 2024, arXiv 2405.18719, section 4). Rows beyond the last are never reached: the count is
// clipped.
struct CopeBias {
  int64_t rows = 0, head_dim = 0;
  int64_t table_heads = 1;                // 1: all heads share the rows, as in the paper
  std::vector<float> position_rows = {};  // e, [table_heads, rows, head_dim]

  // The same for any max_distance.
  RunningForm Lower(int64_t heads, int64_t max_distance) const;
  // d(loss) / d(position_rows) of a form with gradients in the place of numbers.
  std::vector<double> Backward(const RunningForm& gradient) const;
};

}  // namespace ropewalk
