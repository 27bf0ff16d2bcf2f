// The kernels of device.h.
#include "src/base/cuda.h"
#include "src/rotary/rerotate/device.h"

namespace ropewalk::internal {
namespace {

constexpr int kMostThreads = 256;

template <class T, PairLayout kLayout, int V>
__global__ void __launch_bounds__(kMostThreads, 2)
    RerotateKernel(const __grid_constant__ RerotateDeviceParams p) {
  RerotateLane<T, kLayout, V>::Run(p, blockIdx.x, static_cast<int>(threadIdx.x));
}

// The lanes of a warp, of which a thread is one.
struct OneLane {
  template <class F>
  __device__ void operator()(F&& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncwarp();
  }
  // Magnitudes are ordered as their bits are. NaN counts for nothing, as on the CPU.
  __device__ float Largest(const float* block, int lane) const {
    const float x = fabsf(block[lane]);
    return __uint_as_float(__reduce_max_sync(~0u, isnan(x) ? 0u : __float_as_uint(x)));
  }
};

__global__ void __launch_bounds__(kMostThreads, 2)
    RerotateQ8Kernel(const __grid_constant__ RerotateDeviceParams p) {
  extern __shared__ float shared[];
  const int warp = static_cast<int>(threadIdx.y);
  const OneLane lane;
  Q8Warp<OneLane>(p, lane, shared + warp * SharedFloats(p)).Run(blockIdx.x, warp);
}

}  // namespace

void LaunchRerotate(const RerotateLaunch& launch, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const RerotateDeviceParams& p = launch.params;
  const auto blocks = static_cast<unsigned>(launch.blocks);
  if (launch.q8) {
    const dim3 threads(kWarp, static_cast<unsigned>(p.rows));
    RerotateQ8Kernel<<<blocks, threads, static_cast<std::size_t>(launch.shared_bytes), s>>>(p);
  } else {
    const auto threads = static_cast<unsigned>(p.lanes * p.rows);
    VisitUnit(launch.dtype, launch.layout, launch.width, [&]<class T, PairLayout kLayout, int V>() {
      RerotateKernel<T, kLayout, V><<<blocks, threads, 0, s>>>(p);
    });
  }
  CheckCuda(cudaGetLastError(), "Rerotate");
}

}  // namespace ropewalk::internal
