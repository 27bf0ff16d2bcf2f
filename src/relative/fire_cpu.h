// FIRE's loops over the keys of a segment, compiled once per SIMD target.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// out[c] = slope * logs[c] + intercept
void FillFireLine(const float* logs, int64_t count, float slope, float intercept, float* out);

// Sums of d, d logs, d rates.
struct FireSums {
  double d, logs, rates;
};
FireSums SumFireLine(const float* d, const float* logs, const float* rates, int64_t count);

}  // namespace ropewalk::internal
