// What the tests of this folder share: finite differences, and errors that must name things.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "tests/support/values.h"

namespace ropewalk {

// sum of a * b in double: a loss whose gradient with respect to a is b.
inline double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

// (f(x + h) - f(x - h)) / 2h, with f a function of doubles that the test typed again.
template <class F>
double Difference(const F& f, double x, double h = 1e-5) {
  return (f(x + h) - f(x - h)) / (2 * h);
}

// What PyTorch and transformers compute (tests/golden/absolute_make.py), printed with 10 digits.
inline const nlohmann::json& Golden() {
  static const nlohmann::json golden = [] {
    std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/absolute.json");
    return nlohmann::json::parse(file);
  }();
  return golden;
}

// The inputs that the golden's script makes by the same formula: exact in float32.
inline std::vector<float> GoldenValues(std::size_t n, std::size_t seed = 1) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    v[i] = static_cast<float>((i + seed) * 7919 % 257) / 128 - 1;
  }
  return v;
}

// `roundings` of float32, each half an ULP of the largest, and the golden's own.
template <class T>
void ExpectGolden(const std::vector<T>& got, const nlohmann::json& golden, int roundings = 1) {
  const auto want = golden.get<std::vector<double>>();
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], (roundings * 0x1p-24 + 1e-9) * largest) << i;
  }
}

template <class F>
void ExpectRefused(const F& f, const std::string& says) {
  try {
    f();
    ADD_FAILURE() << "was not refused: " << says;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
  }
}

}  // namespace ropewalk
