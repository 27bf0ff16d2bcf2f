// The products of TUPE's positions on a tile, compiled once per SIMD target.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk::internal {

// Floats that stand behind every table that these read: they load four whole vectors at a time.
inline constexpr int64_t kTupePadding = 64;

// out[r * stride + c] = query row . key column [+ the bias of the distance], for all pairs of a
// tile. Each sum runs over head_dim in order: a pair has the same bits in every tile.
struct TupeScores {
  const float* queries;  // [positions, head_dim]
  const float* keys;     // [head_dim, key_stride]
  const float* biases;   // of key - query, that of 0 here; or null
  int64_t key_stride, head_dim;
  std::span<const int64_t> query_positions, key_positions;
  float* out;
  int64_t stride;
};
void EvaluateTupe(const TupeScores& t);

// gradient[rows[m] * head_dim + e] += sum over i of weights[m * row_stride + i * column_stride]
//   * others[columns[i] * head_dim + e],
// summed in float32 over the tile.
struct TupeGradient {
  const float* weights;
  int64_t row_stride, column_stride;
  std::span<const int64_t> rows, columns;
  const float* others;  // [positions, head_dim]
  int64_t head_dim;
  double* gradient;  // [positions, head_dim]
};
void AddTupeGradient(const TupeGradient& t);

int64_t TupeTarget();  // the SIMD target that dispatch takes, for tests

}  // namespace ropewalk::internal
