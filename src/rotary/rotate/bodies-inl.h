// What is done with a row of the table, once per token, and then with each head: a body per
// layout, compiled once per SIMD target. y1 = x1 c - x2 s, y2 = x2 c + x1 s.
//
// A token's cos and sin are first rearranged for the layout and element type (Prepare), once for
// all its heads; then a head is a straight loop without shuffles of the table:
//   half          x1 = x[i], x2 = x[i + pairs]      c[pairs], s[pairs] as they are
//   interleaved   y = x * c2 + swap(x) * s2         c2 = c0 c0 c1 c1 .., s2 = -s0 s0 -s1 s1 ..
//   bf16, rounded with integers: a 32-bit word holds an even and an odd element, and each becomes a
//   float by one shift or mask, so words are never unpacked in order
//     half        c, s split into even and odd pairs, a vector of each in turn
//     interleaved the even element is x1, the odd one x2
#if defined(ROPEWALK_ROTATE_BODIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_BODIES_INL_H_
#undef ROPEWALK_ROTATE_BODIES_INL_H_
#else
#define ROPEWALK_ROTATE_BODIES_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "src/rotary/rotate/codecs-inl.h"
#include "src/rotary/rotate/params.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
  // Several steps at once load and store in the order of memory, which a half layout a step at a
  // time does not: with 16-bit heads of 128, lines 0 2 1 3. Beyond the cache that cost a fifth.
  template <int kSteps>
  static HWY_INLINE void RotateSteps(const T* x, T* y, int64_t pairs, const Factors* f) {
    const D d;
    hn::Vec<D> x1[kSteps], x2[kSteps];
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) x1[k] = Codec::Load(d, x + k * Step());
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) x2[k] = Codec::Load(d, x + pairs + k * Step());
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) {
      Codec::Store(d, hn::NegMulAdd(x2[k], f[k].s, hn::Mul(x1[k], f[k].c)), y + k * Step());
    }
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) {
      Codec::Store(d, hn::MulAdd(x1[k], f[k].s, hn::Mul(x2[k], f[k].c)), y + pairs + k * Step());
    }
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    RotateSteps<1>(x + i, y + i, pairs, &f);
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
      const hn::RebindToSigned<D> di;
      const int64_t n = 2 * Step();
      // One shuffle a vector; Highway's StoreInterleaved2 takes four.
      const auto lower = hn::IndicesFromVec(d, hn::ShiftRight<1>(hn::Iota(di, 0)));
      const auto upper =
          hn::IndicesFromVec(d, hn::ShiftRight<1>(hn::Iota(di, static_cast<int32_t>(n))));
      const auto scales = hn::Set(d, scale);
      const auto signs = hn::OddEven(hn::Set(d, sign), hn::Set(d, -sign));
      for (; i + n <= p.pairs; i += n) {
        const auto vc = hn::LoadU(d, row + i);
        const auto vs = hn::LoadU(d, row + p.pairs + i);
        hn::StoreU(hn::Mul(scales, hn::TableLookupLanes(vc, lower)), d, c + 2 * i);
        hn::StoreU(hn::Mul(scales, hn::TableLookupLanes(vc, upper)), d, c + 2 * i + n);
        hn::StoreU(hn::Mul(signs, hn::TableLookupLanes(vs, lower)), d, s + 2 * i);
        hn::StoreU(hn::Mul(signs, hn::TableLookupLanes(vs, upper)), d, s + 2 * i + n);
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
  template <int kSteps>  // as HalfBody's
  static HWY_INLINE void RotateSteps(const T* x, T* y, int64_t pairs, const Factors* f) {
    const D d;
    hn::Vec<D> x1_even[kSteps], x1_odd[kSteps], x2_even[kSteps], x2_odd[kSteps];
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) LoadWords(d, x + k * Step(), x1_even[k], x1_odd[k]);
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) LoadWords(d, x + pairs + k * Step(), x2_even[k], x2_odd[k]);
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) {
      StoreWords(d, hn::NegMulAdd(x2_even[k], f[k].s_even, hn::Mul(x1_even[k], f[k].c_even)),
                 hn::NegMulAdd(x2_odd[k], f[k].s_odd, hn::Mul(x1_odd[k], f[k].c_odd)),
                 y + k * Step());
    }
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) {
      StoreWords(d, hn::MulAdd(x1_even[k], f[k].s_even, hn::Mul(x2_even[k], f[k].c_even)),
                 hn::MulAdd(x1_odd[k], f[k].s_odd, hn::Mul(x2_odd[k], f[k].c_odd)),
                 y + pairs + k * Step());
    }
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    RotateSteps<1>(x + i, y + i, pairs, &f);
  }
  static HWY_INLINE void Tail(const T* x, T* y, int64_t i, int64_t pairs, const C* c, const C* s) {
    HalfBody<BF16>::Tail(x, y, i, pairs, c, s);
  }
  // to = factor * (even elements of a step, then odd ones). One shuffle a vector; Highway's
  // LoadInterleaved2 takes four.
  static HWY_INLINE void SplitEvenOdd(const float* from, float factor, float* to) {
    const D d;
    const int64_t n = Step() / 2;
    const auto low = hn::LoadU(d, from);
    const auto high = hn::LoadU(d, from + n);
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::ConcatEven(d, high, low)), d, to);
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::ConcatOdd(d, high, low)), d, to + n);
  }
  static HWY_INLINE Row<C> Prepare(const RotateParams& p, const float* row, C* c, C* s) {
    const float scale = static_cast<float>(p.scale);
    const float sign = p.negate_sin ? -scale : scale;
    const float* sines = row + p.pairs;
    int64_t i = 0;
    for (; i + Step() <= p.pairs; i += Step()) {
      SplitEvenOdd(row + i, scale, c + i);
      SplitEvenOdd(sines + i, sign, s + i);
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
    return HalfBody<BF16>::Prepare(p, row, c, s);
  }
};

