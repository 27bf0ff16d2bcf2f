// Attention with online softmax in tiles (Milakov & Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): memory linear in tokens, no N x N matrix.
//
//   score(i, j) = scale_i q_i . k_j + bias(i, j)        scale_i = scale temperatures[i]
//   score       = cap tanh(score / cap)                 soft cap, before the mask (Gemma 2)
//   out_i       = sum over seen j of weight(i, j) v_j,
//   weight      = exp(score) / (exp(sink) + sum over seen j of exp(score))
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ropewalk/attention/load_rotation.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace internal {
struct ContentColumns;
}

// Keys (rotated, unless attention rotates them on load: fused RoPE) and values of one layer,
// float32, in the layout that the kernel reads: keys packed in blocks with tokens along the vector,
// values by rows.
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
  // Keys first .. first + count - 1 of a head as they were appended: out[head_dim, count].
  void CopyKeys(int64_t kv_head, int64_t first, int64_t count, float* out) const;

 private:
  friend struct AttentionAccess;
  int64_t kv_heads_ = 0, head_dim_ = 0, capacity_ = 0, tokens_ = 0;
  AlignedBuffer<float> keys_, values_;
};

// A bias that is checked and packed once, for calls that share it: layers, and token after token.
class PreparedForm {
 public:
  PreparedForm() = default;
  // Throws what CheckForm throws.
  PreparedForm(ScoreForm form, int64_t heads, int64_t head_dim);

  const ScoreForm& form() const { return *form_; }
  int64_t heads() const { return heads_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  friend struct AttentionAccess;
  int64_t heads_ = 0, head_dim_ = 0;
  std::shared_ptr<const ScoreForm> form_;
  std::shared_ptr<const internal::ContentColumns> columns_;
};

enum class AttentionMask : uint8_t { kCausal, kBidirectional };

// The scale that most models have: 1 / sqrt(head_dim), of q as it is given (PoPE's is twice as wide
// as its model's).
inline constexpr std::optional<float> kScaleByHeadDim = std::nullopt;

// The distance of a pair is the position of the query minus that of the key. By default the queries
// are the last `tokens` entries of the KV cache, and key j has position j.
struct AttentionArgs {
  TensorView q;    // float32 [tokens, heads, head_dim], rotated unless `rotation` is given; heads a
                   // multiple of kv_heads
  TensorView out;  // float32 [tokens, heads, head_dim]; may be q
  const KvCache* cache = nullptr;  // already holds the keys of q: q[t] is its token
                                   // cache->tokens() - tokens + t
  // Of the products of q and k, above 0. Some models scale otherwise (T5 not at all: 1), and what a
  // scaling method multiplies scores by (Frequencies::softmax_multiplier) belongs to it.
  std::optional<float> scale = kScaleByHeadDim;
  int64_t window_tokens = 0;  // only distances below it, on both sides if bidirectional; 0: all

  AttentionMask mask = AttentionMask::kCausal;  // causal: no negative distance
  const ScoreForm* form = nullptr;              // the bias; null: none, or the prepared one
  const PreparedForm* prepared = nullptr;       // the bias, where calls share it
  // Fused RoPE: q and the cache's keys come unrotated and are rotated as they are read, so the same
  // cache serves other frequencies and distance maps. Key j then has position j; ContentForm and
  // kContextual are refused. Null: q and the keys are rotated already.
  const LoadRotation* rotation = nullptr;
  float soft_cap = 0;                        // on score and bias together; 0: none
  std::span<const float> sinks = {};         // [heads] logits that only the denominator has
  std::span<const float> temperatures = {};  // [tokens] factors of the scale

  // Cross attention, or positions with gaps: the position of each query (then queries need not be
  // tokens of the cache) and of each key. Within a document neither may decrease.
  std::span<const int64_t> query_positions = {};  // [tokens]
  std::span<const int64_t> key_positions = {};    // [cache->tokens()]

  // Packed sequences: index of the first key of each, from 0 on; a query sees its own document
  // alone. Queries that are not the cache's last tokens need as many starts of their own.
  std::span<const int64_t> document_starts = {};
  std::span<const int64_t> query_document_starts = {};

  // [tokens, heads] natural logarithms of the denominators, for AttentionBackward; empty: none.
  std::span<float> log_sum_exp = {};
  // [tokens, heads] entropy of each query's weights, -sum of w ln w in nats, the sink's share among
  // them; exp of it is how many keys the query attends to. Empty: none. Changes no bit of `out`.
  std::span<float> entropy = {};
};

// Weights below 2^-90 of the largest so far count as 0. A query that sees no key gives zeros, an
// entropy of 0 and -infinity as log_sum_exp, or its sink. Numbers do not depend on how a sequence
// was cut into calls beyond rounding; equal threads, equal bits. Content forms need consecutive key
// positions, running forms queries that are tokens of the cache and a causal mask.
void Attention(const AttentionArgs& args);

}  // namespace ropewalk
