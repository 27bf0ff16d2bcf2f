#include "src/linear/transpose_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/transpose_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kSide = 1;
HWY_INLINE void TransposeSquare(const float* from, int64_t, float* to, int64_t) { *to = *from; }
#else
// Four by four: a panel is stored in order a quarter of a line at a time, and wider squares, which
// take more shuffles an element, gained nothing.
constexpr int64_t kSide = 4;
HWY_INLINE void TransposeSquare(const float* from, int64_t from_stride, float* to,
                                int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_stride);
  const auto e = hn::LoadU(d, from + 2 * from_stride), f = hn::LoadU(d, from + 3 * from_stride);
  const auto ab_low = hn::BitCast(dw, hn::InterleaveLower(d, a, b));  // a0 b0 a1 b1
  const auto ef_low = hn::BitCast(dw, hn::InterleaveLower(d, e, f));
  const auto ab_high = hn::BitCast(dw, hn::InterleaveUpper(d, a, b));
  const auto ef_high = hn::BitCast(dw, hn::InterleaveUpper(d, e, f));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, ab_low, ef_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, ab_low, ef_low)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, ab_high, ef_high)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, ab_high, ef_high)), d, to + 3 * to_stride);
}
#endif

void TransposeOf(const float* from, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t c = 0; c < whole_columns; c += kSide) {
    for (int64_t r = 0; r < whole_rows; r += kSide) {
      TransposeSquare(from + r * columns + c, columns, to + c * to_stride + r, to_stride);
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t first = c < whole_columns ? whole_rows : 0;
    for (int64_t r = first; r < rows; ++r) to[c * to_stride + r] = from[r * columns + c];
  }
}

int64_t TargetOfTranspose() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(TransposeOf);
HWY_EXPORT(TargetOfTranspose);

void Transpose(const float* from, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeOf)(from, rows, columns, to, to_stride);
}

int64_t TransposeTarget() { return HWY_DYNAMIC_DISPATCH(TargetOfTranspose)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
