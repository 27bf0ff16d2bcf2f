// Products of rows of quantized blocks with one row of float32, in integers: no weight becomes a
// float. x is written once per product as fixed-point numbers of 24 bits in three planes of 8, with
// a scale for every four; a plane times the codes of a block is one instruction for 64 products
// (vpdpbusd), whose sums are exact. What rounding is left is that of x, to 2^-24 of the largest of its
// four (2^-23 where codes stand for 8 bits), and of the sums of blocks: errors are those of float32
// products (tests/linear compares both with double).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Whether this CPU has the instruction and the type is one of those that are multiplied so.
bool HasFixedDots(WeightType type);

// What WriteFixed takes for rows of n elements.
int64_t FixedBytes(int64_t n);

// Writes x [n], whole blocks of `type`, to `out` [FixedBytes(n)], aligned to 64 bytes. False where
// fixed-point numbers are not x: infinities, NaN, and nothing above 2^-80 but zeros.
bool WriteFixed(WeightType type, const float* x, int64_t n, std::byte* out);

// Rows of a matrix in a file: row i is at data, row order[first + i] (first + i without an order).
struct FixedRows {
  const std::byte* data;
  const int64_t* order;
  int64_t first, count;
};

// y[i] += the sum of row i times x. Its bits do not depend on the other rows.
void DotFixed(WeightType type, const FixedRows& rows, int64_t n, const std::byte* fixed, float* y);

}  // namespace ropewalk::internal
