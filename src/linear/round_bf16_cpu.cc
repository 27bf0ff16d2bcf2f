#include "src/base/parallel.h"
#include "src/linear/round_bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/round_bf16_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Not the rotation's rounding, which may rely on its NaNs having no lower bits: a NaN of a weight
// may have any, and adding to them would carry it to zero.
void RoundRow(const float* HWY_RESTRICT x, int64_t n, BFloat16* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    const auto kept = hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
    const auto upper = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, kept)));
    hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<uint16_t*>(out + i));
  }
  for (; i < n; ++i) out[i] = ToBFloat16(x[i]);
}

int64_t RoundRowTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(RoundRow);
HWY_EXPORT(RoundRowTarget);

void RoundToBf16(const float* x, int64_t stride, int64_t rows, int64_t n, BFloat16* out) {
  const int threads = ThreadsFor(rows * n / 8);  // 0.12 ns an element
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    HWY_DYNAMIC_DISPATCH(RoundRow)(x + r * stride, n, out + r * n);
  }
}

int64_t RoundToBf16Target() { return HWY_DYNAMIC_DISPATCH(RoundRowTarget)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
