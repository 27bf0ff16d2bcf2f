// For builds without CUDA: the launches of this folder, which refuse.
#include "src/base/cuda.h"
#include "src/rotary/gradient/device.h"
#include "src/rotary/rerotate/device.h"
#include "src/rotary/rotate/device.h"
#include "src/rotary/table_device.h"

namespace ropewalk::internal {

void LaunchFillTable(const TableParams&, void*) { RefuseCuda(); }
void LaunchGradient(const GradientLaunch&, void*) { RefuseCuda(); }
void LaunchRerotate(const RerotateLaunch&, void*) { RefuseCuda(); }
void LaunchRotate(const RotateLaunch&, void*) { RefuseCuda(); }

}  // namespace ropewalk::internal
