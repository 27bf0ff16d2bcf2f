// The decoder in double, one loop a formula, N x N: LLaMA's layers with base 500, rotated plainly
// or as a function of the pair of positions says.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/model/support.h"

namespace ropewalk::test {

using Matrix = std::vector<std::vector<double>>;

inline Matrix Product(const Matrix& x, const Tensor& w) {
  const int64_t out = w.shape[0], in = w.shape[1];
  Matrix y(x.size(), std::vector<double>(out));
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) y[t][o] += x[t][i] * w.values[o * in + i];
    }
  }
  return y;
}

inline Matrix Norm(const Matrix& x, const Tensor& w) {
  Matrix y = x;
  for (auto& row : y) {
    double sum = 0;
    for (const double v : row) sum += v * v;
    const double scale = 1 / std::sqrt(sum / double(row.size()) + 1e-5);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] *= scale * w.values[i];
  }
  return y;
}

// The first `heads` heads of every row.
inline void Rope(Matrix& x, int64_t head_dim, double base, int64_t first, int64_t heads) {
  for (std::size_t t = 0; t < x.size(); ++t) {
    const std::size_t end = std::min(x[t].size(), std::size_t(heads * head_dim));
    for (std::size_t h = 0; h < end; h += head_dim) {
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle =
            double(first + int64_t(t)) * std::pow(base, -2.0 * double(i) / double(head_dim));
        double& a = x[t][h + i];
        double& b = x[t][h + i + head_dim / 2];
        const double ra = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = ra;
      }
    }
  }
}

// What the rotation sees of a query at i and a key at j, in tokens; NaN where the key is not seen.
using RelativeFn = std::function<double(int64_t i, int64_t j)>;

// The score of a query and a key, both unrotated, `distance` apart.
inline double ScoreAt(const double* q, const double* k, int64_t head_dim, double base,
                      double distance) {
  double score = 0;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double angle = distance * std::pow(base, -2.0 * double(i) / double(head_dim));
    const int64_t b = i + head_dim / 2;
    score += (q[i] * k[i] + q[b] * k[b]) * std::cos(angle) +
             (q[i] * k[b] - q[b] * k[i]) * std::sin(angle);
  }
  return score;
}

// What one score is made of: a head of all queries and of all keys, and the layer's normed input.
struct Scored {
  int64_t layer, head, i, j;
  const Matrix& q;
  const Matrix& k;
  const Matrix& input;
  int64_t head_dim, kv_first;
  double scale;

  const double* Q() const { return &q[i][head * head_dim]; }
  const double* K(int64_t key) const { return &k[key][kv_first]; }
};
// A bias of scores that are scaled by `scale`, and the row that it adds to a value (null: none).
struct BiasFn {
  std::function<double(const Scored&)> score = {};
  std::function<const float*(const Scored&)> value_row = {};
  double scale = 0;    // 0: head_dim^-0.5
  bool ahead = false;  // keys behind the query are seen too
};

inline Matrix Attend(const Matrix& q, const Matrix& k, const Matrix& v, const Tiny& s,
                     int64_t window, const RelativeFn& relative = {}, const BiasFn& bias = {},
                     int64_t layer = 0, const Matrix& input = {}) {
  const double scale = bias.scale > 0 ? bias.scale : 1 / std::sqrt(double(s.head_dim));
  Matrix out(q.size(), std::vector<double>(s.heads * s.head_dim));
  for (int64_t t = 0; t < int64_t(q.size()); ++t) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h / (s.heads / s.kv_heads) * s.head_dim;
      const int64_t last = bias.ahead ? int64_t(q.size()) - 1 : t;
      std::vector<double> p(last + 1, 0.0);
      double total = 0;
      for (int64_t j = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0; j <= last; ++j) {
        double dot = 0;
        if (relative) {
          const double distance = relative(t, j);
          if (std::isnan(distance)) continue;
          dot = ScoreAt(&q[t][h * s.head_dim], &k[j][kv], s.head_dim, 500, distance);
        }
        for (int64_t d = 0; !relative && d < s.head_dim; ++d)
          dot += q[t][h * s.head_dim + d] * k[j][kv + d];
        const Scored scored = {layer, h, t, j, q, k, input, s.head_dim, kv, scale};
        const double added = bias.score ? bias.score(scored) : 0;
        total += p[j] = std::exp(dot * scale + added);
      }
      for (int64_t j = 0; j <= last; ++j) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          out[t][h * s.head_dim + d] += p[j] / total * v[j][kv + d];
        }
        if (!bias.value_row) continue;
        const float* row = bias.value_row({layer, h, t, j, q, k, input, s.head_dim, kv, scale});
        for (int64_t d = 0; d < s.head_dim; ++d) {
          out[t][h * s.head_dim + d] += p[j] / total * row[d];
        }
      }
    }
  }
  return out;
}

