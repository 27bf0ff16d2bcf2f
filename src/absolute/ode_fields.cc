#include <cmath>

#include "ropewalk/absolute/floater.h"
#include "src/absolute/check.h"

namespace ropewalk {

TanhField::TanhField(int64_t dim, int64_t hidden, std::span<const float> values)
    : dim_(dim), hidden_(hidden), values_(values.begin(), values.end()) {
  internal::CheckRange("TanhField: dim", dim, 1, int64_t{1} << 20);
  internal::CheckRange("TanhField: hidden", hidden, 1, int64_t{1} << 20);
  internal::CheckSpan("TanhField: values of W, u, b, V, c", values,
                      {2 * hidden * dim + 2 * hidden + dim});
}

void TanhField::Evaluate(double t, const double* p, double* out) const {
  const double* w = values_.data();
  const double* u = w + hidden_ * dim_;
  const double* b = u + hidden_;
  const double* v = b + hidden_;
  const double* c = v + dim_ * hidden_;
  for (int64_t e = 0; e < dim_; ++e) out[e] = c[e];
  for (int64_t h = 0; h < hidden_; ++h) {
    double sum = u[h] * t + b[h];
    for (int64_t e = 0; e < dim_; ++e) sum += w[h * dim_ + e] * p[e];
    const double y = std::tanh(sum);
    for (int64_t e = 0; e < dim_; ++e) out[e] += v[e * hidden_ + h] * y;
  }
}

void TanhField::Backward(double t, const double* p, const double* d_out, double* d_p,
                         double* gradient) const {
  const double* w = values_.data();
  const double* u = w + hidden_ * dim_;
  const double* b = u + hidden_;
  const double* v = b + hidden_;
  double* d_u = gradient + hidden_ * dim_;
  double* d_b = d_u + hidden_;
  double* d_v = d_b + hidden_;
  double* d_c = d_v + dim_ * hidden_;
  for (int64_t e = 0; e < dim_; ++e) d_c[e] += d_out[e];
  for (int64_t h = 0; h < hidden_; ++h) {
    double sum = u[h] * t + b[h];
    for (int64_t e = 0; e < dim_; ++e) sum += w[h * dim_ + e] * p[e];
    const double y = std::tanh(sum);
    double d_y = 0;
    for (int64_t e = 0; e < dim_; ++e) {
      d_y += v[e * hidden_ + h] * d_out[e];
      d_v[e * hidden_ + h] += y * d_out[e];
    }
    const double d_sum = d_y * (1 - y * y);
    d_u[h] += t * d_sum;
    d_b[h] += d_sum;
    for (int64_t e = 0; e < dim_; ++e) {
      gradient[h * dim_ + e] += d_sum * p[e];
      d_p[e] += d_sum * w[h * dim_ + e];
    }
  }
}

TurningField::TurningField(std::span<const DoubleDouble> frequencies) {
  internal::CheckRange("TurningField: frequencies", static_cast<int64_t>(frequencies.size()), 1,
                       int64_t{1} << 20);
  for (const DoubleDouble& f : frequencies) {
    internal::CheckFinite("TurningField: frequencies", f.hi);
    frequencies_.push_back(f.hi);
  }
}

void TurningField::Evaluate(double /*t*/, const double* p, double* out) const {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    out[2 * i] = frequencies_[i] * p[2 * i + 1];
    out[2 * i + 1] = -frequencies_[i] * p[2 * i];
  }
}

void TurningField::Backward(double /*t*/, const double* p, const double* d_out, double* d_p,
                            double* gradient) const {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    d_p[2 * i] -= frequencies_[i] * d_out[2 * i + 1];
    d_p[2 * i + 1] += frequencies_[i] * d_out[2 * i];
    gradient[i] += p[2 * i + 1] * d_out[2 * i] - p[2 * i] * d_out[2 * i + 1];
  }
}

}  // namespace ropewalk
