// Small helpers of the binary readers: little-endian loads, checked sizes, quoted names.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weight files are read as little endian");

template <class T>
T Load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// 'name' for a message: control characters and bytes past ASCII as \xNN, cut at 80 characters. A
// hostile name must not reach a terminal raw.
std::string Quote(std::string_view name);

// "[2, 3]"
std::string ShapeString(const std::vector<int64_t>& shape);

// Bytes of a row-major tensor; empty when the product overflows int64 or the last dimension is not
// a whole number of blocks.
std::optional<int64_t> TensorBytes(WeightType type, const std::vector<int64_t>& shape);

// Tells the kernel that the whole pages inside [data, data + bytes) may leave this process. Weights
// are read once and kept in another form, so their file pages would only count against peak memory.
void ReleasePages(const void* data, std::size_t bytes);

// Tells the kernel that the pages of [data, data + bytes) will be read again and again.
void ExpectReuse(const void* data, std::size_t bytes);

}  // namespace ropewalk::internal
