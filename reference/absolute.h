// Absolute position encodings as their papers write them, in double, one scalar loop each. Linked
// by tests and benches, never by the library.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk::reference {

// Vaswani et al. 2017, section 3.5: element e of the interleaved row of position k.
inline double Sinusoid(int64_t k, int64_t e, int64_t dim, double base) {
  const long double angle =
      static_cast<long double>(k) /
      std::pow(static_cast<long double>(base),
               static_cast<long double>(e - e % 2) / static_cast<long double>(dim));
  return static_cast<double>(e % 2 == 0 ? std::sin(angle) : std::cos(angle));
}

// Su 2020, kexue.fm/archives/7947, as written there: u from p, then alpha u_i + (1 - alpha) u_j;
// element e of position k from a table of n rows.
inline double Hierarchical(const std::vector<double>& p, int64_t n, int64_t dim, double alpha,
                           int64_t k, int64_t e) {
  const auto u = [&](int64_t i) {
    return (p[static_cast<std::size_t>(i * dim + e)] - alpha * p[static_cast<std::size_t>(e)]) /
           (1 - alpha);
  };
  return alpha * u(k / n) + (1 - alpha) * u(k % n);
}

// Attention of Wang et al. 2020 as their program has it: real weights, softmax of the modulus of
// the complex product over sqrt(head_dim). Everything [tokens, heads, head_dim].
inline std::vector<std::complex<double>> ComplexAttention(
    const std::vector<std::complex<double>>& q, const std::vector<std::complex<double>>& k,
    const std::vector<std::complex<double>>& v, std::size_t queries, std::size_t keys,
    std::size_t heads, std::size_t head_dim, bool causal, bool hermitian) {
  std::vector<std::complex<double>> out(q.size());
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < queries; ++i) {
      const std::size_t seen = causal ? keys - queries + i + 1 : keys;
      double total = 0;
      std::vector<std::complex<double>> sum(head_dim);
      for (std::size_t j = 0; j < seen; ++j) {
        std::complex<double> product = 0;
        for (std::size_t e = 0; e < head_dim; ++e) {
          const std::complex<double> key = k[(j * heads + h) * head_dim + e];
          product += q[(i * heads + h) * head_dim + e] * (hermitian ? std::conj(key) : key);
        }
        const double weight =
            std::exp(std::abs(product) / std::sqrt(static_cast<double>(head_dim)));
        total += weight;
        for (std::size_t e = 0; e < head_dim; ++e) {
          sum[e] += weight * v[(j * heads + h) * head_dim + e];
        }
      }
      for (std::size_t e = 0; e < head_dim; ++e) {
        out[(i * heads + h) * head_dim + e] = sum[e] / total;
      }
    }
  }
  return out;
}

// One element of a one-dimensional convolution of x [tokens, channels], weight [channels,
// per_group, taps], and the sum of the magnitudes of its terms.
struct ConvolutionSum {
  double sum, magnitude;
};
inline ConvolutionSum Convolution(std::span<const float> x, std::span<const float> weight,
                                  int64_t tokens, int64_t channels, int64_t per_group, int64_t taps,
                                  int64_t token, int64_t channel, bool circular) {
  ConvolutionSum out = {0, 0};
  for (int64_t t = 0; t < taps; ++t) {
    int64_t from = token + t - taps / 2;
    if (circular) {
      while (from < 0) from += tokens;
      while (from >= tokens) from -= tokens;
    }
    if (from < 0 || from >= tokens) continue;
    for (int64_t i = 0; i < per_group; ++i) {
      const int64_t input = channel / per_group * per_group + i;
      const double term =
          static_cast<double>(
              weight[static_cast<std::size_t>((channel * per_group + i) * taps + t)]) *
          static_cast<double>(x[static_cast<std::size_t>(from * channels + input)]);
      out.sum += term;
      out.magnitude += std::abs(term);
    }
  }
  return out;
}

// FLOATER with h = V tanh(W p + u t + b) + c, values being W, u, b, V, c, by the classical
// Runge-Kutta method: `rows` points of the path, `spacing` apart, [rows, dim].
inline std::vector<double> TanhPath(const std::vector<double>& values, std::vector<double> p,
                                    std::size_t hidden, double spacing, int substeps,
                                    std::size_t rows) {
  const std::size_t dim = p.size();
  const auto h = [&](double t, const std::vector<double>& x) {
    std::vector<double> y(values.end() - static_cast<std::ptrdiff_t>(dim), values.end());
    for (std::size_t i = 0; i < hidden; ++i) {
      double sum = values[hidden * dim + i] * t + values[hidden * dim + hidden + i];
      for (std::size_t e = 0; e < dim; ++e) sum += values[i * dim + e] * x[e];
      for (std::size_t e = 0; e < dim; ++e) {
        y[e] += values[hidden * dim + 2 * hidden + e * hidden + i] * std::tanh(sum);
      }
    }
    return y;
  };
  const auto moved = [&](const std::vector<double>& k, double s) {
    std::vector<double> x = p;
    for (std::size_t e = 0; e < dim; ++e) x[e] += s * k[e];
    return x;
  };
  std::vector<double> path;
  const double s = spacing / substeps;
  for (std::size_t row = 0; row < rows; ++row) {
    path.insert(path.end(), p.begin(), p.end());
    for (int i = 0; i < substeps; ++i) {
      const double t = static_cast<double>(row) * spacing + i * s;
      const auto k1 = h(t, p), k2 = h(t + s / 2, moved(k1, s / 2)),
                 k3 = h(t + s / 2, moved(k2, s / 2)), k4 = h(t + s, moved(k3, s));
      for (std::size_t e = 0; e < dim; ++e) {
        p[e] += s / 6 * (k1[e] + 2 * k2[e] + 2 * k3[e] + k4[e]);
      }
    }
  }
  return path;
}

}  // namespace ropewalk::reference
