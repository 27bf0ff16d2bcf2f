#pragma once

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

// The header of a llama2.c checkpoint. Rotation, epsilon and base are not in the file but constants
// of run.c: interleaved pairs, 1e-5, 10000.
ModelConfig Llama2cConfig(const Llama2cFile& file);

}  // namespace ropewalk::internal
