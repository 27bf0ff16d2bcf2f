// Plain causal attention: random problems, the reference and the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/attention.h"
#include "ropewalk/attention/attention.h"

namespace ropewalk {

struct AttentionProblem {
  int64_t heads = 1, kv_heads = 1, head_dim = 1, keys = 1, queries = 1, window = 0;
  float scale = 1;
  std::vector<float> q, k, v;  // [queries, heads, head_dim], [keys, kv_heads, head_dim] twice

  AttentionProblem(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t keys, int64_t queries,
                   int64_t window = 0, float magnitude = 1)
      : heads(heads),
        kv_heads(kv_heads),
        head_dim(head_dim),
        keys(keys),
        queries(queries),
        window(window),
        scale(1.0f / std::sqrt(static_cast<float>(head_dim))),
        q(static_cast<size_t>(queries * heads * head_dim)),
        k(static_cast<size_t>(keys * kv_heads * head_dim)),
        v(k.size()) {
    std::mt19937 random(static_cast<uint32_t>(keys * 31 + head_dim * 7 + heads));
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(random) * magnitude;
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random);
  }

  TensorView Q() const { return TensorView::Of(q.data(), {queries, heads, head_dim}); }
  TensorView K(int64_t first, int64_t count) const {
    return TensorView::Of(k.data() + first * kv_heads * head_dim, {count, kv_heads, head_dim});
  }
  TensorView V(int64_t first, int64_t count) const {
    return TensorView::Of(v.data() + first * kv_heads * head_dim, {count, kv_heads, head_dim});
  }
};

// out [queries, heads, head_dim]; the queries are the last of the keys' tokens.
inline std::vector<double> ReferenceAttention(const AttentionProblem& p) {
  reference::AttentionCase c;
  c.queries = p.queries, c.keys = p.keys, c.heads = p.heads, c.kv_heads = p.kv_heads;
  c.head_dim = p.head_dim;
  c.q = p.q, c.k = p.k, c.v = p.v;
  c.scale = p.scale;
  c.window = p.window;
  return reference::Attention(c).out;
}

// Appends all keys and runs the queries in one call.
inline std::vector<float> RunAttention(const AttentionProblem& p) {
  KvCache cache(p.kv_heads, p.head_dim, p.keys);
  cache.Append(p.K(0, p.keys), p.V(0, p.keys));
  std::vector<float> out(p.q.size());
  AttentionArgs args;
  args.q = p.Q();
  args.out = TensorView::Of(out.data(), {p.queries, p.heads, p.head_dim});
  args.cache = &cache;
  args.scale = p.scale;
  args.window_tokens = p.window;
  Attention(args);
  return out;
}

template <class T>
double MaxDifference(const std::vector<float>& a, const std::vector<T>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    // The negation catches NaN as well.
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

}  // namespace ropewalk
