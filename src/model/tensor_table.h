// The one table of a decoder's tensors: their shapes, and when they exist. Their names are in
// tensor_names.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"
#include "ropewalk/model/model.h"
#include "src/config/tensor_names.h"

namespace ropewalk::internal {

enum class Naming : uint8_t { kHuggingFace, kGguf };

// A tensor that the configuration calls for.
struct ExpectedTensor {
  TensorId id;
  int64_t layer = -1;  // -1: not part of a layer
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming);

// Every expected tensor exists with its shape, and no other does but the known harmless ones, which
// are added to config.harmless_keys; sets config.bare_names. `file` is for messages. Nothing is
// allocated in proportion to a claimed size: the layers are bounded by the tensors that exist
// first.
void CheckTensors(ModelConfig& config, const std::map<std::string, Weight>& tensors, Naming naming,
                  const std::string& file);

}  // namespace ropewalk::internal
