#include "src/relative/tupe_cpu.h"

#include <algorithm>
#include <type_traits>

#include "src/relative/check.h"

// The micro kernel keeps vectors in arrays, which vectors of unknown size cannot be.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/relative/tupe_cpu.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kTupePadding / 4>;
using V = hn::Vec<D>;

// Sums in registers: kRows x kVecs, 24 of 32, or 12 of 16.
constexpr int kRows = 6;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kVecs = 2;
#else
constexpr int kVecs = 4;
#endif
constexpr int64_t kLanes = hn::MaxLanes(D());
constexpr int64_t kPanel = kVecs * kLanes;

// sums[r][v] = a(r, k) times vector v of row k, b(k, v), added up for k below depth, in order.
template <int rows, class A, class B>
HWY_INLINE void Multiply(int64_t depth, const A& a, const B& b, V sums[rows][kVecs]) {
  const D d;
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    V rhs[kVecs];
    HWY_UNROLL(8)
    for (int v = 0; v < kVecs; ++v) rhs[v] = b(k, v);
    HWY_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      const V lhs = hn::Set(d, a(r, k));
      HWY_UNROLL(8)
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(lhs, rhs[v], sums[r][v]);
    }
  }
}

// Calls panel(first row, integral_constant of rows) for all rows, kRows at a time while there are
// so many.
template <class F>
HWY_INLINE void ForRows(int64_t rows, const F& panel) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) panel(r, std::integral_constant<int, kRows>());
  for (; r < rows; ++r) panel(r, std::integral_constant<int, 1>());
}

// Keys c .. c + columns - 1 of the tile. Keys one after another (run) are loaded where they stand,
// others one by one.
template <bool run>
void EvaluatePanel(const TupeScores& t, int64_t c, int64_t columns) {
  const D d;
  const auto query = [&](int64_t r) { return t.query_positions[static_cast<std::size_t>(r)]; };
  int64_t at[kPanel];
  for (int64_t i = 0; i < kPanel; ++i) {
    at[i] = t.key_positions[static_cast<std::size_t>(c + std::min(i, columns - 1))];
  }
  const auto load = [&](const float* from, int v) HWY_ATTR {
    if constexpr (run) return hn::LoadU(d, from + at[0] + v * kLanes);
    HWY_ALIGN float some[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) some[i] = from[at[v * kLanes + i]];
    return hn::Load(d, some);
  };
  ForRows(static_cast<int64_t>(t.query_positions.size()), [&](int64_t r, auto rows) HWY_ATTR {
    constexpr int kCount = decltype(rows)::value;
    V sums[kCount][kVecs];
    const float* lhs[kCount];
    for (int i = 0; i < kCount; ++i) lhs[i] = t.queries + query(r + i) * t.head_dim;
    Multiply<kCount>(
        t.head_dim, [&](int i, int64_t k) HWY_ATTR { return lhs[i][k]; },
        [&](int64_t k, int v) HWY_ATTR { return load(t.keys + k * t.key_stride, v); }, sums);
    for (int i = 0; i < kCount; ++i) {
      HWY_ALIGN float row[kPanel];
      for (int v = 0; v < kVecs; ++v) {
        if (t.biases != nullptr) sums[i][v] = hn::Add(sums[i][v], load(t.biases - query(r + i), v));
        hn::Store(sums[i][v], d, row + v * kLanes);
      }
      std::copy_n(row, columns, t.out + (r + i) * t.stride + c);
    }
  });
}

void EvaluateTupeBody(const TupeScores& t) {
  const auto count = static_cast<int64_t>(t.key_positions.size());
  for (int64_t c = 0; c < count; c += kPanel) {
    const int64_t columns = std::min(kPanel, count - c);
    const bool run = IsRun(
        t.key_positions.subspan(static_cast<std::size_t>(c), static_cast<std::size_t>(columns)));
    (run ? EvaluatePanel<true> : EvaluatePanel<false>)(t, c, columns);
  }
}

void AddTupeGradientBody(const TupeGradient& t) {
  const D d;
  const auto depth = static_cast<int64_t>(t.columns.size());
  for (int64_t e = 0; e < t.head_dim; e += kPanel) {
    const int64_t width = std::min(kPanel, t.head_dim - e);
    ForRows(static_cast<int64_t>(t.rows.size()), [&](int64_t r, auto rows) HWY_ATTR {
      constexpr int kCount = decltype(rows)::value;
      V sums[kCount][kVecs];
      const float* weights = t.weights + r * t.row_stride;
      Multiply<kCount>(
          depth,
          [&](int i, int64_t k)
              HWY_ATTR { return weights[i * t.row_stride + k * t.column_stride]; },
          [&](int64_t k, int v) HWY_ATTR {
            const int64_t row = t.columns[static_cast<std::size_t>(k)];
            return hn::LoadU(d, t.others + row * t.head_dim + e + v * kLanes);
          },
          sums);
      for (int i = 0; i < kCount; ++i) {
        HWY_ALIGN float sum[kPanel];
        for (int v = 0; v < kVecs; ++v) hn::Store(sums[i][v], d, sum + v * kLanes);
        double* to = t.gradient + t.rows[static_cast<std::size_t>(r + i)] * t.head_dim + e;
        for (int64_t x = 0; x < width; ++x) to[x] += static_cast<double>(sum[x]);
      }
    });
  }
}

int64_t TupeTargetBody() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(EvaluateTupeBody);
HWY_EXPORT(AddTupeGradientBody);
HWY_EXPORT(TupeTargetBody);

void EvaluateTupe(const TupeScores& t) { HWY_DYNAMIC_DISPATCH(EvaluateTupeBody)(t); }
void AddTupeGradient(const TupeGradient& t) { HWY_DYNAMIC_DISPATCH(AddTupeGradientBody)(t); }
int64_t TupeTarget() { return HWY_DYNAMIC_DISPATCH(TupeTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
