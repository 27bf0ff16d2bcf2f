// The one table of a decoder's tensors: their names in Hugging Face folders and in GGUF, their
// shapes, and when they exist.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"
#include "ropewalk/model/model.h"

namespace ropewalk::internal {

enum class TensorId : uint8_t {
  kEmbedding,
  kFinalNorm,
  kHead,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kFeedForwardNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
};

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
// are added to config.harmless_keys. `file` is for messages. Nothing is allocated in proportion to
// a claimed size: the layers are bounded by the tensors that exist first.
void CheckTensors(ModelConfig& config, const std::map<std::string, Weight>& tensors, Naming naming,
                  const std::string& file);

}  // namespace ropewalk::internal
