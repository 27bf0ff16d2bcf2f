// CUDA support of this build and machine. Built without CUDA, or on a machine without a GPU,
// everything works except calls on memory of Device::kCuda, which throw Error with the reason.
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
  std::string toolkit;              // version built with, "13.0"; empty: built without CUDA
  std::string targets;              // "sm_80 sm_90 sm_100 ptx_80"
  std::string driver;               // newest CUDA that the driver supports, "12.8"; empty: none
  std::vector<CudaDevice> devices;  // those that this library has code for
  std::string why_none;             // why there is no device, empty if there is
};

// Never throws. The first call may load code onto the GPU; call it before capturing a CUDA graph.
CudaInfo FindCuda();

// Waits for `stream` (a cudaStream_t; null: the default stream). Throws Error(kInvalidArgument) if
// an operation since the last CudaSynchronize met a position outside its table or a slot outside
// its cache (the first of each is named), or Error(kUnsupported) without CUDA.
void CudaSynchronize(void* stream = nullptr);

}  // namespace ropewalk
