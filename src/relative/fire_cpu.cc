#include "src/relative/fire_cpu.h"

// Sums are kept in arrays of vectors, which vectors of unknown size cannot be in.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/relative/fire_cpu.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void FillFireLineBody(const float* HWY_RESTRICT logs, int64_t count, float slope, float intercept,
                      float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> d;
  constexpr int64_t kLanes = hn::MaxLanes(hn::CappedTag<float, 16>());
  const auto slopes = hn::Set(d, slope), intercepts = hn::Set(d, intercept);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    hn::StoreU(hn::Add(hn::Mul(slopes, hn::LoadU(d, logs + c)), intercepts), d, out + c);
  }
  for (; c < count; ++c) out[c] = slope * logs[c] + intercept;
}

// Two chains of each sum: a single chain of additions is bound by its latency.
FireSums SumFireLineBody(const float* HWY_RESTRICT d, const float* HWY_RESTRICT logs,
                         const float* HWY_RESTRICT rates, int64_t count) {
  using Doubles = hn::CappedTag<double, 8>;
  const Doubles dd;
  const hn::Rebind<float, Doubles> df;
  constexpr int64_t kLanes = hn::MaxLanes(Doubles());
  hn::Vec<Doubles> sums[3][2];
  for (auto& sum : sums) sum[0] = sum[1] = hn::Zero(dd);
  const auto wide = [&](const float* x) HWY_ATTR { return hn::PromoteTo(dd, hn::LoadU(df, x)); };
  int64_t c = 0;
  for (; c + 2 * kLanes <= count; c += 2 * kLanes) {
    HWY_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      const auto x = wide(d + c + i * kLanes);
      sums[0][i] = hn::Add(sums[0][i], x);
      sums[1][i] = hn::MulAdd(x, wide(logs + c + i * kLanes), sums[1][i]);
      sums[2][i] = hn::MulAdd(x, wide(rates + c + i * kLanes), sums[2][i]);
    }
  }
  double total[3];
  for (int i = 0; i < 3; ++i) {
    total[i] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sums[i][0], sums[i][1])));
  }
  for (; c < count; ++c) {
    const double x = d[c];
    total[0] += x, total[1] += x * logs[c], total[2] += x * rates[c];
  }
  return {total[0], total[1], total[2]};
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(FillFireLineBody);
HWY_EXPORT(SumFireLineBody);

void FillFireLine(const float* logs, int64_t count, float slope, float intercept, float* out) {
  HWY_DYNAMIC_DISPATCH(FillFireLineBody)(logs, count, slope, intercept, out);
}

FireSums SumFireLine(const float* d, const float* logs, const float* rates, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(SumFireLineBody)(d, logs, rates, count);
}

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
