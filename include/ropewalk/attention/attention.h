// Attention with online softmax in tiles (Milakov & Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): memory linear in tokens, no N x N matrix.
//
//   score(i, j) = scale_i q_i . k_j + bias(i, j)        scale_i = scale temperatures[i]
//   score       = cap tanh(score / cap)                 soft cap, before the mask (Gemma 2)
//   out_i       = sum over unmasked j of weight(i, j) v_j,
//   weight      = exp(score) / (exp(sink) + sum over unmasked j of exp(score))
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ropewalk/attention/load_rotation.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/compute_type.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace internal {
struct ContentColumns;
}

// What a KV cache keeps of each number of a key and of a value.
//   f32   float32, as appended
//   bf16  rounded to the nearest, ties to even
//   q8_0  ggml's blocks of 32 elements of a head: 8 bits each and a scale in float16, by the reference
//         quantiser (quantize_row_q8_0_ref). A block with NaN or infinity, or above what float16
//         scales (8.3 million), becomes NaN.
enum class KvType : uint8_t { kF32, kBf16, kQ8_0 };
inline constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kBf16, KvType::kQ8_0};  // by precision
constexpr const char* Name(KvType type) {
  constexpr const char* kNames[] = {"f32", "bf16", "q8_0"};
  return kNames[static_cast<int>(type)];
}
// Throws Error(kUnsupported) with the reason where the type does not hold heads of this size, or
// values of that one.
void CheckKvType(KvType type, int64_t head_dim, std::optional<int64_t> value_dim = std::nullopt);

// Keys and values of one layer, rounded to its type. Keys are rotated, unless attention rotates them
// as it loads them (fused RoPE). They are packed in blocks with tokens along the SIMD vector, as the
// kernel reads them; values are row-major.
class KvCache {
 public:
  KvCache() = default;
  // Values have head_dim elements as keys do, or value_dim (multi-head latent attention: DeepSeek has
  // keys of 192 and values of 128). Throws Error for sizes out of range, and as CheckKvType does.
  KvCache(int64_t kv_heads, int64_t head_dim, int64_t capacity_tokens, KvType type = KvType::kF32,
          std::optional<int64_t> value_dim = std::nullopt);

  KvType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  int64_t capacity_tokens() const { return capacity_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }  // of a key
  int64_t value_dim() const { return value_dim_; }
  int64_t bytes() const;
  void Truncate(int64_t tokens);  // keeps the first `tokens` tokens

  // Appends k and v, float32 [tokens, kv_heads, head_dim] and [tokens, kv_heads, value_dim]; the last
  // stride is 1, the others are free. Throws Error past the capacity.
  void Append(const TensorView& k, const TensorView& v);
  // Its memory as it lies there, to be sent elsewhere: what another cache of the same sizes, capacity
  // and type reads as its own, once it is told the tokens.
  std::vector<std::span<std::byte>> Memory();
  void SetTokens(int64_t tokens);  // of memory that was received; throws Error past the capacity
  // Copies keys first .. first + count - 1 of a head, as the type holds them, to out [head_dim, count].
  void CopyKeys(int64_t kv_head, int64_t first, int64_t count, float* out) const;

 private:
  friend struct AttentionAccess;
  KvType type_ = KvType::kF32;
  int64_t kv_heads_ = 0, head_dim_ = 0, value_dim_ = 0, capacity_ = 0, tokens_ = 0;
  AlignedBuffer<std::byte> keys_, values_;
  AlignedBuffer<uint16_t> key_scales_, value_scales_;  // kQ8_0, float16
};

// A score bias, checked and packed once for all calls that use it (layers, decoding steps).
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

// A gate's running sums for keys that come in parts, in the place of log_gates: G(t) is the sum of the
// log-gates of all tokens up to and with t, so that the bias of RunningForm is G(i) - G(j).
struct GateSums {
  std::span<const double> queries;  // [tokens, heads]
  std::span<const double> keys;     // [cache->tokens(), heads]
};

// What CoPE sums over keys that come in parts: a key's position needs the gates of all nearer ones.
struct ContextualSums {
  std::span<const double> nearer;  // [tokens, heads], of keys nearer than this cache's; empty: none
  std::span<double> all;           // [tokens, heads] becomes `nearer` and those of this cache
};

// The scale of most models: 1 / sqrt(head_dim), with head_dim that of `q` (PoPE's encoded q has
// twice its model's).
inline constexpr std::optional<float> kScaleByHeadDim = std::nullopt;

// The distance of a pair is the position of the query minus that of the key. By default the queries
// are the last `tokens` entries of the KV cache, and key j has position j.
struct AttentionArgs {
  TensorView q;    // float32 [tokens, heads, head_dim], rotated unless `rotation` is given; heads a
                   // multiple of kv_heads
  TensorView out;  // float32 [tokens, heads, value_dim]; may be q where that is head_dim
  const KvCache* cache = nullptr;  // already holds the keys of q: q[t] is its token
                                   // cache->tokens() - tokens + t
  // Multiplies q . k; above 0. T5 does not scale: 1. A scaling method's
  // Frequencies::softmax_multiplier has to be multiplied in by the caller.
  std::optional<float> scale = kScaleByHeadDim;
  int64_t window_tokens = 0;  // sliding window: |distance| < window_tokens; 0: none

