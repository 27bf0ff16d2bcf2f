// Fused RoPE, for the kernel to read.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/attention/load_rotation.h"
#include "ropewalk/base/buffer.h"

namespace ropewalk {

struct AttentionArgs;

struct LoadRotationAccess {
  static constexpr int64_t kPartBlocks = 64;  // a part is never moved, so growing copies nothing

  static const RotarySpec& Spec(const LoadRotation& r) { return r.spec_; }
  static int64_t Pairs(const LoadRotation& r) { return r.spec_.rotary_dim / 2; }
  static int Views(const LoadRotation& r) { return static_cast<int>(r.views_.size()); }
  // [2, pairs, 64] of the keys 64 block .. 64 block + 63; null: they stay as they are.
  static const float* KeyBlock(const LoadRotation& r, int view, int64_t block) {
    const int table = r.views_[static_cast<size_t>(view)].table;
    if (table < 0) return nullptr;
    return r.tables_[static_cast<size_t>(table)].parts[block / kPartBlocks].data() +
           block % kPartBlocks * 128 * Pairs(r);
  }
  // cos and sin of the queries at `first` .. first + count - 1, [count, 2, pairs].
  static void FillQueries(const LoadRotation& r, int view, int64_t first, int64_t count,
                          float* out);
};

namespace internal {

// Of one call.
struct RotationRun {
  const LoadRotation* rotation = nullptr;
  int views = 0;
  int64_t pairs = 0, queries = 0;
  int64_t first_block = 0;          // of the first key, among blocks of positions
  std::vector<int32_t> dims;        // [pairs, 2]: the two elements of each pair
  std::vector<int32_t> unrotated;   // elements that do not rotate
  AlignedBuffer<float> query_rows;  // [views, queries, 2, pairs]
  // The keys that a query sees through a view, where there are several: [views, queries].
  std::vector<int64_t> begin, end;

  // cos and sin of the keys 64 block .. of the cache, as LoadRotationAccess has them.
  const float* KeyBlock(int view, int64_t block) const {
    return LoadRotationAccess::KeyBlock(*rotation, view, first_block + block);
  }
  const float* Row(int view, int64_t query) const {
    return query_rows.data() + (view * queries + query) * 2 * pairs;
  }
};

// Throws Error that names the argument; `args.rotation` is not null.
RotationRun PrepareRotation(const AttentionArgs& args);

// The queries of each view but the first, a block of keys and the products of a few rows with it.
constexpr int64_t RotationScratchFloats(int64_t views, int64_t rows, int64_t key_stride,
                                        int64_t head_dim) {
  const int64_t floats = (views - 1) * rows * key_stride + 64 * (head_dim + 32);
  return (floats + 15) / 16 * 16;
}

}  // namespace internal
}  // namespace ropewalk
