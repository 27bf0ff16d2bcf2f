// Tensors made and checked on the GPU: each pair of a result against cos and sin of its angle in
// double. For those that are too large for the host, which runs the same functions in tests.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ropewalk/rotary/rotate.h"
#include "src/base/device_float.h"
#include "tests/cuda/check.h"

namespace ropewalk::gpu {

// A tensor [batch, tokens, heads, 2 * pairs]; strides in elements, the last 1.
struct Shape {
  int64_t batch, tokens, heads, pairs;
  int64_t strides[3];

  ROPEWALK_HD int64_t NumPairs() const { return batch * tokens * heads * pairs; }
};

inline Shape ContiguousShape(int64_t batch, int64_t tokens, int64_t heads, int64_t pairs) {
  const int64_t head = 2 * pairs;
  return {batch, tokens, heads, pairs, {tokens * heads * head, heads * head, head}};
}
inline int64_t NumElements(const Shape& s) {  // from the first to the last
  return (s.batch - 1) * s.strides[0] + (s.tokens - 1) * s.strides[1] +
         (s.heads - 1) * s.strides[2] + 2 * s.pairs;
}
inline TensorView ViewOf(const Shape& s, void* data, DType dtype) {
  TensorView v;
  v.data = data;
  v.dtype = dtype;
  v.device = Device::kCuda;
  v.rank = 4;
  const int64_t shape[] = {s.batch, s.tokens, s.heads, 2 * s.pairs};
  std::copy(shape, shape + 4, v.shape);
  std::copy(s.strides, s.strides + 3, v.strides);
  v.strides[3] = 1;
  return v;
}

// What the reference needs to know of a call. Pointers to memory of the GPU.
struct Expected {
  const double* inv_freq = nullptr;  // [pairs]
  bool interleaved = false;
  int64_t start = 0;                   // of every sequence,
  const int32_t* positions = nullptr;  // or [axes, batch * tokens]
  const uint8_t* axis = nullptr;       // [pairs]
  const int64_t* slots = nullptr;      // the result is a cache [.., heads, 2 * pairs]
  const float* norm_weight = nullptr;  // [2 * pairs]
  double norm_eps = 1e-6;
  int64_t every = 1;  // of the pairs: how many are checked
};

namespace device {

// Any numbers that are exact in every type, in [-1, 1).
ROPEWALK_HD inline float ValueAt(uint64_t i) {
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<int>(i >> 57) - 64) / 64;
}

struct PairPlace {
  int64_t index, token, head, pair;  // token `index` of batch * tokens
};
ROPEWALK_HD inline PairPlace PlaceOf(const Shape& s, int64_t i) {
  const int64_t index = i / s.pairs / s.heads;
  return {index, index % s.tokens, i / s.pairs % s.heads, i % s.pairs};
}

struct Two {
  int64_t x1, x2;
};
ROPEWALK_HD inline Two ElementsOf(const Shape& s, bool interleaved, int64_t pair) {
  if (interleaved) return {2 * pair, 2 * pair + 1};
  return {pair, pair + s.pairs};
}

ROPEWALK_HD inline int64_t HeadOffset(const Shape& s, const PairPlace& p) {
  return p.index / s.tokens * s.strides[0] + p.token * s.strides[1] + p.head * s.strides[2];
}

// What Fill put at element e of a head.
ROPEWALK_HD inline double Before(const Shape& s, const PairPlace& p, int64_t e) {
  return static_cast<double>(ValueAt((p.index * s.heads + p.head) * 2 * s.pairs + e));
}

// Pair i, as it is made.
template <class T>
ROPEWALK_HD void FillPair(T* x, const Shape& s, int64_t i) {
  const PairPlace p = PlaceOf(s, i);
  for (int64_t e = 2 * p.pair; e < 2 * p.pair + 2; ++e) {
    x[HeadOffset(s, p) + e] =
        internal::FromFloat<T>(static_cast<internal::ComputeOf<T>>(Before(s, p, e)));
  }
}

struct Found {
  unsigned long long wrong = 0;
  double worst = 0;  // error / length of the pair
};

// Pair i, as a call has left it.
template <class T>
ROPEWALK_HD void ComparePair(const T* x, const Shape& s, const Expected& expected, int64_t i,
                             Found* found) {
  constexpr double kRounding = sizeof(T) == 8               ? 0x1p-53
                               : sizeof(T) == 4             ? 0x1p-24
                               : std::is_same_v<T, Float16> ? 0x1p-11
                                                            : 0x1p-8;
  constexpr double kSmallest = std::is_same_v<T, Float16> ? 0x1p-25 : 0;
  const PairPlace p = PlaceOf(s, i);
  const Two e = ElementsOf(s, expected.interleaved, p.pair);
  double x1 = Before(s, p, e.x1), x2 = Before(s, p, e.x2);
  if (expected.norm_weight != nullptr) {
    double sum = 0;
    for (int64_t k = 0; k < 2 * s.pairs; ++k) sum += Before(s, p, k) * Before(s, p, k);
    const double scale = 1 / ::sqrt(sum / static_cast<double>(2 * s.pairs) + expected.norm_eps);
    x1 *= scale * static_cast<double>(expected.norm_weight[e.x1]);
    x2 *= scale * static_cast<double>(expected.norm_weight[e.x2]);
  }
  int64_t position = expected.start + p.token;
  if (expected.positions != nullptr) {
    const int64_t axis = expected.axis != nullptr ? expected.axis[p.pair] : 0;
    position = expected.positions[axis * s.batch * s.tokens + p.index];
  }
  const double angle = static_cast<double>(position) * expected.inv_freq[p.pair];
  const double sine = ::sin(angle), cosine = ::cos(angle);
  int64_t at = HeadOffset(s, p);
  if (expected.slots != nullptr) at = (expected.slots[p.index] * s.heads + p.head) * 2 * s.pairs;
  const double length = ::hypot(x1, x2);
  const double want[] = {x1 * cosine - x2 * sine, x1 * sine + x2 * cosine};
  const int64_t where[] = {at + e.x1, at + e.x2};
  for (int k = 0; k < 2; ++k) {
    const double error = ::fabs(static_cast<double>(internal::ToFloatHD(x[where[k]])) - want[k]);
    // Written so that NaN is wrong.
    if (!(error <= kRounding * 1.01 * ::fabs(want[k]) + kSmallest + 0x1p-21 * length)) {
      ++found->wrong;
    } else if (error > found->worst * length) {
      found->worst = error / length;
    }
  }
}

#ifdef __CUDACC__
inline constexpr int kThreads = 256;
inline constexpr int kBlocks = 132 * 16;

template <class T>
__global__ void Fill(T* x, Shape s) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < s.NumPairs(); i += step) {
    FillPair(x, s, i);
  }
}

