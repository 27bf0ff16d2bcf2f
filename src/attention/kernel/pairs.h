// Products of pairs of bf16 with float32 sums.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// c [rows, width] = factor a [rows, 2 depth] times b, or += where the factor is kAccumulatePairs.
// a is bf16; b is words [depth, width] of two bf16 of its depth, the even one below. rows: 1 to 6;
// width: a multiple of 16; strides in elements of a and c, and words of b. Needs HasBf16Attention().
// Each element sums over depth in order, so its bits do not depend on rows or width, and is added to
// c as one.
inline constexpr float kAccumulatePairs = 0;
void MultiplyPairs(int64_t rows, int64_t width, const uint16_t* a, int64_t a_stride,
                   const uint32_t* b, int64_t b_stride, int64_t depth, float factor, float* c,
                   int64_t c_stride);

}  // namespace ropewalk::internal
