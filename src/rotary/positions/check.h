// Checks that the positions of a call fit its tokens and its table.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

// Throws Error, naming the argument, unless `positions` give one position per axis to each of
// batch * tokens tokens (at least one) and the table, if there is one, holds them all. Lists in
// memory of a GPU are not read: their sizes are checked, and the kernels do the rest.
void CheckPositions(const Positions& positions, int64_t axes, int64_t batch, int64_t tokens,
                    const CosSinTable* table, Device device = Device::kCpu);

}  // namespace ropewalk::internal
