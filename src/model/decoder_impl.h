// The weights of a decoder as its layers use them.
#pragma once

#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk {

struct Decoder::Impl {
  struct Norm {
    AlignedBuffer<float> weight;  // [hidden] or [head_dim]; empty: there is no such norm
    AlignedBuffer<float> bias;    // as long; empty: RMSNorm
  };
  struct Layer {
    Norm attention_norm, feed_forward_norm;
    Norm q_norm, k_norm;  // Qwen3 only
    Linear qkv;           // [(heads + 2 * kv_heads) * head_dim, hidden]: q, k and v in one product
    Linear out;           // [hidden, heads * head_dim]
    Linear up;    // [feed_forward, hidden], or, gated, [2 * feed_forward, hidden]: gate, then up
    Linear down;  // [hidden, feed_forward]
  };

  ModelConfig config;
  Weight embedding;  // [vocab, hidden]; rows are read from the file, so a tied head exists once
  Weight positions;  // [positions, hidden], where they are learned
  Norm embedding_norm;
  std::vector<Layer> layers;
  Norm final_norm;
  Linear head;  // [vocab, hidden]

  int64_t q_dim() const { return config.heads * config.head_dim; }
  int64_t kv_dim() const { return config.kv_heads * config.head_dim; }
  int64_t up_dim() const { return config.feed_forward * (config.block.gated ? 2 : 1); }

  struct Scratch;
  class Loader;
  void Embed(std::span<const int32_t> ids, int64_t first_position, Scratch& scratch) const;
  void NormalizeHeads(const Norm& norm, const TensorView& heads) const;  // q or k, in place
  void FeedForward(const Layer& layer, const float* normed, int64_t rows, Scratch& scratch) const;
  void ForwardChunk(Sequence& sequence, std::span<const int32_t> ids, int64_t wanted_rows,
                    Scratch& scratch) const;
};

}  // namespace ropewalk
