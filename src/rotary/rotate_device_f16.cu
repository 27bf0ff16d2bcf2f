#include "src/rotary/rotate_device_kernels.h"

namespace ropewalk::internal {

template void LaunchRotateOf<Float16>(const RotateLaunch&, void*);

}  // namespace ropewalk::internal
