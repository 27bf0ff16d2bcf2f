// Relative positions, each written from its paper: one scalar in double for one pair of positions.
// Linked by tests and benches, never by the library. d = position of query - position of key.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace ropewalk::reference {

// Press et al. 2021, section 3: for n heads, a power of two, a geometric sequence that starts at
// 2^(-8/n) and has the same ratio; other counts add every second slope of the sequence of 2n.
inline std::vector<double> AlibiSlopes(int64_t heads, double max_bias) {
  int64_t n = 1;
  while (2 * n <= heads) n *= 2;
  std::vector<double> slopes;
  const double ratio = std::pow(2.0, -max_bias / static_cast<double>(n));
  for (double m = ratio; static_cast<int64_t>(slopes.size()) < n; m *= ratio) slopes.push_back(m);
  const double finer = std::sqrt(ratio);
  for (double m = finer; static_cast<int64_t>(slopes.size()) < heads; m *= ratio) {
    slopes.push_back(m);
  }
  return slopes;
}

// Raffel et al. 2019: half of a side's buckets hold one distance, the k-th of the m others begins
// at exact (last / exact)^(k / m), compared as n^m >= last^k exact^(m - k) without a logarithm.
inline int64_t T5Bucket(int64_t d, bool bidirectional, int64_t buckets, int64_t last) {
  if (bidirectional) {
    const int64_t side = buckets / 2;
    return d < 0 ? side + T5Bucket(-d, false, side, last) : T5Bucket(d, false, side, last);
  }
  if (d <= 0) return 0;
  const int64_t exact = buckets / 2;
  const int64_t m = buckets - exact;
  if (d < exact) return d;
  int64_t k = 0;
  while (k + 1 < m) {
    long double begins = 1;
    long double n = 1;
    for (int64_t i = 0; i < m; ++i) {
      n *= d;
      begins *= i < k + 1 ? last : exact;
    }
    if (n < begins) break;
    ++k;
  }
  return exact + k;
}

// Chi et al. 2022 (KERPLE), section 4.
inline double Kerple(int64_t d, bool power, double r1, double r2) {
  const double n = std::abs(static_cast<double>(d));
  return power ? -r1 * std::pow(n, r2) : -r1 * std::log(1 + r2 * n);
}

// Chi et al. 2022 (Sandwich); head counts from 1.
inline double Sandwich(int64_t d, int64_t head, int64_t heads, int64_t dim, double base) {
  double product = 0;
  for (int64_t i = 0; i < dim; i += 2) {
    product += std::cos(static_cast<double>(d) /
                        std::pow(base, static_cast<double>(i) / static_cast<double>(dim)));
  }
  return product / (8.0 / static_cast<double>(heads) * static_cast<double>(head));
}

inline double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
  return sum;
}

// Row of a matrix [rows, dim].
inline std::span<const double> Row(std::span<const double> matrix, int64_t row, int64_t dim) {
  return matrix.subspan(row * dim, dim);
}

// W x + b, W [outputs, x.size()]; b may be empty.
inline std::vector<double> Linear(std::span<const double> w, std::span<const double> b,
                                  std::span<const double> x) {
  const auto dim = static_cast<int64_t>(x.size());
  std::vector<double> y(w.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    y[o] = Dot(Row(w, static_cast<int64_t>(o), dim), x) + (b.empty() ? 0 : b[o]);
  }
  return y;
}

// Shaw et al. 2018, eq. 5: what one head's query adds; rows [left + right + 1, q.size()].
inline int64_t ShawRow(int64_t d, int64_t left, int64_t right) {
  const int64_t j_minus_i = -d;
  if (j_minus_i < -left) return 0;
  return j_minus_i > right ? left + right : left + j_minus_i;
}

// Dai et al. 2019, section 3.3: terms (b), (c) and (d) of one head.
inline double TransformerXl(std::span<const double> q, std::span<const double> k, int64_t d,
                            std::span<const double> w, std::span<const double> u,
                            std::span<const double> v, int64_t model_dim) {
  std::vector<double> r(model_dim);
  for (int64_t i = 0; i < model_dim / 2; ++i) {
    const double inverse = 1 / std::pow(10000.0, 2.0 * i / model_dim);
    r[i] = std::sin(d * inverse);
    r[model_dim / 2 + i] = std::cos(d * inverse);
  }
  const std::vector<double> x = Linear(w, {}, r);
  return Dot(q, x) + Dot(u, k) + Dot(v, x);
}

