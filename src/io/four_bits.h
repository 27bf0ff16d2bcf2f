// What the codes of types of 4 bits without equal steps stand for.
#pragma once

#include <bit>
#include <cstdint>

namespace ropewalk::internal {

// IQ4_NL's steps, which are finer around zero.
alignas(16) inline constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// What E2M1 may be, doubled: a sign, two bits of exponent, one of mantissa.
alignas(16) inline constexpr int8_t kTwiceE2M1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                      0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128), half of what E8M0 says. The two smallest are subnormal. 255 is one more power, and
// not NaN, in ggml and transformers alike.
inline float HalfE8M0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (e - 1u) << 23);
}

}  // namespace ropewalk::internal
