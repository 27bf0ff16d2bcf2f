// TUPE: positions have projections of their own, separate from content, and the position terms of
// the first token (CLS) are replaced by learned values (Ke et al. 2020, arXiv 2006.15595, section
// 3).
//
//   score = scale q_i . k_j + reset(scale (p_i U_Q) . (p_j U_K) + b[bucket(i - j)]),
//   scale = 1 / sqrt(2 head_dim);  reset: from_cls where i is 0, else to_cls where j is 0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ropewalk/relative/forms.h"
#include "ropewalk/relative/t5.h"

namespace ropewalk {

struct TupeBias {
  int64_t positions = 0;  // rows of the table: positions 0 .. positions - 1
  int64_t model_dim = 0, head_dim = 0;
  std::vector<float> embedding = {};  // p, [positions, model_dim], after its norm
  // As in nn.Linear: weight [heads, head_dim, model_dim], bias [heads, head_dim] or empty.
  std::vector<float> query_projection = {}, query_projection_bias = {};
  std::vector<float> key_projection = {}, key_projection_bias = {};
  std::optional<T5Bias> relative = {};            // TUPE-R; absent: TUPE-A
  std::vector<float> from_cls = {}, to_cls = {};  // [heads]; both empty: no reset

  double Scale() const;  // also of q.k
  PairForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> embedding, query_projection, query_projection_bias, key_projection,
        key_projection_bias, relative, from_cls, to_cls;  // of the shapes above
  };
  // From the sum that PairFunction::Backward accumulated.
  Gradient Backward(std::span<const double> gradient) const;
};

}  // namespace ropewalk
