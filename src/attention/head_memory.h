// What the backward pass keeps of one key head at a time: memory of one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "src/attention/kernel/tile.h"

namespace ropewalk::internal {

// cos and sin of the keys at their positions in each view, a row per key; made once per call.
struct KeyRotations {
  std::vector<std::pair<int64_t, int64_t>> keys;  // [views], those that a view scores
  std::vector<AlignedBuffer<float>>
      rows;  // [views][keys of the view, 2, pairs]; empty: none rotate

  KeyRotations(const KvCache& cache, const RotationRun& rotation);
};

// Keys and values in the layouts that the gradients read, and the sums that they get.
class HeadMemory {
 public:
  HeadMemory(const KvCache& cache, const RotationRun& rotation, const KeyRotations& rotations);

  // Once, by the thread that works in it.
  void Clear();
  // Takes a head's keys and values; gradients become 0.
  void Load(int64_t kv_head);
  // Write a head's gradients, [keys, kv_heads, dims of a head]; those of the keys are rotated back.
  void WriteKeys(float factor, const TensorView& to, int64_t kv_head);
  void WriteValues(const TensorView& to, int64_t kv_head) const;

  const float* packed_values() const { return packed_values_.data(); }  // as keys are
  const float* key_rows() const { return key_rows_.data(); }  // [views, keys, key_stride], rotated
  float* d_keys() { return d_keys_.data(); }                  // [views, keys, key_stride]
  float* d_values() { return d_values_.data(); }              // [keys, value_stride]
  int64_t view_stride() const { return cache_.tokens() * stride_; }  // of a view's keys

 private:
  void LoadKeys(int64_t kv_head);
  void Rotate(size_t view, bool adjoint, float* rows) const;

  const KvCache& cache_;
  const RotationRun& rotation_;
  const KeyRotations& rotations_;
  const int64_t dim_, stride_, value_dim_, value_stride_;
  AlignedBuffer<float> packed_values_, key_rows_, d_keys_, d_values_;
};

// Rotates `count` rows x, `stride` apart, by `cos_sin` [count, 2, pairs]; adjoint: R^T.
void RotateRows(const RotationRun& rotation, const float* cos_sin, int64_t count, bool adjoint,
                float* x, int64_t stride);

}  // namespace ropewalk::internal
