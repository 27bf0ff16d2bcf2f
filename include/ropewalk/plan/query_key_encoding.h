// What encodes queries and keys in the place of a rotation, as data. What it learned are tensors
// that the model reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "ropewalk/base/hash.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// PoPE (relative/pope.h): queries and keys become twice as wide; a phase is learned for each
// element of a key head.
struct PopeLayer {
  double base = 10000;

  bool operator==(const PopeLayer&) const = default;
};

// FoPE (relative/fope.h): cos and sin are learned sums over the `frequencies` fastest frequencies,
// the same in all heads. Further pairs are not rotated.
struct FopeLayer {
  double base = 10000;
  int64_t frequencies = 0;  // 1 to head_dim / 2

  bool operator==(const FopeLayer&) const = default;
};

using QueryKeyEncoding = std::variant<PopeLayer, FopeLayer>;

// Elements of an encoded query or key: head_dim, with PoPE twice.
int64_t EncodedDim(const std::optional<QueryKeyEncoding>& encoding, int64_t head_dim);

// Those whose cos and sin the encoding reads, one per element (PoPE) or kept pair (FoPE). Throws
// Error for a base or a number of frequencies out of range, and for FoPE of an odd head_dim.
Frequencies EncodingFrequencies(const QueryKeyEncoding& encoding, int64_t head_dim);

// "PoPE, base 10000; a phase learned for each element of a key head"
std::string Describe(const QueryKeyEncoding& encoding);

void Hash(const QueryKeyEncoding& encoding, Hasher& hasher);

}  // namespace ropewalk
