// The kernels of lanes_device.h, for the one CUDA file per type.
#pragma once

#include "src/rotary/rotate/lanes_device.h"

namespace ropewalk::internal {

template <class T, PairLayout kLayout, int V, int kAxes>
__global__ void __launch_bounds__(256, (PlainLane<T, kLayout, V, kAxes>::kBlocks))
    RotatePlainKernel(const __grid_constant__ RotateDeviceParams p) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= p.rows) return;
  PlainLane<T, kLayout, V, kAxes>::Run(p, row, static_cast<int>(threadIdx.x),
                                       static_cast<int>(blockDim.x));
}

template <class T, PairLayout kLayout, int V, class Angles, bool kAsInput>
__global__ void __launch_bounds__(256, (GeneralLane<T, kLayout, V, Angles, kAsInput>::kBlocks))
    RotateGeneralKernel(const __grid_constant__ RotateDeviceParams p,
                        const __grid_constant__ Angles angles) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= p.rows) return;
  const unsigned lanes = blockDim.x;
  using Lane = GeneralLane<T, kLayout, V, Angles, kAsInput>;
  Lane lane(p, angles, row, static_cast<int>(threadIdx.x), static_cast<int>(lanes));
  const unsigned first = (threadIdx.y * lanes + threadIdx.x) % 32 & ~(lanes - 1);
  const unsigned mask = (lanes == 32 ? ~0u : (1u << lanes) - 1) << first;
  for (int32_t h = 0; h < lane.heads(); h += Lane::kInFlight) {
    const int32_t count = min(Lane::kInFlight, lane.heads() - h);
    typename Lane::C sum[Lane::kInFlight] = {};
#pragma unroll
    for (int i = 0; i < Lane::kInFlight; ++i) {
      if (i < count) lane.Load(h + i, i);
    }
    if (h == 0) lane.Prepare();
    if (lane.normalises()) {
#pragma unroll
      for (int i = 0; i < Lane::kInFlight; ++i) {
        if (i < count) sum[i] = lane.SumOfSquares(h + i, i);
        for (unsigned d = lanes / 2; d > 0; d /= 2) sum[i] += __shfl_xor_sync(mask, sum[i], d);
      }
    }
#pragma unroll
    for (int i = 0; i < Lane::kInFlight; ++i) {
      if (i < count) lane.Finish(h + i, i, sum[i]);
    }
  }
}

template <class T>
void LaunchRotateOf(const RotateLaunch& launch, void* stream) {
  VisitRotateKernel<T>(launch, [&]<class U, PairLayout kLayout, int V>() {
    const dim3 grid(static_cast<unsigned>(launch.blocks));
    const dim3 block(static_cast<unsigned>(launch.lanes),
                     static_cast<unsigned>(launch.rows_of_block));
    const auto s = static_cast<cudaStream_t>(stream);
    if constexpr (V * sizeof(U) == 16) {
      if (launch.plain) {
        if (launch.several_axes) {
          RotatePlainKernel<U, kLayout, V, kMostAxes><<<grid, block, 0, s>>>(launch.params);
        } else {
          RotatePlainKernel<U, kLayout, V, 1><<<grid, block, 0, s>>>(launch.params);
        }
        return;
      }
      if (launch.as_input) {
        RotateGeneralKernel<U, kLayout, V, TableAngles, true>
            <<<grid, block, 0, s>>>(launch.params, TableAngles());
        return;
      }
    }
    if constexpr (V * sizeof(U) == 16 || V == 1) {
      if (launch.on_the_fly) {
        RotateGeneralKernel<U, kLayout, V, TurnAngles, false>
            <<<grid, block, 0, s>>>(launch.params, launch.angles);
        return;
      }
    }
    RotateGeneralKernel<U, kLayout, V, TableAngles, false>
        <<<grid, block, 0, s>>>(launch.params, TableAngles());
  });
  CheckCuda(cudaGetLastError(), "Rotate");
}

// In a file of its own a type.
extern template void LaunchRotateOf<double>(const RotateLaunch&, void*);
extern template void LaunchRotateOf<float>(const RotateLaunch&, void*);
extern template void LaunchRotateOf<Float16>(const RotateLaunch&, void*);
extern template void LaunchRotateOf<BFloat16>(const RotateLaunch&, void*);

}  // namespace ropewalk::internal
