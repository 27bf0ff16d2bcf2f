// The weights of an encoder as its layers use them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/model/encoder.h"
#include "ropewalk/rotary/table.h"
#include "src/model/block.h"
#include "src/model/embedder.h"
#include "src/model/query_keys.h"

namespace ropewalk {

struct Encoder::Impl {
  using Forms = std::vector<PreparedForm>;  // one per layer, one for all, or none

  // The head of a masked language model: LayerNorm(activation(dense x)) times the vocabulary's matrix.
  struct MaskedHead {
    Linear dense;  // [embedding, hidden]
    internal::NormWeights norm;
    Linear vocab;  // [vocab, embedding]
  };

  ModelConfig config;
  Weight words;  // [vocab, embedding]; rows are read from the file
  // [positions, hidden], from position 0 on: of the embeddings where the plan has them, else of the
  // mask decoder.
  std::vector<float> positions;
  AlignedBuffer<float> token_types;  // [token_types, embedding]
  std::optional<HierarchicalSpec> hierarchical;
  std::unique_ptr<const internal::Embedder> embedder;  // of the family ropewalk, in their place
  internal::NormWeights embedding_norm, final_norm;
  Linear projection;  // [hidden, embedding], where they differ
  std::vector<internal::LayerWeights> layers;
  std::optional<MaskedHead> head;

  // Lowered at load where a form does not grow with the text; Transformer-XL's has a row per
  // distance and is lowered again, under the lock, when a longer text comes.
  std::vector<TransformerXlBias> sinusoidal;  // one per layer, or none
  mutable std::mutex lowering;
  mutable std::shared_ptr<const Forms> forms = std::make_shared<Forms>();
  mutable int64_t lowered_tokens = 0;
  // What makes the form of each layer, or of all, for texts of up to n tokens; again for longer ones.
  std::vector<std::function<PreparedForm(int64_t tokens)>> lower;
  // Of the family ropewalk, in the place of a rotation; null: none.
  std::unique_ptr<const internal::QueryKeyEncoder> query_keys;
  // Of the one rotation, or encoding of queries and keys; grows the same way, and is another where its frequencies depend on the
  // length of a text.
  struct Rotation {
    Frequencies frequencies;
    CosSinTable table;
  };
  mutable std::shared_ptr<const Rotation> rotation;

  const EncoderSpec& spec() const { return *config.encoder; }
  int64_t embedding_dim() const {
    return spec().embedding_dim > 0 ? spec().embedding_dim : config.hidden;
  }
  std::shared_ptr<const Forms> FormsFor(int64_t tokens) const;
  std::shared_ptr<const Rotation> RotationFor(int64_t tokens) const;  // null: neither

  class Loader;
  bool DecodesMasks(EncoderStates which) const {
    return which == EncoderStates::kMaskDecoder && !config.plan.learned;
  }
  int64_t max_tokens(EncoderStates which) const;
  void Check(std::span<const int32_t> ids, std::span<const int32_t> token_types,
             EncoderStates which) const;
  void CheckMaskDecoder(int64_t tokens) const;
  void AddPositions(int64_t tokens, float* x) const;
  void Embed(std::span<const int32_t> ids, std::span<const int32_t> token_types, float* x) const;
  // x [tokens, hidden] plus what the queries find in the cache, and the MLP.
  void AttendAndFinish(std::size_t layer, const TensorView& q, const PreparedForm* form,
                       const KvCache& cache, float* x, internal::LayerScratch& scratch,
                       double multiplier = 1) const;
  // x: the states below the last layer, which keys and values stay with.
  void DecodeMasks(const PreparedForm* form, KvCache& cache, int64_t tokens, float* x,
                   internal::LayerScratch& scratch) const;
};

}  // namespace ropewalk
