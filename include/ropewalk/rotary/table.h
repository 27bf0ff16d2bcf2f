// Precomputed cos and sin in float32, one row per position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

namespace internal {
struct TableOnDevice;
}  // namespace internal

// Row layout: amplitude * cos of pairs 0 .. pairs-1, then amplitude * sin of the same pairs.
// amplitude is YaRN's attention factor (Frequencies::amplitude), usually 1.
//
// kExact: error at most 0.5001 ULP where the value is at least 2^-14 in magnitude; below, 2^-40
// absolute or 0.501 ULP, whichever is larger (half an ULP just below 2^-14 is 2^-39). For positions
// 0 .. 2^31 - 1 and amplitudes up to 2 (tested against MPFR). The bits of a row depend on
// frequencies, amplitude and position alone: not on the SIMD target, the range, growth or device.
//
// A table of Device::kCuda lies in memory of the GPU that was current (cudaSetDevice) when it was
// made, for calls on tensors there. The constructor, OnDevice and Grow run on `stream` (a
// cudaStream_t; null: the default stream) and wait for it, so a CUDA graph cannot capture them.
class CosSinTable {
 public:
  CosSinTable() = default;
  // Positions first .. first + count - 1.
  CosSinTable(const Frequencies& frequencies, int64_t first, int64_t count,
              AnglePrecision precision, Device device = Device::kCpu, void* stream = nullptr);

  // A table from given rows, [count, 2, pairs] as above, of positions 0 .. count - 1: for rotations
  // that no frequencies describe. It cannot grow.
  static CosSinTable FromRows(AlignedBuffer<float> rows, int64_t pairs);

  // A table that reads given rows where they lie, [count, 2, pairs] as above, of positions first ..
  // first + count - 1: rows that another library owns (a tensor of PyTorch, a memory-mapped file).
  // They lie in memory of `device` (kCuda: of the current GPU) and have to outlive every call that
  // uses the table. `amplitude` is the one that they contain, for Direction::kInverse; `axis` as in
  // Frequencies, on the CPU. It cannot grow.
  static CosSinTable View(const float* rows, int64_t first, int64_t count, int64_t pairs,
                          double amplitude = 1, std::span<const uint8_t> axis = {},
                          Device device = Device::kCpu);

  // A copy of a CPU table, from FromRows or not, in memory of the current GPU.
  CosSinTable OnDevice(void* stream = nullptr) const;

  // Extends the range to `count` positions; rows that exist keep their bits. Invalidates Row().
  void Grow(int64_t count, void* stream = nullptr);

  Device device() const { return on_device_ == nullptr ? Device::kCpu : Device::kCuda; }
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  int64_t pairs() const { return pairs_; }
  double amplitude() const { return frequencies_.amplitude; }
  // The frequencies that it was built from; none for FromRows and View.
  const Frequencies& frequencies() const { return frequencies_; }
  AnglePrecision precision() const { return precision_; }
  bool Contains(int64_t position) const { return position >= first_ && position - first_ < count_; }
  // [2 * pairs], in memory of device(); the position must be contained.
  const float* Row(int64_t position) const { return data_ + (position - first_) * 2 * pairs_; }

 private:
  friend struct internal::TableOnDevice;
  void MoveToDevice(void* stream);
  void GrowOnDevice(int64_t count, void* stream);

  Frequencies frequencies_;
  AnglePrecision precision_ = AnglePrecision::kExact;
  int64_t first_ = 0;
  int64_t count_ = 0;
  int64_t pairs_ = 0;
  bool given_ = false;         // FromRows, View
  AlignedBuffer<float> rows_;  // [count, 2, pairs], of a table of the CPU
  std::shared_ptr<internal::TableOnDevice> on_device_;
  const float* data_ = nullptr;  // the rows, wherever they lie
};

// The rows of any list of positions: out is [positions.size(), 2, pairs].
void FillCosSin(const Frequencies& frequencies, std::span<const int64_t> positions,
                AnglePrecision precision, float* out);

}  // namespace ropewalk
