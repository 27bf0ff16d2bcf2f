#include "src/rotary/rotate/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rotary/rotate/cpu.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/rotate/cpu-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {

HWY_EXPORT(RotateTokensBody);
HWY_EXPORT(RotateTargetBody);

void RotateTokens(const RotateParams& params, int64_t begin, int64_t end,
                  double* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(RotateTokensBody)(params, begin, end, scratch);
}

int64_t RotateTarget() { return HWY_DYNAMIC_DISPATCH(RotateTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
