// For builds without CUDA.
#include "src/rotary/table_device.h"

namespace ropewalk::internal {

void LaunchFillTable(const TableParams& /*params*/, void* /*stream*/) { RefuseCuda(); }

}  // namespace ropewalk::internal
