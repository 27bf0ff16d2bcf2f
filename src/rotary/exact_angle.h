// One exact cosine and sine, operation for operation what a table's row is made of (table.cc,
// table_cpu-inl.h), so that a device gives the bits of the CPU's table. Compile without
// contraction.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"
#include "src/rotary/reduction.h"

namespace ropewalk::internal {

struct CosSin {
  double cos, sin;
};

// A table splits a position into multiples of 64 and the rest.
inline constexpr int kFineBits = 6;

// Within 0.8 ULP; a = quadrant pi/2 + hi + lo, |hi| <= pi/4.
ROPEWALK_HD inline CosSin CosSinOf(const ReducedAngle& a) {
  constexpr double kSine[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCosine[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const double x = a.hi, z = x * x, half_z = 0.5 * z, w = 1.0 - half_z;
  double s = kSine[7], c = kCosine[7];
  for (int k = 6; k >= 0; --k) {
    s = kSine[k] + s * z;
    c = kCosine[k] + c * z;
  }
  const double sine = x + ((x * z) * s + a.lo * w);
  const double lost = (1.0 - w) - half_z;
  const double cosine = w + (lost + ((z * z) * c - x * a.lo));
  switch (a.quadrant) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

// amplitude * cos and sin of position * turns, rounded to float32 as CosSinTable's exact rows are.
ROPEWALK_HD inline void ExactCosSin(Uint128 turns, int64_t position, double amplitude, float* cos,
                                    float* sin) {
  const int64_t fine = position & ((int64_t{1} << kFineBits) - 1);
  const CosSin a = CosSinOf(Reduce(turns * static_cast<Uint128>(position - fine)));
  const CosSin b = CosSinOf(Reduce(turns * static_cast<Uint128>(fine)));
  *cos = static_cast<float>((a.cos * b.cos - a.sin * b.sin) * amplitude);
  *sin = static_cast<float>((a.sin * b.cos + a.cos * b.sin) * amplitude);
}

}  // namespace ropewalk::internal
