// The arithmetic of matrix products.
#pragma once

#include <cstdint>

namespace ropewalk {

// kBFloat16 rounds both factors to bf16 (to nearest, ties to even); sums are in float32. A linear
// layer rounds its weights once and its input in every call; attention rounds queries, keys, weights
// of the softmax and values.
enum class ComputeType : uint8_t { kFloat32, kBFloat16 };
constexpr const char* Name(ComputeType type) {
  return type == ComputeType::kFloat32 ? "float32" : "bf16";
}

}  // namespace ropewalk
