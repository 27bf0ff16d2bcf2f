// Rotation of Q8_0 keys: decode, rotate in float32, encode.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/rotary/rerotate.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk::internal {

// Throws Error, before anything is written, for keys that do not fit. There are tokens and heads.
void CheckQ8(const Q8KeysView& keys, int64_t pairs, int64_t first_dim);

// Token t of batch * tokens rotates by row row_of[t] of the table, and stays where stays[row] says.
void RerotateQ8(const Q8KeysView& keys, const CosSinTable& table, PairLayout layout,
                int64_t first_dim, const std::vector<int64_t>& row_of,
                const std::vector<uint8_t>& stays);

}  // namespace ropewalk::internal
