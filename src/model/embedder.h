// What a model of the family ropewalk does between token embeddings and its first layer: an absolute
// encoding of ropewalk/absolute/, then a recurrent layer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/config/config.h"
#include "src/model/encoding_tensors.h"
#include "src/model/recurrent_layer.h"
#include "src/model/tensor_loader.h"

namespace ropewalk::internal {

// Its tensors.
void AddEmbeddingTensors(const ModelConfig& config, std::vector<EncodingTensor>& all);

// What later tokens read of a sequence's earlier ones; [tokens, hidden] each, or empty.
struct EmbeddingState {
  std::vector<float> convolved;  // inputs of the convolution
  std::vector<float> recurrent;  // states of the recurrent layer
};
// Whether there is a convolution, which reads earlier inputs.
bool KeepsConvolved(const std::optional<AbsoluteEncoding>& absolute);

// Immutable but for the rows of paths, which grow under a lock: several threads may call Run.
class Embedder {
 public:
  // `longer`: the decomposition by which learned positions reach the square of their number.
  Embedder(const ModelConfig& config, const TensorLoader& loader,
           const std::optional<HierarchicalSpec>& longer = {});

  // Whether there is no table of token embeddings: Run makes what is there in its place.
  bool replaces_tokens() const;
  // x [tokens, hidden], the embeddings of `ids`, becomes what the first layer reads. The state is
  // that of the tokens in front, and gets those of these; null: a text that is read whole, in both
  // directions.
  void Run(std::span<const int32_t> ids, int64_t first_position, EmbeddingState* state,
           std::span<float> x) const;
  int64_t bytes() const;

 private:
  using Rows = std::vector<float>;
  std::span<const float> At(const char* parameter) const;
  std::shared_ptr<const Rows> PathOf(int64_t rows) const;
  Rows MakePath(int64_t rows) const;
  // Overloads of the encodings: rows of `positions`, added or multiplied, or another x.
  struct Apply;

  const ModelConfig& c_;
  std::optional<HierarchicalSpec> longer_;
  std::map<std::string, Rows, std::less<>> parameters_;
  std::unique_ptr<RecurrentLayerWeights> recurrent_;
  mutable std::mutex growing_;
  mutable std::shared_ptr<const Rows> path_;  // of recurrent and floater, from position 0 on
};

}  // namespace ropewalk::internal
