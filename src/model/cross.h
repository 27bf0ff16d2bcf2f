// Cross-attention: a decoder's attention to the states of an encoder (Vaswani et al. 2017, arXiv
// 1706.03762, section 3.2.3), without a position bias, as T5 has it.
#pragma once

#include <cstdint>

#include "ropewalk/attention/attention.h"
#include "src/model/block.h"

namespace ropewalk::internal {

// Keys and values of a layer, of the final states [tokens, hidden] of an encoder.
KvCache ProjectSource(const ModelConfig& config, const CrossWeights& cross, const float* states,
                      int64_t tokens, KvType type);

// x [rows, hidden] plus what its normalised rows find in `source`.
void AddCross(const ModelConfig& config, const CrossWeights& cross, const KvCache& source,
              int64_t rows, float* x, LayerScratch& s);

}  // namespace ropewalk::internal
