#include "src/io/low_bit_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/io/bytes.h"
#include "src/io/ggml_grids.h"

namespace ropewalk::internal {
namespace {

// Byte j is 255 where bit j of the index is set.
constexpr auto kMasks = [] {
  std::array<uint64_t, 256> masks{};
  for (std::size_t bits = 0; bits < masks.size(); ++bits) {
    for (int j = 0; j < 8; ++j) {
      if ((bits >> j & 1) != 0) masks[bits] |= uint64_t{255} << (8 * j);
    }
  }
  return masks;
}();

// Eight magnitudes with their signs: bytes of a word, negated without a carry, since none is 0.
void Signed(uint64_t magnitudes, unsigned signs, int8_t* to) {
  const uint64_t mask = kMasks[signs & 255];
  const uint64_t codes = (magnitudes ^ mask) + (mask & 0x0101010101010101u);
  std::memcpy(to, &codes, sizeof(codes));
}
void Signed(const std::array<int8_t, 8>& point, unsigned signs, int8_t* to) {
  Signed(Load<uint64_t>(point.data()), signs, to);
}
void Signed(const std::array<int8_t, 4>& first, const std::array<int8_t, 4>& second, unsigned signs,
            int8_t* to) {
  Signed(Load<uint32_t>(first.data()) | uint64_t{Load<uint32_t>(second.data())} << 32, signs, to);
}

// The 8 signs of 7 stored bits; what is above them does not count.
unsigned Signs(unsigned bits) {
  constexpr unsigned kOdd = 0x6996;  // bit n: n has an odd number of ones
  bits &= 127;
  return bits | (kOdd >> ((bits ^ bits >> 4) & 15) & 1) << 7;
}

// A scale of 4 bits stands for a number and a half; a quarter of it.
constexpr auto kHalfSteps = [] {
  std::array<float, 16> steps{};
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = (static_cast<float>(i) + 0.5f) * 0.25f;
  return steps;
}();

// The scales of IQ2, 4 bits each.
void Scales2(float d, const uint8_t* packed, float* scales) {
  for (int i = 0; i < 8; ++i) {
    scales[2 * i] = d * kHalfSteps[packed[i] & 15];
    scales[2 * i + 1] = d * kHalfSteps[packed[i] >> 4];
  }
}

// unpack(group, code of its first element) for groups of 8 elements. Four at a time: what is taken
// out of a byte or word of theirs then has constant places.
template <class F>
void Groups(LowBitCodes& to, F&& unpack) {
  for (int four = 0; four < 32; four += 4) {
    for (int i = 0; i < 4; ++i) unpack(four + i, to.codes + (four + i) * 8);
  }
}

// Eight elements of IQ1: -1, 0 or 1 and an eighth up or down, in eighths.
void Shifted(unsigned point, bool down, int8_t* to) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  const uint64_t eight = Load<uint64_t>(kGridIQ1[point].data()) << 3 & kOnes * 0xf8;
  // Bytes less 1, without a borrow.
  const uint64_t lower = ((eight & kOnes * 0x7f) + kOnes * 0x7f) ^ (~eight & kOnes * 0x80);
  const uint64_t codes = down ? lower : eight | kOnes;
  std::memcpy(to, &codes, sizeof(codes));
}
// Its scale has 3 bits; an eighth of it.
float OddEighths(float d, unsigned bits) {
  return d * static_cast<float>(2 * (bits & 7) + 1) * 0.125f;
}

// `digits` digits of each of `count` bytes, digit by digit. A byte is a number in base 3 below 1.
int8_t* Digits(const uint8_t* bytes, int count, int digits, int8_t* out) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  for (int n = 0; n < digits; ++n) {
    for (int j = 0; j < count; ++j) {
      const auto fraction = static_cast<uint8_t>(bytes[j] * kPowers[n]);
      *out++ = static_cast<int8_t>((fraction * 3 >> 8) - 1);
    }
  }
  return out;
}

}  // namespace

