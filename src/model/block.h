// One transformer layer of a decoder or an encoder, by its LayerSpec; positions and masks are those
// of the caller.
#pragma once

#include <cstdint>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/config/config.h"
#include "ropewalk/linear/linear.h"

namespace ropewalk::internal {

struct NormWeights {
  AlignedBuffer<float> weight;  // as NormSpec and QkNormOver say; empty: there is no such norm
  AlignedBuffer<float> bias;    // as long; empty: RMSNorm
};

struct LayerWeights {
  NormWeights pre_attention, post_attention, pre_mlp, post_mlp;
  NormWeights q_norm, k_norm;
  Linear qkv;   // [(heads + 2 * kv_heads) * head_dim, hidden]: q, k and v in one product
  Linear out;   // [hidden, heads * head_dim]
  Linear up;    // [feed_forward, hidden], or, gated, [2 * feed_forward, hidden]: gate, then up
  Linear down;  // [hidden, feed_forward]
};
int64_t Bytes(const NormWeights& norm);
int64_t Bytes(const LayerWeights& layer);

// Activations of a call of `tokens` rows.
struct LayerScratch {
  LayerScratch(const ModelConfig& config, int64_t tokens);
  AlignedBuffer<float> normed;     // [tokens, hidden], where there is a norm before anything
  AlignedBuffer<float> qkv;        // [tokens, (heads + 2 * kv_heads) * head_dim]
  AlignedBuffer<float> attended;   // [tokens, heads * head_dim]
  AlignedBuffer<float> added;      // [tokens, hidden], where what is added is changed first
  AlignedBuffer<float> up;         // [kMlpRows, feed_forward], gated: [kMlpRows, 2 * feed_forward]
  AlignedBuffer<float> activated;  // [kMlpRows, feed_forward]
};
inline constexpr int64_t kMlpRows = 512;  // at a time, since these rows are the widest

// out may be x. Rows of `hidden`.
void ApplyNorm(const NormSpec& spec, const NormWeights& norm, const ModelConfig& config,
               const float* x, int64_t rows, float* out);

// Views of s.qkv, [tokens, heads or kv_heads, head_dim].
struct QkvViews {
  TensorView q, k, v;
};
// The first half of a layer: q, k and v of x [tokens, hidden], normalised and clipped.
QkvViews ProjectQkv(const ModelConfig& config, const LayerWeights& layer, int64_t tokens, float* x,
                    LayerScratch& s);

// What scores are multiplied by; `multiplier` is the position method's.
float ScoreScale(const ModelConfig& config, double multiplier = 1);

// [rows, heads, head_dim] of s.attended, where attention writes.
TensorView AttendedView(const ModelConfig& config, int64_t rows, LayerScratch& s);

// The second half: the last `rows` of the `tokens` rows of x plus what attention found, which are
// the first rows of s.attended, plus the MLP.
void FinishLayer(const ModelConfig& config, const LayerWeights& layer, int64_t tokens, int64_t rows,
                 float* x, LayerScratch& s);

}  // namespace ropewalk::internal
