// The kernels of device.h.
#include "src/base/cuda.h"
#include "src/rotary/gradient/device.h"

namespace ropewalk::internal {
namespace {

template <class T, PairLayout kLayout, int V>
__global__ void __launch_bounds__(kGradientThreads, 2)
    GradientPartsKernel(const __grid_constant__ GradientParams p) {
  using Lane = GradientLane<T, kLayout, V>;
  __shared__ double shared[Lane::kColumns * kGradientThreads];
  Lane::Accumulate(p, blockIdx.x, blockIdx.y, static_cast<int>(threadIdx.x), shared);
  __syncthreads();
  Lane::AddRows(p, blockIdx.x, blockIdx.y, static_cast<int>(threadIdx.x), shared);
}

__global__ void __launch_bounds__(kGradientThreads)
    GradientSumKernel(const __grid_constant__ GradientParams p) {
  __shared__ double sums[kGradientThreads + kGradientFan];
  const int thread = static_cast<int>(threadIdx.x);
  AddParts(p, blockIdx.x, thread, sums);
  __syncthreads();
  AddThreads(thread, sums);
  __syncthreads();
  WriteSum(p, blockIdx.x, thread, sums);
}

}  // namespace

void LaunchGradient(const GradientLaunch& launch, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const GradientParams& p = launch.params;
  if (p.parts > 0) {
    const dim3 grid(static_cast<unsigned>(p.parts), static_cast<unsigned>(launch.chunks));
    const auto threads = static_cast<unsigned>(p.lanes * p.rows);
    VisitUnit(launch.dtype, launch.layout, launch.width, [&]<class T, PairLayout kLayout, int V>() {
      GradientPartsKernel<T, kLayout, V><<<grid, threads, 0, s>>>(p);
    });
    CheckCuda(cudaGetLastError(), "FrequencyGradient");
  }
  GradientSumKernel<<<static_cast<unsigned>(launch.outputs), kGradientThreads, 0, s>>>(p);
  CheckCuda(cudaGetLastError(), "FrequencyGradient");
}

}  // namespace ropewalk::internal
