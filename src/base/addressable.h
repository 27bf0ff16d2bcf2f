// Whether sizes and strides that a caller gives can be memory.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace ropewalk::internal {

// A span of over 2^53 elements is no memory, and sums of several such spans in bytes could overflow.
inline constexpr int64_t kMostElements = int64_t{1} << 53;

// `size` elements that lie `stride` apart.
inline bool Addressable(int64_t size, int64_t stride) {
  int64_t span = 0;
  return size >= 0 && stride != INT64_MIN &&
         !__builtin_mul_overflow(size, std::abs(stride), &span) && span <= kMostElements;
}

}  // namespace ropewalk::internal
