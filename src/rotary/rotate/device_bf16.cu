#include "src/rotary/rotate/device_kernels.h"

namespace ropewalk::internal {

template void LaunchRotateOf<BFloat16>(const RotateLaunch&, void*);

}  // namespace ropewalk::internal
