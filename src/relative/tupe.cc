#include "ropewalk/relative/tupe.h"

#include <algorithm>
#include <cmath>

#include "ropewalk/base/buffer.h"
#include "src/relative/check.h"
#include "src/relative/project.h"
#include "src/relative/tupe_cpu.h"

namespace ropewalk {
namespace {

struct Sizes {
  int64_t heads, positions, head_dim, columns;
  bool reset;
  // Where each number of a head stands in the gradient of the function.
  int64_t table() const { return positions * head_dim; }
  int64_t queries(int64_t head) const { return head * (2 * table() + columns + (reset ? 2 : 0)); }
  int64_t keys(int64_t head) const { return queries(head) + table(); }
  int64_t relative(int64_t head) const { return keys(head) + table(); }
  int64_t from_cls(int64_t head) const { return relative(head) + columns; }
  int64_t to_cls(int64_t head) const { return from_cls(head) + 1; }
  int64_t count() const { return queries(heads); }
};

class Tupe final : public PairFunction {
 public:
  Tupe(const TupeBias& tupe, int64_t heads, const std::vector<float>& queries,
       const std::vector<float>& keys)
      : sizes_{heads, tupe.positions, tupe.head_dim, 0, !tupe.from_cls.empty()},
        across_(((sizes_.positions + 15) / 16 | 1) * 16),
        queries_(queries.size() + internal::kTupePadding, 0.0f),
        keys_(queries_.size(), 0.0f),
        keys_across_(
            static_cast<std::size_t>(heads * sizes_.head_dim * across_) + internal::kTupePadding,
            0.0f),
        from_cls_(tupe.from_cls),
        to_cls_(tupe.to_cls) {
    const auto scale = static_cast<float>(tupe.Scale());
    for (std::size_t i = 0; i < queries.size(); ++i) queries_[i] = queries[i] * scale;
    std::copy(keys.begin(), keys.end(), keys_.data());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t p = 0; p < sizes_.positions; ++p) {
        for (int64_t e = 0; e < sizes_.head_dim; ++e) {
          keys_across_[(h * sizes_.head_dim + e) * across_ + p] =
              keys[(h * sizes_.positions + p) * sizes_.head_dim + e];
        }
      }
    }
    if (tupe.relative) SpreadRelative(tupe.relative->Lower(heads, tupe.positions - 1));
  }

