// Base change, adjusted base frequency (Xiong et al. 2023, arXiv 2309.16039, section 4.1): plain
// RoPE of another base.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const BaseScaling& scaling, const RotarySpec& spec, int64_t) {
  if (!(scaling.base >= 1 && std::isfinite(scaling.base))) {
    BadScaling("base: expected a number of at least 1, got " + std::to_string(scaling.base));
  }
  RotarySpec changed = spec;
  changed.base = scaling.base;
  return ResolvePlain(changed);
}

double ByBase(const BaseScaling& s, const RotarySpec& spec, int64_t pair, double inv_freq) {
  return PowerOfBase(s.base, spec.rotary_dim, pair, inv_freq);
}

}  // namespace

template <>
ScalingRow<BaseScaling> RowOf() {
  return {.name = "base",
          .title = "base change (ABF)",
          .source = "arXiv 2309.16039",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = true,
          .setting = Setting::kByHand,
          .dialects = Dialects{kAllDialects},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
