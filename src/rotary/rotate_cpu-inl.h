// The one body of the rotation, compiled once a SIMD target. y1 = x1 c - x2 s, y2 = x2 c + x1 s.
//
// A token's cos and sin are first rearranged for the layout and element type (Prepare), once for
// all its heads; then a head is a straight loop without shuffles of the table:
//   half          x1 = x[i], x2 = x[i + pairs]      c[pairs], s[pairs] as they are
//   interleaved   y = x * c2 + swap(x) * s2         c2 = c0 c0 c1 c1 .., s2 = -s0 s0 -s1 s1 ..
//   bf16, rounded with integers: a 32-bit word holds an even and an odd element, and each becomes a
//   float by one shift or mask, so words are never unpacked in order
//     half        c, s split into even and odd pairs, a vector of each in turn
//     interleaved the even element is x1, the odd one x2
#if defined(ROPEWALK_ROTATE_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_CPU_INL_H_
#undef ROPEWALK_ROTATE_CPU_INL_H_
#else
#define ROPEWALK_ROTATE_CPU_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/rotary/position_cursor.h"
#include "src/rotary/rotate_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "bf16 words put the even element low");

// Highway 1.0.3 emulates f16 conversion where there is no instruction, and rounds wrongly there.
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || \
    HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
#define ROPEWALK_SCALAR_F16 1
#else
#define ROPEWALK_SCALAR_F16 0
#endif
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define ROPEWALK_AVX512 1
#else
#define ROPEWALK_AVX512 0
#endif

// Loads and stores: elements of type Element, vectors of type Compute, in order. kPrefetchBytes:
// how far ahead of a head to prefetch, 0 for not at all.
struct F32 {
  using Element = float;
  using Compute = float;
  static constexpr int kPrefetchBytes = 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const float* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, float* p) {
    hn::StoreU(v, d, p);
  }
};

struct F64 {
  using Element = double;
  using Compute = double;
  static constexpr int kPrefetchBytes = 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const double* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, double* p) {
    hn::StoreU(v, d, p);
  }
};

struct F16 {
  using Element = Float16;
  using Compute = float;
  static constexpr int kPrefetchBytes = 2048;
#if ROPEWALK_SCALAR_F16
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Float16* p) {
    HWY_ALIGN float lanes[HWY_LANES(float)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = ToFloat(p[i]);
    return hn::Load(d, lanes);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, Float16* p) {
    HWY_ALIGN float lanes[HWY_LANES(float)];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) p[i] = ToFloat16(lanes[i]);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Float16* p) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, Float16* p) {
    const hn::Rebind<hwy::float16_t, D> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
  }
#endif
};

// Bits of v, to which half a unit in the last place of bf16 was added, ties to even; the upper 16
// are the result. NaN needs no care here: it comes from a bf16 input or is the CPU's default one,
// so its lower 16 bits are zero and adding 0x8000 does not reach the upper ones.
template <class D, class DU = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<DU> RoundBf16(D d, hn::Vec<D> v) {
  const DU du;
  const auto u = hn::BitCast(du, v);
  (void)d;
#if ROPEWALK_AVX512
  // Test and blend take two operations where shift, mask and add take three.
  const auto odd = hn::TestBit(u, hn::Set(du, 0x10000u));
  return hn::Add(u, hn::IfThenElse(odd, hn::Set(du, 0x8000u), hn::Set(du, 0x7fffu)));
#else
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  return hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd);
#endif
}

