// The bodies behind table_cpu.h, compiled once per SIMD target.
#if defined(ROPEWALK_TABLE_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_TABLE_CPU_INL_H_
#undef ROPEWALK_TABLE_CPU_INL_H_
#else
#define ROPEWALK_TABLE_CPU_INL_H_
#endif

#include "hwy/highway.h"
#include "src/rotary/table_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a + b c, rounded twice.
template <class V>
HWY_INLINE V MulThenAdd(V a, V b, V c) {
  return hn::Add(a, hn::Mul(b, c));
}

// sum of c[k] z^k with c[k] = sign_k / n_k! for n_k = first, first + 2, ...: the tail of the Taylor
// series of sine (first 3) or cosine (first 4). At pi/4 the first term left out is below 2^-63.
template <class D, class V>
HWY_INLINE V TaylorTail(D d, V z, bool sine) {
  constexpr double kSine[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCosine[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const double* c = sine ? kSine : kCosine;
  V sum = hn::Set(d, c[7]);
  for (int k = 6; k >= 0; --k) sum = MulThenAdd(hn::Set(d, c[k]), sum, z);
  return sum;
}

inline void SinCosRowBody(const ReducedAngles& angles, std::size_t padded, double* out) {
  const hn::CappedTag<double, kRowPadding> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    const auto x = hn::Load(d, angles.hi + i);
    const auto lo = hn::Load(d, angles.lo + i);
    const auto quadrant = hn::Load(di, angles.quadrant + i);
    const auto z = hn::Mul(x, x);
    const auto one = hn::Set(d, 1.0);
    const auto half_z = hn::Mul(hn::Set(d, 0.5), z);
    // sin(x + lo) = x + (x z S(z) + lo (1 - z/2)): what is added to x is below x / 9.
    const auto sine_tail = hn::Mul(hn::Mul(x, z), TaylorTail(d, z, true));
    const auto w = hn::Sub(one, half_z);
    const auto sine = hn::Add(x, MulThenAdd(sine_tail, lo, w));
    // cos(x + lo) = 1 - z/2 + (z^2 C(z) - x lo), with the rounding error of 1 - z/2 put back.
    const auto cosine_tail = hn::Mul(hn::Mul(z, z), TaylorTail(d, z, false));
    const auto lost = hn::Sub(hn::Sub(one, w), half_z);
    const auto cosine = hn::Add(w, hn::Add(lost, hn::Sub(cosine_tail, hn::Mul(x, lo))));
    // Quadrant 1: (-sin, cos), 2: (-cos, -sin), 3: (sin, -cos).
    const auto odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(di, 1)));
    const auto two = hn::Set(di, 2);
    const auto negate_cosine = hn::ShiftLeft<62>(hn::And(hn::Add(quadrant, hn::Set(di, 1)), two));
    const auto negate_sine = hn::ShiftLeft<62>(hn::And(quadrant, two));
    hn::Store(hn::Xor(hn::IfThenElse(odd, sine, cosine), hn::BitCast(d, negate_cosine)), d,
              out + i);
    hn::Store(hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(d, negate_sine)), d,
              out + padded + i);
  }
}

// One vector of pairs of one row.
template <class D>
HWY_INLINE void CombineAt(D d, const double* coarse, const double* fine, std::size_t padded,
                          std::size_t pairs, hn::Vec<D> amplitude, float* out) {
  const hn::Rebind<float, D> df;
  const auto coarse_cos = hn::LoadU(d, coarse);
  const auto coarse_sin = hn::LoadU(d, coarse + padded);
  const auto fine_cos = hn::LoadU(d, fine);
  const auto fine_sin = hn::LoadU(d, fine + padded);
  const auto cosine = hn::Sub(hn::Mul(coarse_cos, fine_cos), hn::Mul(coarse_sin, fine_sin));
  const auto sine = hn::Add(hn::Mul(coarse_sin, fine_cos), hn::Mul(coarse_cos, fine_sin));
  hn::StoreU(hn::DemoteTo(df, hn::Mul(cosine, amplitude)), df, out);
  hn::StoreU(hn::DemoteTo(df, hn::Mul(sine, amplitude)), df, out + pairs);
}

inline void CombineRowsBody(const double* coarse, const double* fine, std::size_t padded,
                            std::size_t pairs, double amplitude, std::size_t rows, float* out) {
  const hn::CappedTag<double, kRowPadding> d;
  const hn::CappedTag<double, 1> d1;
  const auto a = hn::Set(d, amplitude);
  const auto a1 = hn::Set(d1, amplitude);
  for (std::size_t r = 0; r < rows; ++r, fine += 2 * padded, out += 2 * pairs) {
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= pairs; i += hn::Lanes(d)) {
      CombineAt(d, coarse + i, fine + i, padded, pairs, a, out + i);
    }
    for (; i < pairs; ++i) CombineAt(d1, coarse + i, fine + i, padded, pairs, a1, out + i);
  }
}

inline int64_t TableTargetBody() { return HWY_TARGET; }

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard a target
