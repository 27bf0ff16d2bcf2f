// What the tensors of an encoder are called and how large they are, one function a family.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ropewalk/model/encoder.h"

namespace ropewalk::internal {

enum class EncoderTensor : uint8_t {
  kWords,
  kPositions,
  kTokenTypes,
  kEmbeddingNorm,
  kFinalNorm,
  kRelative,      // T5's [buckets, heads], DeBERTa's embedding of distances, XLNet's r
  kRelativeNorm,  // DeBERTa's, of the embedding
  kPositionKey,   // DeBERTa's own matrices for it
  kPositionQuery,
  kContentBias,  // XLNet's r_w_bias and r_r_bias
  kPositionBias,
  kQ,
  kK,
  kV,
  kO,
  kAttentionNorm,
  kGate,
  kUp,
  kDown,
  kFeedForwardNorm,
};

// The bias that all layers have, where it is of this kind; else null.
template <class Bias>
const Bias* BiasOf(const ModelConfig& config) {
  const std::vector<LayerPlan>& layers = config.plan.layers;
  if (layers.empty() || !layers[0].bias) return nullptr;
  return std::get_if<Bias>(&layers[0].bias->method);
}

// The tensors of a model, found and of the right shape. Throws Error that names the file and the
// tensor for one that is missing, of another shape, or has no place.
class EncoderTensors {
 public:
  EncoderTensors(const ModelConfig& config, const ModelFiles& files);
  // Null where the model has no such tensor. layer -1: of no layer.
  const Weight* Find(EncoderTensor id, int64_t layer = -1) const { return Get(id, layer, false); }
  const Weight* FindBias(EncoderTensor id, int64_t layer = -1) const {
    return Get(id, layer, true);
  }

 private:
  const Weight* Get(EncoderTensor id, int64_t layer, bool bias) const {
    const auto it = found_.find({id, layer, bias});
    return it == found_.end() ? nullptr : it->second;
  }
  std::map<std::tuple<EncoderTensor, int64_t, bool>, const Weight*> found_;
};

}  // namespace ropewalk::internal
