#include "src/model/block.h"

#include <algorithm>
#include <cmath>

#include "src/model/elementwise.h"

namespace ropewalk::internal {
namespace {

int64_t QDim(const ModelConfig& c) { return c.heads * c.head_dim; }
int64_t QkvDim(const ModelConfig& c) { return (c.heads + 2 * c.kv_heads) * c.head_dim; }

void Normalize(const NormSpec& spec, const NormArgs& args) {
  spec.kind == NormSpec::Kind::kLayer ? LayerNorm(args) : RmsNorm(args);
}

bool NormsBefore(const LayerSpec& spec) {
  return spec.pre_attention.exists() || spec.pre_mlp.exists();
}

// Whether what a part of the layer adds is normalised or scaled before it is added.
bool ChangesAdded(const LayerSpec& spec, const NormSpec& post) {
  return (post.exists() && spec.residual != Residual::kNormedSum) || spec.residual_scale != 1;
}

// [tokens, heads, head_dim] inside rows of `stride` elements.
TensorView Heads(float* data, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride) {
  TensorView v = TensorView::Of(data, {tokens, heads, head_dim});
  v.strides[0] = stride;
  return v;
}

void NormalizeHeads(const ModelConfig& c, const NormWeights& norm, const TensorView& heads) {
  float* data = static_cast<float*>(heads.data);
  const int64_t stride = heads.strides[0], n = heads.shape[2];
  const QkNormOver over = c.layer.attention.qk_norm_over;
  const auto normalize = [&](int64_t first, int64_t groups, int64_t size) {
    float* from = data + first * n;
    const int64_t weights = groups > 1 ? 0 : first * n;
    Normalize(c.layer.attention.qk_norm,
              {from, stride, from, stride, heads.shape[0], groups, size,
               norm.weight.data() + weights, static_cast<float>(c.norm_eps),
               norm.bias.size() > 0 ? norm.bias.data() + weights : nullptr});
  };
  if (over == QkNormOver::kHead) return normalize(0, heads.shape[1], n);
  if (over == QkNormOver::kAllHeads) return normalize(0, 1, heads.shape[1] * n);
  for (int64_t h = 0; h < heads.shape[1]; ++h) normalize(h, 1, n);
}

void Clip(double limit, int64_t n, float* x) {
  const float most = static_cast<float>(limit);
  for (int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -most, most);
}

// x [rows, hidden] plus linear(in), and the norm or the scale behind.
void Add(const ModelConfig& c, const Linear& linear, const float* in, int64_t rows,
         const NormSpec& post, const NormWeights& norm, float* x, LayerScratch& s) {
  if (!ChangesAdded(c.layer, post)) {
    linear.Apply(in, rows, linear.in_features(), x, c.hidden, /*accumulate=*/true);
    if (post.exists()) ApplyNorm(post, norm, c, x, rows, x);
    return;
  }
  float* added = s.added.data();
  linear.Apply(in, rows, linear.in_features(), added, c.hidden);
  if (post.exists()) ApplyNorm(post, norm, c, added, rows, added);
  const float scale = static_cast<float>(c.layer.residual_scale);
  for (int64_t i = 0; i < rows * c.hidden; ++i) x[i] += scale * added[i];
}

// input [rows, hidden] -> s.activated, which layer.down reads.
void RunMlp(const ModelConfig& c, const LayerWeights& layer, const float* input, int64_t rows,
            LayerScratch& s) {
  const MlpSpec& mlp = c.layer.mlp;
  layer.up.Apply(input, rows, c.hidden, s.up.data(), layer.up.out_features());
  const auto activate = mlp.gated ? ActivateGate : Activate;
  activate(mlp.activation, s.up.data(), rows, c.feed_forward, s.activated.data());
}

}  // namespace

LayerScratch::LayerScratch(const ModelConfig& c, int64_t tokens)
    : normed(NormsBefore(c.layer) ? tokens * c.hidden : 0),
      qkv(tokens * QkvDim(c)),
      attended(tokens * QDim(c)),
      added(ChangesAdded(c.layer, c.layer.post_attention) || ChangesAdded(c.layer, c.layer.post_mlp)
                ? tokens * c.hidden
                : 0),
      up(std::min(tokens, kMlpRows) * c.feed_forward * (c.layer.mlp.gated ? 2 : 1)),
      activated(std::min(tokens, kMlpRows) * c.feed_forward) {}

int64_t Bytes(const NormWeights& norm) {
  return static_cast<int64_t>((norm.weight.size() + norm.bias.size()) * sizeof(float));
}

int64_t Bytes(const LayerWeights& layer) {
  int64_t bytes = layer.qkv.bytes() + layer.out.bytes() + layer.up.bytes() + layer.down.bytes();
  for (const NormWeights* norm : {&layer.pre_attention, &layer.post_attention, &layer.pre_mlp,
                                  &layer.post_mlp, &layer.q_norm, &layer.k_norm}) {
    bytes += Bytes(*norm);
  }
  return bytes;
}

void ApplyNorm(const NormSpec& spec, const NormWeights& norm, const ModelConfig& c, const float* x,
               int64_t rows, float* out) {
  Normalize(spec, {x, c.hidden, out, c.hidden, rows, 1, c.hidden, norm.weight.data(),
                   static_cast<float>(c.norm_eps), norm.bias.data()});
}

QkvViews ProjectQkv(const ModelConfig& c, const LayerWeights& layer, int64_t tokens, float* x,
                    LayerScratch& s) {
  const AttentionSpec& spec = c.layer.attention;
  const float* input = x;
  if (c.layer.pre_attention.exists()) {
    ApplyNorm(c.layer.pre_attention, layer.pre_attention, c, x, tokens, s.normed.data());
    if (c.layer.residual == Residual::kNormedInput) {
      std::copy_n(s.normed.data(), tokens * c.hidden, x);
    }
    input = s.normed.data();
  }
  const int64_t stride = QkvDim(c), q_dim = QDim(c), kv_dim = c.kv_heads * c.head_dim;
  float* qkv = s.qkv.data();
  layer.qkv.Apply(input, tokens, c.hidden, qkv, stride);
  if (spec.clip_qkv > 0) Clip(spec.clip_qkv, tokens * stride, qkv);
  const QkvViews views = {Heads(qkv, tokens, c.heads, c.head_dim, stride),
                          Heads(qkv + q_dim, tokens, c.kv_heads, c.head_dim, stride),
                          Heads(qkv + q_dim + kv_dim, tokens, c.kv_heads, c.head_dim, stride)};
  if (spec.qk_norm.exists()) {
    NormalizeHeads(c, layer.q_norm, views.q);
    NormalizeHeads(c, layer.k_norm, views.k);
  }
  return views;
}

float ScoreScale(const ModelConfig& c, double multiplier) {
  const double scale = c.layer.attention.score_scale;
  return static_cast<float>(scale > 0 ? multiplier * scale
                                      : multiplier / std::sqrt(static_cast<double>(c.head_dim)));
}

TensorView AttendedView(const ModelConfig& c, int64_t rows, LayerScratch& s) {
  return Heads(s.attended.data(), rows, c.heads, c.head_dim, QDim(c));
}

void FinishLayer(const ModelConfig& c, const LayerWeights& layer, int64_t tokens, int64_t rows,
                 float* x, LayerScratch& s) {
  const LayerSpec& spec = c.layer;
  const bool parallel = spec.residual == Residual::kParallel;
  const int64_t first_row = tokens - rows;
  const auto add_attended = [&](int64_t first, int64_t n) {
    Add(c, layer.out, s.attended.data() + first * QDim(c), n, spec.post_attention,
        layer.post_attention, x + (first_row + first) * c.hidden, s);
  };
  if (!parallel) add_attended(0, rows);
  for (int64_t first = 0; first < rows; first += kMlpRows) {
    const int64_t n = std::min(kMlpRows, rows - first);
    float* chunk = x + (first_row + first) * c.hidden;
    const float* input = chunk;
    if (spec.pre_mlp.exists() || parallel) {
      float* normed = s.normed.data() + (first_row + first) * c.hidden;
      if (spec.pre_mlp.exists()) ApplyNorm(spec.pre_mlp, layer.pre_mlp, c, chunk, n, normed);
      if (spec.residual == Residual::kNormedInput) std::copy_n(normed, n * c.hidden, chunk);
      input = normed;
    }
    RunMlp(c, layer, input, n, s);
    if (parallel) add_attended(first, n);
    Add(c, layer.down, s.activated.data(), n, spec.post_mlp, layer.post_mlp, chunk, s);
  }
}

}  // namespace ropewalk::internal