// In order, for tails and for native rounding.
template <bool kNative>
struct BF16 {
  using Element = BFloat16;
  using Compute = float;
  static constexpr int kPrefetchBytes = 2048;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const BFloat16* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> d16;
    const auto words = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(d, hn::ShiftLeft<16>(words));
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, BFloat16* p) {
    const hn::Rebind<uint16_t, D> d16;
#if ROPEWALK_AVX512
    if constexpr (kNative && hn::MaxLanes(D()) == 16) {
      __m256i packed;
      __asm__("vcvtneps2bf16 %1, %0" : "=v"(packed) : "v"(v.raw));
      std::memcpy(p, &packed, sizeof(packed));
      return;
    }
#endif
    const hn::RebindToSigned<D> di;
    const auto upper = hn::BitCast(di, hn::ShiftRight<16>(RoundBf16(d, v)));
    hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<uint16_t*>(p));
  }
};

// A token's cos and sin as its body wants them: in the table, or in the given buffers.
template <class C>
struct Row {
  const C* c;
  const C* s;
};

// Each body below says how many pairs one step takes (Step()), what a step needs of the row
// (Factors), and how a step and the pairs left over are rotated. x and y point to the pair at hand
// within the first half (half layout) or the whole (interleaved) of the rotated elements.

template <class D>
struct TwoVectors {
  hn::Vec<D> c, s;
};

// Half layout, in order: a vector of pairs.
template <class Codec, class D = hn::ScalableTag<typename Codec::Compute>>
struct HalfBody {
  using C = typename Codec::Compute;
  using T = typename Codec::Element;
  using Factors = TwoVectors<D>;
  static HWY_INLINE int64_t Step() { return static_cast<int64_t>(hn::Lanes(D())); }
  static HWY_INLINE Factors Load(const C* c, const C* s, int64_t i) {
    return {hn::LoadU(D(), c + i), hn::LoadU(D(), s + i)};
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    const auto x1 = Codec::Load(D(), x + i);
    const auto x2 = Codec::Load(D(), x + i + pairs);
    Codec::Store(D(), hn::NegMulAdd(x2, f.s, hn::Mul(x1, f.c)), y + i);
    Codec::Store(D(), hn::MulAdd(x1, f.s, hn::Mul(x2, f.c)), y + i + pairs);
  }
  static HWY_INLINE void Tail(const T* x, T* y, int64_t i, int64_t pairs, const C* c, const C* s) {
    using Four = HalfBody<Codec, hn::CappedTag<C, 4>>;
    using One = HalfBody<Codec, hn::CappedTag<C, 1>>;
    for (; i + Four::Step() <= pairs; i += Four::Step()) {
      Four::Rotate(x, y, i, pairs, Four::Load(c, s, i));
    }
    for (; i < pairs; ++i) One::Rotate(x, y, i, pairs, One::Load(c, s, i));
  }
  static HWY_INLINE Row<C> Prepare(const RotateParams& p, const float* row, C* c, C* s) {
    if constexpr (std::is_same_v<C, float>) {
      if (HWY_LIKELY(!p.negate_sin)) return {row, row + p.pairs};  // forward: scale is 1
    }
    const C scale = static_cast<C>(p.scale);
    const C sign = p.negate_sin ? -scale : scale;
    for (int64_t i = 0; i < p.pairs; ++i) c[i] = scale * row[i];
    for (int64_t i = 0; i < p.pairs; ++i) s[i] = sign * row[p.pairs + i];
    return {c, s};
  }
};

