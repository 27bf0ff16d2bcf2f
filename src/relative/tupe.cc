#include "ropewalk/relative/tupe.h"

#include <algorithm>
#include <cmath>

#include "src/relative/check.h"
#include "src/relative/project.h"
#include "src/relative/tupe_cpu.h"

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
        keys_(std::move(keys)),
        keys_across_(sizes_.table() + internal::kTupePadding),
        from_cls_(tupe.from_cls),
        to_cls_(tupe.to_cls) {
    const auto scale = static_cast<float>(tupe.Scale());
    for (float& x : queries_) x *= scale;
    queries_.resize(keys_across_.size());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t p = 0; p < sizes_.positions; ++p) {
        for (int64_t e = 0; e < sizes_.head_dim; ++e) {
          keys_across_[(h * sizes_.head_dim + e) * sizes_.positions + p] =
              keys_[(h * sizes_.positions + p) * sizes_.head_dim + e];
        }
      }
    }
    keys_.resize(keys_across_.size());
    if (tupe.relative) SpreadRelative(tupe.relative->Lower(heads, tupe.positions - 1));
  }

  int64_t heads() const override { return sizes_.heads; }
  int64_t positions() const override { return sizes_.positions; }
  int64_t parameters() const override { return sizes_.count(); }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("TupeBias", sizes_.positions, queries);
    internal::CheckTile("TupeBias", sizes_.positions, keys);
    const int64_t table = head * sizes_.positions * sizes_.head_dim;
    internal::EvaluateTupe({queries_.data() + table, keys_across_.data() + table,
                            biases_.empty() ? nullptr : biases_.data() + Bias(head, 0),
                            sizes_.positions, sizes_.head_dim, queries, keys, out, stride});
    if (sizes_.reset == 0) return;
    for (std::size_t c = 0; c < keys.size(); ++c) {
      if (keys[c] != 0) continue;
      for (std::size_t r = 0; r < queries.size(); ++r) out[r * stride + c] = to_cls_[head];
    }
    for (std::size_t r = 0; r < queries.size(); ++r) {
      if (queries[r] == 0) std::fill_n(out + r * stride, keys.size(), from_cls_[head]);
    }
  }

  void Backward(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const override {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("TupeBias", sizes_.positions, queries);
    internal::CheckTile("TupeBias", sizes_.positions, keys);
    ForParts(queries, [&](std::size_t r, std::size_t rows) {
      const auto some = queries.subspan(r, rows);
      if (sizes_.reset > 0 && some.front() == 0) {
        double& sum = gradient[sizes_.from_cls() + head];
        for (std::size_t c = 0; c < keys.size(); ++c) sum += d_bias[r * stride + c];
        return;
      }
      ForParts(keys, [&](std::size_t c, std::size_t columns) {
        const float* d = d_bias + r * stride + c;
        if (sizes_.reset > 0 && keys[c] == 0) {
          for (std::size_t i = 0; i < rows; ++i) gradient[sizes_.to_cls() + head] += d[i * stride];
        } else {
          AddPairs(head, some, keys.subspan(c, columns), d, stride, gradient);
        }
      });
    });
  }

 private:
  // Where biases_ has the bias of key - query.
  int64_t Bias(int64_t head, int64_t ahead) const {
    return head * (2 * sizes_.positions - 1) + sizes_.positions - 1 + ahead;
  }
  int64_t Column(int64_t head, int64_t distance) const {
    return head * sizes_.columns + std::clamp<int64_t>(distance - first_, 0, sizes_.columns - 1);
  }

  void SpreadRelative(const DistanceForm& relative) {
    sizes_.columns = relative.columns;
    first_ = relative.first;
    const int64_t last = sizes_.positions - 1;
    biases_.resize(Bias(sizes_.heads, -last) + internal::kTupePadding);
    for (int64_t h = 0; h < sizes_.heads; ++h) {
      for (int64_t ahead = -last; ahead <= last; ++ahead) {
        biases_[Bias(h, ahead)] = relative.values[Column(h, -ahead)];
      }
    }
  }

  // f(first, count) of each part of a tile's positions that the reset treats alike: every position
  // 0 is one, and what is between them.
  template <class F>
  void ForParts(std::span<const int64_t> positions, const F& f) const {
    std::size_t first = 0;
    for (std::size_t i = 0; sizes_.reset > 0 && i < positions.size(); ++i) {
      if (positions[i] != 0) continue;
      if (i > first) f(first, i - first);
      f(i, std::size_t{1});
      first = i + 1;
    }
    if (first < positions.size()) f(first, positions.size() - first);
  }

  void AddPairs(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const {
    const int64_t table = head * sizes_.positions * sizes_.head_dim;
    internal::AddTupeGradient({d_bias, stride, 1, queries, keys, keys_.data() + table,
                               sizes_.head_dim, gradient.data() + table});
    internal::AddTupeGradient({d_bias, 1, stride, keys, queries, queries_.data() + table,
                               sizes_.head_dim, gradient.data() + sizes_.keys() + table});
    if (sizes_.columns == 0) return;
    // Sums of diagonals first where keys stand one after another: their rows are added as they are.
    constexpr int64_t kDiagonals = 1024;
    const auto [low, high] = std::minmax_element(queries.begin(), queries.end());
    const int64_t ahead = keys.front() - *high, diagonals = keys.back() - *low - ahead + 1;
    const auto count = static_cast<int64_t>(keys.size());
    double* sums = gradient.data() + sizes_.relative();
    if (diagonals <= kDiagonals && internal::IsRun(keys)) {
      float diagonal[kDiagonals] = {};
      for (std::size_t r = 0; r < queries.size(); ++r) {
        float* to = diagonal + keys.front() - queries[r] - ahead;
        for (int64_t c = 0; c < count; ++c) to[c] += d_bias[r * stride + c];
      }
      for (int64_t i = 0; i < diagonals; ++i) sums[Column(head, -(ahead + i))] += diagonal[i];
      return;
    }
    for (std::size_t r = 0; r < queries.size(); ++r) {
      for (int64_t c = 0; c < count; ++c) {
        sums[Column(head, queries[r] - keys[c])] += d_bias[r * stride + c];
      }
    }
  }

  Sizes sizes_;
  // [heads, positions, head_dim], the queries times the scale; [heads, head_dim, positions]. All
  // are kTupePadding longer than that.
  std::vector<float> queries_, keys_, keys_across_;
  std::vector<float> biases_;  // [heads, 2 positions - 1] by Bias(); empty: none
  int64_t first_ = 0;          // distance of the first column
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
