#include "src/model/latent.h"

#include <algorithm>

#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"
#include "src/model/elementwise.h"

namespace ropewalk::internal {
namespace {

// The first `n` elements of rows of `stride`, in place.
void Normalize(const LatentSpec& spec, const NormWeights& norm, int64_t rows, int64_t stride,
               int64_t n, float* x) {
  RmsNorm(
      {x, stride, x, stride, rows, 1, n, norm.weight.data(), static_cast<float>(spec.norm_eps)});
}

}  // namespace

int64_t KeyValueDim(const ModelConfig& c) {
  const LatentSpec& spec = c.layer.attention.latent;
  return c.heads * (c.head_dim - spec.rotary_dim + spec.value_dim);
}

void ProjectLatent(const ModelConfig& c, const LatentWeights& weights, int64_t tokens,
                   const float* input, LayerScratch& s) {
  const LatentSpec& spec = c.layer.attention.latent;
  const int64_t q_dim = c.heads * c.head_dim, stride = 2 * q_dim + c.heads * spec.value_dim;
  float* latent = s.latent.data();

  const float* q_input = input;
  if (spec.q_rank > 0) {
    weights.q_down.Apply(input, tokens, c.hidden, latent, spec.q_rank);
    Normalize(spec, weights.q_norm, tokens, spec.q_rank, spec.q_rank, latent);
    q_input = latent;
  }
  weights.q.Apply(q_input, tokens, weights.q.in_features(), s.qkv.data(), stride);

  const int64_t latent_dim = spec.kv_rank + spec.rotary_dim, plain = c.head_dim - spec.rotary_dim;
  weights.kv_down.Apply(input, tokens, c.hidden, latent, latent_dim);
  Normalize(spec, weights.kv_norm, tokens, latent_dim, spec.kv_rank, latent);
  const int64_t pair = plain + spec.value_dim;  // of a head: its key's plain part, its value
  weights.kv.Apply(latent, tokens, latent_dim, s.key_values.data(), c.heads * pair);

#pragma omp parallel for schedule(static) num_threads(ThreadsFor(tokens * 2 * q_dim / 4))
  for (int64_t t = 0; t < tokens; ++t) {
    const float* rotary = latent + t * latent_dim + spec.kv_rank;
    const float* from = s.key_values.data() + t * c.heads * pair;
    float* k = s.qkv.data() + t * stride + q_dim;
    float* v = k + q_dim;
    for (int64_t h = 0; h < c.heads; ++h, from += pair, k += c.head_dim, v += spec.value_dim) {
      std::copy_n(from, plain, k);
      std::copy_n(rotary, spec.rotary_dim, k + plain);
      std::copy_n(from + plain, spec.value_dim, v);
    }
  }
}

}  // namespace ropewalk::internal
