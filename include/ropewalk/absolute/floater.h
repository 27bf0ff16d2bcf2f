// FLOATER (Liu et al. 2020, arXiv 2003.09229, section 3): positions as the path of a differential
// equation, p(t) = p(0) + integral of h(tau, p(tau)), with a learned h. It has a value at every
// position, trained on or not, and sinusoids are one of its paths.
//
// The integrator is the classical Runge-Kutta method of order 4 in double, with `substeps` equal
// steps between neighbouring positions. Its error falls with the fourth power of the step. Each
// call estimates it by Richardson extrapolation: it integrates again with twice the step, and a
// fifteenth of the difference is the leading term of the error.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// The function h with its parameters, in double.
class OdeField {
 public:
  virtual ~OdeField() = default;
  virtual int64_t dim() const = 0;
  virtual int64_t parameters() const = 0;
  // out = h(t, p); both [dim].
  virtual void Evaluate(double t, const double* p, double* out) const = 0;
  // d_p [dim] += J^T d_out with J = dh/dp; gradient [parameters()] += (dh/dparameters)^T d_out.
  virtual void Backward(double t, const double* p, const double* d_out, double* d_p,
                        double* gradient) const = 0;
};

// A learned field, a network with one hidden layer: h = V tanh(W p + u t + b) + c.
// Parameters in this order: W [hidden, dim], u [hidden], b [hidden], V [dim, hidden], c [dim].
class TanhField : public OdeField {
 public:
  // Throws Error where `values` does not have that size.
  TanhField(int64_t dim, int64_t hidden, std::span<const float> values);
  int64_t dim() const override { return dim_; }
  int64_t parameters() const override { return static_cast<int64_t>(values_.size()); }
  void Evaluate(double t, const double* p, double* out) const override;
  void Backward(double t, const double* p, const double* d_out, double* d_p,
                double* gradient) const override;

 private:
  int64_t dim_, hidden_;
  std::vector<double> values_;
};

// Rotates each pair: (s, c)' = f (c, -s). Its path from (0, 1) is the interleaved sinusoidal
// encoding with these frequencies, which are its parameters.
class TurningField : public OdeField {
 public:
  explicit TurningField(std::span<const DoubleDouble> frequencies);
  int64_t dim() const override { return 2 * parameters(); }
  int64_t parameters() const override { return static_cast<int64_t>(frequencies_.size()); }
  void Evaluate(double t, const double* p, double* out) const override;
  void Backward(double t, const double* p, const double* d_out, double* d_p,
                double* gradient) const override;

 private:
  std::vector<double> frequencies_;
};

struct FloaterSpec {
  double spacing = 0.1;   // time between neighbouring positions
  int64_t substeps = 10;  // even, 2 or more
};

// Rows of positions 0 .. out.size() / dim - 1: out is [rows, dim], row 0 is start [dim]. Returns
// the estimate of the largest error of an element before rounding to float32. Throws Error for
// sizes that do not fit, and where the path becomes infinite or NaN.
double FloaterRows(const OdeField& field, const FloaterSpec& spec, std::span<const float> start,
                   std::span<float> out);
// The exact gradient of the discretised path that FloaterRows computes (backpropagation through its
// steps). d_start [dim] and gradient [field.parameters()] are added to. Memory: one state per
// position; the steps between are recomputed.
void FloaterRowsBackward(const OdeField& field, const FloaterSpec& spec,
                         std::span<const float> start, std::span<const float> d_out,
                         std::span<double> d_start, std::span<double> gradient);

}  // namespace ropewalk
