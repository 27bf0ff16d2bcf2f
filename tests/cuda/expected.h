// What any call of Rotate must have made of its tensors, from reference/rotary.h in double.
#pragma once

#include <string>

#include "tests/rotary/rotate/random_call.h"

namespace ropewalk::gpu {

// `before`: as it was called, outputs out of place filled with bytes of 255, which no result has.
// Throws Failure that begins with `what` where an element of `after` is not within its rounding of
// the reference, or where something was written that is no result. Returns the largest error of
// float32 and float64 results in units of 2^-23 hypot(pair).
double ExpectRotated(const random_call::Call& before, const random_call::Call& after,
                     const random_call::Lists& lists, const std::string& what);

}  // namespace ropewalk::gpu