#if ROPEWALK_AVX512
// Both for Tuning::kZen, which stores a head at once where its results stay in registers.
struct HalfWordsZenBody : HalfWordsBody {
  template <int kSteps>
  static HWY_INLINE void RotateSteps(const T* x, T* y, int64_t pairs, const Factors* f) {
    if constexpr (kSteps > 2) {
      RotateSteps<2>(x, y, pairs, f);
      return RotateSteps<kSteps - 2>(x + 2 * Step(), y + 2 * Step(), pairs, f + 2);
    }
    const D d;
    hn::Vec<D> x1_even[kSteps], x1_odd[kSteps], x2_even[kSteps], x2_odd[kSteps];
    HWY_UNROLL(2)
    for (int k = 0; k < kSteps; ++k) LoadWords(d, x + k * Step(), x1_even[k], x1_odd[k]);
    HWY_UNROLL(2)
    for (int k = 0; k < kSteps; ++k) LoadWords(d, x + pairs + k * Step(), x2_even[k], x2_odd[k]);
    hn::Vec<D> even[2 * kSteps], odd[2 * kSteps];
    HWY_UNROLL(2)
    for (int k = 0; k < kSteps; ++k) {
      even[k] = hn::NegMulAdd(x2_even[k], f[k].s_even, hn::Mul(x1_even[k], f[k].c_even));
      odd[k] = hn::NegMulAdd(x2_odd[k], f[k].s_odd, hn::Mul(x1_odd[k], f[k].c_odd));
      even[kSteps + k] = hn::MulAdd(x1_even[k], f[k].s_even, hn::Mul(x2_even[k], f[k].c_even));
      odd[kSteps + k] = hn::MulAdd(x1_odd[k], f[k].s_odd, hn::Mul(x2_odd[k], f[k].c_odd));
    }
    StoreWordsZen<2 * kSteps, 2>(d, even, odd, pairs, y);
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    RotateSteps<1>(x + i, y + i, pairs, &f);
  }
};

struct InterleavedWordsZenBody : InterleavedWordsBody<> {
  template <int kSteps>
  static HWY_INLINE void RotateSteps(const T* x, T* y, int64_t, const Factors* f) {
    const hn::ScalableTag<float> d;
    hn::Vec<decltype(d)> even[kSteps], odd[kSteps];
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) {
      hn::Vec<decltype(d)> x1, x2;
      LoadWords(d, x + 2 * k * Step(), x1, x2);
      even[k] = hn::NegMulAdd(x2, f[k].s, hn::Mul(x1, f[k].c));
      odd[k] = hn::MulAdd(x1, f[k].s, hn::Mul(x2, f[k].c));
    }
    StoreWordsZen<kSteps, 1>(d, even, odd, 0, y);
  }
  static HWY_INLINE void Rotate(const T* x, T* y, int64_t i, int64_t pairs, const Factors& f) {
    RotateSteps<1>(x + 2 * i, y + 2 * i, pairs, &f);
  }
};
#endif  // ROPEWALK_AVX512
#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
