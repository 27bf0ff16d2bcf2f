#include "ropewalk/relative/running.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

int64_t CheckGates(const ForgetGateBias& gate, int64_t heads, std::span<const float> x) {
  internal::CheckAtLeast("ForgetGateBias.model_dim", gate.model_dim, 1);
  internal::CheckNumbers("ForgetGateBias.weight", gate.weight, heads * gate.model_dim);
  internal::CheckNumbers("ForgetGateBias.bias", gate.bias, heads);
  const int64_t tokens = static_cast<int64_t>(x.size()) / gate.model_dim;
  internal::CheckAtLeast("ForgetGateBias: tokens of x", tokens, 1);
  internal::CheckNumbers("ForgetGateBias: x", x, tokens * gate.model_dim);
  return tokens;
}

double Logit(const ForgetGateBias& gate, int64_t head, const float* x) {
  double sum = gate.bias[head];
  for (int64_t m = 0; m < gate.model_dim; ++m) {
    sum += static_cast<double>(gate.weight[head * gate.model_dim + m]) * x[m];
  }
  return sum;
}

// ln sigmoid(t) without overflow on either side.
double LogSigmoid(double t) { return std::min(t, 0.0) - std::log1p(std::exp(-std::abs(t))); }

}  // namespace

RunningForm ForgetGateBias::Lower(int64_t heads, std::span<const float> x) const {
  internal::CheckLowering("ForgetGateBias", heads, 0);
  const int64_t tokens = CheckGates(*this, heads, x);
  RunningForm form;
  form.kind = RunningForm::Kind::kGates;
  form.log_gates.resize(tokens * heads);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      form.log_gates[t * heads + h] =
          static_cast<float>(LogSigmoid(Logit(*this, h, x.data() + t * model_dim)));
    }
  }
  return form;
}

ForgetGateBias::Gradient ForgetGateBias::Backward(const RunningForm& gradient,
                                                  std::span<const float> x) const {
  const auto heads = static_cast<int64_t>(bias.size());
  const int64_t tokens = CheckGates(*this, heads, x);
  internal::CheckNumbers("ForgetGateBias.Backward: gradient.log_gates", gradient.log_gates,
                         tokens * heads);
  Gradient g{std::vector<double>(weight.size()), std::vector<double>(bias.size()),
             std::vector<double>(x.size())};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      // d ln sigmoid(t) = 1 - sigmoid(t)
      const double d = gradient.log_gates[t * heads + h] /
                       (1 + std::exp(Logit(*this, h, x.data() + t * model_dim)));
      g.bias[h] += d;
      for (int64_t m = 0; m < model_dim; ++m) {
        g.weight[h * model_dim + m] += d * x[t * model_dim + m];
        g.x[t * model_dim + m] += d * weight[h * model_dim + m];
      }
    }
  }
  return g;
}

RunningForm CopeBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("CopeBias", heads, max_distance);
  internal::CheckAtLeast("CopeBias.rows", rows, 1);
  internal::CheckAtLeast("CopeBias.head_dim", head_dim, 1);
  if (table_heads != 1 && table_heads != heads) {
    internal::Refuse("CopeBias.table_heads: expected 1 or " + std::to_string(heads) + ", got " +
                     std::to_string(table_heads));
  }
  internal::CheckNumbers("CopeBias.position_rows", position_rows, table_heads * rows * head_dim);
  RunningForm form;
  form.kind = RunningForm::Kind::kContextual;
  form.rows = rows;
  form.head_dim = head_dim;
  form.table_heads = table_heads;
  form.position_rows = position_rows;
  return form;
}

std::vector<double> CopeBias::Backward(const RunningForm& gradient) const {
  internal::CheckNumbers("CopeBias.Backward: gradient.position_rows", gradient.position_rows,
                         static_cast<int64_t>(position_rows.size()));
  return {gradient.position_rows.begin(), gradient.position_rows.end()};
}

}  // namespace ropewalk
