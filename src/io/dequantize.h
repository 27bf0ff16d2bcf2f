// Blocks of a weight file to float32, with ggml's arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Decodes `blocks` blocks of `type` at `in` (any alignment) to blocks * block_elements floats.
void Dequantize(WeightType type, const std::byte* in, int64_t blocks, float* out);

}  // namespace ropewalk::internal
