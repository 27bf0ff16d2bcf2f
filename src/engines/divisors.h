// A scaling as a list of divisors, which is how files hold one that has no name there.
#pragma once

#include <vector>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk::internal {

// What files have in the place of an infinite divisor, of a pair with the frequency zero. In GGUF
// it is what llama.cpp's converters write; a rope dictionary takes no more than 1e9, which divides
// an angle of 2^31 radians to 2.
inline constexpr double kZeroInGguf = 1e30;
inline constexpr double kZeroInDictionaries = 1e9;

// One per pair: the frequency of `spec` without its scaling, divided by that of `scaled`; `zero`
// where the latter is 0.
std::vector<double> DivisorsOf(const RotarySpec& spec, const Frequencies& scaled, double zero);

}  // namespace ropewalk::internal
