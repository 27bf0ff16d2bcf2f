// Device memory and what kernels report: the one place that knows the CUDA runtime besides the
// kernels. Standard C++; cuda.cu has the bodies, cuda_none.cc those of a build without CUDA.
#pragma once

#include <cstdint>
#include <utility>

#include "src/base/host_device.h"

namespace ropewalk::internal {

// What kernels found wrong since it was last read; in device memory, one per device.
struct CudaFaults {
  enum Kind { kPosition, kSlot };
  unsigned long long count[2];  // by kind
  long long first[2];           // the offending number
};

ROPEWALK_HD inline void ReportFault(CudaFaults* faults, CudaFaults::Kind kind, int64_t number) {
#ifdef __CUDA_ARCH__
  if (atomicAdd(&faults->count[kind], 1ull) == 0) faults->first[kind] = number;
#else
  if (faults->count[kind]++ == 0) faults->first[kind] = number;
#endif
}

// Throws Error (kUnsupported) that says why there is no CUDA.
[[noreturn]] void RefuseCuda();

// Of the current device. Throws Error (kUnsupported, with the reason) if there is none. Nothing is
// allocated, and after the first call for a device nothing is loaded either.
CudaFaults* DeviceFaults();
int DeviceMultiprocessors();
int CurrentDevice();  // its number
void SetDevice(int device);

// Memory of the current device; errors of the runtime become Error, too little is std::bad_alloc.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();  // waits for the device
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// In the order of `stream`. To and from memory of the host they wait until it is done.
void CopyToDevice(void* to, const void* from, int64_t bytes, void* stream);
void CopyToHost(void* to, const void* from, int64_t bytes, void* stream);
void CopyOnDevice(void* to, const void* from, int64_t bytes, void* stream);
void WaitForStream(void* stream);

// After a launch: throws Error if `status` (a cudaError_t) is none of success.
void CheckCuda(int status, const char* what);

}  // namespace ropewalk::internal
