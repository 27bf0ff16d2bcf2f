#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/gradient.h"
#include "src/rotary/scaling/scaling.h"

namespace ropewalk {
namespace {

[[noreturn]] void Unsupported(const std::string& message) {
  throw Error(ErrorCode::kUnsupported, "BaseDerivative: " + message);
}

}  // namespace

std::vector<double> BaseDerivative(const RotarySpec& spec, int64_t length) {
  if (spec.axes.own_ladders) Unsupported("axes with ladders of their own have a base each");
  const Frequencies frequencies = Resolve(spec, length);
  std::vector<double> out;
  for (std::size_t i = 0; i < frequencies.inv_freq.size(); ++i) {
    out.push_back(std::visit(
        [&](const auto& s) {
          return internal::RowOf<std::decay_t<decltype(s)>>().by_base(
              s, spec, static_cast<int64_t>(i), frequencies.inv_freq[i].hi);
        },
        spec.scaling));
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
