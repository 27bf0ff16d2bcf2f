// A head that the configuration says to be the embedding, in files that have one of its own.
#pragma once

#include <map>
#include <string>

#include "src/model/tensor_table.h"

namespace ropewalk::internal {

// Whether both decode to the same float32 numbers; stops at the first that differs.
bool SameNumbers(const Weight& a, const Weight& b);

// Throws Error where the head is said to be the embedding and the folder's own head has other
// numbers. Called behind CheckTensors. Reads both where both are there, else nothing.
void CheckTiedHead(const ModelConfig& config, const std::map<std::string, Weight>& tensors,
                   const std::string& folder);

}  // namespace ropewalk::internal
