// Dispatch of the attention kernel: the only file of this folder that is compiled once a target.
#include "src/attention/attention_cpu.h"

#include <atomic>

// The micro kernel keeps vectors in arrays, which vectors of unknown size cannot be.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/attention_cpu.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"
#include "src/attention/attention_backward-inl.h"

#if HWY_ONCE
namespace ropewalk::internal {
namespace {
HWY_EXPORT(AttendTileT);
HWY_EXPORT(AttendBackwardT);
std::atomic<int64_t> last_target{0};
}  // namespace

void AttendTile(const AttentionTile& tile) noexcept {
  last_target.store(HWY_DYNAMIC_DISPATCH(AttendTileT)(tile), std::memory_order_relaxed);
}

void AttendBackward(const BackwardTile& tile) noexcept {
  last_target.store(HWY_DYNAMIC_DISPATCH(AttendBackwardT)(tile), std::memory_order_relaxed);
}

int64_t AttentionTargets() { return HWY_TARGETS; }
int64_t LastAttentionTarget() { return last_target.load(std::memory_order_relaxed); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
