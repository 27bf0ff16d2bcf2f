// Rotate for all that a plain call does not have.
#pragma once

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

bool IsExtended(const RotateArgs& args);
void RotateExtended(const RotateArgs& args);

}  // namespace ropewalk::internal
