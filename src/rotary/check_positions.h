// Do the positions of a call fit its tokens, and its table?
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

// Throws Error, naming the argument, unless `positions` give one position an axis to each of
// batch * tokens tokens (at least one) and the table, if there is one, holds them all.
void CheckPositions(const Positions& positions, int64_t axes, int64_t batch, int64_t tokens,
                    const CosSinTable* table);

}  // namespace ropewalk::internal