// He et al. 2020, section 3, and the authors' buckets of version 2: beyond the middle, bucket
// middle + c begins after middle (last / middle)^((c - 1) / (middle - 1)), last = max_position - 1,
// compared as powers.
inline int64_t DebertaRow(int64_t d, int64_t buckets, int64_t max_position) {
  const int64_t span = buckets > 0 ? buckets : max_position;
  int64_t n = std::abs(d);
  if (buckets > 0 && n > buckets / 2) {
    const int64_t middle = buckets / 2;
    int64_t c = 1;
    const auto begins_after = [&](int64_t steps) {
      return std::pow(static_cast<long double>(max_position - 1) / middle,
                      static_cast<long double>(steps) / (middle - 1)) *
             middle * (1 + 1e-14L);
    };
    while (c <= middle && n > begins_after(c)) ++c;
    n = middle + c;
  }
  const int64_t row = (d < 0 ? -n : n) + span;
  return row < 0 ? 0 : row > 2 * span - 1 ? 2 * span - 1 : row;
}

// Li et al. 2023 (FIRE), section 3, as a network: hidden units one by one.
struct FireNetwork {
  std::vector<double> w1, b1, w2, b2;  // w2 [heads, width]
  double c, threshold;
};
inline double Fire(const FireNetwork& f, int64_t head, int64_t i, int64_t j) {
  const auto psi = [&](double x) { return std::log(f.c * x + 1); };
  const double query = static_cast<double>(i);
  const double x = psi(std::abs(query - static_cast<double>(j))) /
                   psi(query > f.threshold ? query : f.threshold);
  double sum = f.b2[head];
  for (std::size_t k = 0; k < f.w1.size(); ++k) {
    const double unit = f.w1[k] * x + f.b1[k];
    if (unit > 0) sum += f.w2[head * f.w1.size() + k] * unit;
  }
  return sum;
}

// Liu et al. 2021 (Swin V2), eq. 4 and the authors' scaling of the coordinates to -8 .. 8.
inline double SwinCoordinate(int64_t offset, int64_t reach) {
  if (reach <= 1) return 0;
  const double n = 8.0 * static_cast<double>(offset) / static_cast<double>(reach - 1);
  return (n < 0 ? -1 : 1) * std::log(1 + std::abs(n)) / std::log(8.0);
}
inline double Swin(double y, double x, std::span<const double> w1, std::span<const double> b1,
                   std::span<const double> w2) {
  double sum = 0;
  for (std::size_t k = 0; k < b1.size(); ++k) {
    const double unit = w1[2 * k] * y + w1[2 * k + 1] * x + b1[k];
    if (unit > 0) sum += w2[k] * unit;
  }
  return 16 / (1 + std::exp(-sum));
}

// Lin et al. 2025, section 3: gates of one head, sigmoid of `logits`, multiplied from j + 1 to i.
inline double ForgetGate(std::span<const double> logits, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t l = j + 1; l <= i; ++l) sum += std::log(1 / (1 + std::exp(-logits[l])));
  return sum;
}

// Golovneva et al. 2024 (CoPE), section 4, one head: keys [tokens, q.size()], rows [count,
// q.size()].
inline double Cope(std::span<const double> q, std::span<const double> keys, int64_t i, int64_t j,
                   double scale, std::span<const double> rows) {
  const auto dim = static_cast<int64_t>(q.size());
  double position = 0;
  for (int64_t l = j; l <= i; ++l) {
    position += 1 / (1 + std::exp(-scale * Dot(q, Row(keys, l, dim))));
  }
  const auto last = static_cast<double>(rows.size() / q.size()) - 1;
  if (position > last) position = last;
  const auto below = static_cast<int64_t>(std::floor(position));
  const auto above = static_cast<int64_t>(std::ceil(position));
  const double part = position - static_cast<double>(below);
  return part * Dot(q, Row(rows, above, dim)) + (1 - part) * Dot(q, Row(rows, below, dim));
}

