#include "src/base/divisor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace ropewalk::internal {
namespace {

constexpr uint32_t kEnd = uint32_t{1} << 31;  // of numbers that are divided

void ExpectDivides(const Divisor& d, uint32_t n) {
  ASSERT_EQ(d.Of(n), n / d.divisor) << n << " / " << d.divisor;
}

TEST(Divisor, EqualsDivision) {
  std::mt19937 random(1);
  for (uint32_t divisor = 1; divisor < 3000; ++divisor) {
    const Divisor d(divisor);
    // Around multiples, where a quotient that is off by one shows.
    for (const uint32_t near : {uint32_t{0}, divisor, kEnd / 2, kEnd - 1, kEnd - divisor}) {
      const uint32_t multiple = near / divisor * divisor;
      ExpectDivides(d, multiple);
      if (multiple > 0) ExpectDivides(d, multiple - 1);
      if (multiple < kEnd - 1) ExpectDivides(d, multiple + 1);
    }
    for (int i = 0; i < 200; ++i) ExpectDivides(d, random() % kEnd);
  }
}

TEST(Divisor, LargeDivisors) {
  std::mt19937 random(2);
  for (const uint32_t divisor :
       {(1u << 16) - 1, 1u << 16, (1u << 30) - 1, 1u << 30, (1u << 30) + 1, kEnd - 1}) {
    const Divisor d(divisor);
    for (const uint32_t n : {0u, 1u, divisor - 1, divisor, kEnd - 1}) ExpectDivides(d, n);
    for (int i = 0; i < 10000; ++i) ExpectDivides(d, random() % kEnd);
  }
}

}  // namespace
}  // namespace ropewalk::internal
