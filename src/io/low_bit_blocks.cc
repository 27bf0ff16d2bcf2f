#include "src/io/low_bit_blocks.h"

#include <array>
#include <bit>

#include "src/io/bytes.h"
#include "src/io/ggml_grids.h"

namespace ropewalk::internal {
namespace {

// A scale times a step of a grid has at most 11 + 5 + 6 bits: exact in any order.
template <std::size_t kElements>
void Signed(const std::array<int8_t, kElements>& point, unsigned signs, float scale, float* out) {
  // A sign as a mask, without a shift by j: compilers vectorise that for every x86-64.
  constexpr uint32_t kBits[] = {1, 2, 4, 8, 16, 32, 64, 128};
  for (std::size_t j = 0; j < kElements; ++j) {
    const uint32_t sign = (signs & kBits[j]) != 0 ? uint32_t{1} << 31 : 0;
    out[j] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(scale * static_cast<float>(point[j])) ^ sign);
  }
}

// The 8 signs of 7 stored bits; what is above them does not count.
unsigned Signs(unsigned bits) {
  bits &= 127;
  return bits | (static_cast<unsigned>(std::popcount(bits)) & 1) << 7;
}

// A scale of 4 bits, which stands for a number and a half.
float HalfStep(unsigned bits) { return static_cast<float>(bits & 15) + 0.5f; }

// The scale of 16 elements of IQ2, from the 4 bits of `scales` for them.
float Scale2(float d, const uint8_t* scales, int group) {
  return d * HalfStep(scales[group / 4] >> (group % 4 / 2 * 4)) * 0.25f;
}

template <class F>
void Groups(float* out, F&& decode) {
  for (int group = 0; group < 32; ++group) decode(group, out + group * 8);
}

// Eight elements of IQ1, whose scale has 3 bits.
void Shifted(unsigned point, bool down, float d, unsigned scale, float* out) {
  const float odd = d * static_cast<float>(2 * (scale & 7) + 1);
  const float shift = down ? -0.125f : 0.125f;
  for (int j = 0; j < 8; ++j) out[j] = odd * (static_cast<float>(kGridIQ1[point][j]) + shift);
}

// The n-th digit, counted from the most significant, of a byte that is a number in base 3 below 1.
float Digit(uint8_t byte, int n, float d) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  const auto fraction = static_cast<uint8_t>(byte * kPowers[n]);
  return static_cast<float>((fraction * 3 >> 8) - 1) * d;
}

// `digits` digits of each of `count` bytes, digit by digit.
float* Digits(const uint8_t* bytes, int count, int digits, float d, float* out) {
  for (int n = 0; n < digits; ++n) {
    for (int j = 0; j < count; ++j) *out++ = Digit(bytes[j], n, d);
  }
  return out;
}

}  // namespace

void Decode(const BlockIQ2_XXS& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const uint8_t* q = b.q + group / 4 * 8;
    const auto signs = Load<uint32_t>(q + 4);
    Signed(kGridIQ2_XXS[q[group % 4]], Signs(signs >> (group % 4 * 7)),
           d * HalfStep(signs >> 28) * 0.25f, to);
  });
}

void Decode(const BlockIQ2_XS& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const unsigned q = b.q[group];
    Signed(kGridIQ2_XS[q & 511], Signs(q >> 9), Scale2(d, b.scales, group), to);
  });
}

void Decode(const BlockIQ2_S& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const unsigned high = b.high[group / 4] >> (group % 4 * 2) & 3;
    Signed(kGridIQ2_S[b.q[group] | high << 8], b.signs[group], Scale2(d, b.scales, group), to);
  });
}

void Decode(const BlockIQ3_XXS& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const auto packed = Load<uint32_t>(b.signs + group / 4 * 4);
    const unsigned signs = Signs(packed >> (group % 4 * 7));
    const float scale = d * HalfStep(packed >> 28) * 0.5f;
    Signed(kGridIQ3_XXS[b.q[group * 2]], signs, scale, to);
    Signed(kGridIQ3_XXS[b.q[group * 2 + 1]], signs >> 4, scale, to + 4);
  });
}

void Decode(const BlockIQ3_S& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const unsigned high = b.high[group / 4] >> (group % 4 * 2);
    const unsigned first = b.q[group * 2] | (high & 1) << 8;
    const unsigned second = b.q[group * 2 + 1] | (high & 2) << 7;
    const int bits = b.scales[group / 8] >> (group / 4 % 2 * 4) & 15;
    const float scale = d * static_cast<float>(1 + 2 * bits);
    Signed(kGridIQ3_S[first], b.signs[group], scale, to);
    Signed(kGridIQ3_S[second], b.signs[group] >> 4, scale, to + 4);
  });
}

void Decode(const BlockIQ1_S& b, float* out) {
  const float d = ToFloat(b.d);
  Groups(out, [&](int group, float* to) {
    const unsigned high = b.high[group / 4];
    const unsigned point = b.q[group] | (high >> (group % 4 * 3) & 7) << 8;
    Shifted(point, (high >> 15) != 0, d, high >> 12, to);
  });
}

void Decode(const BlockIQ1_M& b, float* out) {
  unsigned bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(b.scales[i] >> 12) << (4 * i);
  const float d = ToFloat(Float16{static_cast<uint16_t>(bits)});
  Groups(out, [&](int group, float* to) {
    const unsigned high = b.high[group / 2] >> (group % 2 * 4);
    const unsigned scale = b.scales[group / 8] >> (group % 8 / 2 * 3);
    Shifted(b.q[group] | (high & 7) << 8, (high & 8) != 0, d, scale, to);
  });
}

void Decode(const BlockTQ1_0& b, float* out) {
  const float d = ToFloat(b.d);
  out = Digits(b.q, 32, 5, d, out);
  out = Digits(b.q + 32, 16, 5, d, out);
  Digits(b.last, 4, 4, d, out);
}

void Decode(const BlockTQ2_0& b, float* out) {
  const float d = ToFloat(b.d);
  for (int half = 0; half < 64; half += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int j = 0; j < 32; ++j) {
        *out++ = static_cast<float>((b.q[half + j] >> shift & 3) - 1) * d;
      }
    }
  }
}

}  // namespace ropewalk::internal