template <class T>
__global__ void Compare(const T* x, Shape s, Expected expected, Found* all) {
  Found found;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * expected.every;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * expected.every;
  for (int64_t i = first; i < s.NumPairs(); i += step) ComparePair(x, s, expected, i, &found);
  if (found.wrong > 0) atomicAdd(&all->wrong, found.wrong);
  // Numbers from 0 on are ordered as their bits are.
  atomicMax(reinterpret_cast<unsigned long long*>(&all->worst),
            static_cast<unsigned long long>(__double_as_longlong(found.worst)));
}
#endif

}  // namespace device

template <class T>
void FillTensor(const Shape& s, void* data) {
#ifdef __CUDACC__
  device::Fill<<<device::kBlocks, device::kThreads>>>(static_cast<T*>(data), s);
  internal::CheckCuda(cudaGetLastError(), "Fill");
#else
  for (int64_t i = 0; i < s.NumPairs(); ++i) device::FillPair(static_cast<T*>(data), s, i);
#endif
}

// Of a rotated tensor that FillTensor had made. Throws Failure if anything is wrong; returns the
// largest error in units of 2^-23 hypot(pair).
template <class T>
double ExpectTensor(const Shape& s, const void* data, const Expected& expected,
                    const std::string& what) {
  device::Found found;
#ifdef __CUDACC__
  Memory memory;
  auto* const there = memory.Copy(std::vector<device::Found>(1));
  device::Compare<<<device::kBlocks, device::kThreads>>>(static_cast<const T*>(data), s, expected,
                                                         there);
  internal::CheckCuda(cudaGetLastError(), "Compare");
  found = Download<device::Found>(there, 1)[0];
#else
  for (int64_t i = 0; i < s.NumPairs(); i += expected.every) {
    device::ComparePair(static_cast<const T*>(data), s, expected, i, &found);
  }
#endif
  Expect(found.wrong == 0, what + ": " + std::to_string(found.wrong) + " elements are wrong");
  return found.worst * 0x1p23;
}

}  // namespace ropewalk::gpu
