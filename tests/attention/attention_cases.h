// Random cases of attention with every form of a bias, and the library's answer to them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention.h"
#include "ropewalk/attention/attention.h"

namespace ropewalk {

using reference::AttentionCase;

inline std::vector<float> Normal(int64_t count, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(random) * deviation;
  return out;
}

inline AttentionCase MakeCase(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t keys,
                              int64_t queries, int64_t value_dim = 0) {
  AttentionCase c;
  c.value_dim = value_dim;
  c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim;
  c.keys = keys, c.queries = queries;
  const auto seed = static_cast<uint32_t>(keys * 31 + head_dim * 7 + heads);
  c.q = Normal(queries * heads * head_dim, seed);
  c.k = Normal(keys * kv_heads * head_dim, seed + 1);
  c.v = Normal(keys * kv_heads * c.ValueDim(), seed + 2);
  c.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return c;
}

// a_h sin(w_h (query - key) / 32) + b_h / (1 + (query - key)^2 / 64), whose a, w and b are learned;
// NaN for pairs that causal attention must not ask, where `causal`.
class WavePair : public PairFunction {
 public:
  WavePair(int64_t heads, bool causal) : numbers_(Normal(3 * heads, 77, 0.5f)), causal_(causal) {}
  int64_t heads() const override { return static_cast<int64_t>(numbers_.size()) / 3; }
  int64_t parameters() const override { return static_cast<int64_t>(numbers_.size()); }
  std::vector<float>& numbers() { return numbers_; }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    const double a = numbers_[3 * head], w = numbers_[3 * head + 1], b = numbers_[3 * head + 2];
    for (size_t r = 0; r < queries.size(); ++r) {
      for (size_t c = 0; c < keys.size(); ++c) {
        const auto d = static_cast<double>(queries[r] - keys[c]);
        const double bias = a * std::sin(w * d / 32) + b / (1 + d * d / 64);
        out[static_cast<int64_t>(r) * stride + static_cast<int64_t>(c)] =
            causal_ && d < 0 ? NAN : static_cast<float>(bias);
      }
    }
  }
  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    const double a = numbers_[3 * head], w = numbers_[3 * head + 1];
    for (size_t r = 0; r < queries.size(); ++r) {
      for (size_t c = 0; c < keys.size(); ++c) {
        const auto d = static_cast<double>(queries[r] - keys[c]);
        const double from = d_bias[static_cast<int64_t>(r) * stride + static_cast<int64_t>(c)];
        gradient[3 * head] += from * std::sin(w * d / 32);
        gradient[3 * head + 1] += from * a * d / 32 * std::cos(w * d / 32);
        gradient[3 * head + 2] += from / (1 + d * d / 64);
      }
    }
  }

 private:
  std::vector<float> numbers_;
  bool causal_;
};

// Rows by logarithm of the distance beyond `exact`, as DeBERTa's buckets.
inline std::vector<int32_t> BucketRows(int64_t exact, int64_t reach, int64_t* rows) {
  std::vector<int32_t> out;
  const auto bucket = [&](int64_t d) {
    const int64_t a = std::abs(d);
    const int64_t b =
        a <= exact ? a : exact + static_cast<int64_t>(4 * std::log2(double(a) / exact));
    return d < 0 ? -b : b;
  };
  *rows = 2 * bucket(reach) + 1;
  for (int64_t d = -reach; d <= reach; ++d) {
    out.push_back(static_cast<int32_t>(bucket(d) + bucket(reach)));
  }
  return out;
}

inline ContentForm MakeContent(const AttentionCase& c, bool per_head, int64_t exact, int64_t reach,
                               const std::string& terms) {
  ContentForm f;
  f.first = -reach;
  f.row_of = BucketRows(exact, reach, &f.rows);
  f.head_dim = c.head_dim;
  f.table_heads = per_head ? c.heads : 1;
  f.repeats_ahead = f.repeats_behind = true;
  const int64_t table = f.table_heads * f.rows * c.head_dim;
  for (const char term : terms) {
    if (term == 'q') f.query_rows = Normal(table, 11);
    if (term == 'k') f.key_rows = Normal(table, 12);
    if (term == 'v') f.value_rows = Normal(table, 13);
    if (term == 'u') f.query_bias = Normal(c.heads * c.head_dim, 14);
    if (term == 'w') f.key_bias = Normal(c.heads * c.head_dim, 15);
  }
  return f;
}

struct NamedForm {
  std::string name;
  ScoreForm form;
};

