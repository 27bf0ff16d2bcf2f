// How the rotation loads and stores elements of each type, compiled once per SIMD target: Load and
// Store take them in order; LoadWords and StoreWords take bf16 as 32-bit words, an even and an odd
// element in each, so that words are never unpacked in order.
#if defined(ROPEWALK_ROTATE_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_CODECS_INL_H_
#undef ROPEWALK_ROTATE_CODECS_INL_H_
#else
#define ROPEWALK_ROTATE_CODECS_INL_H_
#endif

#include <bit>
#include <cstring>

#include "hwy/highway.h"
#include "ropewalk/base/dtype.h"

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
#undef ROPEWALK_AVX512  // of the target before; the bodies use it too
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define ROPEWALK_AVX512 1
#else
#define ROPEWALK_AVX512 0
#endif

// Loads and stores: elements of type Element, vectors of type Compute, in order.
struct F32 {
  using Element = float;
  using Compute = float;
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
  static HWY_INLINE void Store(D /*d*/, hn::Vec<D> v, Float16* p) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
    // Converts and stores in one instruction, which saves a shuffle: GCC and Clang make two of it
    // unless they know that p is aligned. 0.75 of the stream against 0.62 (Sapphire Rapids).
    if constexpr (hn::MaxLanes(D()) >= 8) {
      struct __attribute__((may_alias)) Bytes {
        uint16_t words[hn::MaxLanes(D())];
      };
      __asm__("vcvtps2ph $8, %1, %0" : "=m"(*reinterpret_cast<Bytes*>(p)) : "v"(v.raw));
      return;
    }
#endif
    const hn::Rebind<hwy::float16_t, D> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
  }
#endif
};

#if ROPEWALK_AVX512
// For Tuning::kZen: loads in two halves, since a vector of 16 takes Zen 4 1.33 cycles and a half of
// it 0.5, and stores in two instructions (0.29 of the stream against 0.27).
struct F16Zen : F16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Float16* p) {
    if constexpr (hn::MaxLanes(D()) == 16) {
      const hn::Half<D> half;
      return hn::Combine(d, F16::Load(half, p + 8), F16::Load(half, p));
    } else {
      return F16::Load(d, p);
    }
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, Float16* p) {
    if constexpr (hn::MaxLanes(D()) == 16) {
      const hn::Rebind<hwy::float16_t, D> dh;
      hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
    } else {
      F16::Store(d, v, p);
    }
  }
};
#endif

// Bits of v, to which half a unit in the last place of bf16 was added, ties to even; the upper 16
// are the result. NaN needs no care here: it comes from a bf16 input or is the CPU's default one,
// so its lower 16 bits are zero and adding 0x8000 does not reach the upper ones.
template <class D, class DU = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<DU> RoundBf16(D /*d*/, hn::Vec<D> v) {
  const DU du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  return hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd);
}

// In order: for tails only, since words are faster.
struct BF16 {
  using Element = BFloat16;
  using Compute = float;
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
    const hn::RebindToSigned<D> di;
    const auto upper = hn::BitCast(di, hn::ShiftRight<16>(RoundBf16(d, v)));
    hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<uint16_t*>(p));
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
  uint8_t bits[8];  // two of four bytes
  std::memset(bits, kOdd ? 0xcc : 0x33, sizeof(bits));
  const auto lanes = hn::LoadMaskBits(d8, bits);
  const auto merged = hn::IfThenElse(lanes, picked, hn::BitCast(d8, into));
  return hn::BitCast(d16, merged);
}
#endif

// Rounds both to bf16, to nearest, ties to even, in 16-bit lanes: with `upper` the upper halves of
// the floats and `lower` the lower ones, upper goes up by one where lower > 0x8000, or lower ==
// 0x8000 and upper is odd, which is (lower | (upper & 1)) > 0x8000. Half as many operations as
// rounding each float. A NaN comes from a bf16 input or is the CPU's default one, so its lower half
// is zero and it stays what it is. On Sapphire Rapids this is a twentieth faster than the native
// vcvtne2ps2bf16 and a permutation, and a fifth than vcvtneps2bf16 and elements in order (256 KiB:
// 0.66, 0.63 and 0.55 of the stream); those flush subnormals as well.
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

#if ROPEWALK_AVX512
// For Tuning::kZen: StoreWords of kCount vectors to `p`, `step` elements apart after the first
// kCount / kRuns and `run` elements between the first vectors of runs. vcvtne2ps2bf16 rounds as
// StoreWords does, except that it makes zeros of subnormals: so where a result is zero, all are
// rounded once more, with integers. On Zen 4 that is an eighth faster than integers alone (256 KiB:
// 0.33 and 0.29 of the stream; without looking for zeros 0.39).
template <int kCount, int kRuns, class D>
HWY_INLINE void StoreWordsZen(D d, const hn::Vec<D>* even, const hn::Vec<D>* odd, int64_t run,
                              BFloat16* p) {
  constexpr int kInRun = kCount / kRuns;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto to = [&](int k) HWY_ATTR { return p + k / kInRun * run + k % kInRun * step; };
  alignas(64) static constexpr uint16_t kInOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i in_order = _mm512_load_si512(kInOrder);
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i words[kCount];
  __mmask32 nonzero = ~__mmask32{0};
  HWY_UNROLL(4)
  for (int k = 0; k < kCount; ++k) {
    // Highway 1.0.3 has no target with avx512_bf16.
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(words[k]) : "v"(even[k].raw), "v"(odd[k].raw));
    nonzero = _mm512_mask_test_epi16_mask(nonzero, words[k], magnitude);
  }
  if (HWY_UNLIKELY(nonzero != ~__mmask32{0})) {
    HWY_UNROLL(4)
    for (int k = 0; k < kCount; ++k) StoreWords(d, even[k], odd[k], to(k));
    return;
  }
  HWY_UNROLL(4)
  for (int k = 0; k < kCount; ++k) {
    _mm512_storeu_si512(to(k), _mm512_permutexvar_epi16(in_order, words[k]));
  }
}
#endif

#endif  // HWY_TARGET != HWY_SCALAR

#undef ROPEWALK_SCALAR_F16

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
