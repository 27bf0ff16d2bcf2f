// One transformer layer of a decoder or an encoder, by its LayerSpec; positions and masks are those
// of the caller.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/config/config.h"
#include "ropewalk/linear/linear.h"

namespace ropewalk::internal {

struct NormWeights {
  AlignedBuffer<float> weight;  // as NormSpec and QkNormOver say; empty: there is no such norm
  AlignedBuffer<float> bias;    // as long; empty: RMSNorm
};

struct MlpWeights {
  Linear up;    // [width, hidden], or, gated, [2 * width, hidden]: gate, then up
  Linear down;  // [hidden, width]
};

struct ExpertWeights {
  Linear router;                     // [count, hidden], in float32 always
  AlignedBuffer<float> choice_bias;  // [count], or empty
  std::vector<MlpWeights> experts;   // empty: the layer has its MLP
  MlpWeights shared;                 // as ExpertsSpec says
  Linear shared_router;              // [1, hidden], in float32 always
};

// Of latent attention; q is made from the hidden state where there is no q_down.
struct LatentWeights {
  Linear q_down;  // [q_rank, hidden]
  NormWeights q_norm;
  Linear q;        // [heads * head_dim, q_rank or hidden]
  Linear kv_down;  // [kv_rank + rotary_dim, hidden]
  NormWeights kv_norm;
  Linear kv;  // [heads * (head_dim - rotary_dim + value_dim), kv_rank]
};

// Of attention to the states of an encoder.
struct CrossWeights {
  NormWeights norm;
  Linear q;    // [heads * head_dim, hidden]
  Linear kv;   // [2 * kv_heads * head_dim, hidden]: k and v in one product
  Linear out;  // [hidden, heads * head_dim]
};

struct LayerWeights {
  NormWeights pre_attention, post_attention, pre_mlp, post_mlp;
  NormWeights q_norm, k_norm;
  Linear qkv;            // [(heads + 2 * kv_heads) * head_dim, hidden]: q, k and v in one product
  LatentWeights latent;  // in its place
  AlignedBuffer<float> sinks;  // [heads], or empty
  Linear out;                  // [hidden, heads * head_dim, or of value_dim]
  CrossWeights cross;
  MlpWeights mlp;
  ExpertWeights experts;
};
int64_t Bytes(const NormWeights& norm);
int64_t Bytes(const LayerWeights& layer);
int64_t MappedBytes(const LayerWeights& layer);  // of files, where weights stay there

// Activations of a call of `tokens` rows.
struct LayerScratch {
  LayerScratch(const ModelConfig& config, int64_t tokens);
  AlignedBuffer<float> normed;  // [tokens, hidden], where there is a norm before anything
  // [tokens, heads * head_dim + kv_heads * (head_dim + value_dim)]
  AlignedBuffer<float> qkv;
  // PoPE: [tokens, heads + kv_heads, key_dim]. FoPE: cos and sin, [tokens, head_dim].
  AlignedBuffer<float> encoded;
  AlignedBuffer<float> attended;   // [tokens, heads * value_dim]
  AlignedBuffer<float> added;      // [tokens, hidden], where what is added is changed first
  AlignedBuffer<float> up;         // [kMlpRows, width], gated: [kMlpRows, 2 * width], of the widest
  AlignedBuffer<float> activated;  // [kMlpRows, width]
  AlignedBuffer<float> latent;     // [tokens, the larger of the two vectors], of latent attention
  AlignedBuffer<float> key_values;    // [tokens, heads * (head_dim - rotary_dim + value_dim)]
  AlignedBuffer<float> gathered;      // [kMlpRows, hidden]: rows of one expert
  AlignedBuffer<float> expert_added;  // [kMlpRows, hidden]: what it adds to them
};
inline constexpr int64_t kMlpRows = 512;  // at a time, since these rows are the widest

// out may be x. Rows of `hidden`.
void ApplyNorm(const NormSpec& spec, const NormWeights& norm, const ModelConfig& config,
               const float* x, int64_t rows, float* out);

// Of rows of `size` elements.
void ApplyNorm(const NormSpec& spec, const NormWeights& norm, double eps, int64_t size,
               const float* x, int64_t rows, float* out);

// Views of s.qkv, [tokens, heads or kv_heads, head_dim, of v value_dim].
struct QkvViews {
  TensorView q, k, v;
};
// The first half of a layer: q, k and v of x [tokens, hidden], normalised and clipped.
QkvViews ProjectQkv(const ModelConfig& config, const LayerWeights& layer, int64_t tokens, float* x,
                    LayerScratch& s);

// input [rows, hidden] -> s.activated [rows, width], which weights.down reads.
void RunMlp(const MlpSpec& spec, const MlpWeights& weights, const float* input, int64_t rows,
            LayerScratch& s);

// What scores are multiplied by; `multiplier` is the position method's.
float ScoreScale(const ModelConfig& config, double multiplier = 1);
// [tokens] factors of the queries, of which the first is at `first_position`.
std::vector<float> Temperatures(const QueryTemperature& temperature, int64_t first_position,
                                int64_t tokens);

// [rows, heads, value_dim] of s.attended, where attention writes.
TensorView AttendedView(const ModelConfig& config, int64_t rows, LayerScratch& s);

// The second half: the last `rows` of the `tokens` rows of x plus what attention found, which are
// the first rows of s.attended, plus what cross-attention finds in `source`, where the layer has it,
// plus the MLP.
void FinishLayer(const ModelConfig& config, const LayerWeights& layer, int64_t tokens, int64_t rows,
                 float* x, LayerScratch& s, const KvCache* source = nullptr);

}  // namespace ropewalk::internal