  // Of the products of queries, keys and values; scale, rotation, biases, softmax and sums are
  // float32 always, and so is all of it where HasBf16Attention() is false. kBFloat16: AttentionBackward
  // refuses it.
  ComputeType compute = ComputeType::kFloat32;

  AttentionMask mask = AttentionMask::kCausal;  // causal: keys with distance < 0 are masked
  const ScoreForm* form = nullptr;              // score bias; null: none, or `prepared`
  const PreparedForm* prepared = nullptr;       // a bias that several calls share
  // Fused RoPE: q and the cached keys are unrotated and are rotated as they are read, so one cache
  // serves any frequencies and distance map. Positions are then consecutive, and those of keys begin
  // at a multiple of kRotatedBlock; ContentForm and kContextual are refused. Null: q and the cached
  // keys are rotated already.
  const LoadRotation* rotation = nullptr;
  float soft_cap = 0;                        // of the score with its bias; 0: none
  std::span<const float> sinks = {};         // [heads] logits added to the denominator alone
  std::span<const float> temperatures = {};  // [tokens] multiply the scale of each query

  // Positions of queries and keys, for cross attention or positions with gaps. With
  // query_positions the queries need not be tokens of the cache. Neither may decrease within a
  // document.
  std::span<const int64_t> query_positions = {};  // [tokens]
  std::span<const int64_t> key_positions = {};    // [cache->tokens()]

  // Packed sequences: index of the first key of each document, the first 0; a query attends to its
  // own document alone. If the queries are not the cache's last tokens, query_document_starts has
  // as many elements, indices of queries.
  std::span<const int64_t> document_starts = {};
  std::span<const int64_t> query_document_starts = {};

  // [tokens, heads] log-sum-exp (ln of the denominator), for AttentionBackward; empty: none.
  std::span<float> log_sum_exp = {};
  // [tokens, heads] entropy of each query's weights, -sum of w ln w in nats, with the sink's weight
  // among them; its exp is the effective number of keys. Empty: none. `out` stays bit-identical.
  std::span<float> entropy = {};

  // Of a RunningForm whose keys come in parts (AttendPart), by its kind; queries then have
  // query_positions. Empty: all keys are in the cache.
  GateSums gate_sums = {};
  ContextualSums contextual_sums = {};
};
inline constexpr int64_t kRotatedBlock = 64;

// Whether ComputeType::kBFloat16 multiplies in bf16 here: by AMX's tiles (amx_bf16), or by avx512_bf16
// where that is faster than float32, which on Intel it is not. Elsewhere it is kFloat32.
bool HasBf16Attention();

// Weights below 2^-90 of the largest so far count as 0. A query without unmasked keys gives zeros,
// an entropy of 0, and -infinity or its sink as log_sum_exp. ContentForm::value_rows need values as
// wide as keys. How a sequence is split into calls
// changes results by rounding only; equal thread counts give equal bits. ContentForm needs
// consecutive key positions; RunningForm needs a causal mask and queries that are tokens of the
// cache. Throws Error for shapes, forms and positions that do not fit.
void Attention(const AttentionArgs& args);

// What queries found in the keys that they met so far, unnormalised: for keys that come in parts, as
// they do when other machines hold them.
class AttentionSums {
 public:
  AttentionSums() = default;
  // Of nothing. Throws Error for sizes below 1.
  AttentionSums(int64_t tokens, int64_t heads, int64_t value_dim);
  void Clear();
  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return static_cast<int64_t>(rows_.size() * sizeof(float)); }

 private:
  friend struct AttentionAccess;
  int64_t tokens_ = 0, heads_ = 0, value_dim_ = 0;
  AlignedBuffer<float> rows_;  // [tokens, heads, padded value_dim + 3]: values, maximum, two sums
};

// Adds what the queries find in the keys of args.cache to rows first_row .. of `sums`, merged by
// log-sum-exp in the order of the calls. Positions of queries and keys are data (query_positions and
// key_positions), so that parts may come in any order; the same order gives the same bits. What
// belongs to a whole row waits for FinishParts: args.out, log_sum_exp, entropy and sinks are not
// read. want_entropy: that sums are to know it.
void AttendPart(const AttentionArgs& args, AttentionSums& sums, int64_t first_row,
                bool want_entropy = false);

// Where the rows of FinishParts go; as in AttentionArgs.
struct FinishedRows {
  TensorView out;  // float32 [tokens, heads, value_dim]
  std::span<const float> sinks = {};
  std::span<float> log_sum_exp = {};
  std::span<float> entropy = {};
};
// Writes rows first_row .. of `sums`, normalised: what Attention gives for all parts at once, within
// rounding.
void FinishParts(const AttentionSums& sums, int64_t first_row, const FinishedRows& rows);

}  // namespace ropewalk
