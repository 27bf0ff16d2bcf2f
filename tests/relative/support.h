// What the tests of relative positions share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

// Near, at every power where a low-precision position breaks, around `length`, and far.
inline std::vector<int64_t> Distances(int64_t length) {
  return {0, 1, 2, 7, 255, 256, 257, length - 1, length, length + 1, 4 * length, 131071, 1048575};
}

inline double BiasOf(const SlopeForm& form, int64_t head, int64_t distance) {
  const double slope = distance >= 0 ? form.behind[head] : form.ahead[head];
  return -slope * static_cast<double>(std::abs(distance));
}

inline double BiasOf(const DistanceForm& form, int64_t head, int64_t distance) {
  const int64_t c = std::clamp<int64_t>(distance - form.first, 0, form.columns - 1);
  return form.values[head * form.columns + c];
}

inline int64_t RowOf(const ContentForm& form, int64_t distance) {
  const auto last = static_cast<int64_t>(form.row_of.size()) - 1;
  return form.row_of[std::clamp<int64_t>(distance - form.first, 0, last)];
}

// As forms.h says: scale ((q + query_bias) . query_rows[r] + k . key_rows[r] + key_bias . k).
inline double BiasOf(const ContentForm& form, int64_t head, int64_t distance, const double* q,
                     const double* k, double scale) {
  const int64_t table = form.table_heads == 1 ? 0 : head;
  const int64_t row = (table * form.rows + RowOf(form, distance)) * form.head_dim;
  double sum = 0;
  for (int64_t e = 0; e < form.head_dim; ++e) {
    const int64_t own = head * form.head_dim + e;
    const double u = form.query_bias.empty() ? 0 : form.query_bias[own];
    if (!form.query_rows.empty()) sum += (q[e] + u) * form.query_rows[row + e];
    if (!form.key_rows.empty()) sum += k[e] * form.key_rows[row + e];
    if (!form.key_bias.empty()) sum += form.key_bias[own] * k[e];
  }
  return scale * sum;
}

// Number k of a tensor in tests/golden/relative_make.py.
inline std::vector<float> GoldenValues(int64_t n, double seed, double scale = 1) {
  std::vector<float> v(n);
  for (int64_t k = 0; k < n; ++k) {
    v[k] = static_cast<float>(scale * std::sin(12.9898 * static_cast<double>(k + 1) + seed));
  }
  return v;
}

inline std::vector<double> ToDoubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// d(loss) / d(x[i]) by the central difference of a loss in double.
inline double Slope(const std::function<double(const std::vector<double>&)>& loss,
                    std::vector<double> x, int64_t i, double step = 1e-5) {
  const double x0 = x[i];
  x[i] = x0 + step;
  const double up = loss(x);
  x[i] = x0 - step;
  return (up - loss(x)) / (2 * step);
}

}  // namespace ropewalk
