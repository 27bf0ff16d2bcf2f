#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/absolute/complex_check.h"

namespace ropewalk {
namespace {

using ConstComplex = ComplexSpan<const float>;

struct Value {
  double re = 0, im = 0;
};
Value Get(const ConstComplex& z, int64_t i) {
  return {static_cast<double>(z.re.data()[i]), static_cast<double>(z.im.data()[i])};
}

void Check(const ComplexAttentionSpec& spec, const ConstComplex& q, const ConstComplex& k,
           const ConstComplex& v) {
  internal::CheckSize("ComplexAttention: queries", spec.queries);
  internal::CheckSize("ComplexAttention: keys", spec.keys);
  internal::CheckSize("ComplexAttention: heads", spec.heads);
  internal::CheckSize("ComplexAttention: head_dim", spec.head_dim);
  if (spec.causal && spec.queries > spec.keys) {
    internal::Refuse("ComplexAttention: causal: expected at most as many queries as keys, got " +
                     std::to_string(spec.queries) + " and " + std::to_string(spec.keys));
  }
  internal::CheckComplex("ComplexAttention: q", q, {spec.queries, spec.heads, spec.head_dim});
  internal::CheckComplex("ComplexAttention: k", k, {spec.keys, spec.heads, spec.head_dim});
  internal::CheckComplex("ComplexAttention: v", v, {spec.keys, spec.heads, spec.head_dim});
}

// The scores of one query of one head.
struct Row {
  explicit Row(const ComplexAttentionSpec& spec_)
      : spec(spec_),
        sign(spec.hermitian ? -1.0 : 1.0),
        scale(1 / std::sqrt(static_cast<double>(spec.head_dim))),
        products(static_cast<std::size_t>(spec.keys)),
        weights(static_cast<std::size_t>(spec.keys)) {}

  int64_t At(int64_t i, int64_t head) const { return (i * spec.heads + head) * spec.head_dim; }
  int64_t Visible(int64_t i) const {
    return spec.causal ? spec.keys - spec.queries + i + 1 : spec.keys;
  }

  void Fill(const ConstComplex& q, const ConstComplex& k, int64_t i, int64_t head) {
    seen = Visible(i);
    double top = 0, sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      Value p;
      for (int64_t e = 0; e < spec.head_dim; ++e) {
        const Value a = Get(q, At(i, head) + e), b = Get(k, At(j, head) + e);
        p.re += a.re * b.re - sign * a.im * b.im;
        p.im += a.im * b.re + sign * a.re * b.im;
      }
      products[static_cast<std::size_t>(j)] = p;
      weights[static_cast<std::size_t>(j)] = scale * std::hypot(p.re, p.im);
      top = std::max(top, weights[static_cast<std::size_t>(j)]);
    }
    for (std::size_t j = 0; j < static_cast<std::size_t>(seen); ++j) {
      weights[j] = std::exp(weights[j] - top);
      sum += weights[j];
    }
    for (std::size_t j = 0; j < static_cast<std::size_t>(seen); ++j) weights[j] /= sum;
  }

  const ComplexAttentionSpec& spec;
  double sign, scale;
  int64_t seen = 0;
  std::vector<Value> products;  // [keys]
  std::vector<double> weights;  // [keys]
};

}  // namespace

void ComplexAttention(const ComplexAttentionSpec& spec, const ConstComplex& q,
                      const ConstComplex& k, const ConstComplex& v, const ComplexSpan<float>& out) {
  Check(spec, q, k, v);
  internal::CheckComplex("ComplexAttention: out", out, {spec.queries, spec.heads, spec.head_dim});
  Row row(spec);
  for (int64_t i = 0; i < spec.queries; ++i) {
    for (int64_t head = 0; head < spec.heads; ++head) {
      row.Fill(q, k, i, head);
      for (int64_t e = 0; e < spec.head_dim; ++e) {
        Value sum;
        for (int64_t j = 0; j < row.seen; ++j) {
          const Value value = Get(v, row.At(j, head) + e);
          const double w = row.weights[static_cast<std::size_t>(j)];
          sum.re += w * value.re;
          sum.im += w * value.im;
        }
        out.re.data()[row.At(i, head) + e] = static_cast<float>(sum.re);
        out.im.data()[row.At(i, head) + e] = static_cast<float>(sum.im);
      }
    }
  }
}

namespace {

// dL/dweight of each visible key, and what the values get.
double Weights(const Row& row, const ConstComplex& v, const ConstComplex& d_out, int64_t i,
               int64_t head, const ComplexSpan<double>& dv, std::vector<double>& d_weights) {
  double mean = 0;
  for (int64_t j = 0; j < row.seen; ++j) {
    const double w = row.weights[static_cast<std::size_t>(j)];
    double d = 0;
    for (int64_t e = 0; e < row.spec.head_dim; ++e) {
      const int64_t at = row.At(j, head) + e;
      const Value g = Get(d_out, row.At(i, head) + e), value = Get(v, at);
      d += g.re * value.re + g.im * value.im;
      dv.re.data()[at] += w * g.re;
      dv.im.data()[at] += w * g.im;
    }
    d_weights[static_cast<std::size_t>(j)] = d;
    mean += w * d;
  }
  return mean;
}

}  // namespace

void ComplexAttentionBackward(const ComplexAttentionSpec& spec, const ConstComplex& q,
                              const ConstComplex& k, const ConstComplex& v,
                              const ConstComplex& d_out, const ComplexSpan<double>& dq,
                              const ComplexSpan<double>& dk, const ComplexSpan<double>& dv) {
  Check(spec, q, k, v);
  const std::string op = "ComplexAttentionBackward: ";
  internal::CheckComplex(op + "d_out", d_out, {spec.queries, spec.heads, spec.head_dim});
  internal::CheckComplex(op + "dq", dq, {spec.queries, spec.heads, spec.head_dim});
  internal::CheckComplex(op + "dk", dk, {spec.keys, spec.heads, spec.head_dim});
  internal::CheckComplex(op + "dv", dv, {spec.keys, spec.heads, spec.head_dim});
  Row row(spec);
  std::vector<double> d_weights(static_cast<std::size_t>(spec.keys));
  for (int64_t i = 0; i < spec.queries; ++i) {
    for (int64_t head = 0; head < spec.heads; ++head) {
      row.Fill(q, k, i, head);
      const double mean = Weights(row, v, d_out, i, head, dv, d_weights);
      for (int64_t j = 0; j < row.seen; ++j) {
        const std::size_t at = static_cast<std::size_t>(j);
        const Value p = row.products[at];
        const double modulus = std::hypot(p.re, p.im);
        if (modulus == 0) continue;
        const double d = row.weights[at] * (d_weights[at] - mean) * row.scale / modulus;
        const Value g = {d * p.re, d * p.im};  // dL/dproduct
        for (int64_t e = 0; e < spec.head_dim; ++e) {
          const int64_t qi = row.At(i, head) + e, kj = row.At(j, head) + e;
          const Value a = Get(q, qi), b = Get(k, kj);
          dq.re.data()[qi] += g.re * b.re + row.sign * g.im * b.im;
          dq.im.data()[qi] += g.im * b.re - row.sign * g.re * b.im;
          dk.re.data()[kj] += g.re * a.re + g.im * a.im;
          dk.im.data()[kj] += row.sign * (g.im * a.re - g.re * a.im);
        }
      }
    }
  }
}

}  // namespace ropewalk
