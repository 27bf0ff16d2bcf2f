#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rotary/rotate/plain_cpu.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/rotate/plain_cpu-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {

HWY_EXPORT(RotatePlainBody);
HWY_EXPORT(RotatePlainTargetBody);

void RotatePlain(const RotateParams& params, int64_t begin, int64_t end, double* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(RotatePlainBody)(params, begin, end, scratch);
}

int64_t RotatePlainTarget() { return HWY_DYNAMIC_DISPATCH(RotatePlainTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
