#include "src/rotary/table_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rotary/table_cpu.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/table_cpu-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {

HWY_EXPORT(SinCosRowBody);
HWY_EXPORT(CombineRowsBody);
HWY_EXPORT(TableTargetBody);

void SinCosRow(const ReducedAngles& angles, std::size_t padded, double* out) {
  HWY_DYNAMIC_DISPATCH(SinCosRowBody)(angles, padded, out);
}

void CombineRows(const double* coarse, const double* fine, std::size_t padded, std::size_t pairs,
                 double amplitude, std::size_t rows, float* out) {
  HWY_DYNAMIC_DISPATCH(CombineRowsBody)(coarse, fine, padded, pairs, amplitude, rows, out);
}

int64_t TableTarget() { return HWY_DYNAMIC_DISPATCH(TableTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