// Interleaved layout, in order: a vector of elements, half as many pairs.
template <class Codec>
struct InterleavedBody {
  using C = typename Codec::Compute;
  using T = typename Codec::Element;
  using D = hn::ScalableTag<C>;
  using Factors = TwoVectors<D>;
#if HWY_TARGET == HWY_SCALAR  // its vectors have one lane, nothing to swap: all is tail
  static HWY_INLINE int64_t Step() { return INT64_MAX / 2; }
  static HWY_INLINE Factors Load(const C*, const C*, int64_t) { return {}; }
  static HWY_INLINE void Rotate(const T*, T*, int64_t, int64_t, const Factors&) {}
#else
  static HWY_INLINE int64_t Step() { return static_cast<int64_t>(hn::Lanes(D())) / 2; }
  static HWY_INLINE Factors Load(const C* c, const C* s, int64_t i) {
    return {hn::LoadU(D(), c + 2 * i), hn::LoadU(D(), s + 2 * i)};
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t, const Factors& f) {
    const auto v = Codec::Load(D(), x + 2 * i);
    const auto swapped = hn::Reverse2(D(), v);
    Codec::Store(D(), hn::MulAdd(swapped, f.s, hn::Mul(v, f.c)), y + 2 * i);
  }
#endif
  static HWY_INLINE void Tail(const T* x, T* y, int64_t i, int64_t pairs, const C* c, const C* s) {
    const hn::CappedTag<C, 1> d;
    for (i *= 2; i < 2 * pairs; i += 2) {
      const auto x1 = Codec::Load(d, x + i);
      const auto x2 = Codec::Load(d, x + i + 1);
      Codec::Store(d, hn::MulAdd(x2, hn::Set(d, s[i]), hn::Mul(x1, hn::Set(d, c[i]))), y + i);
      Codec::Store(d, hn::MulAdd(x1, hn::Set(d, s[i + 1]), hn::Mul(x2, hn::Set(d, c[i + 1]))),
                   y + i + 1);
    }
  }
  static HWY_INLINE Row<C> Prepare(const RotateParams& p, const float* row, C* c, C* s) {
    const C scale = static_cast<C>(p.scale);
    const C sign = p.negate_sin ? -scale : scale;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (std::is_same_v<C, float>) {
      const D d;
      for (; i + 2 * Step() <= p.pairs; i += 2 * Step()) {
        const auto vc = hn::Mul(hn::Set(d, scale), hn::LoadU(d, row + i));
        const auto vs = hn::Mul(hn::Set(d, sign), hn::LoadU(d, row + p.pairs + i));
        hn::StoreInterleaved2(vc, vc, d, c + 2 * i);
        hn::StoreInterleaved2(hn::Neg(vs), vs, d, s + 2 * i);
      }
    }
#endif
    for (; i < p.pairs; ++i) {
      c[2 * i] = c[2 * i + 1] = scale * row[i];
      s[2 * i + 1] = sign * row[p.pairs + i];
      s[2 * i] = -s[2 * i + 1];
    }
    return {c, s};
  }
};

#if HWY_TARGET != HWY_SCALAR
// bf16 words: even and odd elements as two float vectors, and back.
template <class D>
HWY_INLINE void LoadWords(D d, const BFloat16* p, hn::Vec<D>& even, hn::Vec<D>& odd) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> d16;
  const auto words = hn::BitCast(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  even = hn::BitCast(d, hn::ShiftLeft<16>(words));
  odd = hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000u)));
}
#if ROPEWALK_AVX512
// Even 16-bit lanes from the bytes of `from` picked by `bytes`, odd ones from `into`, or with kOdd
// the reverse. Compilers make one masked shuffle of this.
template <bool kOdd, class D16>
HWY_INLINE hn::Vec<D16> MergeWords(D16 d16, hn::Vec<D16> into, hn::Vec<D16> from,
                                   const uint8_t* bytes) {
  const hn::Repartition<uint8_t, D16> d8;
  const auto picked = hn::TableLookupBytes(hn::BitCast(d8, from), hn::LoadDup128(d8, bytes));
  const hn::Repartition<uint32_t, D16> d32;
  const auto lanes =
      hn::MaskFromVec(hn::BitCast(d8, hn::Set(d32, kOdd ? 0xffff0000u : 0x0000ffffu)));
  const auto merged = hn::IfThenElse(lanes, picked, hn::BitCast(d8, into));
  return hn::BitCast(d16, merged);
}
#endif

