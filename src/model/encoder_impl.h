// The weights of an encoder as its layers use them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/attention/attention.h"
#include "ropewalk/model/encoder.h"

namespace ropewalk {

struct Encoder::Impl {
  struct Norm {
    AlignedBuffer<float> weight;  // [hidden]
    AlignedBuffer<float> bias;    // [hidden]; empty: RMSNorm
  };
  struct Layer {
    Norm attention_norm, feed_forward_norm;
    Linear qkv;   // [3 * heads * head_dim, hidden]: q, k and v in one product
    Linear out;   // [hidden, heads * head_dim]
    Linear gate;  // [feed_forward, hidden], where gated
    Linear up;    // [feed_forward, hidden]
    Linear down;  // [hidden, feed_forward]
  };
  using Forms = std::vector<PreparedForm>;  // one a layer, one for all, or none

  ModelConfig config;
  Weight words;  // [vocab, hidden]; rows are read from the file
  // [positions, hidden], from position 0 on: of the embeddings where the plan has them, else of the
  // mask decoder.
  std::vector<float> positions;
  AlignedBuffer<float> token_types;  // [token_types, hidden]
  std::optional<HierarchicalSpec> hierarchical;
  Norm embedding_norm, final_norm;  // empty: there is none
  std::vector<Layer> layers;

  // Lowered at load where a form does not grow with the text; Transformer-XL's has a row a distance
  // and is lowered again, under the lock, when a longer text comes.
  std::vector<TransformerXlBias> sinusoidal;  // one a layer, or none
  mutable std::mutex lowering;
  mutable std::shared_ptr<const Forms> forms = std::make_shared<Forms>();
  mutable int64_t lowered_tokens = 0;

  const EncoderSpec& spec() const { return *config.encoder; }
  int64_t width() const { return config.heads * config.head_dim; }
  std::shared_ptr<const Forms> FormsFor(int64_t tokens) const;

  struct Scratch;
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
  void Normalize(const Norm& norm, const float* x, int64_t rows, float* out) const;
  // Queries from x into the scratch; keys and values too, and into the cache.
  void Project(const Layer& layer, int64_t tokens, const float* x, Scratch& scratch) const;
  void Store(int64_t tokens, KvCache& cache, Scratch& scratch) const;
  // x plus what the queries in the scratch find in the cache.
  void AddAttention(const Layer& layer, const PreparedForm* form, const KvCache& cache,
                    int64_t tokens, float* x, Scratch& scratch) const;
  void AddFeedForward(const Layer& layer, int64_t tokens, float* x, Scratch& scratch) const;
  void DecodeMasks(const PreparedForm* form, KvCache& cache, int64_t tokens, float* x,
                   Scratch& scratch) const;
};

}  // namespace ropewalk
