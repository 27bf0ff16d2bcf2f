// Rows of a weight as they lie in a file, decoded or multiplied where they are, vectorised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Both take a row of n elements (whole blocks) of `type` at `row`, of any alignment, and see the
// float32 numbers that Dequantize makes of it, bit for bit.
void DecodeRow(WeightType type, const std::byte* row, int64_t n, float* out);
// The sum of row[i] * x[i] in float32.
float DotRow(WeightType type, const std::byte* row, int64_t n, const float* x);

// y[r * y_stride] += the sum of w[i] * x[r * x_stride + i], for each of `rows` rows of x.
void DotFloats(const float* w, int64_t n, const float* x, int64_t rows, int64_t x_stride, float* y,
               int64_t y_stride);

int64_t RowsTarget();  // the SIMD target that dispatch takes, for tests

}  // namespace ropewalk::internal
