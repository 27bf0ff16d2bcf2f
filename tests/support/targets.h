// Runs a test body once for every SIMD target that this CPU has and the code was compiled for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <functional>

namespace ropewalk {

// `chosen`: the target that dispatch picks, as the library sees it. Fails unless each target was
// really dispatched to. The libraries are compiled for HWY_TARGETS, as this file is.
inline void ForEachTarget(const std::function<int64_t()>& chosen,
                          const std::function<void(const char* name)>& body) {
  hwy::SetSupportedTargetsForTest(0);
  int dispatched = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_EQ(chosen(), target) << "dispatch did not take " << hwy::TargetName(target);
    body(hwy::TargetName(target));
    ++dispatched;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#if defined(HWY_COMPILE_ONLY_STATIC) || defined(HWY_COMPILE_ONLY_SCALAR)
  EXPECT_EQ(dispatched, 1);  // make tsan, make valgrind
#else
  // x86 always has at least the baseline and one vector target.
  EXPECT_GE(dispatched, HWY_ARCH_X86 ? 2 : 1);
#endif
}

}  // namespace ropewalk
