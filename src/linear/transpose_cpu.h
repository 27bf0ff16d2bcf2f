// Decoded rows as columns of a panel.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// to[c * to_stride + r] = from[r * columns + c] for r in [0, rows) and c in [0, columns).
void Transpose(const float* from, int64_t rows, int64_t columns, float* to, int64_t to_stride);

int64_t TransposeTarget();  // the SIMD target that dispatch takes, for tests

}  // namespace ropewalk::internal
