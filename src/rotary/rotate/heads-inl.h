// The heads of one token, compiled once per SIMD target; what is computed is in bodies-inl.h.
#if defined(ROPEWALK_ROTATE_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_HEADS_INL_H_
#undef ROPEWALK_ROTATE_HEADS_INL_H_
#else
#define ROPEWALK_ROTATE_HEADS_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/rotary/rotate/bodies-inl.h"
#include "src/rotary/rotate/params.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The heads of one token. Everything is passed by value: the compiler must assume that a vector
// store changes whatever a pointer leads to, and would load it again for every head.
template <class T, class C>
struct Heads {
  const T* in;
  T* out;
  int64_t count;
  int64_t in_stride, out_stride;
  int64_t pairs;
  const C* c;
  const C* s;
  int64_t prefetch_bytes;  // how far ahead of a head to prefetch, 0 for not at all
};

template <class T>
HWY_INLINE void PrefetchHead(const T* head, int64_t pairs, int64_t ahead_bytes) {
  if (ahead_bytes == 0) return;
  const char* ahead = reinterpret_cast<const char*>(head) + ahead_bytes;
  const int64_t bytes = 2 * pairs * static_cast<int64_t>(sizeof(T));
  for (int64_t b = 0; b < bytes; b += 64) hwy::Prefetch(ahead + b);
}

template <class Body>
HWY_NOINLINE void RotateHeads(Heads<typename Body::T, typename Body::C> h) {
  for (; h.count > 0; --h.count, h.in += h.in_stride, h.out += h.out_stride) {
    PrefetchHead(h.in, h.pairs, h.prefetch_bytes);
    int64_t i = 0;
    for (; i + Body::Step() <= h.pairs; i += Body::Step()) {
      Body::Rotate(h.in, h.out, i, h.pairs, Body::Load(h.c, h.s, i));
    }
    if (HWY_UNLIKELY(i < h.pairs)) Body::Tail(h.in, h.out, i, h.pairs, h.c, h.s);
  }
}

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
// The same for exactly kSteps steps: cos and sin stay in registers across heads, and the loop over
// a head is gone. In L1 this is 1.3 times as fast (head_dim 128, float32, AVX-512).
template <class Body, int kSteps>
HWY_NOINLINE void RotateHeadsUnrolled(Heads<typename Body::T, typename Body::C> h) {
  typename Body::Factors f[kSteps];
  const int64_t step = Body::Step();
  const int64_t pairs = kSteps * step;
  HWY_UNROLL(8)
  for (int k = 0; k < kSteps; ++k) f[k] = Body::Load(h.c, h.s, k * step);
  for (; h.count > 0; --h.count, h.in += h.in_stride, h.out += h.out_stride) {
    PrefetchHead(h.in, pairs, h.prefetch_bytes);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86  // 32 registers
    if constexpr (kSteps <= 4 &&
                  requires { Body::template RotateSteps<kSteps>(h.in, h.out, pairs, f); }) {
      Body::template RotateSteps<kSteps>(h.in, h.out, pairs, f);
      continue;
    }
#endif
    HWY_UNROLL(8)
    for (int k = 0; k < kSteps; ++k) Body::Rotate(h.in, h.out, k * step, pairs, f[k]);
  }
}
#endif

template <class Body>
HWY_INLINE void RotateHeadsBest(const Heads<typename Body::T, typename Body::C>& h) {
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  if (h.pairs == 8 * Body::Step()) return RotateHeadsUnrolled<Body, 8>(h);
  if (h.pairs == 4 * Body::Step()) return RotateHeadsUnrolled<Body, 4>(h);
  if (h.pairs == 2 * Body::Step()) return RotateHeadsUnrolled<Body, 2>(h);
#endif
  RotateHeads<Body>(h);
}

// The elements of rotated heads that do not rotate, when out of place.
template <class T>
void CopyRest(const RotateParams& p, const RotateOperand& operand, const T* in, T* out) {
  const int64_t end = p.first_dim + 2 * p.pairs;
  for (int64_t h = 0; h < operand.rotated_heads; ++h) {
    std::copy(in, in + p.first_dim, out);
    std::copy(in + end, in + p.head_dim, out + end);
    in += operand.in_strides[2];
    out += operand.out_strides[2];
  }
}

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
