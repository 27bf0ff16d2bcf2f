// Test values of every element type.
#pragma once

#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "ropewalk/base/dtype.h"

namespace ropewalk {

template <class T>
double ToDouble(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(x);
  } else {
    return static_cast<double>(ToFloat(x));
  }
}

template <class T>
T FromDouble(double x) {
  if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Normal, mean 0, deviation 1.
template <class T>
std::vector<T> RandomValues(std::size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> v(n);
  for (T& x : v) x = FromDouble<T>(normal(random));
  return v;
}

}  // namespace ropewalk
