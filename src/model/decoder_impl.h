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
  const PreparedForm* FormOf(const Sequence& sequence, std::size_t layer) const;
  const ScoreForm* AppendGates(Sequence& sequence, std::size_t layer,
                               std::span<const float> input) const;
  void Embed(std::span<const int32_t> ids, Sequence& sequence, Scratch& scratch) const;
  void ForwardChunk(Sequence& sequence, std::span<const int32_t> ids, int64_t wanted_rows,
                    Scratch& scratch) const;
};

}  // namespace ropewalk
