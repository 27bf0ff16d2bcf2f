#include "src/rotary/rotate/device_kernels.h"

namespace ropewalk::internal {

template void LaunchRotateOf<float>(const RotateLaunch&, void*);

void LaunchRotate(const RotateLaunch& launch, void* stream) {
  VisitFloat(launch.dtype,
             [&](auto type) { LaunchRotateOf<typename decltype(type)::type>(launch, stream); });
}

}  // namespace ropewalk::internal
