// The micro kernel of matrix products, 2^x and tanh. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_GEMM_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_GEMM_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/attention/kernel/tile.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// The micro kernel holds kRows x kVecs sums in registers: 24 of 32, or 12 of 16.
constexpr int kRows = kMicroRows;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kVecs = 2;
#else
constexpr int kVecs = 4;
#endif
// (tanh(x) / x - 1) / x^2 in powers of x^2 for |x| below kTanhSmall, by the same kind of fit: with
// rounding 1.4 x 2^-24.
constexpr float kTanh[] = {-0.333332807f, 0.133314416f, -0.0537397154f, 0.0206390880f,
                           -0.00570498686f};
constexpr float kTanhSmall = 0.625f;
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

// c [rows, vecs * lanes] (+)= a [rows, depth] b [depth, vecs * lanes]. Each element sums over depth
// in order, so its bits do not depend on rows or vecs, and what it sums is added to c as one: a sum
// over all keys one by one loses the small ones beside what it has grown to. A transposed a is
// [depth, rows] in memory.
template <int rows, int vecs, bool transposed>
HWY_INLINE void MultiplyPanel(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                              bool accumulate, float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  V sums[rows][vecs];
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V rhs[vecs];
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) rhs[v] = hn::Load(d, b + k * b_stride + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      const V lhs = hn::Set(d, transposed ? a[k * a_stride + r] : a[r * a_stride + k]);
      HWY_UNROLL(8)
      for (int v = 0; v < vecs; ++v) sums[r][v] = hn::MulAdd(lhs, rhs[v], sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) {
      float* to = c + r * c_stride + v * kLanes;
      hn::Store(accumulate ? hn::Add(hn::Load(d, to), sums[r][v]) : sums[r][v], d, to);
    }
  }
}

template <int vecs, bool transposed>
HWY_NOINLINE void MultiplyRows(int64_t rows, const float* a, int64_t a_stride, const float* b,
                               int64_t b_stride, int64_t depth, bool accumulate, float* c,
                               int64_t c_stride) {
  switch (rows) {
    case 1:
      return MultiplyPanel<1, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
    case 2:
      return MultiplyPanel<2, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
    case 3:
      return MultiplyPanel<3, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
    case 4:
      return MultiplyPanel<4, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
    case 5:
      return MultiplyPanel<5, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
    default:
      return MultiplyPanel<6, vecs, transposed>(a, a_stride, b, b_stride, depth, accumulate, c,
                                                c_stride);
  }
}

// The same for any width, a multiple of the lanes.
template <bool transposed = false>
HWY_INLINE void Multiply(int64_t rows, int64_t width, const float* a, int64_t a_stride,
                         const float* b, int64_t b_stride, int64_t depth, bool accumulate, float* c,
                         int64_t c_stride) {
  for (int64_t x = 0; x < width; x += kVecs * kLanes) {
    const int64_t vecs = std::min<int64_t>(kVecs, (width - x) / kLanes);
    switch (vecs) {
      case 1:
        MultiplyRows<1, transposed>(rows, a, a_stride, b + x, b_stride, depth, accumulate, c + x,
                                    c_stride);
        break;
      case 2:
        MultiplyRows<2, transposed>(rows, a, a_stride, b + x, b_stride, depth, accumulate, c + x,
                                    c_stride);
        break;
      case 3:
        MultiplyRows<kVecs == 4 ? 3 : 1, transposed>(rows, a, a_stride, b + x, b_stride, depth,
                                                     accumulate, c + x, c_stride);
        break;
      default:
        MultiplyRows<kVecs, transposed>(rows, a, a_stride, b + x, b_stride, depth, accumulate,
                                        c + x, c_stride);
    }
  }
}

constexpr int64_t kBackwardSlice = 64;  // rows or keys that are summed over at a time
constexpr int64_t kBackwardWidth = 64;  // dims

// c [columns, width] += a^T b, a [depth, columns], b [depth, width].
inline void MultiplyTransposed(const float* a, int64_t a_stride, int64_t columns, const float* b,
                               int64_t depth, int64_t b_stride, int64_t width, float* c,
                               int64_t c_stride) {
  for (int64_t x = 0; x < width; x += kBackwardWidth) {
    const int64_t part = std::min(kBackwardWidth, width - x);
    for (int64_t i = 0; i < columns; i += kRows) {
      Multiply<true>(std::min<int64_t>(kRows, columns - i), part, a + i, a_stride, b + x, b_stride,
                     depth, /*accumulate=*/true, c + i * c_stride + x, c_stride);
    }
  }
}

// A row of `count` floats that is read or written soon. Rows of queries and results lie heads apart,
// where the CPU's own prefetcher does not look; without this they were a tenth of 512 tokens' time.
inline void PrefetchRow(const float* row, int64_t count) {
  constexpr int64_t kLine = 16;  // floats
  for (int64_t i = 0; i < count; i += kLine) hwy::Prefetch(row + i);
}
constexpr int64_t kTokensAhead = 8;

// Part `part` of `parts` of `count` floats that are read next, from beyond the cache, by every group of
// rows: the first to read them would wait for each line.
inline void PrefetchPart(const float* next, int64_t count, int64_t part, int64_t parts) {
  const int64_t share = (count + 16 * parts - 1) / (16 * parts) * 16;
  const int64_t begin = part * share;
  PrefetchRow(next + begin, std::min(share, count - begin));
}
constexpr int64_t kGroupsThatPrefetch = 8;  // or more: with few rows reading is all that is done

// to = from * factor, [count]. `to` may be `from`.
inline void Scale(int64_t count, const float* from, V factor, float* to) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
  }
  for (; i < count; ++i) to[i] = from[i] * hn::GetLane(factor);
}

// x = 2^x for count vectors at once (one alone waits for its own latencies), x <= 0, within 2 ULP;
// 0 below -90 and at -infinity; NaN stays NaN. Smaller weights are invisible beside the row's
// largest, but their products with values are subnormal, which cost a hundred times as much: a
// steep slope made attention 1.4 times slower.
template <int count>
HWY_INLINE void Exp2(V* HWY_RESTRICT x) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const V round = hn::Set(d, kExp2Shift);
  V shifted[count], f[count], p[count];
  HWY_UNROLL(4)
  for (int i = 0; i < count; ++i) {
    shifted[i] = hn::Add(x[i], round);
    f[i] = hn::Sub(x[i], hn::Sub(shifted[i], round));
    p[i] = hn::Set(d, kExp2[5]);
  }
  HWY_UNROLL(5)
  for (int k = 4; k >= 0; --k) {
    const V term = hn::Set(d, kExp2[k]);
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], term);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < count; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted[i]));
    const V y = hn::BitCast(d, hn::Add(hn::BitCast(du, p[i]), exponent));
    x[i] = hn::IfThenZeroElse(hn::Lt(x[i], hn::Set(d, kExp2Least)), y);
  }
}

// Within 3 ULP: a polynomial near 0, (1 - e) / (1 + e) with e = exp(-2 |x|) beyond.
HWY_INLINE V Tanh(V x) {
  const D d;
  const V a = hn::Abs(x), z = hn::Mul(x, x);
  V p = hn::Set(d, kTanh[4]);
  HWY_UNROLL(4)
  for (int k = 3; k >= 0; --k) p = hn::MulAdd(p, z, hn::Set(d, kTanh[k]));
  const V near = hn::MulAdd(hn::Mul(x, z), p, x);
  V e = hn::Mul(a, hn::Set(d, -2 * kLog2E));
  Exp2<1>(&e);
  const V one = hn::Set(d, 1.0f);
  const V far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, kTanhSmall)), near, far);
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
