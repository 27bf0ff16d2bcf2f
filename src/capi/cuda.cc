// What there is of CUDA, for C.
#include "ropewalk/base/cuda.h"

#include <vector>

#include "src/capi/capi.h"

ropewalk_status ropewalk_cuda_find(ropewalk_cuda_info* out) {
  return ropewalk::capi::Guard([&] {
    ropewalk_cuda_info info = ropewalk::capi::Read(out, "out");
    thread_local ropewalk::CudaInfo found;
    thread_local std::vector<ropewalk_cuda_device> devices;
    found = ropewalk::FindCuda();
    devices.clear();
    for (const ropewalk::CudaDevice& d : found.devices) {
      devices.push_back({d.name.c_str(), d.major, d.minor, d.memory_bytes, d.multiprocessors});
    }
    info.toolkit = found.toolkit.c_str();
    info.targets = found.targets.c_str();
    info.driver = found.driver.c_str();
    info.why_none = found.why_none.c_str();
    info.devices = devices.data();
    info.num_devices = static_cast<int64_t>(devices.size());
    ropewalk::capi::Write(info, out);
  });
}

ropewalk_status ropewalk_cuda_synchronize(void* stream) {
  return ropewalk::capi::Guard([&] { ropewalk::CudaSynchronize(stream); });
}
