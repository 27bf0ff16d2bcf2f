#include "ropewalk/absolute/floater.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/absolute/check.h"

namespace ropewalk {
namespace {

using Doubles = std::vector<double>;

// One step of the classical Runge-Kutta method:
//   k1 = h(t, p)   k2 = h(t + s/2, p + s/2 k1)   k3 = h(t + s/2, p + s/2 k2)   k4 = h(t + s, p + s
//   k3) p' = p + s/6 (k1 + 2 k2 + 2 k3 + k4)
class RungeKutta {
 public:
  RungeKutta(const OdeField& field, double step)
      : field_(field), step_(step), dim_(static_cast<std::size_t>(field.dim())) {
    for (int i = 0; i < 4; ++i) {
      at_[i].resize(dim_);
      slope_[i].resize(dim_);
      d_at_[i].resize(dim_);
    }
    d_slope_.resize(dim_);
  }

  void Forward(double t, double* p) {
    Stages(t, p);
    for (std::size_t e = 0; e < dim_; ++e) {
      p[e] += step_ / 6 * (slope_[0][e] + 2 * slope_[1][e] + 2 * slope_[2][e] + slope_[3][e]);
    }
  }

  // p: where the step began; d: dL/dp', becomes dL/dp.
  void Back(double t, const double* p, double* d, double* gradient) {
    Stages(t, p);
    for (int i = 3; i >= 0; --i) {
      // k_i is in p' with its weight, and in the place of the stage after it.
      const double weight = step_ / (i == 0 || i == 3 ? 6 : 3);
      const double after = i == 3 ? 0 : step_ * kTime[i + 1];
      for (std::size_t e = 0; e < dim_; ++e) {
        d_slope_[e] = weight * d[e] + (i == 3 ? 0 : after * d_at_[i + 1][e]);
        d_at_[i][e] = 0;
      }
      field_.Backward(t + kTime[i] * step_, at_[i].data(), d_slope_.data(), d_at_[i].data(),
                      gradient);
    }
    for (std::size_t e = 0; e < dim_; ++e) {
      d[e] += d_at_[0][e] + d_at_[1][e] + d_at_[2][e] + d_at_[3][e];
    }
  }

 private:
  static constexpr double kTime[] = {0, 0.5, 0.5, 1};

  void Stages(double t, const double* p) {
    for (int i = 0; i < 4; ++i) {
      for (std::size_t e = 0; e < dim_; ++e) {
        at_[i][e] = i == 0 ? p[e] : p[e] + kTime[i] * step_ * slope_[i - 1][e];
      }
      field_.Evaluate(t + kTime[i] * step_, at_[i].data(), slope_[i].data());
    }
  }

  const OdeField& field_;
  double step_;
  std::size_t dim_;
  Doubles at_[4], slope_[4], d_at_[4], d_slope_;
};

// Returns the number of rows.
int64_t Check(const OdeField& field, const FloaterSpec& spec, std::span<const float> start,
              std::span<const float> out) {
  if (!(spec.spacing > 0 && std::isfinite(spec.spacing))) {
    internal::Refuse("FloaterRows: spacing: expected a positive time, got " +
                     std::to_string(spec.spacing));
  }
  internal::CheckRange("FloaterRows: substeps", spec.substeps, 2, 1 << 20);
  if (spec.substeps % 2 != 0) {
    internal::Refuse(
        "FloaterRows: substeps: expected an even number, half of which gives the "
        "estimate of the error, got " +
        std::to_string(spec.substeps));
  }
  internal::CheckSpan("FloaterRows: start", start, {field.dim()});
  const int64_t rows = static_cast<int64_t>(out.size()) / field.dim();
  internal::CheckSpan("FloaterRows: out of [rows, dim]", out, {rows, field.dim()});
  return rows;
}

// From position k to k + 1 in `steps` steps; each begins at a time computed, not added up.
struct Walk {
  Walk(const OdeField& field, const FloaterSpec& spec, int64_t steps_)
      : spacing(spec.spacing),
        steps(steps_),
        method(field, spec.spacing / static_cast<double>(steps_)) {}
  double Time(int64_t k, int64_t i) const {
    return (static_cast<double>(k) + static_cast<double>(i) / static_cast<double>(steps)) * spacing;
  }
  void Forward(int64_t k, double* p) {
    for (int64_t i = 0; i < steps; ++i) method.Forward(Time(k, i), p);
  }
  double spacing;
  int64_t steps;
  RungeKutta method;
};

}  // namespace

double FloaterRows(const OdeField& field, const FloaterSpec& spec, std::span<const float> start,
                   std::span<float> out) {
  const int64_t rows = Check(field, spec, start, out);
  Walk fine(field, spec, spec.substeps), coarse(field, spec, spec.substeps / 2);
  Doubles p(start.begin(), start.end()), other = p;
  double difference = 0;
  float* to = out.data();
  for (int64_t k = 0; k < rows; ++k) {
    for (std::size_t e = 0; e < p.size(); ++e) {
      if (!std::isfinite(p[e])) {
        internal::Refuse("FloaterRows: the path leaves the finite numbers before position " +
                         std::to_string(k) + "; expected a field that stays bounded");
      }
      difference = std::max(difference, std::abs(p[e] - other[e]));
      *to++ = static_cast<float>(p[e]);
    }
    if (k + 1 == rows) break;
    fine.Forward(k, p.data());
    coarse.Forward(k, other.data());
  }
  return difference / 15;
}

void FloaterRowsBackward(const OdeField& field, const FloaterSpec& spec,
                         std::span<const float> start, std::span<const float> d_out,
                         std::span<double> d_start, std::span<double> gradient) {
  const int64_t rows = Check(field, spec, start, d_out), dim = field.dim();
  internal::CheckSpan("FloaterRowsBackward: d_start", d_start, {dim});
  internal::CheckSpan("FloaterRowsBackward: gradient", gradient, {field.parameters()});
  if (rows == 0) return;
  Walk walk(field, spec, spec.substeps);
  Doubles states(d_out.size());  // [rows, dim]
  std::copy(start.begin(), start.end(), states.begin());
  for (int64_t k = 1; k < rows; ++k) {
    double* to = states.data() + k * dim;
    std::copy_n(to - dim, dim, to);
    walk.Forward(k - 1, to);
  }
  Doubles d(static_cast<std::size_t>(dim), 0.0);  // dL/dp at position k
  Doubles between(static_cast<std::size_t>(walk.steps * dim));
  for (int64_t k = rows; k-- > 0;) {
    for (int64_t e = 0; e < dim; ++e) d.data()[e] += static_cast<double>(d_out.data()[k * dim + e]);
    if (k == 0) break;
    std::copy_n(states.data() + (k - 1) * dim, dim, between.data());
    for (int64_t i = 1; i < walk.steps; ++i) {
      double* to = between.data() + i * dim;
      std::copy_n(to - dim, dim, to);
      walk.method.Forward(walk.Time(k - 1, i - 1), to);
    }
    for (int64_t i = walk.steps; i-- > 0;) {
      walk.method.Back(walk.Time(k - 1, i), between.data() + i * dim, d.data(), gradient.data());
    }
  }
  for (int64_t e = 0; e < dim; ++e) d_start.data()[e] += d.data()[e];
}

}  // namespace ropewalk
