// The gradient of Attention: tiles of scores are computed again from the stored log-sum-exp, so
// memory stays linear in tokens.
#pragma once

#include <span>
#include <vector>

#include "ropewalk/attention/attention.h"

namespace ropewalk {

// Gradients with respect to a form's parameters: each field has the shape of the form's field of
// the same name, and is empty where the form has none.
struct FormGradient {
  std::vector<float> behind, ahead;                                           // SlopeForm
  std::vector<float> values;                                                  // DistanceForm
  std::vector<float> query_rows, key_rows, value_rows, query_bias, key_bias;  // ContentForm
  std::vector<double> parameters;               // PairForm: [function->parameters()]
  std::vector<float> log_gates, position_rows;  // RunningForm
};

struct AttentionBackwardArgs {
  const AttentionArgs* forward = nullptr;  // of the finished call; q, out, log_sum_exp unchanged
  TensorView d_out;                        // [tokens, heads, value_dim], as out
  TensorView d_q;                          // [tokens, heads, head_dim]
  TensorView d_k;                          // [cache->tokens(), kv_heads, head_dim]
  TensorView d_v;                          // [cache->tokens(), kv_heads, value_dim]
  FormGradient* d_form = nullptr;          // null: not wanted
  std::span<float> d_sinks = {};           // [heads]; empty: not wanted
};

// Overwrites d_q, d_k, d_v and the optional outputs, float32. Each key head is computed by one
// thread, so results do not depend on the number of threads. Throws Error as Attention does.
void AttentionBackward(const AttentionBackwardArgs& args);

}  // namespace ropewalk
