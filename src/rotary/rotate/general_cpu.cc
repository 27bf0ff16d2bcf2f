#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rotary/rotate/general_cpu.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/rotate/general_cpu-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {

HWY_EXPORT(RotateGeneralBody);
HWY_EXPORT(RotateGeneralTargetBody);

void RotateGeneral(const RotateParams& params, int64_t begin, int64_t end,
                   double* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(RotateGeneralBody)(params, begin, end, scratch);
}

int64_t RotateGeneralTarget() { return HWY_DYNAMIC_DISPATCH(RotateGeneralTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