// Rounds both to bf16, to nearest, ties to even, in 16-bit lanes: with `upper` the upper halves of
// the floats and `lower` the lower ones, upper goes up by one where lower > 0x8000, or lower ==
// 0x8000 and upper is odd, which is (lower | (upper & 1)) > 0x8000. Half as many operations as
// rounding each float. A NaN comes from a bf16 input or is the CPU's default one, so its lower half
// is zero and it stays what it is.
template <class D>
HWY_INLINE void StoreWords(D /*d*/, hn::Vec<D> even, hn::Vec<D> odd, BFloat16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> d16;
  const auto e = hn::BitCast(d16, even);
  const auto o = hn::BitCast(d16, odd);
  const auto one = hn::Set(d16, uint16_t{1});
  const auto half = hn::Set(d16, uint16_t{0x8000});
#if ROPEWALK_AVX512
  alignas(16) constexpr uint8_t kDown[16] = {2, 3, 0, 0, 6, 7, 0, 0, 10, 11, 0, 0, 14, 15, 0, 0};
  alignas(16) constexpr uint8_t kUp[16] = {0, 0, 0, 1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 12, 13};
  const auto upper = MergeWords<false>(d16, o, e, kDown);
  const auto lower = MergeWords<true>(d16, e, o, kUp);
  const auto sticky = hn::OrAnd(lower, upper, one);
  const auto rounded = hn::IfThenElse(hn::Gt(sticky, half), hn::Add(upper, one), upper);
  (void)du;
#else  // no unsigned comparison before AVX-512
  const auto upper = hn::OddEven(o, hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, e))));
  const auto lower = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(hn::BitCast(du, o))), e);
  const auto sticky = hn::OrAnd(lower, upper, one);
  const auto rounded = hn::Add(upper, hn::Min(hn::SaturatedSub(sticky, half), one));
#endif
  hn::StoreU(rounded, d16, reinterpret_cast<uint16_t*>(p));
}

struct HalfWordsBody {
  using C = float;
  using T = BFloat16;
  using D = hn::ScalableTag<float>;
  struct Factors {
    hn::Vec<D> c_even, c_odd, s_even, s_odd;
  };
  static HWY_INLINE int64_t Step() { return 2 * static_cast<int64_t>(hn::Lanes(D())); }
  static HWY_INLINE Factors Load(const C* c, const C* s, int64_t i) {
    const int64_t n = Step() / 2;
    return {hn::LoadU(D(), c + i), hn::LoadU(D(), c + i + n), hn::LoadU(D(), s + i),
            hn::LoadU(D(), s + i + n)};
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    hn::Vec<D> x1_even, x1_odd, x2_even, x2_odd;
    LoadWords(D(), x + i, x1_even, x1_odd);
    LoadWords(D(), x + i + pairs, x2_even, x2_odd);
    StoreWords(D(), hn::NegMulAdd(x2_even, f.s_even, hn::Mul(x1_even, f.c_even)),
               hn::NegMulAdd(x2_odd, f.s_odd, hn::Mul(x1_odd, f.c_odd)), y + i);
    StoreWords(D(), hn::MulAdd(x1_even, f.s_even, hn::Mul(x2_even, f.c_even)),
               hn::MulAdd(x1_odd, f.s_odd, hn::Mul(x2_odd, f.c_odd)), y + i + pairs);
  }
  static HWY_INLINE void Tail(const T* x, T* y, int64_t i, int64_t pairs, const C* c, const C* s) {
    HalfBody<BF16<false>>::Tail(x, y, i, pairs, c, s);
  }
  static HWY_INLINE Row<C> Prepare(const RotateParams& p, const float* row, C* c, C* s) {
    const D d;
    const int64_t n = Step() / 2;
    const float scale = static_cast<float>(p.scale);
    const float sign = p.negate_sin ? -scale : scale;
    const float* sines = row + p.pairs;
    int64_t i = 0;
    for (; i + 2 * n <= p.pairs; i += 2 * n) {
      hn::Vec<D> even, odd;
      hn::LoadInterleaved2(d, row + i, even, odd);
      hn::StoreU(hn::Mul(hn::Set(d, scale), even), d, c + i);
      hn::StoreU(hn::Mul(hn::Set(d, scale), odd), d, c + i + n);
      hn::LoadInterleaved2(d, sines + i, even, odd);
      hn::StoreU(hn::Mul(hn::Set(d, sign), even), d, s + i);
      hn::StoreU(hn::Mul(hn::Set(d, sign), odd), d, s + i + n);
    }
    for (; i < p.pairs; ++i) {
      c[i] = scale * row[i];
      s[i] = sign * sines[i];
    }
    return {c, s};
  }
};

