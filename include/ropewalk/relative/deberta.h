// DeBERTa's disentangled attention: products of content with relative position in both directions
// (He et al. 2020, arXiv 2006.03654, eq. 4), with the logarithmic buckets and shared matrices of
// versions 2 and 3 (arXiv 2111.09543).
//
//   score = (q_i . k_j + q_i . P_K[r] + k_j . P_Q[r]) / sqrt(terms head_dim)
//   P_K = E W_K + b_K,  P_Q = E W_Q + b_Q,  r = clip(bucket(i - j) + span, 0, 2 span - 1)
//
// Both products read row r, as in transformers and in the trained models; the paper's eq. 4 has
// bucket(j - i) in the last one.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct DebertaBias {
  int64_t buckets = 0;         // position_buckets of v2 and v3; 0: one per distance (v1)
  int64_t max_position = 512;  // max_relative_positions
  int64_t model_dim = 0, head_dim = 0;
  std::vector<float> embedding = {};  // E, [2 span, model_dim], after its norm
  // As in nn.Linear: weight [heads, head_dim, model_dim], bias [heads, head_dim] or empty. With
  // shared keys (share_att_key) those of the layer's k and q. Without a weight the model does not
  // have the term.
  std::vector<float> key_projection = {}, key_projection_bias = {};      // content to position
  std::vector<float> query_projection = {}, query_projection_bias = {};  // position to content

  int64_t Span() const { return buckets > 0 ? buckets : max_position; }
  int64_t Row(int64_t distance) const;
  double Scale() const;  // of all three products: 1 / sqrt(terms head_dim)
  // Attention refuses distances beyond max_distance, unless max_distance covers the last rows (any
  // from max_position on does).
  ContentForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> embedding, key_projection, key_projection_bias, query_projection,
        query_projection_bias;  // of the shapes above
  };
  // From a form that holds gradients in place of its values; its row_of is not read.
  Gradient Backward(const ContentForm& gradient) const;

  bool operator==(const DebertaBias&) const = default;
};

// make_log_bucket_position of transformers, computed exactly: distances up to buckets / 2 have a
// bucket each, larger ones share logarithmic buckets, and max_position - 1 has bucket buckets - 1.
int64_t DebertaBucket(int64_t distance, int64_t buckets, int64_t max_position);

}  // namespace ropewalk
