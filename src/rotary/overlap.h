// Do the elements of two strided views touch? Needed because a rotation reads two elements and
// writes both, in parallel over tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "ropewalk/base/tensor_view.h"

namespace ropewalk::internal {

// The memory of a view as equal runs: `run` contiguous elements at offset `first` (the lowest
// address, in elements from view.data), repeated along `strides`.
struct Footprint {
  int64_t first = 0;
  int64_t extent = 1;  // elements from the lowest to one past the highest
  int64_t run = 1;
  int64_t strides[TensorView::kMaxRank] = {};
  int num_strides = 0;
  bool self_overlap = false;
};

// The view has elements and strides that fit its memory, so nothing here overflows.
inline Footprint FootprintOf(const TensorView& view) {
  Footprint f;
  std::pair<int64_t, int64_t> dims[TensorView::kMaxRank];  // |stride|, size
  int n = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 1) continue;
    if (view.strides[i] < 0) f.first += view.strides[i] * (view.shape[i] - 1);
    dims[n++] = {std::abs(view.strides[i]), view.shape[i]};
  }
  for (int i = 1; i < n; ++i) {  // by stride, at most five
    for (int j = i; j > 0 && dims[j] < dims[j - 1]; --j) std::swap(dims[j], dims[j - 1]);
  }
  for (int i = 0; i < n; ++i) {
    const auto [stride, size] = dims[i];
    if (stride < f.extent) f.self_overlap = true;
    if (stride == f.extent && f.num_strides == 0) {
      f.run += stride * (size - 1);
    } else {
      f.strides[f.num_strides++] = stride;
    }
    f.extent += stride * (size - 1);
  }
  return f;
}

// False only if no element is shared: the ranges are apart, or the runs of both lie in different
// places modulo a common period of their strides (q, k and v as columns of one matrix).
inline bool MayOverlap(const TensorView& a, const TensorView& b) {
  const Footprint fa = FootprintOf(a);
  const Footprint fb = FootprintOf(b);
  const int64_t bytes = SizeOf(a.dtype);
  const int64_t distance_bytes = (reinterpret_cast<intptr_t>(b.data) + fb.first * bytes) -
                                 (reinterpret_cast<intptr_t>(a.data) + fa.first * bytes);
  if (distance_bytes >= fa.extent * bytes || -distance_bytes >= fb.extent * bytes) return false;
  int64_t period = 0;
  for (int i = 0; i < fa.num_strides; ++i) period = std::gcd(period, fa.strides[i]);
  for (int i = 0; i < fb.num_strides; ++i) period = std::gcd(period, fb.strides[i]);
  if (period == 0) return true;
  const int64_t period_bytes = period * bytes;
  const int64_t shift = ((distance_bytes % period_bytes) + period_bytes) % period_bytes;
  return shift < fa.run * bytes || shift + fb.run * bytes > period_bytes;
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
