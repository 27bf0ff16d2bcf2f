#include "src/rotary/rotate/device_kernels.h"

namespace ropewalk::internal {

template void LaunchRotateOf<double>(const RotateLaunch&, void*);

}  // namespace ropewalk::internal
