// Biases that depend on the content of the tokens between key and query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

// Forgetting gate (Lin et al. 2025, arXiv 2503.02130, section 3), which equals data-dependent
// ALiBi: each token has a gate, and the logarithms of the gates after the key are added to a score.
//
//   bias = sum over j < l <= i of ln sigmoid(w_h . x_l + b_h)
struct ForgetGateBias {
  int64_t model_dim = 0;
  std::vector<float> weight = {};  // [heads, model_dim]
  std::vector<float> bias = {};    // [heads]

  // x [tokens, model_dim]: input of the attention layer for all keys of the cache. Takes no
  // max_distance: the form has one value per token and head.
  RunningForm Lower(int64_t heads, std::span<const float> x) const;
  struct Gradient {
    std::vector<double> weight, bias, x;  // of the shapes above
  };
  // From a form that holds gradients in place of log_gates.
  Gradient Backward(const RunningForm& gradient, std::span<const float> x) const;
};

// CoPE: the position of a key is the sum of gates of the tokens from the key to the query, where
// the gates depend on the query (Golovneva et al. 2024, arXiv 2405.18719, section 4). The sum is
// clipped to rows - 1.
struct CopeBias {
  int64_t rows = 0, head_dim = 0;
  int64_t table_heads = 1;                // 1: all heads share the rows, as in the paper
  std::vector<float> position_rows = {};  // e, [table_heads, rows, head_dim]

  // max_distance has no effect.
  RunningForm Lower(int64_t heads, int64_t max_distance) const;
  // d(loss) / d(position_rows), from a form that holds gradients in place of its values.
  std::vector<double> Backward(const RunningForm& gradient) const;
};

}  // namespace ropewalk
