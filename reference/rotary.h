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
#include <span>
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

// Rotates elements first_dim .. first_dim + 2 * pairs - 1 of one head in place, for a token that
// stands at `positions`, one an axis. sign: +1 for R, -1 for its transpose. Multiplies by the
// amplitude, and with xPos by e^(decay * log_decay_i (n - centre)): decay is 1 for queries, -1 for
// keys, 0 for neither.
inline void RotateHead(double* head, const Frequencies& frequencies,
                       std::span<const int64_t> positions, bool interleaved, int64_t first_dim = 0,
                       int sign = 1, int decay = 0) {
  const std::size_t pairs = frequencies.inv_freq.size();
  for (std::size_t p = 0; p < pairs; ++p) {
    const int64_t position = positions[frequencies.axis.empty() ? 0 : frequencies.axis[p]];
    const double angle = Angle(frequencies.inv_freq[p], position);
    double scale = frequencies.amplitude;
    if (decay != 0 && !frequencies.log_decay.empty()) {
      const double n = static_cast<double>(position) - frequencies.decay_centre;
      scale *= std::exp(decay * frequencies.log_decay[p] * n);
    }
    const double c = std::cos(angle) * scale;
    const double s = std::sin(angle) * scale * sign;
    const int64_t i = static_cast<int64_t>(p);
    double& x1 = head[first_dim + (interleaved ? 2 * i : i)];
    double& x2 = head[first_dim + (interleaved ? 2 * i + 1 : i + static_cast<int64_t>(pairs))];
    const double y1 = x1 * c - x2 * s;
    const double y2 = x1 * s + x2 * c;
    x1 = y1;
    x2 = y2;
  }
}

// The same on one axis, or for a token that stands at one position on all of them.
inline void RotateHead(double* head, const Frequencies& frequencies, int64_t position,
                       bool interleaved, int64_t first_dim = 0, int sign = 1) {
  const int64_t positions[] = {position, position, position, position};
  RotateHead(head, frequencies, positions, interleaved, first_dim, sign);
}

}  // namespace ropewalk::reference
