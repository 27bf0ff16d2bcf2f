// Floats to the element types that a converter writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Whether Quantize below writes this type: F32, F16, BF16 and Q8_0.
bool CanQuantize(WeightType type);

// `blocks` blocks of `type`. F16 and BF16 round to nearest, ties to even. Q8_0 is ggml's: a scale
// of the largest magnitude / 127 for 32 elements; blocks that came from Q8_0 with an element of
// magnitude 127 (which ggml's quantiser always leaves) give their own bytes again.
void Quantize(WeightType type, const float* in, int64_t blocks, std::byte* out);

}  // namespace ropewalk::internal
