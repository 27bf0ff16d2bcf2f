// Transformer-XL's four terms: the products of the key's content and of the sinusoidal distance
// with the query and with a learned vector in its place (Dai et al. 2019, arXiv 1901.02860, section
// 3.3; XLNet, Yang et al. 2019, arXiv 1906.08237).
//
//   score = scale (q_i . k_j + q_i . W R_d + u . k_j + v . W R_d),   d = distance,
//   R_d = (sin(d f_0), sin(d f_1), .., cos(d f_0), cos(d f_1), ..),  f_i = 10000^(-2 i / model_dim)
//
// W R_d is computed once per distance and read by index; there is no relative shift.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct TransformerXlBias {
  int64_t model_dim = 0;  // even
  int64_t head_dim = 0;
  bool causal = true;          // false: keys after the query too (XLNet)
  int64_t clamp_distance = 0;  // larger distances are clamped to it; 0: no clamping
  // W, [heads, head_dim, model_dim]: r_net.weight; XLNet's r is [model_dim, heads, head_dim].
  std::vector<float> projection = {};
  std::vector<float> content_bias = {};   // u, [heads, head_dim]: r_w_bias
  std::vector<float> position_bias = {};  // v, [heads, head_dim]: r_r_bias

  // One row per distance and head. Attention refuses distances beyond max_distance, unless
  // clamp_distance is at most that.
  ContentForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> projection, content_bias, position_bias;  // of the shapes above
  };
  // From a form that holds gradients in place of its values, with the same `first` and `rows`.
  Gradient Backward(const ContentForm& gradient) const;

  bool operator==(const TransformerXlBias&) const = default;
};

}  // namespace ropewalk
