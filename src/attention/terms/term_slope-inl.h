// ALiBi's form: a slope per head, times the distance. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_SLOPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_SLOPE_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_SLOPE_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_SLOPE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/attention/terms/distance-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

struct SlopeFunction {
  explicit SlopeFunction(const ScoreForm& form) : slope(std::get<SlopeForm>(form)) {}

  // out[x] = bias of distance `first` - x, in units of log 2.
  void Fill(int64_t head, int64_t first, int64_t count, float* out) const {
    const auto at = static_cast<size_t>(head);
    const double behind = -kLog2EDouble * slope.behind[at];
    const double ahead = slope.ahead.empty() ? 0 : kLog2EDouble * slope.ahead[at];
    const int64_t split = std::clamp<int64_t>(first + 1, 0, count);
    for (int64_t x = 0; x < split; ++x) {
      out[x] = static_cast<float>(behind * static_cast<double>(first - x));
    }
    for (int64_t x = split; x < count; ++x) {
      out[x] = static_cast<float>(ahead * static_cast<double>(first - x));
    }
  }

  // gradient[x] is that of the bias of distance `first` - x.
  void Backward(FormSums& sums, int64_t group_head, int64_t first, int64_t count,
                const float* gradient) const {
    for (int64_t x = 0; x < count; ++x) {
      const int64_t distance = first - x;
      const double g = gradient[x];
      if (distance >= 0) {
        sums.behind[group_head] -= g * static_cast<double>(distance);
      } else {
        sums.ahead[group_head] += g * static_cast<double>(distance);
      }
    }
  }

  const SlopeForm& slope;
};

using SlopeTerm = DistanceTerm<SlopeFunction>;

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
