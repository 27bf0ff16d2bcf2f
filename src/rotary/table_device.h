// Tables in memory of a GPU. What a thread does is here, so that tests run it on the CPU.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/table.h"
#include "src/base/cuda.h"
#include "src/rotary/exact_angle.h"

namespace ropewalk::internal {

struct TableOnDevice {
  int device = 0;          // the number of the GPU
  DeviceBuffer rows;       // [count, 2, pairs]
  DeviceBuffer log_decay;  // [pairs] doubles where there is xPos

  static const TableOnDevice* Of(const CosSinTable& table) { return table.on_device_.get(); }
};

// For a call on the current GPU: ln zeta / scale_base of each pair there, null without xPos. Throws
// Error if the table lies elsewhere.
const double* DeviceLogDecay(const CosSinTable& table);

// Exact rows of positions first .. first + count - 1.
struct TableParams {
  const Uint128* turns = nullptr;  // [pairs]
  int64_t pairs = 0;
  double amplitude = 1;
  int64_t first = 0;
  int64_t count = 0;
  float* rows = nullptr;  // [count, 2, pairs]
};

// Of the elements of a table, count * pairs cosines and their sines, the i-th.
struct TableElement {
  int64_t position, pair;
  int64_t cos, sin;  // where they go in rows
};
ROPEWALK_HD inline TableElement ElementOf(const TableParams& p, int64_t i) {
  const int64_t row = i / p.pairs;
  const int64_t pair = i - row * p.pairs;
  const int64_t cos = row * 2 * p.pairs + pair;
  return {p.first + row, pair, cos, cos + p.pairs};
}

inline constexpr int kTableThreads = 256;  // of a block

// Enough to fill the GPU; a thread computes several elements where there are more.
inline int64_t TableBlocks(const TableParams& p, int multiprocessors) {
  const int64_t all = (p.count * p.pairs + kTableThreads - 1) / kTableThreads;
  const int64_t full = int64_t{multiprocessors} * 32;
  return all < full ? all : full;
}

// What one of `threads` threads does.
ROPEWALK_HD inline void FillTable(const TableParams& p, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i < p.count * p.pairs; i += threads) {
    const TableElement e = ElementOf(p, i);
    ExactCosSin(p.turns[e.pair], e.position, p.amplitude, p.rows + e.cos, p.rows + e.sin);
  }
}

void LaunchFillTable(const TableParams& params, void* stream);

// Rows of positions first .. first + count - 1, by the CPU.
void FillRows(const Frequencies& frequencies, int64_t first, int64_t count,
              AnglePrecision precision, float* out);

}  // namespace ropewalk::internal
