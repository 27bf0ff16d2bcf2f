// Division of 32 bits by a number that is known before: a multiplication and a shift (Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994, figure 4.1).
#pragma once

#include <cstdint>

#include "src/base/host_device.h"

namespace ropewalk::internal {

struct Divisor {
  Divisor() = default;
  explicit Divisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }

  // n / divisor, n below 2^31.
  ROPEWALK_HD uint32_t Of(uint32_t n) const {
    const auto high = static_cast<uint32_t>((uint64_t{n} * multiplier) >> 32);
    return (high + n) >> shift;
  }

  uint32_t divisor = 1, multiplier = 1, shift = 0;
};

}  // namespace ropewalk::internal
