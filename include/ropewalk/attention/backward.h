// The gradient of Attention: tiles of scores are computed again from the stored log-sum-exp, so
// memory stays linear in tokens.
#pragma once

#include <span>
#include <vector>

#include "ropewalk/attention/attention.h"

namespace ropewalk {

// Gradients of a form's numbers: what its form of the same field names has, in the same order;
// empty where the form has none.
struct FormGradient {
  std::vector<float> behind, ahead;                                           // SlopeForm
  std::vector<float> values;                                                  // DistanceForm
  std::vector<float> query_rows, key_rows, value_rows, query_bias, key_bias;  // ContentForm
  std::vector<double> parameters;               // PairForm: of its function
  std::vector<float> log_gates, position_rows;  // RunningForm
};

struct AttentionBackwardArgs {
  const AttentionArgs* forward = nullptr;  // after the call: q, out and log_sum_exp as it left them
  TensorView d_out;                        // [tokens, heads, head_dim], as q
  TensorView d_q;                          // [tokens, heads, head_dim]
  TensorView d_k, d_v;                     // [cache->tokens(), kv_heads, head_dim]
  FormGradient* d_form = nullptr;          // null: not wanted
  std::span<float> d_sinks = {};           // [heads]; empty: not wanted
};

// Writes d_q, d_k, d_v and what else is given, in float32. The threads take a key head each, in
// order, so numbers never depend on their count.
void AttentionBackward(const AttentionBackwardArgs& args);

}  // namespace ropewalk
