// Checks of arguments that all ops here share: numbers in range, spans of the size that the shape
// requires.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

[[noreturn]] inline void Refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

inline void CheckRange(const std::string& name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    Refuse(name + ": expected " + std::to_string(least) + " to " + std::to_string(most) + ", got " +
           std::to_string(value));
  }
}

// Sizes of tensors: at least 1, and few enough that a product of two does not overflow.
inline void CheckSize(const std::string& name, int64_t value) {
  CheckRange(name, value, 1, int64_t{1} << 31);
}

template <class T>
void CheckSpan(const std::string& name, std::span<T> values, std::initializer_list<int64_t> shape) {
  int64_t expected = 1;
  std::string text;
  bool fits = true;
  for (const int64_t n : shape) {
    text += (text.empty() ? "[" : ", ") + std::to_string(n);
    fits = fits && !__builtin_mul_overflow(expected, n, &expected);
  }
  if (!fits || static_cast<int64_t>(values.size()) != expected) {
    Refuse(name + ": expected " + text + "], got " + std::to_string(values.size()) + " numbers");
  }
}

inline void CheckFinite(const std::string& name, double value) {
  if (!std::isfinite(value)) Refuse(name + ": expected a number, got " + std::to_string(value));
}

// first <= each position < end.
inline void CheckPositions(const std::string& name, std::span<const int64_t> positions,
                           int64_t first, int64_t end, const std::string& advice) {
  const auto bad = std::find_if(positions.begin(), positions.end(),
                                [&](int64_t p) { return p < first || p >= end; });
  if (bad == positions.end()) return;
  Refuse(name + ": expected " + std::to_string(first) + " to " + std::to_string(end - 1) +
         ", got " + std::to_string(*bad) + " at " + std::to_string(bad - positions.begin()) +
         advice);
}

}  // namespace ropewalk::internal