  int64_t heads() const override { return sizes_.heads; }
  int64_t positions() const override { return sizes_.positions; }
  int64_t parameters() const override { return sizes_.count(); }
  Parameters ParametersOf(int64_t head) const override {
    return {sizes_.queries(head), sizes_.queries(head + 1)};
  }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    if (queries.empty() || keys.empty()) return;
    internal::CheckTile("TupeBias", sizes_.positions, queries);
    internal::CheckTile("TupeBias", sizes_.positions, keys);
    internal::EvaluateTupe({queries_.data() + head * sizes_.table(),
                            keys_across_.data() + head * sizes_.head_dim * across_,
                            biases_.empty() ? nullptr : biases_.data() + Bias(head, 0), across_,
                            sizes_.head_dim, queries, keys, out, stride});
    if (!sizes_.reset) return;
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
      if (sizes_.reset && some.front() == 0) {
        double& sum = gradient[sizes_.from_cls(head)];
        for (std::size_t c = 0; c < keys.size(); ++c) sum += d_bias[r * stride + c];
        return;
      }
      ForParts(keys, [&](std::size_t c, std::size_t columns) {
        const float* d = d_bias + r * stride + c;
        if (sizes_.reset && keys[c] == 0) {
          for (std::size_t i = 0; i < rows; ++i) gradient[sizes_.to_cls(head)] += d[i * stride];
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
  int64_t Column(int64_t distance) const {
    return std::clamp<int64_t>(distance - first_, 0, sizes_.columns - 1);
  }

  void SpreadRelative(const DistanceForm& relative) {
    sizes_.columns = relative.columns;
    first_ = relative.first;
    const int64_t last = sizes_.positions - 1;
    biases_.resize(Bias(sizes_.heads, -last) + internal::kTupePadding);
    for (int64_t h = 0; h < sizes_.heads; ++h) {
      for (int64_t ahead = -last; ahead <= last; ++ahead) {
        biases_[Bias(h, ahead)] = relative.values[h * sizes_.columns + Column(-ahead)];
      }
    }
  }

  // f(first, count) of each part of a tile's positions that the reset treats alike: every position
  // 0 is one, and what is between them.
  template <class F>
  void ForParts(std::span<const int64_t> positions, const F& f) const {
    std::size_t first = 0;
    for (std::size_t i = 0; sizes_.reset && i < positions.size(); ++i) {
      if (positions[i] != 0) continue;
      if (i > first) f(first, i - first);
      f(i, std::size_t{1});
      first = i + 1;
    }
    if (first < positions.size()) f(first, positions.size() - first);
  }

  void AddPairs(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                const float* d_bias, int64_t stride, std::span<double> gradient) const {
    const int64_t table = head * sizes_.table();
    internal::AddTupeGradient({d_bias, stride, 1, queries, keys, keys_.data() + table,
                               sizes_.head_dim, gradient.data() + sizes_.queries(head)});
    internal::AddTupeGradient({d_bias, 1, stride, keys, queries, queries_.data() + table,
                               sizes_.head_dim, gradient.data() + sizes_.keys(head)});
    if (sizes_.columns == 0) return;
    // Sums of diagonals first where keys stand one after another: their rows are added as they are.
    constexpr int64_t kDiagonals = 1024;
    const auto [low, high] = std::minmax_element(queries.begin(), queries.end());
    const int64_t ahead = keys.front() - *high, diagonals = keys.back() - *low - ahead + 1;
    const auto count = static_cast<int64_t>(keys.size());
    double* sums = gradient.data() + sizes_.relative(head);
    if (diagonals <= kDiagonals && internal::IsRun(keys)) {
      float diagonal[kDiagonals] = {};
      for (std::size_t r = 0; r < queries.size(); ++r) {
        float* to = diagonal + keys.front() - queries[r] - ahead;
        for (int64_t c = 0; c < count; ++c) to[c] += d_bias[r * stride + c];
      }
      for (int64_t i = 0; i < diagonals; ++i) sums[Column(-(ahead + i))] += diagonal[i];
      return;
    }
    for (std::size_t r = 0; r < queries.size(); ++r) {
      for (int64_t c = 0; c < count; ++c) {
        sums[Column(queries[r] - keys[c])] += d_bias[r * stride + c];
      }
    }
  }

  Sizes sizes_;
  // Of a row of keys_across_: an odd number of cache lines, as rows a multiple of 4 KiB apart would
  // share few sets of the cache.
  int64_t across_;
  // [heads, positions, head_dim], the queries times the scale; [heads, head_dim, across_]. All are
  // kTupePadding longer than that.
  AlignedBuffer<float> queries_, keys_, keys_across_;
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
  const Sizes sizes{heads, positions, head_dim, d_relative.columns, !from_cls.empty()};
  if (static_cast<int64_t>(gradient.size()) != sizes.count()) {
    internal::Refuse("TupeBias.Backward: gradient: expected " + std::to_string(sizes.count()) +
                     " numbers, got " + std::to_string(gradient.size()));
  }
  // `count` numbers of every head.
  const auto part = [&](int64_t (Sizes::*first)(int64_t) const, int64_t count) {
    std::vector<double> all;
    for (int64_t h = 0; h < heads; ++h) {
      const auto from = gradient.begin() + (sizes.*first)(h);
      all.insert(all.end(), from, from + count);
    }
    return all;
  };
  const std::vector<double> rows(embedding.begin(), embedding.end());
  std::vector<double> d_queries = part(&Sizes::queries, sizes.table());
  for (double& d : d_queries) d *= Scale();
  internal::ProjectionGradient q = internal::ProjectBackward(
      {heads, head_dim, model_dim, query_projection, query_projection_bias}, rows, d_queries);
  internal::ProjectionGradient k =
      internal::ProjectBackward({heads, head_dim, model_dim, key_projection, key_projection_bias},
                                rows, part(&Sizes::keys, sizes.table()));
  Gradient g{std::move(q.rows),
             std::move(q.weight),
             std::move(q.bias),
             std::move(k.weight),
             std::move(k.bias),
             {},
             part(&Sizes::from_cls, sizes.reset ? 1 : 0),
             part(&Sizes::to_cls, sizes.reset ? 1 : 0)};
  for (std::size_t i = 0; i < g.embedding.size(); ++i) g.embedding[i] += k.rows[i];
  if (relative) {
    const std::vector<double> values = part(&Sizes::relative, sizes.columns);
    std::transform(values.begin(), values.end(), d_relative.values.begin(),
                   [](double d) { return static_cast<float>(d); });
    g.relative = relative->Backward(d_relative);
  }
  return g;
}

}  // namespace ropewalk
