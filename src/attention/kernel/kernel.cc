// Dispatch of the attention kernel: the only file of attention that is compiled once per SIMD
// target.
#include "src/attention/kernel/tile.h"

// The micro kernel keeps vectors in arrays, which vectors of unknown size cannot be.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
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
HWY_EXPORT(RotateRowsT);
HWY_EXPORT(FormScratchFloatsT);
}  // namespace

void AttendTile(const AttentionTile& tile) noexcept { HWY_DYNAMIC_DISPATCH(AttendTileT)(tile); }

void AttendBackward(const BackwardTile& tile) noexcept {
  HWY_DYNAMIC_DISPATCH(AttendBackwardT)(tile);
}

void RotateRows(const RotationRun& rotation, const float* cos_sin, int64_t count, bool adjoint,
                float* x, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(RotateRowsT)(rotation, cos_sin, count, adjoint, x, stride);
}

int64_t FormScratchFloats(const FormRun& form, int64_t rows, int64_t group, int64_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(FormScratchFloatsT)(form, rows, group, head_dim);
}

int64_t AttentionTarget() { return HWY_DYNAMIC_DISPATCH(AttentionTargetT)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
