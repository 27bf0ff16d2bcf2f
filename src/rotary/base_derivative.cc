#include <cmath>
#include <numbers>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/gradient.h"

namespace ropewalk {
namespace {

[[noreturn]] void Unsupported(const std::string& message) {
  throw Error(ErrorCode::kUnsupported, "BaseDerivative: " + message);
}

// d ln(f w(r)) / d ln f for the blend of Llama3 and ByParts: w = (1 - t) / s + t with
// t = (r - low) / (high - low) between `low` and `high` rotations r = L f / 2 pi.
double BlendElasticity(double rotations, double low, double high, double s) {
  if (rotations <= low || rotations >= high) return 1;
  const double t = (rotations - low) / (high - low);
  return 1 + rotations / (high - low) * (1 - 1 / s) / ((1 - t) / s + t);
}

// d ln inv_freq / d ln f at a pair whose plain frequency is f.
struct Elasticity {
  const RotarySpec& spec;
  double f;

  double Rotations() const {
    return static_cast<double>(spec.trained_length) * f / (2 * std::numbers::pi);
  }
  double operator()(const Llama3Scaling& s) const {
    return BlendElasticity(Rotations(), s.low_freq_factor, s.high_freq_factor, s.factor);
  }
  double operator()(const ByPartsScaling& s) const {
    return BlendElasticity(Rotations(), s.alpha, s.beta, s.factor);
  }
  double operator()(const YarnScaling& s) const { return Ramp(s.truncate); }
  double operator()(const DynamicYarnScaling& s) const { return Ramp(s.truncate); }
  template <class Other>  // f times a constant
  double operator()(const Other& /*scaling*/) const {
    return 1;
  }

 private:
  double Ramp(bool truncate) const {
    if (!truncate)
      Unsupported("with truncate off the ramp of " + Describe(spec.scaling) + " moves");
    return 1;
  }
};

}  // namespace

std::vector<double> BaseDerivative(const RotarySpec& spec, int64_t length) {
  if (spec.axes.own_ladders) Unsupported("axes with ladders of their own have a base each");
  const Frequencies frequencies = Resolve(spec, length);
  const BaseScaling* given = std::get_if<BaseScaling>(&spec.scaling);
  const double base = given ? given->base : spec.base;
  const bool whole_head = std::holds_alternative<ProportionalScaling>(spec.scaling);
  const double dim = static_cast<double>(whole_head ? spec.head_dim : spec.rotary_dim);
  std::vector<double> out;
  for (std::size_t i = 0; i < frequencies.inv_freq.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / dim;
    const Elasticity elasticity{spec, std::pow(base, -exponent)};
    out.push_back(-exponent / base * frequencies.inv_freq[i].hi *
                  std::visit(elasticity, spec.scaling));
  }
  return out;
}

double BaseGradient(std::span<const double> inv_freq_gradient, const RotarySpec& spec,
                    int64_t length) {
  const std::vector<double> derivative = BaseDerivative(spec, length);
  if (inv_freq_gradient.size() != derivative.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "BaseGradient: expected a gradient of " + std::to_string(derivative.size()) +
                    " pairs, got " + std::to_string(inv_freq_gradient.size()));
  }
  double sum = 0;
  for (std::size_t i = 0; i < derivative.size(); ++i) sum += inv_freq_gradient[i] * derivative[i];
  return sum;
}

}  // namespace ropewalk
