// Causal attention with online softmax in tiles (Milakov & Gimelshein 2018, arXiv 1805.02867; Dao
// et al. 2022, arXiv 2205.14135): memory linear in tokens, no N x N matrix.
#pragma once

#include <cstdint>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {

// Keys (rotated) and values of one layer, float32, in the layout that the kernel reads: keys packed
// in blocks with tokens along the vector, values by rows.
class KvCache {
 public:
  KvCache() = default;
  KvCache(int64_t kv_heads, int64_t head_dim, int64_t capacity_tokens);

  int64_t tokens() const { return tokens_; }
  int64_t capacity_tokens() const { return capacity_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t bytes() const;
  void Truncate(int64_t tokens);  // forgets all from `tokens` on

  // Appends k and v, float32 [tokens, kv_heads, head_dim], any strides with a contiguous head.
  // Throws Error past the capacity.
  void Append(const TensorView& k, const TensorView& v);

 private:
  friend struct AttentionAccess;
  int64_t kv_heads_ = 0, head_dim_ = 0, capacity_ = 0, tokens_ = 0;
  AlignedBuffer<float> keys_, values_;
};

struct AttentionArgs {
  TensorView q;    // float32 [tokens, heads, head_dim], rotated; heads a multiple of kv_heads
  TensorView out;  // float32 [tokens, heads, head_dim]; may be q
  const KvCache* cache = nullptr;  // already holds the keys of q: q[t] stands at
                                   // cache->tokens() - tokens + t
  float scale = 0;                 // 1 / sqrt(head_dim) times the softmax multiplier
  int64_t window_tokens = 0;       // token p attends to p - window + 1 .. p; 0: all
};

// Numbers do not depend on how a sequence was cut into calls beyond rounding; equal threads, equal
// bits.
void Attention(const AttentionArgs& args);

}  // namespace ropewalk