template <class D = hn::ScalableTag<float>>
struct InterleavedWordsBody {
  using C = float;
  using T = BFloat16;
  using Factors = TwoVectors<D>;
  static HWY_INLINE int64_t Step() { return static_cast<int64_t>(hn::Lanes(D())); }
  static HWY_INLINE Factors Load(const C* c, const C* s, int64_t i) {
    return {hn::LoadU(D(), c + i), hn::LoadU(D(), s + i)};
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t, const Factors& f) {
    hn::Vec<D> x1, x2;
    LoadWords(D(), x + 2 * i, x1, x2);
    StoreWords(D(), hn::NegMulAdd(x2, f.s, hn::Mul(x1, f.c)), hn::MulAdd(x1, f.s, hn::Mul(x2, f.c)),
               y + 2 * i);
  }
  static HWY_INLINE void Tail(const T* x, T* y, int64_t i, int64_t pairs, const C* c, const C* s) {
    using One = InterleavedWordsBody<hn::CappedTag<float, 1>>;
    for (; i < pairs; ++i) One::Rotate(x, y, i, pairs, One::Load(c, s, i));
  }
  static HWY_INLINE Row<C> Prepare(const RotateParams& p, const float* row, C* c, C* s) {
    return HalfBody<BF16<false>>::Prepare(p, row, c, s);
  }
};
#endif  // HWY_TARGET != HWY_SCALAR

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
};

template <int kPrefetchBytes, class T>
HWY_INLINE void PrefetchHead(const T* head, int64_t pairs) {
  if constexpr (kPrefetchBytes > 0) {
    const char* ahead = reinterpret_cast<const char*>(head) + kPrefetchBytes;
    const int64_t bytes = 2 * pairs * static_cast<int64_t>(sizeof(T));
    for (int64_t b = 0; b < bytes; b += 64) hwy::Prefetch(ahead + b);
  }
}

