// Runs the kernels of rerotate/device.h on the CPU, thread by thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/rotary/rerotate/device.h"

namespace ropewalk::internal {

// All lanes of a warp, one after the other.
struct AllLanes {
  template <class F>
  void operator()(F&& f) const {
    for (int lane = 0; lane < kWarp; ++lane) f(lane);
  }
  float Largest(const float* block, int) const {
    float largest = 0;
    for (int i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::abs(block[i]));
    return largest;
  }
};

inline void RunOnHost(const RerotateLaunch& launch) {
  const RerotateDeviceParams& p = launch.params;
  if (launch.q8) {
    const AllLanes lanes;
    const auto floats = static_cast<std::size_t>(SharedFloats(p));
    for (int64_t block = 0; block < launch.blocks; ++block) {
      for (int warp = 0; warp < p.rows; ++warp) {
        std::vector<float> shared(floats, std::numeric_limits<float>::quiet_NaN());
        Q8Warp<AllLanes>(p, lanes, shared.data()).Run(block, warp);
      }
    }
    return;
  }
  VisitUnit(launch.dtype, launch.layout, launch.width, [&]<class T, PairLayout kLayout, int V>() {
    using Lane = RerotateLane<T, kLayout, V>;
    for (int64_t block = 0; block < launch.blocks; ++block) {
      for (int t = 0; t < p.lanes * p.rows; ++t) Lane::Run(p, block, t);
    }
  });
}

}  // namespace ropewalk::internal
