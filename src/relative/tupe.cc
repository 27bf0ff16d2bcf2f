#include "ropewalk/relative/tupe.h"

#include <algorithm>
#include <cmath>

#include "src/relative/check.h"
#include "src/relative/project.h"

namespace ropewalk {
namespace {

struct Sizes {
  int64_t heads, positions, head_dim, columns, reset;  // reset: heads, or 0
  // Where each number of the function stands in its gradient.
  int64_t table() const { return heads * positions * head_dim; }
  int64_t keys() const { return table(); }
  int64_t relative() const { return 2 * table(); }
  int64_t from_cls() const { return relative() + heads * columns; }
  int64_t to_cls() const { return from_cls() + reset; }
  int64_t count() const { return to_cls() + reset; }
};

class Tupe final : public PairFunction {
 public:
  Tupe(const TupeBias& tupe, int64_t heads, std::vector<float> queries, std::vector<float> keys)
      : sizes_{heads, tupe.positions, tupe.head_dim, 0, static_cast<int64_t>(tupe.from_cls.size())},
        queries_(std::move(queries)),
        keys_(sizes_.table()),
        from_cls_(tupe.from_cls),
        to_cls_(tupe.to_cls) {
    if (tupe.relative) {
      relative_ = tupe.relative->Lower(heads, tupe.positions - 1);
      sizes_.columns = relative_.columns;
    }
    const auto scale = static_cast<float>(tupe.Scale());
    for (float& x : queries_) x *= scale;
    // [heads, head_dim, positions], so that the inner loop runs over keys.
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t p = 0; p < sizes_.positions; ++p) {
        for (int64_t e = 0; e < sizes_.head_dim; ++e) {
          keys_[(h * sizes_.head_dim + e) * sizes_.positions + p] =
              keys[(h * sizes_.positions + p) * sizes_.head_dim + e];
        }
      }
    }
  }

  int64_t heads() const override { return sizes_.heads; }
  int64_t positions() const override { return sizes_.positions; }
  int64_t parameters() const override { return sizes_.count(); }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("TupeBias", sizes_.positions, queries);
    internal::CheckTile("TupeBias", sizes_.positions, keys);
    const auto count = static_cast<int64_t>(keys.size());
    const bool run = keys.back() - keys.front() + 1 == count;
    for (std::size_t r = 0; r < queries.size(); ++r) {
      float* row = out + static_cast<int64_t>(r) * stride;
      std::fill(row, row + count, 0.f);
      for (int64_t e = 0; e < sizes_.head_dim; ++e) {
        const float x = queries_[QueryRow(head, queries[r]) + e];
        const float* y = keys_.data() + (head * sizes_.head_dim + e) * sizes_.positions;
        if (run) {
          for (int64_t c = 0; c < count; ++c) row[c] += x * y[keys.front() + c];
        } else {
          for (int64_t c = 0; c < count; ++c) row[c] += x * y[keys[c]];
        }
      }
      if (sizes_.columns > 0) {
        for (int64_t c = 0; c < count; ++c) {
          row[c] += relative_.values[Column(head, queries[r] - keys[c])];
        }
      }
      Reset(head, queries[r], keys, row);
    }
  }

  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("TupeBias", sizes_.positions, queries);
    internal::CheckTile("TupeBias", sizes_.positions, keys);
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const float* row = d_bias + static_cast<int64_t>(r) * stride;
      for (std::size_t c = 0; c < keys.size(); ++c) {
        const double d = row[c];
        if (sizes_.reset > 0 && queries[r] == 0) {
          gradient[sizes_.from_cls() + head] += d;
        } else if (sizes_.reset > 0 && keys[c] == 0) {
          gradient[sizes_.to_cls() + head] += d;
        } else {
          AddPair(head, queries[r], keys[c], d, gradient);
        }
      }
    }
  }

 private:
  int64_t QueryRow(int64_t head, int64_t position) const {
    return (head * sizes_.positions + position) * sizes_.head_dim;
  }
  int64_t Column(int64_t head, int64_t distance) const {
    return head * sizes_.columns +
           std::clamp<int64_t>(distance - relative_.first, 0, sizes_.columns - 1);
  }

  void Reset(int64_t head, int64_t query, std::span<const int64_t> keys, float* row) const {
    if (sizes_.reset == 0) return;
    if (query == 0) {
      std::fill(row, row + keys.size(), from_cls_[head]);
    } else if (keys.front() == 0) {
      row[0] = to_cls_[head];
    }
  }

  // d(loss) / d(scaled query row), d(key row): both [heads, positions, head_dim].
  void AddPair(int64_t head, int64_t query, int64_t key, double d,
               std::span<double> gradient) const {
    const int64_t q = QueryRow(head, query);
    const int64_t k = QueryRow(head, key);
    for (int64_t e = 0; e < sizes_.head_dim; ++e) {
      gradient[q + e] += d * keys_[(head * sizes_.head_dim + e) * sizes_.positions + key];
      gradient[sizes_.keys() + k + e] += d * queries_[q + e];
    }
    if (sizes_.columns > 0) gradient[sizes_.relative() + Column(head, query - key)] += d;
  }

  Sizes sizes_;
  std::vector<float> queries_;  // [heads, positions, head_dim], times the scale
  std::vector<float> keys_;     // [heads, head_dim, positions]
  DistanceForm relative_;
  std::vector<float> from_cls_, to_cls_;
};

