// float32 to bf16 for whole rows, vectorised.
#pragma once

#include <cstdint>

#include "ropewalk/base/dtype.h"

namespace ropewalk::internal {

// out [rows, n], dense, from rows of n floats that begin `stride` elements apart, each rounded as
// ToBFloat16 does: to nearest, ties to even, subnormals and infinities kept, every NaN a quiet NaN.
void RoundToBf16(const float* x, int64_t stride, int64_t rows, int64_t n, BFloat16* out);

int64_t RoundToBf16Target();  // the SIMD target that dispatch takes, for tests

}  // namespace ropewalk::internal