// Rows of a table, [ids, its width].
inline Matrix RowsOf(const Tensor& table, const std::vector<int32_t>& ids) {
  Matrix x;
  for (const int32_t id : ids) {
    const float* row = table.values.data() + id * table.shape[1];
    x.emplace_back(row, row + table.shape[1]);
  }
  return x;
}

// Logits of the layers that read x [tokens, hidden], and of the matrix `head`.
inline std::vector<float> ReferenceFrom(
    const Tiny& s, const Tensors& w, Matrix x, const Tensor& head, int64_t first, int64_t window,
    const std::vector<bool>& rotates, int64_t heads = 1000,
    const std::function<double(int64_t)>& temperature = [](int64_t) { return 1.0; },
    const RelativeFn& relative = {}, const BiasFn& bias = {}) {
  const auto add = [&](const Matrix& y) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  };
  for (int64_t l = 0; l < s.layers; ++l) {
    const auto tensor = [&](const char* name) -> const Tensor& {
      return w.at("model.layers." + std::to_string(l) + "." + name);
    };
    const Matrix h = Norm(x, tensor("input_layernorm.weight"));
    Matrix q = Product(h, tensor("self_attn.q_proj.weight"));
    Matrix k = Product(h, tensor("self_attn.k_proj.weight"));
    const Matrix v = Product(h, tensor("self_attn.v_proj.weight"));
    if (rotates[l] && !relative) {
      Rope(q, s.head_dim, 500, first, heads);
      Rope(k, s.head_dim, 500, first, heads);
    }
    for (std::size_t t = 0; t < q.size(); ++t) {
      for (double& v : q[t]) v *= temperature(first + int64_t(t));
    }
    add(Product(Attend(q, k, v, s, window, rotates[l] ? relative : RelativeFn(), bias, l, h),
                tensor("self_attn.o_proj.weight")));
    const Matrix g = Norm(x, tensor("post_attention_layernorm.weight"));
    Matrix gate = Product(g, tensor("mlp.gate_proj.weight"));
    const Matrix up = Product(g, tensor("mlp.up_proj.weight"));
    for (std::size_t t = 0; t < gate.size(); ++t) {
      for (std::size_t i = 0; i < gate[t].size(); ++i) {
        gate[t][i] = gate[t][i] / (1 + std::exp(-gate[t][i])) * up[t][i];
      }
    }
    add(Product(gate, tensor("mlp.down_proj.weight")));
  }
  std::vector<float> logits;
  for (const auto& row : Product(Norm(x, w.at("model.norm.weight")), head)) {
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

inline std::vector<float> Reference(
    const Tiny& s, const Tensors& w, const std::vector<int32_t>& ids, int64_t first, int64_t window,
    const std::vector<bool>& rotates, int64_t heads = 1000,
    const std::function<double(int64_t)>& temperature = [](int64_t) { return 1.0; },
    const RelativeFn& relative = {}, const BiasFn& bias = {}) {
  const Tensor& embedding = w.at("model.embed_tokens.weight");
  return ReferenceFrom(s, w, RowsOf(embedding, ids), embedding, first, window, rotates, heads,
                       temperature, relative, bias);
}

}  // namespace ropewalk::test
