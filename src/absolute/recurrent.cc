#include "ropewalk/absolute/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/absolute/check.h"

namespace ropewalk {
namespace {

using Doubles = std::vector<double>;

std::size_t Gates(RecurrentCell cell) { return cell == RecurrentCell::kGru ? 3 : 1; }
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The cell with its parameters in double, and what one step leaves for the way back.
class Cell {
 public:
  Cell(RecurrentCell cell, const RecurrentParameters& p)
      : gru_(cell == RecurrentCell::kGru),
        dim_(p.start.size()),
        weight_(p.weight.begin(), p.weight.end()),
        input_bias_(p.input_bias.begin(), p.input_bias.end()),
        hidden_bias_(p.hidden_bias.begin(), p.hidden_bias.end()),
        hidden_(hidden_bias_.size()),
        gate_(hidden_bias_.size()) {}

  // next is other memory than p.
  void Step(const double* p, double* next) {
    for (std::size_t o = 0; o < hidden_.size(); ++o) {
      double sum = hidden_bias_[o];
      for (std::size_t i = 0; i < dim_; ++i) sum += weight_[o * dim_ + i] * p[i];
      hidden_[o] = sum;
    }
    for (std::size_t i = 0; i < dim_; ++i) {
      if (!gru_) {
        next[i] = gate_[i] = std::tanh(input_bias_[i] + hidden_[i]);
        continue;
      }
      const std::size_t z = dim_ + i, n = 2 * dim_ + i;
      gate_[i] = Logistic(input_bias_[i] + hidden_[i]);
      gate_[z] = Logistic(input_bias_[z] + hidden_[z]);
      gate_[n] = std::tanh(input_bias_[n] + gate_[i] * hidden_[n]);
      next[i] = (1 - gate_[z]) * gate_[n] + gate_[z] * p[i];
    }
  }

  // d: dL/dnext of the step from p; becomes dL/dp.
  void Back(const double* p, Doubles& d, const RecurrentGradients& g) {
    Doubles next(dim_), d_hidden(hidden_.size()), d_p(dim_, 0.0);
    Step(p, next.data());
    for (std::size_t i = 0; i < dim_; ++i) {
      if (!gru_) {
        d_hidden[i] = d[i] * (1 - gate_[i] * gate_[i]);
        g.input_bias[i] += d_hidden[i];
        continue;
      }
      const std::size_t z = dim_ + i, n = 2 * dim_ + i;
      const double d_n = d[i] * (1 - gate_[z]) * (1 - gate_[n] * gate_[n]);
      const double d_z = d[i] * (p[i] - gate_[n]) * gate_[z] * (1 - gate_[z]);
      const double d_r = d_n * hidden_[n] * gate_[i] * (1 - gate_[i]);
      d_p[i] += d[i] * gate_[z];
      d_hidden[i] = d_r, d_hidden[z] = d_z, d_hidden[n] = d_n * gate_[i];
      g.input_bias[i] += d_r, g.input_bias[z] += d_z, g.input_bias[n] += d_n;
    }
    for (std::size_t o = 0; o < hidden_.size(); ++o) {
      g.hidden_bias[o] += d_hidden[o];
      for (std::size_t i = 0; i < dim_; ++i) {
        g.weight[o * dim_ + i] += d_hidden[o] * p[i];
        d_p[i] += d_hidden[o] * weight_[o * dim_ + i];
      }
    }
    d = d_p;
  }

 private:
  bool gru_;
  std::size_t dim_;
  Doubles weight_, input_bias_, hidden_bias_;
  Doubles hidden_, gate_;  // of the last step: W p + c, and what the functions made of it
};

// Returns the number of rows.
std::size_t Check(RecurrentCell cell, const RecurrentParameters& p, std::span<const float> out) {
  const int64_t dim = static_cast<int64_t>(p.start.size());
  internal::CheckRange("RecurrentRows: dim, the size of start", dim, 1, int64_t{1} << 20);
  const int64_t gates = static_cast<int64_t>(Gates(cell)) * dim;
  internal::CheckSpan("RecurrentRows: weight", p.weight, {gates, dim});
  internal::CheckSpan("RecurrentRows: input_bias", p.input_bias, {gates});
  internal::CheckSpan("RecurrentRows: hidden_bias", p.hidden_bias, {gates});
  const int64_t rows = static_cast<int64_t>(out.size()) / dim;
  internal::CheckSpan("RecurrentRows: out of [rows, dim]", out, {rows, dim});
  return static_cast<std::size_t>(rows);
}

}  // namespace

void RecurrentRows(RecurrentCell cell, const RecurrentParameters& parameters,
                   std::span<float> out) {
  const std::size_t rows = Check(cell, parameters, out);
  Cell step(cell, parameters);
  Doubles p(parameters.start.begin(), parameters.start.end()), next(p.size());
  float* to = out.data();
  for (std::size_t k = 0; k < rows; ++k) {
    for (const double v : p) *to++ = static_cast<float>(v);
    step.Step(p.data(), next.data());
    p.swap(next);
  }
}

void RecurrentRowsBackward(RecurrentCell cell, const RecurrentParameters& parameters,
                           std::span<const float> d_out, const RecurrentGradients& gradients) {
  const std::size_t rows = Check(cell, parameters, d_out), dim = parameters.start.size();
  const int64_t n = static_cast<int64_t>(dim), gates = static_cast<int64_t>(Gates(cell)) * n;
  internal::CheckSpan("RecurrentRowsBackward: start", gradients.start, {n});
  internal::CheckSpan("RecurrentRowsBackward: weight", gradients.weight, {gates, n});
  internal::CheckSpan("RecurrentRowsBackward: input_bias", gradients.input_bias, {gates});
  internal::CheckSpan("RecurrentRowsBackward: hidden_bias", gradients.hidden_bias, {gates});
  if (rows == 0) return;
  Cell step(cell, parameters);
  Doubles states(rows * dim);  // rows 0 .. rows - 1
  std::copy(parameters.start.begin(), parameters.start.end(), states.begin());
  for (std::size_t k = 1; k < rows; ++k) {
    step.Step(states.data() + (k - 1) * dim, states.data() + k * dim);
  }
  Doubles d(dim, 0.0);  // dL / d row k
  for (std::size_t k = rows; k-- > 0;) {
    for (std::size_t i = 0; i < dim; ++i) d[i] += static_cast<double>(d_out[k * dim + i]);
    if (k > 0) step.Back(states.data() + (k - 1) * dim, d, gradients);
  }
  for (std::size_t i = 0; i < dim; ++i) gradients.start[i] += d[i];
}

}  // namespace ropewalk
