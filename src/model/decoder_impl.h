// The weights of a decoder as its layers use them.
#pragma once

#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk {

struct Decoder::Impl {
  struct Layer {
    AlignedBuffer<float> attention_norm, feed_forward_norm;  // [hidden]
    AlignedBuffer<float> q_norm, k_norm;                     // [head_dim], Qwen3 only
    Linear qkv;      // [(heads + 2 * kv_heads) * head_dim, hidden]: q, k and v in one product
    Linear out;      // [hidden, heads * head_dim]
    Linear gate_up;  // [2 * feed_forward, hidden]: gate, then up
    Linear down;     // [hidden, feed_forward]
  };

  ModelConfig config;
  Weight embedding;  // [vocab, hidden]; rows are read from the file, so a tied head exists once
  std::vector<Layer> layers;
  AlignedBuffer<float> final_norm;  // [hidden]
  Linear head;                      // [vocab, hidden]

  int64_t q_dim() const { return config.heads * config.head_dim; }
  int64_t kv_dim() const { return config.kv_heads * config.head_dim; }

  struct Scratch;
  void ForwardChunk(Sequence& sequence, std::span<const int32_t> ids, int64_t wanted_rows,
                    Scratch& scratch) const;
};

}  // namespace ropewalk
