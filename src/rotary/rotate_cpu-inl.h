// The one body of the rotation, compiled once a SIMD target. y1 = x1 c - x2 s, y2 = x2 c + x1 s.
//
// A token's cos and sin are first rearranged for the layout and element type (PrepareRow), once for
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

// One vector of pairs, half layout.
template <class Codec, class D>
HWY_INLINE void HalfAt(D d, const typename Codec::Element* x, typename Codec::Element* y,
                       int64_t pairs, const typename Codec::Compute* c,
                       const typename Codec::Compute* s) {
  const auto x1 = Codec::Load(d, x);
  const auto x2 = Codec::Load(d, x + pairs);
  const auto vc = hn::LoadU(d, c);
  const auto vs = hn::LoadU(d, s);
  Codec::Store(d, hn::NegMulAdd(x2, vs, hn::Mul(x1, vc)), y);
  Codec::Store(d, hn::MulAdd(x1, vs, hn::Mul(x2, vc)), y + pairs);
}

#if HWY_TARGET != HWY_SCALAR
// One vector of elements (half as many pairs), interleaved layout.
template <class Codec, class D>
HWY_INLINE void InterleavedAt(D d, const typename Codec::Element* x, typename Codec::Element* y,
                              const typename Codec::Compute* c2,
                              const typename Codec::Compute* s2) {
  const auto v = Codec::Load(d, x);
  const auto swapped = hn::Reverse2(d, v);
  Codec::Store(d, hn::MulAdd(swapped, hn::LoadU(d, s2), hn::Mul(v, hn::LoadU(d, c2))), y);
}

#endif

template <class Codec>
struct HalfBody {
  using C = typename Codec::Compute;
  using T = typename Codec::Element;
  static HWY_INLINE void PrepareRow(const RotateParams& p, const float* row, C* c, C* s) {
    const C scale = static_cast<C>(p.scale);
    const C sign = p.negate_sin ? -scale : scale;
    for (int64_t i = 0; i < p.pairs; ++i) c[i] = scale * row[i];
    for (int64_t i = 0; i < p.pairs; ++i) s[i] = sign * row[p.pairs + i];
  }
  static HWY_INLINE void Tail(int64_t i, const T* x, T* y, int64_t pairs, const C* c, const C* s) {
    const hn::CappedTag<C, 4> d4;
    const hn::CappedTag<C, 1> d1;
    const int64_t n4 = static_cast<int64_t>(hn::Lanes(d4));
    for (; i + n4 <= pairs; i += n4) HalfAt<Codec>(d4, x + i, y + i, pairs, c + i, s + i);
    for (; i < pairs; ++i) HalfAt<Codec>(d1, x + i, y + i, pairs, c + i, s + i);
  }
  static HWY_INLINE void Head(const T* x, T* y, int64_t pairs, const C* c, const C* s) {
    const hn::ScalableTag<C> d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + n <= pairs; i += n) HalfAt<Codec>(d, x + i, y + i, pairs, c + i, s + i);
    if (HWY_UNLIKELY(i < pairs)) Tail(i, x, y, pairs, c, s);
  }
};

