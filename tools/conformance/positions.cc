// What the cases of the document "positions" are made of: numbers, made tensors, attention.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "ropewalk/attention/attention.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {

double Digits(float x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(x));
  return std::strtod(text, nullptr);
}

Json Numbers(std::span<const float> values) {
  Json out = Json::array();
  for (const float x : values) out.push_back(Digits(x));
  return out;
}

Json Numbers(std::span<const double> values) {
  Json out = Json::array();
  for (const double x : values) out.push_back(x);
  return out;
}

MadeTensor Make(const std::vector<int64_t>& shape, int seed, float scale) {
  const int64_t n =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  MadeTensor made{{{"shape", shape}, {"seed", seed}, {"scale", Digits(scale)}}, {}};
  made.values.reserve(static_cast<std::size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t x = (7 * k * k + 13 * k + 17 * seed) % 61 - 30;
    made.values.push_back(scale * static_cast<float>(x) / 32);
  }
  return made;
}

namespace {

void Run(const GoldenAttention& a, const ScoreForm& form, int64_t keys,
         std::span<const int64_t> positions, float* q, float* k, float* v, float* out) {
  KvCache cache(a.heads, a.head_dim, keys);
  cache.Append(TensorView::Of(k, {keys, a.heads, a.head_dim}),
               TensorView::Of(v, {keys, a.heads, a.head_dim}));
  AttentionArgs args;
  const auto queries = static_cast<int64_t>(positions.size());
  args.q = TensorView::Of(q, {queries, a.heads, a.head_dim});
  args.out = TensorView::Of(out, {queries, a.heads, a.head_dim});
  args.cache = &cache;
  args.scale = a.scale;
  args.mask = a.causal ? AttentionMask::kCausal : AttentionMask::kBidirectional;
  args.form = &form;
  if (!std::holds_alternative<RunningForm>(form)) args.query_positions = positions;
  Attention(args);
}

}  // namespace

Json AttentionJson(const GoldenAttention& a, const std::function<ScoreForm(int64_t)>& form) {
  const auto queries = static_cast<int64_t>(a.queries.size());
  MadeTensor q = Make({queries, a.heads, a.head_dim}, 1);
  MadeTensor k = Make({a.keys, a.heads, a.head_dim}, 2);
  MadeTensor v = Make({a.keys, a.heads, a.head_dim}, 3);
  std::vector<float> out(q.values.size());
  const ScoreForm all = form(a.keys);
  if (std::holds_alternative<RunningForm>(all)) {
    for (int64_t t = 0; t < queries; ++t) {
      const int64_t at = t * a.heads * a.head_dim;
      const int64_t keys = a.queries[static_cast<std::size_t>(t)] + 1;
      Run(a, form(keys), keys, std::span(a.queries).subspan(static_cast<std::size_t>(t), 1),
          q.values.data() + at, k.values.data(), v.values.data(), out.data() + at);
    }
  } else {
    Run(a, all, a.keys, a.queries, q.values.data(), k.values.data(), v.values.data(), out.data());
  }
  return {{"heads", a.heads},   {"head_dim", a.head_dim}, {"keys", a.keys}, {"queries", a.queries},
          {"causal", a.causal}, {"scale", a.scale},       {"q", q.json},    {"k", k.json},
          {"v", v.json},        {"out", Numbers(out)}};
}

}  // namespace ropewalk::conformance
