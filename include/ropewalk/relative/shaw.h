// Shaw's relative positions: a learned row per clipped distance is added to keys and to values
// (Shaw et al. 2018, arXiv 1803.02155, eq. 3 to 5).
//
//   score = scale q_i . (k_j + key_rows[r]),   out_i = sum of weight (v_j + value_rows[r]),
//   r = clip(j - i, -left, right) + left
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct ShawBias {
  int64_t left = 0, right = 0;  // clipping distances before and after the query
  int64_t head_dim = 0;
  int64_t table_heads = 1;             // 1: all heads share the rows, as in the paper
  std::vector<float> key_rows = {};    // [table_heads, left + right + 1, head_dim], or empty
  std::vector<float> value_rows = {};  // the same

  // max_distance has no effect.
  ContentForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> key_rows, value_rows;  // of the tables' shapes
  };
  // From a form that holds gradients in place of its values; its row_of is not read.
  Gradient Backward(const ContentForm& gradient) const;
};

// Sinusoidal rows instead of learned ones (NEZHA, Wei et al. 2019, arXiv 1909.00204), [left + right
// + 1, head_dim]: elements 2 i and 2 i + 1 are sin and cos of (j - i) 10000^(-2 i / head_dim).
std::vector<float> ShawSinusoidalRows(int64_t left, int64_t right, int64_t head_dim);
// The same with `first` in place of -left, the angle's position of row 0. NEZHA's published code, and
// so its checkpoints, count from 0.
std::vector<float> ShawSinusoidalRows(int64_t left, int64_t right, int64_t head_dim, int64_t first);

}  // namespace ropewalk
