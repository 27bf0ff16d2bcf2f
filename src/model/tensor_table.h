// The one table of a model's tensors: their shapes, and when they exist. Their names are in
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
  TensorId id = TensorId::kEmbedding;
  bool bias = false;
  int64_t layer = -1;   // -1: not part of a layer
  int64_t expert = -1;  // -1: of no expert, or of all of them in one tensor
  // Of experts or heads, one behind the other: the first dimension; 0: one matrix or vector.
  int64_t matrices = 0;
  std::string name = {};
  std::vector<int64_t> shape = {};
  bool optional = false;  // a file without it is whole
};
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming);

const TensorNames& NamesOf(const ModelConfig& config, Naming naming);

// By its name, or another spelling of it; null: there is none.
const Weight* FindTensor(const std::map<std::string, Weight>& tensors, const std::string& name);

// The bias that all layers have, where it is of this kind and its tensors have a family's names; else
// null.
template <class Bias>
const Bias* BiasOf(const ModelConfig& config) {
  const std::vector<LayerPlan>& layers = config.plan.layers;
  if (config.encoding_tensors || layers.empty() || !layers[0].bias) return nullptr;
  return std::get_if<Bias>(&layers[0].bias->method);
}

// Every expected tensor exists with its shape, and no other does but the known harmless ones, which
// are added to config.harmless_keys; sets config.bare_names. `file` is for messages. Nothing is
// allocated in proportion to a claimed size: the layers are bounded by the tensors that exist
// first.
void CheckTensors(ModelConfig& config, const std::map<std::string, Weight>& tensors, Naming naming,
                  const std::string& file);

}  // namespace ropewalk::internal
