// What the tensors of a model are called.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ropewalk::internal {

// Tensors of a decoder. A weight and its bias share a name; the file adds ".weight" or ".bias".
enum class TensorId : uint8_t {
  kEmbedding,
  kPositions,  // learned, one row a position
  kEmbeddingNorm,
  kFinalNorm,
  kHead,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kQkv,  // the three in one tensor
  kO,
  kQNorm,
  kKNorm,
  kFeedForwardNorm,
  kGate,
  kUp,
  kDown,
  // Biases, of the weights above.
  kEmbeddingNormBias,
  kFinalNormBias,
  kHeadBias,
  kAttentionNormBias,
  kQBias,
  kKBias,
  kVBias,
  kQkvBias,
  kOBias,
  kFeedForwardNormBias,
  kGateBias,
  kUpBias,
  kDownBias,
};

struct TensorName {
  TensorId id;  // of a weight
  const char* name;
};

struct TensorNames {
  const char* root;    // the word that a file may leave out before every name that has it; or ""
  const char* layers;  // before the number of a layer
  std::span<const TensorName> names;
  std::string_view harmless = "";  // ends of names of tensors that a model computes by itself

  const char* Find(TensorId weight) const;  // null: the family has no such tensor
};

extern const TensorNames kLlamaNames, kGgufNames, kGpt2Names, kGptNeoxNames, kGptjNames,
    kFalconNames, kFalconTwoNormNames, kPhiNames, kOptNames, kBloomNames, kMptNames;

}  // namespace ropewalk::internal
