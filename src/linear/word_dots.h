// Products of rows of quantized blocks with one row of float32 where a CPU has no integer product that
// fixed_dots.h needs. Codes are not taken out of their bytes one by one: eight words of a block are
// masked where they are, so that a code comes with a power of two, whose inverse x was multiplied with
// when it was written, once per product. What is left is a mask, a conversion and a multiplication for
// eight weights of 4 bits. All of it is float32, and exact but for sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/io/weights.h"
#include "src/linear/fixed_dots.h"

namespace ropewalk::internal {

// Whether the type is one of those that are multiplied so: Q4_0, Q4_1, Q4_K, Q5_K, Q6_K.
bool HasWordDots(WeightType type);

// Whether they are faster here than DotRow: with vectors of eight floats. Wider ones have tables there
// for what 4 bits stand for, and with narrower ones Q4_0 was slower.
bool WordDotsPay();

// What WriteWords takes for rows of n elements.
int64_t WordBytes(int64_t n);

// Writes x [n], whole blocks of `type`, to `out` [WordBytes(n)], aligned to 64 bytes. False where that
// would change a product: infinities, NaN, nothing above 2^-80 but zeros, and something above 2^110.
// Beside larger numbers, those below 2^-102 lose bits.
bool WriteWords(WeightType type, const float* x, int64_t n, std::byte* out);

// y[i] += the sum of row i times x. Its bits do not depend on the other rows.
void DotWords(WeightType type, const FixedRows& rows, int64_t n, const std::byte* written,
              float* y);

// The Highway target that is used, for tests.
int64_t WordsTarget();

}  // namespace ropewalk::internal