// Gopalakrishnan et al. 2025 (PoPE): the score itself, one head, without the softmax's scale.
inline double Pope(std::span<const double> q, std::span<const double> k,
                   std::span<const double> phase, int64_t i, int64_t j, double base) {
  double sum = 0;
  for (std::size_t e = 0; e < q.size(); ++e) {
    const double frequency =
        1 / std::pow(base, static_cast<double>(e) / static_cast<double>(q.size()));
    double bias = phase[e];
    if (bias > 0) bias = 0;
    if (bias < -2 * std::acos(-1.0)) bias = -2 * std::acos(-1.0);
    sum += std::log(1 + std::exp(q[e])) * std::log(1 + std::exp(k[e])) *
           std::cos(static_cast<double>(j - i) * frequency + bias);
  }
  return sum;
}

// Hua et al. 2024 (FoPE): the head of one token, in the half layout. cosines and sines
// [n, n] mix the first n frequencies; the pairs beyond have frequency 0.
inline std::vector<double> Fope(std::span<const double> x, std::span<const double> cosines,
                                std::span<const double> sines, int64_t n, int64_t position,
                                double base) {
  const auto dim = static_cast<int64_t>(x.size());
  std::vector<double> y(x.begin(), x.end());
  for (int64_t d = 0; d < n; ++d) {
    double c = 0;
    double s = 0;
    for (int64_t w = 0; w < n; ++w) {
      const double angle = static_cast<double>(position) /
                           std::pow(base, 2.0 * static_cast<double>(w) / static_cast<double>(dim));
      c += cosines[w * n + d] * std::cos(angle);
      s += sines[w * n + d] * std::sin(angle);
    }
    y[d] = x[d] * c - x[d + dim / 2] * s;
    y[d + dim / 2] = x[d + dim / 2] * c + x[d] * s;
  }
  return y;
}

// Distance maps of a causal pair, d = i - j >= 0.
// Su 2023 (kexue.fm/archives/9708); factor 0 for ReRoPE, whose slope beyond the window is 0.
inline double LeakyRerope(int64_t d, int64_t window, int64_t factor) {
  if (d < window) return static_cast<double>(d);
  const double beyond = static_cast<double>(d - window);
  return static_cast<double>(window) + (factor == 0 ? 0 : beyond / static_cast<double>(factor));
}
// Jin et al. 2024, section 3.
inline int64_t SelfExtend(int64_t i, int64_t j, int64_t window, int64_t group) {
  return i - j < window ? i - j : i / group + (window - window / group) - j / group;
}
// An et al. 2024, section 3: the lists P_k, P_q^Intra, P_q^Succ, P_q^Inter of one chunk.
inline int64_t DualChunk(int64_t i, int64_t j, int64_t chunk, int64_t limit) {
  const int64_t apart = i / chunk - j / chunk;
  const int64_t key = j - j / chunk * chunk;
  const int64_t place = i - i / chunk * chunk;
  if (apart == 0) return place - key;
  if (apart > 1) return limit - key;
  const int64_t successive = chunk + place;  // chunk, chunk + 1, .. limit - 1, limit, limit ..
  return (successive < limit ? successive : limit) - key;
}

// An et al. 2024 (STRING, arXiv 2410.18745), section 4: the diagonals from `shift` on move down the
// matrix by `shift`, and start at `window`.
inline int64_t String(int64_t d, int64_t shift, int64_t window) {
  return d < shift ? d : d - shift + window;
}

// LaMPE (scar-on/LaMPE@4e3c91f), by its three calls of attention: near keys, squeezed ones, and the
// first ones for the last queries, whose positions are moved back as a whole.
inline int64_t Lampe(int64_t i, int64_t j, int64_t head, int64_t mapped, int64_t tail,
                     int64_t length) {
  const auto squeezed = [&](int64_t p) { return p * mapped / (length - 1); };
  if (length < 2 * head || i - j < head) return i - j;
  const int64_t first = head - (squeezed(head) + 1);
  const int64_t last = length - 1 - tail;  // of the squeezed distances
  if (last < head || i - j > last) {
    const int64_t from = last < head ? head - 1 : last;
    return (i - (from - squeezed(from) - first)) - j;
  }
  return (squeezed(i) + first) - squeezed(j);
}

}  // namespace ropewalk::reference