void CheckProjection(const std::string& name, const std::vector<float>& weight,
                     const std::vector<float>& bias, int64_t width, int64_t model_dim) {
  internal::CheckNumbers("TupeBias." + name, weight, width * model_dim);
  if (!bias.empty()) internal::CheckNumbers("TupeBias." + name + "_bias", bias, width);
}

void CheckParameters(const TupeBias& tupe, int64_t heads) {
  internal::CheckAtLeast("TupeBias.positions", tupe.positions, 1);
  internal::CheckAtLeast("TupeBias.model_dim", tupe.model_dim, 1);
  internal::CheckAtLeast("TupeBias.head_dim", tupe.head_dim, 1);
  internal::CheckNumbers("TupeBias.embedding", tupe.embedding, tupe.positions * tupe.model_dim);
  const int64_t width = heads * tupe.head_dim;
  CheckProjection("query_projection", tupe.query_projection, tupe.query_projection_bias, width,
                  tupe.model_dim);
  CheckProjection("key_projection", tupe.key_projection, tupe.key_projection_bias, width,
                  tupe.model_dim);
  if (!tupe.from_cls.empty() || !tupe.to_cls.empty()) {
    internal::CheckNumbers("TupeBias.from_cls", tupe.from_cls, heads);
    internal::CheckNumbers("TupeBias.to_cls", tupe.to_cls, heads);
  }
}

}  // namespace

double TupeBias::Scale() const { return 1 / std::sqrt(2.0 * static_cast<double>(head_dim)); }

PairForm TupeBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("TupeBias", heads, max_distance);
  CheckParameters(*this, heads);
  const std::vector<double> rows(embedding.begin(), embedding.end());
  return {std::make_shared<Tupe>(
      *this, heads,
      internal::Project({heads, head_dim, model_dim, query_projection, query_projection_bias},
                        rows),
      internal::Project({heads, head_dim, model_dim, key_projection, key_projection_bias}, rows))};
}

TupeBias::Gradient TupeBias::Backward(std::span<const double> gradient) const {
  internal::CheckAtLeast("TupeBias.model_dim", model_dim, 1);
  internal::CheckAtLeast("TupeBias.head_dim", head_dim, 1);
  const int64_t heads = static_cast<int64_t>(query_projection.size()) / (head_dim * model_dim);
  CheckParameters(*this, heads);
  DistanceForm d_relative;
  if (relative) d_relative = relative->Lower(heads, positions - 1);
  const Sizes sizes{heads, positions, head_dim, d_relative.columns,
                    static_cast<int64_t>(from_cls.size())};
  if (static_cast<int64_t>(gradient.size()) != sizes.count()) {
    internal::Refuse("TupeBias.Backward: gradient: expected " + std::to_string(sizes.count()) +
                     " numbers, got " + std::to_string(gradient.size()));
  }
  const auto part = [&](int64_t from, int64_t to) {
    return std::vector<double>(gradient.begin() + from, gradient.begin() + to);
  };
  const std::vector<double> rows(embedding.begin(), embedding.end());
  std::vector<double> d_queries = part(0, sizes.keys());
  for (double& d : d_queries) d *= Scale();
  internal::ProjectionGradient q = internal::ProjectBackward(
      {heads, head_dim, model_dim, query_projection, query_projection_bias}, rows, d_queries);
  internal::ProjectionGradient k =
      internal::ProjectBackward({heads, head_dim, model_dim, key_projection, key_projection_bias},
                                rows, part(sizes.keys(), sizes.relative()));
  Gradient g{std::move(q.rows),
             std::move(q.weight),
             std::move(q.bias),
             std::move(k.weight),
             std::move(k.bias),
             {},
             part(sizes.from_cls(), sizes.to_cls()),
             part(sizes.to_cls(), sizes.count())};
  for (std::size_t i = 0; i < g.embedding.size(); ++i) g.embedding[i] += k.rows[i];
  if (relative) {
    std::transform(gradient.begin() + sizes.relative(), gradient.begin() + sizes.from_cls(),
                   d_relative.values.begin(), [](double d) { return static_cast<float>(d); });
    g.relative = relative->Backward(d_relative);
  }
  return g;
}

}  // namespace ropewalk
