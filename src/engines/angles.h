// Differences of angles between engines.
#pragma once

#include <cstdint>

#include "ropewalk/engines/engines.h"
#include "src/rotary/double_double.h"

namespace ropewalk::internal {

// The largest |f_a - f_b| * position over pairs, radians, not reduced. The frequencies must have
// the same number of pairs.
AngleError AngleDifference(const Frequencies& a, const Frequencies& b, int64_t position);

}  // namespace ropewalk::internal
