// Whether two strided views share elements. Needed because a rotation reads two elements and
// writes both, in parallel over tokens.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "ropewalk/base/tensor_view.h"

namespace ropewalk::internal {

// The memory of a view as equal runs of bytes, repeated along `strides`. All but `begin` in bytes.
struct Footprint {
  // The view has elements and strides that fit its memory, so nothing here overflows.
  void Set(const TensorView& view);

  intptr_t begin;  // the lowest address
  int64_t extent;  // to one past the highest
  int64_t run;     // contiguous
  int64_t strides[TensorView::kMaxRank];
  int num_strides;
  bool self_overlap;
};

inline void Footprint::Set(const TensorView& view) {
  const int64_t size_of_one = SizeOf(view.dtype);
  begin = reinterpret_cast<intptr_t>(view.data);
  extent = run = size_of_one;
  num_strides = 0;
  self_overlap = false;
  std::pair<int64_t, int64_t> dims[TensorView::kMaxRank];  // |stride| in bytes, size; by stride
  int n = 0;
  for (int i = view.rank - 1; i >= 0; --i) {  // nearly always sorted as they come
    if (view.shape[i] == 1) continue;
    const int64_t stride = view.strides[i] * size_of_one;
    if (stride < 0) begin += stride * (view.shape[i] - 1);
    int j = n++;
    for (; j > 0 && std::abs(stride) < dims[j - 1].first; --j) dims[j] = dims[j - 1];
    dims[j] = {std::abs(stride), view.shape[i]};
  }
  for (int i = 0; i < n; ++i) {
    const auto [stride, size] = dims[i];
    if (stride < extent) self_overlap = true;
    if (stride == extent && num_strides == 0) {
      run += stride * (size - 1);
    } else {
      strides[num_strides++] = stride;
    }
    extent += stride * (size - 1);
  }
}

inline Footprint FootprintOf(const TensorView& view) {
  Footprint f;
  f.Set(view);
  return f;
}

// False only if no element is shared: the ranges are apart, or the runs of both lie in different
// places modulo a common period of their strides (q, k and v as columns of one matrix).
inline bool MayOverlap(const Footprint& a, const Footprint& b) {
  const int64_t distance = b.begin - a.begin;
  if (distance >= a.extent || -distance >= b.extent) return false;
  int64_t period = 0;
  for (int i = 0; i < a.num_strides; ++i) period = std::gcd(period, a.strides[i]);
  for (int i = 0; i < b.num_strides; ++i) period = std::gcd(period, b.strides[i]);
  if (period == 0) return true;
  const int64_t shift = ((distance % period) + period) % period;
  return shift < a.run || shift + b.run > period;
}

// The same elements in the same order.
inline bool SameElements(const TensorView& a, const TensorView& b) {
  if (a.data != b.data) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

}  // namespace ropewalk::internal
