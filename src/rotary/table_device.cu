#include "src/rotary/table_device.h"

namespace ropewalk::internal {
namespace {

__global__ void __launch_bounds__(kTableThreads)
    FillTableKernel(const __grid_constant__ TableParams p) {
  const int64_t thread = int64_t{blockIdx.x} * kTableThreads + threadIdx.x;
  FillTable(p, thread, int64_t{gridDim.x} * kTableThreads);
}

}  // namespace

void LaunchFillTable(const TableParams& params, void* stream) {
  const int64_t blocks = TableBlocks(params, DeviceMultiprocessors());
  if (blocks == 0) return;
  FillTableKernel<<<static_cast<unsigned>(blocks), kTableThreads, 0,
                    static_cast<cudaStream_t>(stream)>>>(params);
  CheckCuda(cudaGetLastError(), "CosSinTable");
}

}  // namespace ropewalk::internal