// One of each, for heads of `c`; the running ones, which are causal, only where asked.
inline std::vector<NamedForm> EveryForm(const AttentionCase& c, bool running) {
  std::vector<NamedForm> forms;
  SlopeForm slope;
  DistanceForm table{-40, 90, Normal(c.heads * 90, 21), true, true};
  for (int64_t h = 0; h < c.heads; ++h) {
    slope.behind.push_back(0.5f / static_cast<float>(h + 1));
    slope.ahead.push_back(0.25f / static_cast<float>(h + 2));
  }
  forms.push_back({"slope", slope});
  forms.push_back({"distance", table});
  forms.push_back({"clipped rows (Shaw)", MakeContent(c, false, 8, 8, "qv")});
  forms.push_back({"a row per distance (Transformer-XL)", MakeContent(c, true, 700, 700, "quw")});
  forms.push_back({"buckets (DeBERTa)", MakeContent(c, true, 20, 200, "qk")});
  forms.push_back({"everything", MakeContent(c, false, 30, 300, "qkvuw")});
  ContentForm jumping = MakeContent(c, true, 5, 5, "qkv");  // rows that neither stay nor step
  jumping.row_of = {3, 3, 9, 1, 1, 10, 0, 3, 2, 2, 7};
  forms.push_back({"jumping rows", jumping});
  forms.push_back({"pair", PairForm{std::make_shared<WavePair>(c.heads, c.causal)}});
  if (!running) return forms;
  RunningForm gates;
  gates.log_gates = Normal(c.keys * c.heads, 31);
  for (float& x : gates.log_gates) x = -std::abs(x) * 0.1f;
  forms.push_back({"gates", gates});
  RunningForm contextual;
  contextual.kind = RunningForm::Kind::kContextual;
  contextual.rows = 24, contextual.head_dim = c.head_dim, contextual.table_heads = c.heads;
  contextual.position_rows =
      Normal(c.heads * 24 * c.head_dim, 32, 1.0f / std::sqrt(static_cast<float>(c.head_dim)));
  forms.push_back({"contextual", contextual});
  return forms;
}

// Rows that are added to values have one head_dim with those of queries and keys.
inline bool NeedsEqualWidths(const ScoreForm& form) {
  const auto* content = std::get_if<ContentForm>(&form);
  return content != nullptr && !content->value_rows.empty();
}

struct CaseMemory {
  explicit CaseMemory(const AttentionCase& c, const LoadRotation* rotation = nullptr,
                      KvType type = KvType::kF32)
      : cache(c.kv_heads, c.head_dim, c.keys, type, c.ValueDim()),
        out(static_cast<size_t>(c.queries * c.heads * c.ValueDim()), NAN),
        log_sum_exp(static_cast<size_t>(c.queries * c.heads), NAN),
        entropy(log_sum_exp) {
    cache.Append(TensorView::Of(c.k.data(), {c.keys, c.kv_heads, c.head_dim}),
                 TensorView::Of(c.v.data(), {c.keys, c.kv_heads, c.ValueDim()}));
    args.q = TensorView::Of(c.q.data(), {c.queries, c.heads, c.head_dim});
    args.out = TensorView::Of(out.data(), {c.queries, c.heads, c.ValueDim()});
    args.cache = &cache;
    args.scale = static_cast<float>(c.scale);
    args.window_tokens = c.window;
    args.mask = c.causal ? AttentionMask::kCausal : AttentionMask::kBidirectional;
    args.form = c.form ? &*c.form : nullptr;
    args.rotation = rotation;
    args.soft_cap = static_cast<float>(c.soft_cap);
    args.sinks = c.sinks;
    args.temperatures = c.temperatures;
    args.query_positions = c.query_positions;
    args.key_positions = c.key_positions;
    args.log_sum_exp = log_sum_exp;
    starts = Starts(c.key_documents);
    query_starts = Starts(c.query_documents);
    args.document_starts = starts;
    if (!c.query_positions.empty()) args.query_document_starts = query_starts;
  }
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  static std::vector<int64_t> Starts(const std::vector<int64_t>& documents) {
    std::vector<int64_t> starts;
    for (size_t j = 0; j < documents.size(); ++j) {
      while (static_cast<int64_t>(starts.size()) <= documents[j]) {
        starts.push_back(static_cast<int64_t>(j));
      }
    }
    return starts;
  }

  KvCache cache;
  std::vector<float> out, log_sum_exp;
  std::vector<float> entropy;  // for args.entropy, where a test asks for it
  std::vector<int64_t> starts, query_starts;
  AttentionArgs args;
};

}  // namespace ropewalk
