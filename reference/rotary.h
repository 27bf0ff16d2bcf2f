// The rotation, written from the definition: one scalar loop in double, one angle at a time. Linked
// by tests and benches, never by the library.
//
//   (x1, x2) -> (x1 cos t - x2 sin t, x1 sin t + x2 cos t),   t = position * frequency of the pair
//
// RoFormer, Su et al. 2021, arXiv 2104.09864, eq. 34.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk::reference {

// position * frequency in radians, reduced to [-pi, pi]. The product is exact in three doubles
// (fma); whole turns are taken out of the largest part in long double, whose 64 bits leave the
// angle right to 2^-30 at position 2^31 and to 2^-44 at 2^20. Tests that need more ask MPFR.
inline double Angle(const DoubleDouble& frequency, int64_t position) {
  const long double p = static_cast<long double>(position);
  const long double angle = p * frequency.hi + p * frequency.lo;
  return static_cast<double>(std::remainder(angle, 2 * std::numbers::pi_v<long double>));
}

// Rotates elements first_dim .. first_dim + 2 * pairs - 1 of one head in place. sign: +1 for R, -1
// for its transpose. Multiplies by the amplitude.
inline void RotateHead(double* head, const Frequencies& frequencies, int64_t position,
                       bool interleaved, int64_t first_dim = 0, int sign = 1) {
  const int64_t pairs = static_cast<int64_t>(frequencies.inv_freq.size());
  for (int64_t i = 0; i < pairs; ++i) {
    const double angle = Angle(frequencies.inv_freq[static_cast<std::size_t>(i)], position);
    const double c = std::cos(angle) * frequencies.amplitude;
    const double s = std::sin(angle) * frequencies.amplitude * sign;
    double& x1 = head[first_dim + (interleaved ? 2 * i : i)];
    double& x2 = head[first_dim + (interleaved ? 2 * i + 1 : i + pairs)];
    const double y1 = x1 * c - x2 * s;
    const double y2 = x1 * s + x2 * c;
    x1 = y1;
    x2 = y2;
  }
}

}  // namespace ropewalk::reference