template <class Body, int kPrefetchBytes>
HWY_NOINLINE void RotateHeads(Heads<typename Body::T, typename Body::C> h) {
  for (; h.count > 0; --h.count, h.in += h.in_stride, h.out += h.out_stride) {
    PrefetchHead<kPrefetchBytes>(h.in, h.pairs);
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
template <class Body, int kPrefetchBytes, int kSteps>
HWY_NOINLINE void RotateHeadsUnrolled(Heads<typename Body::T, typename Body::C> h) {
  typename Body::Factors f[kSteps];
  const int64_t step = Body::Step();
  const int64_t pairs = kSteps * step;
  HWY_UNROLL(8)
  for (int k = 0; k < kSteps; ++k) f[k] = Body::Load(h.c, h.s, k * step);
  for (; h.count > 0; --h.count, h.in += h.in_stride, h.out += h.out_stride) {
    PrefetchHead<kPrefetchBytes>(h.in, pairs);
    HWY_UNROLL(8)
    for (int k = 0; k < kSteps; ++k) Body::Rotate(h.in, h.out, k * step, pairs, f[k]);
  }
}
#endif

template <class Body, int kPrefetchBytes>
HWY_INLINE void RotateHeadsBest(const Heads<typename Body::T, typename Body::C>& h) {
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  if (h.pairs == 8 * Body::Step()) return RotateHeadsUnrolled<Body, kPrefetchBytes, 8>(h);
  if (h.pairs == 4 * Body::Step()) return RotateHeadsUnrolled<Body, kPrefetchBytes, 4>(h);
  if (h.pairs == 2 * Body::Step()) return RotateHeadsUnrolled<Body, kPrefetchBytes, 2>(h);
#endif
  RotateHeads<Body, kPrefetchBytes>(h);
}

// The elements of the heads that do not rotate, when out of place.
template <class T>
void CopyRest(const RotateParams& p, const RotateOperand& operand, const T* in, T* out) {
  const int64_t end = p.first_dim + 2 * p.pairs;
  for (int64_t h = 0; h < operand.heads; ++h) {
    std::copy(in, in + p.first_dim, out);
    std::copy(in + end, in + p.head_dim, out + end);
    in += operand.in_strides[2];
    out += operand.out_strides[2];
  }
}

template <class Body, int kPrefetchBytes = 0>
void RotateWith(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  using C = typename Body::C;
  using T = typename Body::T;
  HWY_ALIGN C stack[4 * kStackPairs];
  C* c = p.pairs <= kStackPairs ? stack : reinterpret_cast<C*>(scratch);
  const int64_t size = 2 * p.pairs;
  PositionCursor cursor(p.positions, p.tokens, begin);
  for (int64_t i = begin;;) {
    const float* table_row = p.rows + (cursor.position() - p.first_position) * size;
    const Row<C> row = Body::Prepare(p, table_row, c, c + size);
    // Most often the next token stands at the next position.
    for (int64_t j = 0; j < size; j += 16) hwy::Prefetch(table_row + size + j);
    for (int k = 0; k < p.num_operands; ++k) {
      const RotateOperand& operand = p.operands[k];
      const T* in = static_cast<const T*>(operand.in) + cursor.batch() * operand.in_strides[0] +
                    cursor.token() * operand.in_strides[1];
      T* out = static_cast<T*>(operand.out) + cursor.batch() * operand.out_strides[0] +
               cursor.token() * operand.out_strides[1];
      if (in != out && size != p.head_dim) CopyRest(p, operand, in, out);
      RotateHeadsBest<Body, kPrefetchBytes>({in + p.first_dim, out + p.first_dim, operand.heads,
                                             operand.in_strides[2], operand.out_strides[2], p.pairs,
                                             row.c, row.s});
    }
    if (++i == end) return;
    cursor.Next();
  }
}

template <class Codec>
void RotateInOrder(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  constexpr int kAhead = Codec::kPrefetchBytes;
  if (p.layout == PairLayout::kHalf) {
    RotateWith<HalfBody<Codec>, kAhead>(p, begin, end, scratch);
  } else {
    RotateWith<InterleavedBody<Codec>, kAhead>(p, begin, end, scratch);
  }
}

inline void RotateTokensBody(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  switch (p.dtype) {
    case DType::kF64:
      return RotateInOrder<F64>(p, begin, end, scratch);
    case DType::kF32:
      return RotateInOrder<F32>(p, begin, end, scratch);
    case DType::kF16:
      return RotateInOrder<F16>(p, begin, end, scratch);
    case DType::kBF16:
#if ROPEWALK_AVX512
      if (p.native_bf16) return RotateInOrder<BF16<true>>(p, begin, end, scratch);
#endif
#if HWY_TARGET == HWY_SCALAR
      return RotateInOrder<BF16<false>>(p, begin, end, scratch);
#else
      constexpr int kAhead = BF16<false>::kPrefetchBytes;
      if (p.layout == PairLayout::kHalf) {
        return RotateWith<HalfWordsBody, kAhead>(p, begin, end, scratch);
      }
      return RotateWith<InterleavedWordsBody<>, kAhead>(p, begin, end, scratch);
#endif
  }
}

inline int64_t RotateTargetBody() { return HWY_TARGET; }

#undef ROPEWALK_SCALAR_F16
#undef ROPEWALK_AVX512

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard a target
