// A table over the distance (T5, KERPLE, Sandwich). Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_TABLE_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_TABLE_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_TABLE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/attention/terms/distance-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

struct TableFunction {
  explicit TableFunction(const ScoreForm& form) : table(std::get<DistanceForm>(form)) {}

  // out[x] = bias of distance `first` - x, in units of log 2.
  void Fill(int64_t head, int64_t first, int64_t count, float* out) const {
    const float* values = table.values.data() + head * table.columns;
    const int64_t last = table.columns - 1, top = first - table.first;  // column of out[0]
    const int64_t beyond = std::clamp<int64_t>(top - last, 0, count);
    const int64_t inside = std::clamp<int64_t>(top + 1, beyond, count);
    std::fill_n(out, beyond, values[last] * kLog2E);
    for (int64_t x = beyond; x < inside; ++x) out[x] = values[top - x] * kLog2E;
    std::fill_n(out + inside, count - inside, values[0] * kLog2E);
  }

  // gradient[x] is that of the bias of distance `first` - x.
  void Backward(FormSums& sums, int64_t group_head, int64_t first, int64_t count,
                const float* gradient) const {
    for (int64_t x = 0; x < count; ++x) {
      const int64_t column = std::clamp<int64_t>(first - x - table.first, 0, table.columns - 1);
      sums.values[group_head * table.columns + column] += double{gradient[x]};
    }
  }

  const DistanceForm& table;
};

using TableTerm = DistanceTerm<TableFunction>;

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
