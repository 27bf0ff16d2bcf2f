// Whether the weights of a model stay in its files.
#pragma once

#include <cstdint>

#include "ropewalk/model/model.h"
#include "src/model/tensor_table.h"

namespace ropewalk::internal {

// Memory that the matrix products of a model take when they are converted for `compute`.
int64_t UnpackedBytes(const ModelConfig& config, Naming naming, ComputeType compute);

// kUnpacked where that takes at most half of `available` memory: the rest is for KV caches, for
// activations and for others.
WeightStorage StorageFor(int64_t unpacked_bytes, int64_t available);

Naming NamingOf(const ModelConfig& config);

}  // namespace ropewalk::internal
