// The tensors of the encodings of a model of the family ropewalk: the parameters of `ropewalk.nn`'s
// module of each, by their names there (docs/model-format.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

struct EncodingTensor {
  std::string name;
  int64_t layer = -1;  // -1: not part of a layer
  std::vector<int64_t> shape = {};
};

// What follows from the plan; none where the tensors have a family's names.
std::vector<EncodingTensor> EncodingTensors(const ModelConfig& config);

// "model.layers.3.self_attn.bias.slopes".
std::string LayerParameter(int64_t layer, std::string_view part, std::string_view parameter);

}  // namespace ropewalk::internal
