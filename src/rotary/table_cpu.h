// The two vector kernels of the table. Every operation is a single correctly rounded multiply, add
// or select, never a fused one, so all SIMD targets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ropewalk::internal {

// Rows of doubles are padded to this many, so that kernels have no tails.
inline constexpr std::size_t kRowPadding = 8;

// Angles as quadrant * pi/2 + hi + lo with |hi| <= pi/4; arrays of `padded` elements, 64-byte
// aligned.
struct ReducedAngles {
  const double* hi;
  const double* lo;
  const int64_t* quadrant;  // 0 .. 3
};

// out: cos [padded], then sin [padded], each within 0.8 ULP.
void SinCosRow(const ReducedAngles& angles, std::size_t padded, double* out);

// out row r = amplitude * (cos, sin)(coarse + fine row r), float32; by the addition theorems.
// coarse: [2, padded]; fine: [rows, 2, padded]; out: [rows, 2, pairs].
void CombineRows(const double* coarse, const double* fine, std::size_t padded, std::size_t pairs,
                 double amplitude, std::size_t rows, float* out);

int64_t TableTarget();  // the HWY_TARGET that dispatch chooses; for tests

}  // namespace ropewalk::internal
