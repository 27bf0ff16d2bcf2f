// T5's bias out of the tensors of a model.
#pragma once

#include <vector>

#include "ropewalk/attention/attention.h"
#include "src/model/tensor_loader.h"

namespace ropewalk::internal {

// One form for all layers, or one for each; for texts of any length. None: the model has no such
// bias.
std::vector<PreparedForm> T5Forms(const ModelConfig& config, const TensorLoader& tensors);

}  // namespace ropewalk::internal
