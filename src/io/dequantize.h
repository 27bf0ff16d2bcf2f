// Blocks of a weight file to float32, with ggml's arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Decodes `blocks` blocks of `type` at `in` (any alignment) to blocks * block_elements floats.
// `scales`: where the type has them in a tensor of their own.
void Dequantize(WeightType type, const std::byte* in, int64_t blocks, float* out,
                const std::byte* scales = nullptr);

// The type whose number in GGUF files is `ggml_id`.
std::optional<WeightType> FindGgmlType(uint32_t ggml_id);
// "F64, F32, ...": every type that is read from GGUF files.
std::string GgmlTypeNames();

}  // namespace ropewalk::internal
