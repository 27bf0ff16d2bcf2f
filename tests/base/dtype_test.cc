// 16-bit conversions, every value and every boundary between values.
#include "ropewalk/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace ropewalk {
namespace {

// The value of a 16-bit float from its definition: sign, `exponent_bits`, the rest mantissa.
double Value(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <class T>
T Round(float x) {
  if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(x);
  } else {
    return ToBFloat16(x);
  }
}

template <class T>
void CheckEveryValue(int exponent_bits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T x{static_cast<uint16_t>(bits)};
    const double value = Value(x.bits, exponent_bits);
    const float f = ToFloat(x);
    const T back = Round<T>(f);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f)) << bits;
      EXPECT_TRUE(std::isnan(Value(back.bits, exponent_bits))) << bits;
      const uint16_t quiet = static_cast<uint16_t>(1 << (14 - exponent_bits));
      EXPECT_NE(back.bits & quiet, 0) << bits;
      continue;
    }
    EXPECT_EQ(f, value) << bits;
    EXPECT_EQ(std::signbit(f), std::signbit(value)) << bits;
    EXPECT_EQ(back.bits, x.bits);
  }
}

TEST(Float16, EveryValueConvertsAndComesBack) { CheckEveryValue<Float16>(5); }
TEST(BFloat16, EveryValueConvertsAndComesBack) { CheckEveryValue<BFloat16>(8); }

// Between two neighbours, the float below, at and above the middle go down, to even, and up.
template <class T>
void CheckEveryMiddle(int exponent_bits) {
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const double low = Value(bits, exponent_bits);
    double high = Value(static_cast<uint16_t>(bits + 1), exponent_bits);
    // Past the largest value infinity stands where the next value would.
    if (std::isinf(high))
      high = low + (low - Value(static_cast<uint16_t>(bits - 1), exponent_bits));
    const double middle = (low + high) / 2;
    const float at = static_cast<float>(middle);
    if (at != middle) continue;  // between bf16 subnormals there are floats, but not this one
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    for (const int sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      const uint16_t mask = static_cast<uint16_t>(sign);
      EXPECT_EQ(Round<T>(s * std::nextafter(at, 0.0f)).bits, bits | mask) << bits;
      EXPECT_EQ(Round<T>(s * at).bits, even | mask) << bits;
      EXPECT_EQ(Round<T>(s * std::nextafter(at, INFINITY)).bits, (bits + 1) | mask) << bits;
    }
  }
}

TEST(Float16, RoundsToNearestTiesToEven) { CheckEveryMiddle<Float16>(5); }
TEST(BFloat16, RoundsToNearestTiesToEven) { CheckEveryMiddle<BFloat16>(8); }

TEST(Float16, OverflowAndTinyValues) {
  EXPECT_EQ(ToFloat16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(1e30f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(ToFloat16(0x1p-25f).bits, 0);  // half the smallest: to even
  EXPECT_EQ(ToFloat16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(ToFloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(ToBFloat16(3.4e38f).bits, 0x7f80);
}

// The 127 values up to 448 by the definition: 4 bits of exponent with bias 7, 3 of mantissa, and of
// exponent 15 all but the last mantissa, which is NaN.
double ValueOfE4M3(int bits) {
  const int exponent = bits >> 3, mantissa = bits & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

TEST(Float8E4M3, EveryValueAndEveryMiddle) {
  const auto round = [](float x) { return int{ToFloat8E4M3(x).bits}; };
  for (int bits = 0; bits < 127; ++bits) {
    const double low = ValueOfE4M3(bits);
    EXPECT_EQ(ToFloat(Float8E4M3{static_cast<uint8_t>(bits)}), low);
    EXPECT_EQ(ToFloat(Float8E4M3{static_cast<uint8_t>(bits | 0x80)}), -low);
    EXPECT_EQ(round(static_cast<float>(low)), bits);
    EXPECT_EQ(round(static_cast<float>(-low)), bits | 0x80);
    if (bits == 126) break;
    const auto middle = static_cast<float>((low + ValueOfE4M3(bits + 1)) / 2);
    EXPECT_EQ(round(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(round(middle), bits + (bits & 1));
    EXPECT_EQ(round(std::nextafter(middle, INFINITY)), bits + 1);
  }
  for (const float huge : {448.0f, 449.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(round(huge), 0x7e);
    EXPECT_EQ(round(-huge), 0xfe);
  }
  EXPECT_EQ(round(NAN) & 0x7f, 0x7f);
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0x7f})));
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0xff})));
}

TEST(DType, TablesAgree) {
  EXPECT_STREQ(Name(DType::kBF16), "bf16");
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    VisitFloat(t, [&]<class T>(std::type_identity<T>) {
      EXPECT_EQ(static_cast<int64_t>(sizeof(T)), SizeOf(t));
      EXPECT_EQ(DTypeOf<T>::value, t);
    });
  }
  EXPECT_STREQ(Name(DType::kF8E4M3), "f8_e4m3");
  EXPECT_EQ(SizeOf(DType::kF8E4M3), 1);
  EXPECT_THROW(VisitFloat(DType::kF8E4M3, [](auto) {}), Error);
  EXPECT_THROW(VisitFloat(static_cast<DType>(7), [](auto) {}), Error);
}

}  // namespace
}  // namespace ropewalk
