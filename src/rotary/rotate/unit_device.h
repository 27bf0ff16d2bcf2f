// A unit: what one thread of a kernel loads of a head at a time, and the pairs in it.
//   half          two vectors of V elements, x1[u V ..] and x2 = x1 + pairs     V pairs
//   interleaved   one vector of V elements                                    V/2 pairs
//   interleaved   V = 1: two elements, where pairs are not aligned              1 pair
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/spec.h"
#include "src/base/device_float.h"
#include "src/base/host_device.h"

namespace ropewalk::internal {

template <class T, int V>
struct alignas(sizeof(T) * V) DeviceVector {
  T at[V];
};

// In one instruction. What was put together from elements nvcc stores in pieces of 32 bits, each of
// which reaches for the same sectors of memory again.
template <class T, int V>
ROPEWALK_HD void StoreWhole(T* to, const DeviceVector<T, V>& v) {
#ifdef __CUDA_ARCH__
  using Small = std::conditional_t<sizeof(v) == 8, uint2, uint32_t>;
  using Word = std::conditional_t<sizeof(v) == 16, uint4, Small>;
  if constexpr (sizeof(v) % 4 == 0 && sizeof(v) <= 16) {
    Word word;
    std::memcpy(&word, &v, sizeof(v));
    __stwb(reinterpret_cast<Word*>(to), word);
    return;
  }
#endif
  *reinterpret_cast<DeviceVector<T, V>*>(to) = v;
}

// The shape of a unit.
template <class T, PairLayout kLayout, int V>
struct UnitShape {
  using Compute = ComputeOf<T>;
  static constexpr bool kOneVector = kLayout == PairLayout::kInterleaved && V > 1;
  static constexpr int kPairs = kOneVector ? V / 2 : V;
  // The first element of unit u among those that rotate, and how far its second vector is from it.
  static ROPEWALK_HD int64_t First(int64_t u) {
    return kLayout == PairLayout::kInterleaved && V == 1 ? 2 * u : u * V;
  }
  static ROPEWALK_HD int64_t Second(int64_t pairs) {
    return kLayout == PairLayout::kInterleaved ? 1 : pairs;
  }
};

template <class C, int kPairs>
struct PairFactors {
  C c[kPairs], s[kPairs];
};

// y1 = x1 c - x2 s, y2 = x2 c + x1 s, each with one fused rounding, as the CPU's body has it.
template <class C>
ROPEWALK_HD void RotatePair(C x1, C x2, C c, C s, C* y1, C* y2) {
  if constexpr (std::is_same_v<C, double>) {
    *y1 = ::fma(-x2, s, x1 * c);
    *y2 = ::fma(x1, s, x2 * c);
  } else {
    *y1 = ::fmaf(-x2, s, x1 * c);
    *y2 = ::fmaf(x1, s, x2 * c);
  }
}

// A unit that lies in registers.
template <class T, PairLayout kLayout, int V>
struct LoadedUnit {
  using Shape = UnitShape<T, kLayout, V>;
  using C = typename Shape::Compute;
  using Vector = DeviceVector<T, V>;
  static constexpr int kVectors = Shape::kOneVector ? 1 : 2;

  ROPEWALK_HD void Load(const T* from, int64_t second) {
    at[0] = *reinterpret_cast<const Vector*>(from);
    if constexpr (kVectors == 2) at[1] = *reinterpret_cast<const Vector*>(from + second);
  }
  ROPEWALK_HD void Store(T* to, int64_t second) const {
    *reinterpret_cast<Vector*>(to) = at[0];
    if constexpr (kVectors == 2) *reinterpret_cast<Vector*>(to + second) = at[1];
  }
  ROPEWALK_HD void Unpack(C* x1, C* x2) const {
    for (int j = 0; j < Shape::kPairs; ++j) {
      x1[j] = ToFloatHD(Shape::kOneVector ? at[0].at[2 * j] : at[0].at[j]);
      x2[j] = ToFloatHD(Shape::kOneVector ? at[0].at[2 * j + 1] : at[kVectors - 1].at[j]);
    }
  }
  ROPEWALK_HD void Pack(const C* x1, const C* x2) {
    if constexpr (Shape::kOneVector) {
      C x[V];
      for (int j = 0; j < Shape::kPairs; ++j) {
        x[2 * j] = x1[j];
        x[2 * j + 1] = x2[j];
      }
      FromFloats<V>(x, at[0].at);
    } else {
      FromFloats<V>(x1, at[0].at);
      FromFloats<V>(x2, at[kVectors - 1].at);
    }
  }
  ROPEWALK_HD void Rotate(const PairFactors<C, Shape::kPairs>& f) {
    C x1[Shape::kPairs], x2[Shape::kPairs];
    Unpack(x1, x2);
    for (int j = 0; j < Shape::kPairs; ++j) {
      const C a = x1[j], b = x2[j];
      RotatePair(a, b, f.c[j], f.s[j], &x1[j], &x2[j]);
    }
    Pack(x1, x2);
  }

  Vector at[kVectors];
};

// Calls f.template operator()<T, kLayout, V>(), where `width` is of vectors of 16 bytes, or 1.
template <class F>
void VisitUnit(DType dtype, PairLayout layout, int width, F&& f) {
  VisitFloat(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kFull = 16 / static_cast<int>(sizeof(T));
    const auto with_layout = [&]<int V>() {
      if (layout == PairLayout::kHalf) {
        f.template operator()<T, PairLayout::kHalf, V>();
      } else {
        f.template operator()<T, PairLayout::kInterleaved, V>();
      }
    };
    if (width == kFull) {
      with_layout.template operator()<kFull>();
    } else {
      with_layout.template operator()<1>();
    }
  });
}

// Whether units of 16-byte vectors are aligned in all heads (the last dimension) of `view`.
inline bool FullVectorsFit(const TensorView& view, PairLayout layout, int64_t pairs,
                           int64_t first_dim) {
  const int64_t full = 16 / SizeOf(view.dtype);
  const int64_t unit = layout == PairLayout::kInterleaved ? full / 2 : full;
  if (pairs % unit != 0 || first_dim % full != 0) return false;
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) return false;
  for (int i = 0; i < view.rank - 1; ++i) {
    if (view.shape[i] > 1 && view.strides[i] % full != 0) return false;
  }
  return true;
}

}  // namespace ropewalk::internal
