// Queries, keys and values of multi-head latent attention, as LatentSpec says.
#pragma once

#include <cstdint>

#include "src/model/block.h"

namespace ropewalk::internal {

// Elements per token that the vector of keys and values is multiplied out to.
int64_t KeyValueDim(const ModelConfig& config);

// input [tokens, hidden] -> s.qkv [tokens, heads * (2 * head_dim + value_dim)]: q, k and v.
void ProjectLatent(const ModelConfig& config, const LatentWeights& weights, int64_t tokens,
                   const float* input, LayerScratch& s);

}  // namespace ropewalk::internal
