// The CUDA runtime behind base/cuda.h. Standard error handling of it: a call that fails leaves its
// code to be read again at the next launch, so every code that is handled here is taken from there.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "src/base/cuda.h"
#include "src/base/cuda_describe.h"

namespace ropewalk {
namespace internal {
namespace {

__device__ CudaFaults faults;  // zero when the code is loaded

// Reads and clears what was reported, while kernels of other streams may report.
__global__ void TakeFaults(CudaFaults* from, CudaFaults* to) {
  for (int kind = 0; kind < 2; ++kind) {
    to->first[kind] = from->first[kind];
    to->count[kind] = atomicExch(&from->count[kind], 0ull);
  }
}

constexpr int kMostDevices = 64;  // whose facts are kept; of others they are asked for every time

// Facts of a device that never change, asked for once.
template <class T>
class PerDevice {
 public:
  template <class Ask>
  T Get(int device, const Ask& ask) {
    if (device >= kMostDevices) return ask();
    T known = facts_[device].load(std::memory_order_acquire);
    if (known == T{}) {
      known = ask();
      facts_[device].store(known, std::memory_order_release);
    }
    return known;
  }

 private:
  std::array<std::atomic<T>, kMostDevices> facts_{};
};

bool Succeeded(cudaError_t status) {
  if (status == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

// Every device that the driver shows, also those that there is no code for.
CudaProbe Probe() {
  CudaProbe p{.toolkit = CUDART_VERSION, .targets = ROPEWALK_CUDA_TARGETS};
  if (!Succeeded(cudaDriverGetVersion(&p.driver))) p.driver = 0;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (!Succeeded(status)) {
    p.status = status == cudaErrorInsufficientDriver ? CudaProbe::kDriverTooOld
               : status == cudaErrorNoDevice         ? CudaProbe::kNoDevice
                                                     : CudaProbe::kFailed;
    p.error = cudaGetErrorString(status);
    return p;
  }
  if (count == 0) p.status = CudaProbe::kNoDevice;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp device;
    if (!Succeeded(cudaGetDeviceProperties(&device, i))) continue;
    p.devices.push_back({device.name, device.major, device.minor,
                         static_cast<int64_t>(device.totalGlobalMem), device.multiProcessorCount});
  }
  return p;
}

// Makes a device current while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(CurrentDevice()), other_(device != before_) {
    if (other_) CheckCuda(cudaSetDevice(device), "cudaSetDevice");
  }
  ~OnDevice() {
    if (other_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
  bool other_;
};

int DeviceOf(cudaStream_t stream) {
  int device = 0;
  const cudaError_t status = cudaStreamGetDevice(stream, &device);
  if (status == cudaErrorCallRequiresNewerDriver) {  // then it is to be the current one
    cudaGetLastError();
    return CurrentDevice();
  }
  CheckCuda(status, "stream");
  return device;
}

// What was reported on the current device.
CudaFaults ReadFaults(cudaStream_t stream) {
  CudaFaults* const reported = DeviceFaults();
  CudaFaults read;
  CopyToHost(&read, reported, sizeof(read), stream);
  if (read.count[0] == 0 && read.count[1] == 0) return {};
  const DeviceBuffer taken(sizeof(CudaFaults));
  auto* const to = static_cast<CudaFaults*>(taken.data());
  TakeFaults<<<1, 1, 0, stream>>>(reported, to);
  CheckCuda(cudaGetLastError(), "CudaSynchronize");
  CopyToHost(&read, to, sizeof(read), stream);
  return read;
}

void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, void* stream) {
  if (bytes == 0) return;
  CheckCuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind,
                            static_cast<cudaStream_t>(stream)),
            "a copy");
}

}  // namespace

void RefuseCuda() {
  const std::string why = FindCuda().why_none;
  throw Error(ErrorCode::kUnsupported, "CUDA: " + (why.empty() ? "there is no GPU" : why));
}

void CheckCuda(int status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice) RefuseCuda();
  std::string text =
      std::string("CUDA: ") + what + ": " + cudaGetErrorString(static_cast<cudaError_t>(status));
  if (status == cudaErrorNoKernelImageForDevice) {
    text += " (this build has code for " ROPEWALK_CUDA_TARGETS ")";
  }
  throw Error(ErrorCode::kUnsupported, text);
}

int CurrentDevice() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void SetDevice(int device) { CheckCuda(cudaSetDevice(device), "cudaSetDevice"); }

CudaFaults* DeviceFaults() {
  static PerDevice<CudaFaults*> known;
  return known.Get(CurrentDevice(), [] {
    void* address = nullptr;
    CheckCuda(cudaGetSymbolAddress(&address, faults), "loading the kernels");
    return static_cast<CudaFaults*>(address);
  });
}

int DeviceMultiprocessors() {
  static PerDevice<int> known;
  const int device = CurrentDevice();
  return known.Get(device, [device] {
    int number = 0;
    CheckCuda(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device),
              "cudaDeviceGetAttribute");
    return number;
  });
}

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaMalloc(&data_, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
  CheckCuda(status, "memory");
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);  // when the process ends the runtime may be gone already
}

void CopyToDevice(void* to, const void* from, int64_t bytes, void* stream) {
  Copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
  WaitForStream(stream);
}

void CopyOnDevice(void* to, const void* from, int64_t bytes, void* stream) {
  Copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

void CopyToHost(void* to, const void* from, int64_t bytes, void* stream) {
  Copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  WaitForStream(stream);
}

void WaitForStream(void* stream) {
  CheckCuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "an earlier call");
}

}  // namespace internal

CudaInfo FindCuda() {
  CudaInfo info = internal::DescribeCuda(internal::Probe());
  if (info.devices.empty()) return info;
  try {
    internal::DeviceFaults();  // loads the code of the current device
  } catch (const Error& e) {
    // The current device may be one that there is no code for, and others usable.
    if (info.devices.size() == 1) {
      info.devices.clear();
      info.why_none = e.what();
    }
  }
  return info;
}

void CudaSynchronize(void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const internal::OnDevice on(internal::DeviceOf(s));
  internal::WaitForStream(stream);
  internal::ThrowFaults(internal::ReadFaults(s));
}

}  // namespace ropewalk
