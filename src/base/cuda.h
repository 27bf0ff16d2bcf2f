// Device memory and what kernels report: the one place that knows the CUDA runtime besides the
// kernels. Standard C++; cuda.cu has the bodies, cuda_none.cc those of a build without CUDA.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"

namespace ropewalk::internal {

// What kernels found wrong since it was last read; lies in device memory, one a device.
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

// Of the current device. Throws Error (kUnsupported, with the reason) if there is none.
CudaFaults* DeviceFaults();
int DeviceMultiprocessors();

// Memory of the current device; errors of the runtime become Error.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// From host memory, which may be freed when the call returns; between buffers of the device.
void CopyToDevice(void* to, const void* from, int64_t bytes, void* stream);
void CopyOnDevice(void* to, const void* from, int64_t bytes, void* stream);
void CopyToHost(void* to, const void* from, int64_t bytes, void* stream);  // waits

// After a launch: throws Error if `status` (a cudaError_t) is none of success.
void CheckCuda(int status, const char* what);

}  // namespace ropewalk::internal
