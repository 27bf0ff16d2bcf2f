// What there is of CUDA. The library runs with or without: built without, or on a machine without a
// GPU, everything but a call on memory of Device::kCuda works, and that one says why it cannot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ropewalk {

struct CudaDevice {
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
};

struct CudaInfo {
  std::string toolkit;              // that it was built with, "13.0"; empty: built without CUDA
  std::string targets;              // "sm_80 sm_90 sm_100 ptx_80"
  std::string driver;               // the newest CUDA that the driver knows, "12.8"; empty: none
  std::vector<CudaDevice> devices;  // that this library has code for
  std::string why_none;             // why there is no device, empty if there is
};

// Never throws. The first call on a GPU may load code; call it before a graph is captured.
CudaInfo FindCuda();

// Waits until `stream` (a cudaStream_t; null: the default stream) is done, then throws Error
// (kInvalidArgument) if a call since the last time met a position outside its table or a slot
// outside its cache (the first of each is named), or (kUnsupported) if there is no CUDA.
void CudaSynchronize(void* stream = nullptr);

}  // namespace ropewalk
