// For builds without CUDA: the launches of this folder, which refuse.
#include "src/base/cuda.h"
#include "src/rotary/gradient_device.h"
#include "src/rotary/rerotate_device.h"

namespace ropewalk::internal {

void LaunchGradient(const GradientLaunch&, void*) { RefuseCuda(); }
void LaunchRerotate(const RerotateLaunch&, void*) { RefuseCuda(); }

}  // namespace ropewalk::internal
