// Runs the kernels of gradient/device.h on the CPU, thread by thread.
#pragma once

#include <limits>
#include <vector>

#include "src/rotary/gradient/device.h"

namespace ropewalk::internal {

// Both launches, as the GPU runs them but one thread after the other, in memory that is poisoned.
inline std::vector<double> RunOnHost(GradientLaunch launch) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  GradientParams& p = launch.params;
  std::vector<double> workspace(static_cast<std::size_t>(launch.workspace_bytes) / 8, kNan);
  std::vector<double> out(static_cast<std::size_t>(launch.outputs), kNan);
  p.workspace = workspace.data();
  p.out = out.data();
  VisitUnit(launch.dtype, launch.layout, launch.width, [&]<class T, PairLayout kLayout, int V>() {
    using Lane = GradientLane<T, kLayout, V>;
    for (int64_t part = 0; part < p.parts; ++part) {
      for (int chunk = 0; chunk < launch.chunks; ++chunk) {
        std::vector<double> shared(Lane::kColumns * kGradientThreads, kNan);
        const int threads = p.lanes * p.rows;
        for (int t = 0; t < threads; ++t) Lane::Accumulate(p, part, chunk, t, shared.data());
        for (int t = 0; t < threads; ++t) Lane::AddRows(p, part, chunk, t, shared.data());
      }
    }
  });
  for (int64_t output = 0; output < launch.outputs; ++output) {
    std::vector<double> sums(kGradientThreads + kGradientFan, kNan);
    for (int t = 0; t < kGradientThreads; ++t) {
      AddParts(p, output, t, sums.data());
    }
    for (int t = 0; t < kGradientThreads; ++t) AddThreads(t, sums.data());
    for (int t = 0; t < kGradientThreads; ++t) {
      WriteSum(p, output, t, sums.data());
    }
  }
  return out;
}

}  // namespace ropewalk::internal
