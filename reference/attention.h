// Attention in double, one score at a time, N x N: every form of a bias and every mask, typed from
// the formulas of ropewalk/attention/attention.h and ropewalk/relative/forms.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk::reference {

struct AttentionCase {
  int64_t queries = 0, keys = 0, heads = 1, kv_heads = 1, head_dim = 1;
  int64_t value_dim = 0;       // of a value; 0: head_dim
  std::vector<float> q, k, v;  // [queries, heads, head_dim], [keys, kv_heads, head_dim], values
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  // distances below it; 0: all
  double soft_cap = 0;
  std::vector<float> sinks;                             // [heads] or none
  std::vector<float> temperatures;                      // [queries] or none
  std::vector<int64_t> query_positions, key_positions;  // empty: counted
  std::vector<int64_t> query_documents, key_documents;  // the document of each; empty: one
  std::optional<ScoreForm> form;
  // What rotation on load does: the products of q and R(-relative(i, j)) k, where i and j count
  // from the first key; NaN: not seen. The pair p of a head is (pairs[2p], pairs[2p + 1]).
  std::function<double(int64_t, int64_t)> relative;
  // In its place for the pair p, where pairs have relative positions of their own.
  std::function<double(int64_t, int64_t, int64_t)> relative_of_pair;
  std::vector<int64_t> pairs;
  std::vector<double> frequencies;  // radians
  double amplitude = 1;

  int64_t ValueDim() const { return value_dim == 0 ? head_dim : value_dim; }
  int64_t KeyPosition(int64_t j) const { return key_positions.empty() ? j : key_positions[j]; }
  int64_t QueryPosition(int64_t i) const {
    return query_positions.empty() ? KeyPosition(keys - queries + i) : query_positions[i];
  }
  int64_t Distance(int64_t i, int64_t j) const { return QueryPosition(i) - KeyPosition(j); }
  bool Sees(int64_t i, int64_t j) const {
    const int64_t d = Distance(i, j);
    if (relative && std::isnan(relative(keys - queries + i, j))) return false;
    if (!key_documents.empty() && query_documents[i] != key_documents[j]) return false;
    return (!causal || d >= 0) && (window == 0 || std::abs(d) < window);
  }
  double Scale(int64_t i) const {
    return scale * (temperatures.empty() ? 1.0 : double{temperatures[i]});
  }
};

struct AttentionResult {
  std::vector<double> out;          // [queries, heads, value_dim]
  std::vector<double> log_sum_exp;  // [queries, heads]
  std::vector<double> entropy;      // [queries, heads], nats, of the weights and the sink's share
};

AttentionResult Attention(const AttentionCase& c);

}  // namespace ropewalk::reference
