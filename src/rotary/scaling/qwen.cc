// Qwen 1 (QwenLM/Qwen issue 401): NTK-aware in steps, alpha = 2^ceil(log2(length / L) + 1) - 1, so
// that a cache keeps its keys until the sequence doubles. `length` is the declared final length.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const QwenNtkScaling&, const RotarySpec& spec, int64_t length) {
  int64_t doublings = 0;  // the smallest m with L 2^m >= length
  while ((length - 1) >> doublings >= spec.trained_length) ++doublings;
  const double alpha = doublings == 0 ? 1.0 : std::ldexp(2.0, static_cast<int>(doublings)) - 1;
  return ResolveAs(NtkScaling{alpha}, spec, length);
}

}  // namespace

template <>
ScalingRow<QwenNtkScaling> RowOf() {
  return {.name = "qwen",
          .title = "Qwen's stepwise NTK",
          .source = "QwenLM/Qwen issue 401",
          .needs_trained_length = true,
          .length_dependent = true,
          .trained_with = false,
          .setting = Setting::kByFactor,
          .dialects = Dialects{0},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
