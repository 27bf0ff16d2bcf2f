// Rows of q and k between the two pair layouts, and tensors in another element type.
#pragma once

#include <cstdint>
#include <optional>

#include "ropewalk/io/writer.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk::internal {

// The order of the rows of each head. In the half layout element e (0, 1) of pair i is row
// e * rotary_dim / 2 + i, in the interleaved one 2 i + e; rows from rotary_dim on do not rotate and
// stay. Heads follow one another, so query heads and key heads need no different rule, and an
// order over whole rows leaves the blocks of quantised rows as they are.
struct HeadRows {
  int64_t head_dim = 0;  // 0: rows stay as they are
  int64_t rotary_dim = 0;
  PairLayout to = PairLayout::kHalf;  // the order of the result; the source has the other one

  // The row of the source that becomes `row`.
  int64_t Source(int64_t row) const {
    if (head_dim == 0) return row;
    const int64_t r = row % head_dim, half = rotary_dim / 2;
    if (r >= rotary_dim) return row;
    return row - r + (to == PairLayout::kHalf ? 2 * (r % half) + r / half : r % 2 * half + r / 2);
  }
};

// `weight` under another name, its rows in another order and its elements of another type; a vector
// (bias, norm) counts as one element per row. Without a type the stored bytes are moved, never
// decoded. Error where the rows are not whole heads, or a vector is quantised.
TensorSource Rearranged(const Weight& weight, std::string name, const HeadRows& rows,
                        std::optional<WeightType> type = std::nullopt);

// Divides each of the rows by its length (Baichuan 2's head).
void NormalizeRows(int64_t rows, int64_t cols, float* values);

// True when every element of `weight` survives a round trip through `type`.
bool Holds(WeightType type, const Weight& weight);

}  // namespace ropewalk::internal
