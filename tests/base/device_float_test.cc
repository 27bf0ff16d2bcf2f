// What kernels load and store, on the CPU: the bits of the library's own conversions.
#include "src/base/device_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace ropewalk {
namespace {

using internal::FromFloat;
using internal::ToFloatHD;

template <class T, class Word>
void ExpectEveryWordBack() {
  for (uint32_t bits = 0; bits <= static_cast<Word>(~Word{0}); ++bits) {
    const T x{static_cast<Word>(bits)};
    const float value = ToFloatHD(x);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(ToFloat(x))) << bits;
    if (std::isnan(value)) continue;
    EXPECT_EQ(FromFloat<T>(value).bits, x.bits);
  }
}

TEST(DeviceFloat, EveryWordComesBack) {
  ExpectEveryWordBack<Float16, uint16_t>();
  ExpectEveryWordBack<BFloat16, uint16_t>();
  ExpectEveryWordBack<Float8E4M3, uint8_t>();
}

// Ties, overflow and subnormals, by their bits in IEEE 754 and OCP's text.
TEST(DeviceFloat, RoundsToNearestTiesToEven) {
  EXPECT_EQ(FromFloat<Float16>(1 + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(FromFloat<Float16>(1 + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(FromFloat<Float16>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(FromFloat<Float16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(FromFloat<Float16>(0x1p-25f).bits, 0);
  EXPECT_EQ(FromFloat<Float16>(-3 * 0x1p-25f).bits, 0x8002);
  EXPECT_EQ(FromFloat<BFloat16>(1 + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(FromFloat<BFloat16>(1 + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(FromFloat<Float8E4M3>(17.0f).bits, FromFloat<Float8E4M3>(16.0f).bits);
  EXPECT_EQ(FromFloat<Float8E4M3>(1e30f).bits, 0x7e);
  EXPECT_EQ(FromFloat<Float8E4M3>(-INFINITY).bits, 0xfe);
  EXPECT_EQ(FromFloat<float>(0.1f), 0.1f);
  EXPECT_EQ(FromFloat<double>(0.1), 0.1);
  EXPECT_EQ(ToFloatHD(0.1), 0.1);
}

}  // namespace
}  // namespace ropewalk