template <class Codec>
struct InterleavedBody {
  using C = typename Codec::Compute;
  using T = typename Codec::Element;
  static HWY_INLINE void PrepareRow(const RotateParams& p, const float* row, C* c, C* s) {
    const C scale = static_cast<C>(p.scale);
    const C sign = p.negate_sin ? -scale : scale;
    for (int64_t i = 0; i < p.pairs; ++i) {
      c[2 * i] = c[2 * i + 1] = scale * row[i];
      s[2 * i + 1] = sign * row[p.pairs + i];
      s[2 * i] = -s[2 * i + 1];
    }
  }
  static HWY_INLINE void Head(const T* x, T* y, int64_t pairs, const C* c, const C* s) {
    const int64_t size = 2 * pairs;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // its vectors have one lane, nothing to swap
    const hn::ScalableTag<C> d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    for (; i + n <= size; i += n) InterleavedAt<Codec>(d, x + i, y + i, c + i, s + i);
#endif
    for (; i < size; i += 2) Pair(x + i, y + i, c + i, s + i);
  }
  static HWY_INLINE void Pair(const T* x, T* y, const C* c, const C* s) {
    const hn::CappedTag<C, 1> d;
    const auto x1 = Codec::Load(d, x);
    const auto x2 = Codec::Load(d, x + 1);
    Codec::Store(d, hn::MulAdd(x2, hn::Set(d, s[0]), hn::Mul(x1, hn::Set(d, c[0]))), y);
    Codec::Store(d, hn::MulAdd(x1, hn::Set(d, s[1]), hn::Mul(x2, hn::Set(d, c[1]))), y + 1);
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
template <class D>
HWY_INLINE void StoreWords(D d, hn::Vec<D> even, hn::Vec<D> odd, BFloat16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> d16;
  const auto low = hn::ShiftRight<16>(RoundBf16(d, even));
  const auto words = hn::OrAnd(low, RoundBf16(d, odd), hn::Set(du, 0xffff0000u));
  hn::StoreU(hn::BitCast(d16, words), d16, reinterpret_cast<uint16_t*>(p));
}

struct HalfWordsBody {
  using C = float;
  using T = BFloat16;
  static HWY_INLINE void PrepareRow(const RotateParams& p, const float* row, C* c, C* s) {
    const float scale = static_cast<float>(p.scale);
    const float sign = p.negate_sin ? -scale : scale;
    const int64_t n = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
    const float* sines = row + p.pairs;
    int64_t i = 0;
    for (; i + 2 * n <= p.pairs; i += 2 * n) {
      for (int64_t j = 0; j < n; ++j) {
        c[i + j] = scale * row[i + 2 * j];
        c[i + n + j] = scale * row[i + 2 * j + 1];
        s[i + j] = sign * sines[i + 2 * j];
        s[i + n + j] = sign * sines[i + 2 * j + 1];
      }
    }
    for (; i < p.pairs; ++i) {
      c[i] = scale * row[i];
      s[i] = sign * sines[i];
    }
  }
  static HWY_INLINE void Head(const T* x, T* y, int64_t pairs, const C* c, const C* s) {
    const hn::ScalableTag<float> d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + 2 * n <= pairs; i += 2 * n) {
      hn::Vec<decltype(d)> x1e, x1o, x2e, x2o;
      LoadWords(d, x + i, x1e, x1o);
      LoadWords(d, x + i + pairs, x2e, x2o);
      const auto ce = hn::LoadU(d, c + i);
      const auto co = hn::LoadU(d, c + i + n);
      const auto se = hn::LoadU(d, s + i);
      const auto so = hn::LoadU(d, s + i + n);
      StoreWords(d, hn::NegMulAdd(x2e, se, hn::Mul(x1e, ce)),
                 hn::NegMulAdd(x2o, so, hn::Mul(x1o, co)), y + i);
      StoreWords(d, hn::MulAdd(x1e, se, hn::Mul(x2e, ce)), hn::MulAdd(x1o, so, hn::Mul(x2o, co)),
                 y + i + pairs);
    }
    if (HWY_UNLIKELY(i < pairs)) HalfBody<BF16<false>>::Tail(i, x, y, pairs, c, s);
  }
};

struct InterleavedWordsBody {
  using C = float;
  using T = BFloat16;
  static HWY_INLINE void PrepareRow(const RotateParams& p, const float* row, C* c, C* s) {
    HalfBody<BF16<false>>::PrepareRow(p, row, c, s);
  }
  template <class D>
  static HWY_INLINE void At(D d, const T* x, T* y, const C* c, const C* s) {
    hn::Vec<D> x1, x2;
    LoadWords(d, x, x1, x2);
    const auto vc = hn::LoadU(d, c);
    const auto vs = hn::LoadU(d, s);
    StoreWords(d, hn::NegMulAdd(x2, vs, hn::Mul(x1, vc)), hn::MulAdd(x1, vs, hn::Mul(x2, vc)), y);
  }
  static HWY_INLINE void Head(const T* x, T* y, int64_t pairs, const C* c, const C* s) {
    const hn::ScalableTag<float> d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + n <= pairs; i += n) At(d, x + 2 * i, y + 2 * i, c + i, s + i);
    const hn::CappedTag<float, 1> d1;
    for (; i < pairs; ++i) At(d1, x + 2 * i, y + 2 * i, c + i, s + i);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

// All heads of one operand at one token.
template <class Body, int kPrefetchBytes>
HWY_INLINE void RotateHeads(const RotateParams& p, const RotateOperand& operand, int64_t batch,
                            int64_t token, const typename Body::C* c, const typename Body::C* s) {
  using T = typename Body::T;
  const T* in = static_cast<const T*>(operand.in) + batch * operand.in_strides[0] +
                token * operand.in_strides[1];
  T* out = static_cast<T*>(operand.out) + batch * operand.out_strides[0] +
           token * operand.out_strides[1];
  const bool copy = in != out && 2 * p.pairs != p.head_dim;
  for (int64_t h = 0; h < operand.heads; ++h) {
    if constexpr (kPrefetchBytes > 0) {
      const char* ahead = reinterpret_cast<const char*>(in) + kPrefetchBytes;
      const int64_t bytes = p.head_dim * static_cast<int64_t>(sizeof(T));
      for (int64_t b = 0; b < bytes; b += 64) hwy::Prefetch(ahead + b);
    }
    Body::Head(in + p.first_dim, out + p.first_dim, p.pairs, c, s);
    if (HWY_UNLIKELY(copy)) {
      const int64_t end = p.first_dim + 2 * p.pairs;
      std::copy(in, in + p.first_dim, out);
      std::copy(in + end, in + p.head_dim, out + end);
    }
    in += operand.in_strides[2];
    out += operand.out_strides[2];
  }
}

template <class Body, int kPrefetchBytes = 0>
void RotateWith(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  using C = typename Body::C;
  HWY_ALIGN C stack[4 * kStackPairs];
  C* c = p.pairs <= kStackPairs ? stack : reinterpret_cast<C*>(scratch);
  C* s = c + 2 * p.pairs;
  PositionCursor cursor(p.positions, p.tokens, begin);
  for (int64_t i = begin; i < end; ++i, cursor.Next()) {
    const float* row = p.rows + (cursor.position() - p.first_position) * 2 * p.pairs;
    Body::PrepareRow(p, row, c, s);
    for (int k = 0; k < p.num_operands; ++k) {
      RotateHeads<Body, kPrefetchBytes>(p, p.operands[k], cursor.batch(), cursor.token(), c, s);
    }
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
      return RotateWith<InterleavedWordsBody, kAhead>(p, begin, end, scratch);
#endif
  }
}

inline int64_t RotateTargetBody() { return HWY_TARGET; }

#undef ROPEWALK_SCALAR_F16
#undef ROPEWALK_AVX512

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard a target
