// For builds without CUDA: says so.
#include <utility>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "src/base/cuda.h"
#include "src/base/cuda_describe.h"

namespace ropewalk {

CudaInfo FindCuda() { return internal::DescribeCuda({}); }

void CudaSynchronize(void* /*stream*/) { internal::RefuseCuda(); }

namespace internal {

void RefuseCuda() { throw Error(ErrorCode::kUnsupported, "CUDA: " + FindCuda().why_none); }

CudaFaults* DeviceFaults() { RefuseCuda(); }
int DeviceMultiprocessors() { RefuseCuda(); }
int CurrentDevice() { RefuseCuda(); }
void SetDevice(int /*device*/) { RefuseCuda(); }

DeviceBuffer::DeviceBuffer(int64_t /*bytes*/) { RefuseCuda(); }
DeviceBuffer::~DeviceBuffer() {}  // without CUDA it never has any

void CopyToDevice(void*, const void*, int64_t, void*) { RefuseCuda(); }
void CopyOnDevice(void*, const void*, int64_t, void*) { RefuseCuda(); }
void CopyToHost(void*, const void*, int64_t, void*) { RefuseCuda(); }
void WaitForStream(void*) { RefuseCuda(); }
void CheckCuda(int, const char*) { RefuseCuda(); }

}  // namespace internal
}  // namespace ropewalk
