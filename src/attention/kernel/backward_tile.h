// The backward pass of one tile of queries against all the keys that it sees.
#pragma once

#include <cstdint>
#include <vector>

#include "src/attention/kernel/tile.h"

namespace ropewalk::internal {

// Gradients of a form's parameters from one key head: for its `group` heads, or for the table that
// all heads share.
struct FormSums {
  std::vector<double> behind, ahead;  // [group]
  std::vector<double> values;         // [group, columns]
  std::vector<double> gates;          // [group, keys + 1], of the sums before each key
  // [parameters], of which no others are touched.
  AlignedBuffer<double> pair;
  PairFunction::Parameters pair_range{0, 0};
  // [1 or group, columns, key_stride] by ContentColumns, value_rows of value_stride, which is as wide;
  // query_rows and key_rows in units of ln 2
  AlignedBuffer<float> query_rows, key_rows, value_rows;
  std::vector<double> query_bias, key_bias;  // [group, head_dim]
};

// A content form's tables in the other layout than ContentColumns has them.
struct BackwardTables {
  AlignedBuffer<float> query_rows, key_rows;  // [table_heads, columns, key_stride]
  AlignedBuffer<float> packed_value_rows;     // [table_heads, blocks, head_dim, 64]
};

BackwardTables MakeBackwardTables(const ScoreForm& form, const ContentColumns* columns);

struct BackwardTile {
  AttentionTile forward;  // its out and log_sum_exp are those that it wrote
  const float* d_out;
  int64_t d_out_token_stride, d_out_head_stride;
  float* d_q;
  int64_t d_q_token_stride, d_q_head_stride;
  const float* packed_values;  // of the key head, as keys are
  const float* key_rows;       // [views, keys, key_stride], rotated, padded with zeros
  float* d_keys;               // [views, keys, key_stride], rotated, in units of ln 2
  int64_t view_stride;         // of those two
  float* d_values;             // [keys, value_stride]
  const BackwardTables* tables;
  FormSums* sums;     // null: not wanted, which terms of content do not ask
  double* d_sinks;    // [group] or null
  float* scratch;     // BackwardScratchFloats
  float* contextual;  // ContextualScratchFloats
};

constexpr int64_t BackwardScratchFloats(int64_t rows, const HeadDims& dims, int64_t views) {
  const int64_t floats = rows * ((views > 1 ? 2 : 1) * kScoreStride + dims.value_stride() +
                                 (1 + views) * dims.key_stride() + 1);
  return (floats + 15) / 16 * 16;
}

// Of kContextual alone: gates, products, and sums by tile of keys.
constexpr int64_t ContextualScratchFloats(int64_t rows, int64_t padded_columns, int64_t keys) {
  return rows * (kScoreStride + padded_columns) + 2 * (rows + 8) +
         2 * rows * (keys / kTileKeys + 2);
}

void AttendBackward(const BackwardTile& tile) noexcept;

}  // namespace ropewalk::internal
