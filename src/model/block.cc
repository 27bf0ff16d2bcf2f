#include "src/model/block.h"

#include <algorithm>
#include <cmath>

#include "src/model/cross.h"
#include "src/model/elementwise.h"
#include "src/model/experts.h"
#include "src/model/latent.h"

namespace ropewalk::internal {
namespace {

int64_t QDim(const ModelConfig& c) { return c.heads * c.head_dim; }
int64_t QkvDim(const ModelConfig& c) { return QDim(c) + c.kv_heads * (c.head_dim + c.value_dim()); }

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

// x [rows, hidden] plus s.added, which the norm behind and the scale change first.
void AddChanged(const ModelConfig& c, int64_t rows, const NormSpec& post, const NormWeights& norm,
                float* x, LayerScratch& s) {
  float* added = s.added.data();
  if (post.exists()) ApplyNorm(post, norm, c, added, rows, added);
  const float scale = static_cast<float>(c.layer.residual_scale);
  for (int64_t i = 0; i < rows * c.hidden; ++i) x[i] += scale * added[i];
}

// x [rows, hidden] plus linear(in), and the norm or the scale behind.
void Add(const ModelConfig& c, const Linear& linear, const float* in, int64_t rows,
         const NormSpec& post, const NormWeights& norm, float* x, LayerScratch& s) {
  if (!ChangesAdded(c.layer, post)) {
    linear.Apply(in, rows, linear.in_features(), x, c.hidden, /*accumulate=*/true);
    if (post.exists()) ApplyNorm(post, norm, c, x, rows, x);
    return;
  }
  linear.Apply(in, rows, linear.in_features(), s.added.data(), c.hidden);
  AddChanged(c, rows, post, norm, x, s);
}

// Of a token, where queries and keys are encoded.
int64_t EncodedNumbers(const ModelConfig& c) {
  if (c.plan.layers.empty() || !c.plan.layers[0].encoding) return 0;
  return c.key_dim() == c.head_dim ? c.head_dim : (c.heads + c.kv_heads) * c.key_dim();
}

// The widest MLP of a layer, or expert.
int64_t Width(const ModelConfig& c) {
  const int64_t experts = std::max(c.experts.feed_forward, c.experts.shared_feed_forward);
  return c.experts.InAll() ? experts : std::max(c.feed_forward, experts);
}

bool CollectsAdded(const ModelConfig& c) {
  return c.experts.count > 0 || ChangesAdded(c.layer, c.layer.post_attention) ||
         ChangesAdded(c.layer, c.layer.post_mlp);
}

}  // namespace

LayerScratch::LayerScratch(const ModelConfig& c, int64_t tokens)
    : normed(NormsBefore(c.layer) ? tokens * c.hidden : 0),
      qkv(tokens * QkvDim(c)),
      encoded(tokens * EncodedNumbers(c)),
      attended(tokens * c.heads * c.value_dim()),
      added(CollectsAdded(c) ? tokens * c.hidden : 0) {
  const int64_t rows = PaddedRows(std::min(tokens, kMlpRows)), width = Width(c);
  up = AlignedBuffer<float>(rows * width * (c.layer.mlp.gated ? 2 : 1));
  activated = AlignedBuffer<float>(rows * width);
  if (c.experts.count > 0) {
    gathered = AlignedBuffer<float>(rows * c.hidden);
    expert_added = AlignedBuffer<float>(rows * c.hidden);
  }
  if (const LatentSpec& spec = c.layer.attention.latent; spec.exists()) {
    latent = AlignedBuffer<float>(tokens * std::max(spec.q_rank, spec.kv_rank + spec.rotary_dim));
    key_values = AlignedBuffer<float>(tokens * KeyValueDim(c));
  }
}

int64_t Bytes(const NormWeights& norm) {
  return static_cast<int64_t>((norm.weight.size() + norm.bias.size()) * sizeof(float));
}

namespace {

// f(linear) for every product of a layer.
template <class F>
void EachLinear(const LayerWeights& layer, F f) {
  const LatentWeights& latent = layer.latent;
  const ExpertWeights& experts = layer.experts;
  for (const Linear* linear :
       {&layer.qkv, &layer.out, &layer.mlp.up, &layer.mlp.down, &latent.q_down, &latent.q,
        &latent.kv_down, &latent.kv, &experts.router, &experts.shared_router, &experts.shared.up,
        &experts.shared.down, &layer.cross.q, &layer.cross.kv, &layer.cross.out}) {
    f(*linear);
  }
  for (const MlpWeights& expert : experts.experts) f(expert.up), f(expert.down);
}

}  // namespace

int64_t Bytes(const LayerWeights& layer) {
  int64_t bytes = 0;
  EachLinear(layer, [&](const Linear& linear) { bytes += linear.bytes(); });
  for (const NormWeights* norm :
       {&layer.pre_attention, &layer.post_attention, &layer.pre_mlp, &layer.post_mlp, &layer.q_norm,
        &layer.k_norm, &layer.latent.q_norm, &layer.latent.kv_norm, &layer.cross.norm}) {
    bytes += Bytes(*norm);
  }
  const std::size_t numbers = layer.sinks.size() + layer.experts.choice_bias.size();
  return bytes + static_cast<int64_t>(numbers * sizeof(float));
}

int64_t MappedBytes(const LayerWeights& layer) {
  int64_t bytes = 0;
  EachLinear(layer, [&](const Linear& linear) { bytes += linear.mapped_bytes(); });
  return bytes;
}

void ApplyNorm(const NormSpec& spec, const NormWeights& norm, const ModelConfig& c, const float* x,
               int64_t rows, float* out) {
  ApplyNorm(spec, norm, c.norm_eps, c.hidden, x, rows, out);
}

void ApplyNorm(const NormSpec& spec, const NormWeights& norm, double eps, int64_t size,
               const float* x, int64_t rows, float* out) {
  Normalize(spec, {x, size, out, size, rows, 1, size, norm.weight.data(), static_cast<float>(eps),
                   norm.bias.data()});
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
  if (spec.latent.exists()) {
    ProjectLatent(c, layer.latent, tokens, input, s);
  } else {
    layer.qkv.Apply(input, tokens, c.hidden, qkv, stride);
  }
  const QkvViews views = {Heads(qkv, tokens, c.heads, c.head_dim, stride),
                          Heads(qkv + q_dim, tokens, c.kv_heads, c.head_dim, stride),
                          Heads(qkv + q_dim + kv_dim, tokens, c.kv_heads, c.value_dim(), stride)};
  if (layer.q_norm.weight.size() > 0) {
    NormalizeHeads(c, layer.q_norm, views.q);
    NormalizeHeads(c, layer.k_norm, views.k);
  }
  if (spec.clip_qkv > 0) Clip(spec.clip_qkv, tokens * stride, qkv);  // behind the norms (OLMoE)
  return views;
}

float ScoreScale(const ModelConfig& c, double multiplier) {
  const double scale = c.layer.attention.score_scale;
  return static_cast<float>(scale > 0 ? multiplier * scale
                                      : multiplier / std::sqrt(static_cast<double>(c.head_dim)));
}

std::vector<float> Temperatures(const QueryTemperature& temperature, int64_t first_position,
                                int64_t tokens) {
  std::vector<float> out(static_cast<std::size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    out[static_cast<std::size_t>(t)] =
        static_cast<float>(Temperature(temperature, first_position + t));
  }
  return out;
}

TensorView AttendedView(const ModelConfig& c, int64_t rows, LayerScratch& s) {
  return Heads(s.attended.data(), rows, c.heads, c.value_dim(), c.heads * c.value_dim());
}

void RunMlp(const MlpSpec& spec, const MlpWeights& weights, const float* input, int64_t rows,
            LayerScratch& s) {
  const auto activate = spec.gated ? ActivateGate : Activate;
  weights.up.Apply(input, rows, weights.up.in_features(), s.up.data(), weights.up.out_features());
  activate(spec.activation, s.up.data(), rows, weights.down.in_features(), s.activated.data());
}

void FinishLayer(const ModelConfig& c, const LayerWeights& layer, int64_t tokens, int64_t rows,
                 float* x, LayerScratch& s, const KvCache* source) {
  const LayerSpec& spec = c.layer;
  const bool parallel = spec.residual == Residual::kParallel;
  const bool experts = !layer.experts.experts.empty();
  const int64_t first_row = tokens - rows;
  const auto add_attended = [&](int64_t first, int64_t n) {
    Add(c, layer.out, s.attended.data() + first * layer.out.in_features(), n, spec.post_attention,
        layer.post_attention, x + (first_row + first) * c.hidden, s);
  };
  if (!parallel) add_attended(0, rows);
  if (source != nullptr) AddCross(c, layer.cross, *source, rows, x + first_row * c.hidden, s);
  const int64_t step = experts ? rows : kMlpRows;  // of all tokens, an expert sees few
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t n = std::min(step, rows - first);
    float* chunk = x + (first_row + first) * c.hidden;
    const float* input = chunk;
    if (spec.pre_mlp.exists() || parallel) {
      float* normed = s.normed.data() + (first_row + first) * c.hidden;
      if (spec.pre_mlp.exists()) ApplyNorm(spec.pre_mlp, layer.pre_mlp, c, chunk, n, normed);
      if (spec.residual == Residual::kNormedInput) std::copy_n(normed, n * c.hidden, chunk);
      input = normed;
    }
    if (experts) {
      if (parallel) add_attended(first, n);
      RunExperts(c, layer.experts, input, n, s);
      AddChanged(c, n, spec.post_mlp, layer.post_mlp, chunk, s);
      continue;
    }
    RunMlp(spec.mlp, layer.mlp, input, n, s);
    if (parallel) add_attended(first, n);
    Add(c, layer.mlp.down, s.activated.data(), n, spec.post_mlp, layer.post_mlp, chunk, s);
  }
}

}  // namespace ropewalk::internal
