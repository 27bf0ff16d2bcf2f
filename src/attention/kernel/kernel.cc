// Dispatch of the attention kernel: the only file of this folder that is compiled once a target.
#include "src/attention/kernel/tile.h"

// The micro kernel keeps vectors in arrays, which vectors of unknown size cannot be.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/kernel/kernel.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"
#include "src/attention/head_memory.h"
#include "src/attention/kernel/backward-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {
namespace {
HWY_EXPORT(AttendTileT);
HWY_EXPORT(AttendBackwardT);
HWY_EXPORT(AttentionTargetT);
HWY_EXPORT(TurnRowsT);
}  // namespace

void AttendTile(const AttentionTile& tile) noexcept { HWY_DYNAMIC_DISPATCH(AttendTileT)(tile); }

void AttendBackward(const BackwardTile& tile) noexcept {
  HWY_DYNAMIC_DISPATCH(AttendBackwardT)(tile);
}

void TurnRows(const RotationRun& rotation, const float* turns, int64_t count, bool back, float* x,
              int64_t stride) {
  HWY_DYNAMIC_DISPATCH(TurnRowsT)(rotation, turns, count, back, x, stride);
}

int64_t AttentionTarget() { return HWY_DYNAMIC_DISPATCH(AttentionTargetT)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
