// The weights of a decoder as its layers use them.
#pragma once

#include <vector>

#include "ropewalk/model/model.h"
#include "src/model/block.h"
#include "src/model/embedder.h"
#include "src/model/layer_forms.h"
#include "src/model/query_keys.h"

namespace ropewalk {

struct Decoder::Impl {
  ModelConfig config;
  WeightStorage weights = WeightStorage::kUnpacked;
  Weight embedding;  // [vocab, hidden]; rows are read from the file, so a tied head exists once
  Weight positions;  // [positions, hidden], where they are learned
  // Of the family ropewalk; it has the positions too.
  std::unique_ptr<const internal::Embedder> embedder;
  internal::NormWeights embedding_norm;
  std::vector<internal::LayerWeights> layers;
  internal::NormWeights final_norm;
  Linear head;  // [vocab, hidden]
  // Of a bias whose numbers are tensors of the model: one per layer, or one for all. Empty: forms
  // follow from the plan, and Sequence has them.
  std::vector<PreparedForm> learned_forms;
  std::vector<internal::LayerForm> layer_forms;  // of the family ropewalk; empty, or one per layer

  // Of the family ropewalk, in the place of a rotation; null: none.
  std::unique_ptr<const internal::QueryKeyEncoder> query_keys;

  const PreparedForm& LearnedForm(std::size_t layer) const {
    return learned_forms[learned_forms.size() == 1 ? 0 : layer];
  }

  struct Scratch;
  // Where tokens stand: the position of the first, the tables that have its row (one per rotation, then
  // that of an encoding), and what encodings in front of the layers keep of earlier tokens.
  struct Place {
    int64_t first_position = 0;
    std::span<const CosSinTable> tables;
    internal::EmbeddingState* embedding = nullptr;
  };
  // Queries, keys and values of a layer as attention reads them, in the layer's scratch.
  struct Encoded {
    TensorView q, k, v;
    std::vector<float> temperatures;  // of the last rows, where attention applies them
  };
  const PreparedForm* FormOf(const Sequence& sequence, std::size_t layer) const;
  RunningForm GatesOf(std::size_t layer, int64_t tokens, const internal::LayerScratch& s) const;
  const ScoreForm* AppendGates(Sequence& sequence, std::size_t layer, int64_t tokens,
                               const internal::LayerScratch& s) const;
  void CheckIds(std::span<const int32_t> ids) const;  // throws Error outside the vocabulary
  // x [ids, hidden], what the first layer reads; `room` as large.
  void Embed(std::span<const int32_t> ids, const Place& place, float* x, float* room) const;
  // Of x [tokens, hidden]; attention will ask for the last `rows`.
  Encoded Encode(const Sequence& sequence, std::size_t layer, int64_t tokens, int64_t rows,
                 const Place& place, float* x, internal::LayerScratch& s) const;
  // What all queries of a layer have in common: scale, window, bias, fused rotation, soft cap.
  AttentionArgs ArgsOf(const Sequence& sequence, std::size_t layer) const;
  // Where values are rotated: what attention found for the queries from first_position on, back.
  void RotateBack(const Sequence& sequence, std::size_t layer, const Place& place,
                  int64_t first_position, const TensorView& out) const;
  void ForwardChunk(Sequence& sequence, std::span<const int32_t> ids, int64_t wanted_rows,
                    Scratch& scratch) const;
};

}  // namespace ropewalk