void Unpack(const BlockIQ2_XXS& b, LowBitCodes& to) {
  const float d = ToFloat(b.d);
  Groups(to, [&](int group, int8_t* codes) {
    const uint8_t* q = b.q + group / 4 * 8;
    const auto signs = Load<uint32_t>(q + 4);
    Signed(kGridIQ2_XXS[q[group % 4]], Signs(signs >> (group % 4 * 7)), codes);
    to.scales[group / 2] = d * kHalfSteps[signs >> 28];
  });
}

void Unpack(const BlockIQ2_XS& b, LowBitCodes& to) {
  Scales2(ToFloat(b.d), b.scales, to.scales);
  Groups(to, [&](int group, int8_t* codes) {
    const unsigned q = b.q[group];
    Signed(kGridIQ2_XS[q & 511], Signs(q >> 9), codes);
  });
}

void Unpack(const BlockIQ2_S& b, LowBitCodes& to) {
  Scales2(ToFloat(b.d), b.scales, to.scales);
  Groups(to, [&](int group, int8_t* codes) {
    const unsigned high = b.high[group / 4] >> (group % 4 * 2) & 3;
    Signed(kGridIQ2_S[b.q[group] | high << 8], b.signs[group], codes);
  });
}

void Unpack(const BlockIQ3_XXS& b, LowBitCodes& to) {
  const float d = ToFloat(b.d);
  Groups(to, [&](int group, int8_t* codes) {
    const auto packed = Load<uint32_t>(b.signs + group / 4 * 4);
    Signed(kGridIQ3_XXS[b.q[group * 2]], kGridIQ3_XXS[b.q[group * 2 + 1]],
           Signs(packed >> (group % 4 * 7)), codes);
    to.scales[group / 2] = d * kHalfSteps[packed >> 28] * 2;
  });
}

void Unpack(const BlockIQ3_S& b, LowBitCodes& to) {
  const float d = ToFloat(b.d);
  Groups(to, [&](int group, int8_t* codes) {
    const unsigned high = b.high[group / 4] >> (group % 4 * 2);
    const unsigned first = b.q[group * 2] | (high & 1) << 8;
    const unsigned second = b.q[group * 2 + 1] | (high & 2) << 7;
    Signed(kGridIQ3_S[first], kGridIQ3_S[second], b.signs[group], codes);
    const int bits = b.scales[group / 8] >> (group / 4 % 2 * 4) & 15;
    to.scales[group / 2] = d * static_cast<float>(1 + 2 * bits);
  });
}

void Unpack(const BlockIQ1_S& b, LowBitCodes& to) {
  const float d = ToFloat(b.d);
  Groups(to, [&](int group, int8_t* codes) {
    const unsigned high = b.high[group / 4];
    const unsigned point = b.q[group] | (high >> (group % 4 * 3) & 7) << 8;
    Shifted(point, (high >> 15) != 0, codes);
    to.scales[group / 2] = OddEighths(d, high >> 12);
  });
}

void Unpack(const BlockIQ1_M& b, LowBitCodes& to) {
  unsigned bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(b.scales[i] >> 12) << (4 * i);
  const float d = ToFloat(Float16{static_cast<uint16_t>(bits)});
  Groups(to, [&](int group, int8_t* codes) {
    const unsigned high = b.high[group / 2] >> (group % 2 * 4);
    Shifted(b.q[group] | (high & 7) << 8, (high & 8) != 0, codes);
    to.scales[group / 2] = OddEighths(d, b.scales[group / 8] >> (group % 8 / 2 * 3));
  });
}

void Unpack(const BlockTQ1_0& b, LowBitCodes& to) {
  std::fill_n(to.scales, 16, ToFloat(b.d));
  int8_t* next = Digits(b.q, 32, 5, to.codes);
  next = Digits(b.q + 32, 16, 5, next);
  Digits(b.last, 4, 4, next);
}

void Unpack(const BlockTQ2_0& b, LowBitCodes& to) {
  std::fill_n(to.scales, 16, ToFloat(b.d));
  int8_t* next = to.codes;
  for (int half = 0; half < 64; half += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int j = 0; j < 32; ++j) {
        *next++ = static_cast<int8_t>((b.q[half + j] >> shift & 3) - 1);
      }
    }
  }
}

}  // namespace ropewalk::internal
