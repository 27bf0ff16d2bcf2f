#include "src/rotary/rotate/extended_cpu.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rotary/rotate/extended_cpu.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "src/rotary/rotate/extended_cpu-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {

HWY_EXPORT(RotateTokensExtendedBody);
HWY_EXPORT(RotateExtendedTargetBody);

int64_t ExtendedScratchSize(const ExtendedParams& params) {
  int64_t heads = 0;
  for (int i = 0; i < params.num_operands; ++i) {
    heads = std::max(heads, params.operands[i].views.heads);
  }
  return ScratchLayout(params, heads).size;
}

void RotateTokensExtended(const ExtendedParams& params, int64_t begin, int64_t end,
                          double* scratch) noexcept {
  if (begin < end) HWY_DYNAMIC_DISPATCH(RotateTokensExtendedBody)(params, begin, end, scratch);
}

int64_t RotateExtendedTarget() { return HWY_DYNAMIC_DISPATCH(RotateExtendedTargetBody)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
