// Runs the kernels of rotate/device.h on the CPU, thread by thread, over the grid of a launch.
#pragma once

#include <vector>

#include "src/rotary/rotate/lanes_device.h"

namespace ropewalk::internal {

template <class Lane, class Angles>
void RunRow(const RotateDeviceParams& p, const Angles& angles, int64_t row, int num_lanes) {
  std::vector<Lane> lanes;
  for (int l = 0; l < num_lanes; ++l) lanes.emplace_back(p, angles, row, l, num_lanes);
  for (int32_t h = 0; h < lanes[0].heads(); h += Lane::kInFlight) {
    const int32_t count = std::min(Lane::kInFlight, lanes[0].heads() - h);
    for (int32_t i = 0; i < count; ++i) {
      typename Lane::C sum = 0;
      for (Lane& lane : lanes) {
        lane.Load(h + i, i);
        if (h + i == 0) lane.Prepare();
      }
      if (lanes[0].normalises()) {
        for (const Lane& lane : lanes) sum += lane.SumOfSquares(h + i, i);
      }
      for (const Lane& lane : lanes) lane.Finish(h + i, i, sum);
    }
  }
}

inline void RunOnHost(const RotateLaunch& launch) {
  const RotateDeviceParams& p = launch.params;
  VisitFloat(launch.dtype, [&](auto type) {
    VisitRotateKernel<typename decltype(type)::type>(
        launch, [&]<class T, PairLayout kLayout, int V>() {
          for (int64_t row = 0; row < launch.blocks * launch.rows_of_block; ++row) {
            if (row >= p.rows) continue;
            if (launch.plain) {
              for (int l = 0; l < launch.lanes; ++l) {
                if (launch.several_axes) {
                  PlainLane<T, kLayout, V, kMostAxes>::Run(p, row, l, launch.lanes);
                } else {
                  PlainLane<T, kLayout, V, 1>::Run(p, row, l, launch.lanes);
                }
              }
            } else if (launch.on_the_fly) {
              RunRow<GeneralLane<T, kLayout, V, TurnAngles, false>>(p, launch.angles, row,
                                                                    launch.lanes);
            } else if (launch.as_input) {
              RunRow<GeneralLane<T, kLayout, V, TableAngles, true>>(p, TableAngles(), row,
                                                                    launch.lanes);
            } else {
              RunRow<GeneralLane<T, kLayout, V, TableAngles, false>>(p, TableAngles(), row,
                                                                     launch.lanes);
            }
          }
        });
  });
}

}  // namespace ropewalk::internal
