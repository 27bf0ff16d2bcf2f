// Stands for the GPU and its runtime in cuda_check_on_host: memory is the host's, a launch runs its
// threads one after the other, a captured stream keeps its launches. So the checks themselves are
// checked where there is no GPU.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "src/base/cuda_describe.h"
#include "src/rotary/table_device.h"
#include "tests/rotary/gradient/device_host.h"
#include "tests/rotary/rerotate/device_host.h"
#include "tests/rotary/rotate/device_host.h"

struct CUstream_st {
  CUgraph_st* capture = nullptr;
};
struct CUgraph_st {
  std::vector<std::function<void()>> launches;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> launches;
};

namespace ropewalk {
namespace {

internal::CudaFaults faults = {};
std::mutex one_at_a_time;

void Launch(void* stream, const std::function<void()>& launch) {
  auto* const s = static_cast<cudaStream_t>(stream);
  if (s != nullptr && s->capture != nullptr) {
    s->capture->launches.push_back(launch);
    return;
  }
  const std::lock_guard lock(one_at_a_time);
  launch();
}

}  // namespace

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
  Launch(stream, [params] { FillTable(params, 0, 1); });
}
void LaunchGradient(const GradientLaunch& launch, void* stream) {
  Launch(stream, [launch] {
    const std::vector<double> out = RunOnHost(launch);
    std::memcpy(launch.params.out, out.data(), out.size() * sizeof(double));
  });
}
void LaunchRerotate(const RerotateLaunch& launch, void* stream) {
  Launch(stream, [launch] { RunOnHost(launch); });
}
void LaunchRotate(const RotateLaunch& launch, void* stream) {
  Launch(stream, [launch] { RunOnHost(launch); });
}

}  // namespace internal
}  // namespace ropewalk

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "no error"; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capture = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  stream->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->launches};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& launch : exec->launches) ropewalk::Launch(stream, launch);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
}
