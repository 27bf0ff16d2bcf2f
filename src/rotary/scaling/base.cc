// Base change, adjusted base frequency (Xiong et al. 2023, arXiv 2309.16039, section 4.1): plain
// RoPE of another base.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveBase(const BaseScaling& scaling, const RotarySpec& spec) {
  if (!(scaling.base > 1 && std::isfinite(scaling.base))) {
    BadScaling("base: expected a number above 1, got " + std::to_string(scaling.base));
  }
  RotarySpec changed = spec;
  changed.base = scaling.base;
  return ResolveNone(changed);
}

}  // namespace ropewalk::internal
