// Differences of angles, shared by the analyses.
#pragma once

#include <cstdint>

#include "ropewalk/analysis/analysis.h"
#include "src/rotary/double_double.h"

namespace ropewalk::internal {

// The largest |f_a - f_b| * position over pairs, radians, not reduced. The frequencies must have
// the same number of pairs.
AngleError AngleDifference(const Frequencies& a, const Frequencies& b, int64_t position);

}  // namespace ropewalk::internal
