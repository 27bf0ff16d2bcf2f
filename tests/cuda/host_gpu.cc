// Stands for the GPU: memory is the host's, a launch runs its threads one after the other, a
// captured stream keeps its launches. cuda_check_on_host, with host_runtime.cc, so checks the checks
// themselves where there is no GPU, and tests/python/test_cuda.py what Python hands over.
#include "tests/cuda/host_gpu.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "src/base/cuda_describe.h"
#include "src/rotary/table_device.h"
#include "tests/rotary/gradient/device_host.h"
#include "tests/rotary/rerotate/device_host.h"
#include "tests/rotary/rotate/device_host.h"

namespace ropewalk {
namespace {

internal::CudaFaults faults = {};
std::mutex one_at_a_time;

}  // namespace

void LaunchOnHost(void* stream, const std::function<void()>& launch) {
  auto* const s = static_cast<CUstream_st*>(stream);
  if (s != nullptr && s->capture != nullptr) {
    s->capture->launches.push_back(launch);
    return;
  }
  const std::lock_guard lock(one_at_a_time);
  launch();
}

CudaInfo FindCuda() {
  return {.toolkit = "13.0",
          .targets = "host",
          .driver = "13.0",
          .devices = {{.name = "no GPU, but the host in its place"}},
          .why_none = ""};
}

void CudaSynchronize(void* /*stream*/) {
  const internal::CudaFaults reported = faults;
  faults = {};
  internal::ThrowFaults(reported);
}

namespace internal {

void RefuseCuda() { std::abort(); }
void CheckCuda(int status, const char* /*what*/) {
  if (status != 0) std::abort();
}
void SetDevice(int device) {
  if (device != 0)
    throw Error(ErrorCode::kUnsupported, "CUDA: cudaSetDevice: invalid device ordinal");
}
CudaFaults* DeviceFaults() { return &faults; }
int DeviceMultiprocessors() { return 132; }
int CurrentDevice() { return 0; }

DeviceBuffer::DeviceBuffer(int64_t bytes)
    : data_(std::aligned_alloc(256, static_cast<std::size_t>((bytes + 255) / 256 * 256))),
      bytes_(bytes) {}
DeviceBuffer::~DeviceBuffer() { std::free(data_); }

void CopyToDevice(void* to, const void* from, int64_t bytes, void*) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void CopyToHost(void* to, const void* from, int64_t bytes, void* stream) {
  CopyToDevice(to, from, bytes, stream);
}
void CopyOnDevice(void* to, const void* from, int64_t bytes, void* stream) {
  CopyToDevice(to, from, bytes, stream);
}
void WaitForStream(void*) {}

// By value, as a launch has its arguments.
void LaunchFillTable(const TableParams& params, void* stream) {
  LaunchOnHost(stream, [params] { FillTable(params, 0, 1); });
}
void LaunchGradient(const GradientLaunch& launch, void* stream) {
  LaunchOnHost(stream, [launch] {
    const std::vector<double> out = RunOnHost(launch);
    std::memcpy(launch.params.out, out.data(), out.size() * sizeof(double));
  });
}
void LaunchRerotate(const RerotateLaunch& launch, void* stream) {
  LaunchOnHost(stream, [launch] { RunOnHost(launch); });
}
void LaunchRotate(const RotateLaunch& launch, void* stream) {
  LaunchOnHost(stream, [launch] { RunOnHost(launch); });
}

}  // namespace internal
}  // namespace ropewalk
