// Exact argument reduction in turns: with the frequency as a 128-bit fraction of a turn, position
// times frequency modulo one turn is one wrapping integer product, whatever the position.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/host_device.h"
#include "src/rotary/double_double.h"

namespace ropewalk::internal {

// Positions below it have exact angles.
inline constexpr int64_t kPositionLimit = int64_t{1} << 31;

// Two's complement 128-bit integers: GCC and Clang have them on every 64-bit target.
__extension__ typedef unsigned __int128 Uint128;
__extension__ typedef __int128 Int128;

// frac(radians / 2 pi) in units of 2^-128. The double-double division leaves 2^-104 of the value,
// so at position 2^31 a frequency of 1 has its angle to 2^-75.
inline Uint128 ToTurns(DoubleDouble radians) {
  const DoubleDouble turns = radians / kTwoPi;
  Uint128 fraction = 0;
  double rest = turns.hi;
  double low = turns.lo;
  for (int limb = 0; limb < 2; ++limb) {  // each double is at most 53 bits: two limbs of 2^-64 each
    const double whole = std::floor(rest);
    rest = std::ldexp(rest - whole, 64);
    const double digits = std::floor(rest);
    fraction += static_cast<Uint128>(static_cast<uint64_t>(digits)) << (64 * (1 - limb));
    rest -= digits;
  }
  // The low half is signed and below 2^-53 of the high one.
  const bool negative = low < 0;
  low = std::abs(low);
  low = std::ldexp(low - std::floor(low), 64);
  const double upper = std::floor(low);
  Uint128 addend = static_cast<Uint128>(static_cast<uint64_t>(upper)) << 64;
  addend += static_cast<uint64_t>(std::ldexp(low - upper, 64));
  return negative ? fraction - addend : fraction + addend;
}

struct ReducedAngle {
  double hi, lo;  // radians, |hi + lo| <= pi/4
  int quadrant;   // 0 .. 3
};

// turns: a fraction of a turn in units of 2^-128. Error below 2^-60 radians.
ROPEWALK_HD inline ReducedAngle Reduce(Uint128 turns) {
  constexpr Uint128 kEighth = static_cast<Uint128>(1) << 125;
  const int quadrant = static_cast<int>((turns + kEighth) >> 126);
  const int64_t rest =  // signed, units of 2^-64 turns, |rest| <= 2^61
      static_cast<int64_t>(static_cast<uint64_t>(
          (turns - (static_cast<Uint128>(static_cast<unsigned>(quadrant)) << 126)) >> 64));
  constexpr int64_t kTwoPi60 = 0x6487ed5110b4611a;  // 2 pi 2^60
  const int64_t radians =                           // units of 2^-62
      static_cast<int64_t>((static_cast<Int128>(rest) * kTwoPi60) >> 62);
  const double hi = static_cast<double>(radians);
  const double lo = static_cast<double>(radians - static_cast<int64_t>(hi));
  return {hi * 0x1p-62, lo * 0x1p-62, quadrant & 3};
}

}  // namespace ropewalk::internal
