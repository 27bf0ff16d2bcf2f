// The description of CUDA from the answers of its runtime; separate from the runtime, so that every
// answer can be tested on any machine.
#pragma once

#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "src/base/cuda.h"

namespace ropewalk::internal {

// Versions as CUDA has them: 12080 is 12.8.
struct CudaProbe {
  enum Status { kSuccess, kDriverTooOld, kNoDevice, kFailed };
  int toolkit = 0;  // 0: built without CUDA
  std::string targets;
  int driver = 0;  // the newest CUDA that it knows; 0: there is no driver
  Status status = kSuccess;
  std::string error;                // of kFailed, in the runtime's words
  std::vector<CudaDevice> devices;  // all of them
};

CudaInfo DescribeCuda(const CudaProbe& probe);

// Whether one of `targets` ("sm_80 sm_90 ptx_80") runs there: machine code on later minor versions
// of its major one, PTX on everything later, and what has a letter ("sm_90a") there alone.
bool HasCodeFor(const std::string& targets, int major, int minor);

// Throws Error (kInvalidArgument) that names what kernels reported, if they reported anything.
void ThrowFaults(const CudaFaults& faults);

}  // namespace ropewalk::internal
