// A log-probability must be a number.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

inline void CheckFinite(float log_prob, int64_t position) {
  if (std::isfinite(log_prob)) return;
  throw Error(ErrorCode::kInvalidFile,
              "the model's loss at position " + std::to_string(position) +
                  " is not a finite number: its weights or its scaling overflow");
}

}  // namespace ropewalk::internal
