// MXFP4 in safetensors, as published gpt-oss folders have it (transformers:
// integrations/mxfp4.py): experts X are two uint8 tensors.
//   X_blocks  [experts, rows, columns / 32, 16]: element 2j of 32 in the low half of byte j
//   X_scales  [experts, rows, columns / 32]: E8M0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// Whether a uint8 tensor of this name may be one of the two.
bool IsHalfOfPair(std::string_view name);

// Bytes of a uint8 tensor; empty when the product overflows int64.
std::optional<int64_t> Uint8Bytes(const std::vector<int64_t>& shape);

// Makes one tensor of each two: halves are the tensors of kMXFP4Pair that have no scales. Throws
// Error for one that is alone or does not fit the other.
void JoinPairs(std::map<std::string, Weight>* tensors);

// A row of such a tensor as blocks of kMXFP4: the same numbers in ggml's order, each block behind its
// scale.
void RepackPair(const Weight& pair, int64_t row, std::byte* out);

}  // namespace ropewalk::internal
