// The decoder of the LLaMA family (Touvron et al. 2023, arXiv 2302.13971), and of those that differ
// from it as BlockStyle says: GPT-2 (Radford et al. 2019), GPT-J and GPT-NeoX (Wang & Komatsuzaki
// 2021; Black et al. 2022, arXiv 2204.06745), Falcon (Almazrouei et al. 2023, arXiv 2311.16867).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/model/decoder_impl.h"
#include "src/model/elementwise.h"

namespace ropewalk {

// Activations of one chunk; `tokens` rows each.
struct Decoder::Impl::Scratch {
  Scratch(const Impl& m, int64_t tokens)
      : x(tokens * m.config.hidden),
        normed(tokens * m.config.hidden),
        qkv(tokens * (m.q_dim() + 2 * m.kv_dim())),
        attended(tokens * m.q_dim()),
        up(tokens * m.up_dim()),
        activated(tokens * m.config.feed_forward) {}
  AlignedBuffer<float> x;          // [tokens, hidden], the residual stream
  AlignedBuffer<float> normed;     // [tokens, hidden]
  AlignedBuffer<float> qkv;        // [tokens, (heads + 2 * kv_heads) * head_dim]
  AlignedBuffer<float> attended;   // [tokens, heads * head_dim]
  AlignedBuffer<float> up;         // [tokens, feed_forward], gated: [tokens, 2 * feed_forward]
  AlignedBuffer<float> activated;  // [tokens, feed_forward]
};

namespace {

// [tokens, heads, head_dim] inside rows of `stride` elements.
TensorView Heads(float* data, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride) {
  TensorView v = TensorView::Of(data, {tokens, heads, head_dim});
  v.strides[0] = stride;
  return v;
}

void Normalize(BlockStyle::Norm kind, const internal::NormArgs& args) {
  kind == BlockStyle::Norm::kLayer ? internal::LayerNorm(args) : internal::RmsNorm(args);
}

// Each query times its temperature.
void Warm(const QueryTemperature& temperature, int64_t first_position, const TensorView& q) {
  for (int64_t t = 0; t < q.shape[0]; ++t) {
    const float factor = static_cast<float>(Temperature(temperature, first_position + t));
    if (factor == 1) continue;
    for (int64_t h = 0; h < q.shape[1]; ++h) {
      float* head = static_cast<float*>(q.data) + t * q.strides[0] + h * q.strides[1];
      for (int64_t i = 0; i < q.shape[2]; ++i) head[i] *= factor;
    }
  }
}

void Clip(double limit, int64_t n, float* x) {
  const float most = static_cast<float>(limit);
  for (int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -most, most);
}

// Turns q and k by their positions; returns the multiplier of the scores.
double Turn(const ResolvedRotation& rotation, const CosSinTable& table, int64_t first_position,
            TensorView q, TensorView k) {
  if (const int64_t n = rotation.spec.rotated_heads; n > 0) {
    q.shape[1] = std::min(n, q.shape[1]);
    k.shape[1] = std::min(n, k.shape[1]);
  }
  Rotate({.table = &table,
          .layout = rotation.spec.layout,
          .positions = Positions::From(first_position),
          .q = q,
          .k = k,
          .q_out = {},
          .k_out = {},
          .first_dim = rotation.spec.first_dim});
  return rotation.frequencies.softmax_multiplier;
}

}  // namespace

void Decoder::Impl::Embed(std::span<const int32_t> ids, int64_t first_position, Scratch& s) const {
  const int64_t hidden = config.hidden, tokens = static_cast<int64_t>(ids.size());
  for (int64_t t = 0; t < tokens; ++t) embedding.ReadRows(ids[t], 1, s.x.data() + t * hidden);
  if (config.plan.learned) {
    const int64_t first_row = config.plan.learned->first_row + first_position;
    positions.ReadRows(first_row, tokens, s.normed.data());
    for (int64_t i = 0; i < tokens * hidden; ++i) s.x[i] += s.normed[i];
  }
  if (config.block.embedding_norm) {
    Normalize(config.block.norm, {s.x.data(), hidden, s.x.data(), hidden, tokens, 1, hidden,
                                  embedding_norm.weight.data(), static_cast<float>(config.norm_eps),
                                  embedding_norm.bias.data()});
  }
}

void Decoder::Impl::NormalizeHeads(const Norm& norm, const TensorView& heads) const {
  float* data = static_cast<float*>(heads.data);
  const int64_t stride = heads.strides[0];
  Normalize(config.block.norm,
            {data, stride, data, stride, heads.shape[0], heads.shape[1], heads.shape[2],
             norm.weight.data(), static_cast<float>(config.norm_eps), norm.bias.data()});
}

// Afterwards s.activated holds what layer.down reads.
void Decoder::Impl::FeedForward(const Layer& layer, const float* normed, int64_t rows,
                                Scratch& s) const {
  layer.up.Apply(normed, rows, config.hidden, s.up.data(), up_dim());
  if (config.block.gated) {
    internal::SiluMul(s.up.data(), rows, config.feed_forward, s.activated.data());
  } else {
    internal::Activate(config.block.activation, s.up.data(), rows, config.feed_forward,
                       s.activated.data());
  }
}

// Afterwards the last `wanted_rows` rows of s.normed hold the final normalised states.
void Decoder::Impl::ForwardChunk(Sequence& sequence, std::span<const int32_t> ids,
                                 int64_t wanted_rows, Scratch& s) const {
  const ModelConfig& c = config;
  const BlockStyle& block = c.block;
  const int64_t tokens = static_cast<int64_t>(ids.size());
  const int64_t qkv_dim = q_dim() + 2 * kv_dim();
  const int64_t first_position = sequence.first_position_ + sequence.tokens_;
  const float eps = static_cast<float>(c.norm_eps);
  const double score_divisor =
      block.score_scale > 0 ? 1 / block.score_scale : std::sqrt(static_cast<double>(c.head_dim));
  const auto norm = [&](const Norm& n, int64_t first, int64_t rows) {
    Normalize(block.norm,
              {s.x.data() + first * c.hidden, c.hidden, s.normed.data() + first * c.hidden,
               c.hidden, rows, 1, c.hidden, n.weight.data(), eps, n.bias.data()});
  };

  Embed(ids, first_position, s);

  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Layer& layer = layers[l];
    const ResolvedLayer& plan = sequence.resolved_.layers[l];
    KvCache& cache = sequence.caches_[l];
    // Behind its keys and values the last layer is needed only where somebody reads the result.
    const int64_t rows = l + 1 < layers.size() ? tokens : wanted_rows;
    const int64_t first = tokens - rows;
    float* x = s.x.data() + first * c.hidden;            // [rows, hidden]
    float* normed = s.normed.data() + first * c.hidden;  // [rows, hidden]

    norm(layer.attention_norm, 0, tokens);
    if (block.residual_is_normed) std::copy_n(normed, rows * c.hidden, x);
    layer.qkv.Apply(s.normed.data(), tokens, c.hidden, s.qkv.data(), qkv_dim);
    if (block.clip_qkv > 0) Clip(block.clip_qkv, tokens * qkv_dim, s.qkv.data());
    TensorView q = Heads(s.qkv.data(), tokens, c.heads, c.head_dim, qkv_dim);
    TensorView k = Heads(s.qkv.data() + q_dim(), tokens, c.kv_heads, c.head_dim, qkv_dim);
    TensorView v =
        Heads(s.qkv.data() + q_dim() + kv_dim(), tokens, c.kv_heads, c.head_dim, qkv_dim);
    if (c.qk_norm) {
      NormalizeHeads(layer.q_norm, q);
      NormalizeHeads(layer.k_norm, k);
    }
    if (sequence.observer_) sequence.observer_(static_cast<int64_t>(l), q, k);
    double softmax_multiplier = 1;
    const int load = sequence.load_of_[l];
    if (load >= 0) {
      softmax_multiplier =
          sequence.resolved_.rotations[plan.rotation].frequencies.softmax_multiplier;
    } else if (plan.rotation >= 0) {
      softmax_multiplier = Turn(sequence.resolved_.rotations[plan.rotation],
                                sequence.tables_[plan.rotation], first_position, q, k);
    }
    if (plan.temperature) Warm(*plan.temperature, first_position, q);
    cache.Append(k, v);
    if (rows == 0) continue;
    std::vector<float> entropy(sequence.attention_observer_ ? rows * c.heads : 0);
    const AttentionArgs args = {
        .q = Heads(s.qkv.data() + first * qkv_dim, rows, c.heads, c.head_dim, qkv_dim),
        .out = Heads(s.attended.data(), rows, c.heads, c.head_dim, q_dim()),
        .cache = &cache,
        .scale = static_cast<float>(softmax_multiplier / score_divisor),
        .window_tokens = plan.window_tokens,
        .prepared = plan.bias >= 0 ? &sequence.forms_[plan.bias] : nullptr,
        .rotation = load < 0 ? nullptr : &sequence.loads_[load].turn,
        .entropy = entropy};
    Attention(args);
    if (sequence.attention_observer_) {
      sequence.attention_observer_(static_cast<int64_t>(l), args);
    }
    const auto add_attended = [&] {
      layer.out.Apply(s.attended.data(), rows, q_dim(), x, c.hidden, /*accumulate=*/true);
    };

    if (!block.parallel) add_attended();
    if (!block.one_norm) norm(layer.feed_forward_norm, first, rows);
    if (block.residual_is_normed) std::copy_n(normed, rows * c.hidden, x);
    FeedForward(layer, normed, rows, s);
    if (block.parallel) add_attended();
    layer.down.Apply(s.activated.data(), rows, c.feed_forward, x, c.hidden, /*accumulate=*/true);
  }
  norm(final_norm, tokens - wanted_rows, wanted_rows);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
ComputeType Decoder::compute() const { return impl_->head.compute(); }

int64_t Decoder::weight_bytes() const {
  std::size_t floats = 0;
  const auto add = [&](const Impl::Norm& n) { floats += n.weight.size() + n.bias.size(); };
  int64_t bytes = impl_->head.bytes();
  add(impl_->final_norm);
  add(impl_->embedding_norm);
  for (const Impl::Layer& l : impl_->layers) {
    bytes += l.qkv.bytes() + l.out.bytes() + l.up.bytes() + l.down.bytes();
    for (const Impl::Norm* n : {&l.attention_norm, &l.feed_forward_norm, &l.q_norm, &l.k_norm}) {
      add(*n);
    }
  }
  return bytes + static_cast<int64_t>(floats * sizeof(float));
}

void Decoder::Forward(Sequence& sequence, std::span<const int32_t> ids, float* hidden,
                      int64_t hidden_rows) const {
  const int64_t tokens = static_cast<int64_t>(ids.size());
  if (hidden == nullptr) hidden_rows = 0;
  if (hidden_rows < 0 || hidden_rows > tokens) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Forward: hidden_rows: expected 0 to {} (the tokens of this call), got {}",
                    tokens, hidden_rows));
  }
  if (sequence.caches_.size() != impl_->layers.size() ||
      sequence.caches_[0].kv_heads() != config().kv_heads ||
      sequence.caches_[0].head_dim() != config().head_dim) {
    throw Error(ErrorCode::kMismatch, "Forward: the sequence was made for another model");
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if (ids[t] >= 0 && ids[t] < config().vocab) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Forward: token id {} at index {} is outside the vocabulary of {} tokens "
                    "(0 to {}); was the text tokenized for another model?",
                    ids[t], t, config().vocab, config().vocab - 1));
  }
  if (tokens > sequence.final_length() - sequence.tokens()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Forward: {} tokens after {} pass the sequence's declared final length "
                            "of {}; declare a longer one",
                            tokens, sequence.tokens(), sequence.final_length()));
  }
  const int64_t last = sequence.first_position_ + sequence.tokens() + tokens - 1;
  if (const auto& learned = config().plan.learned; learned && last >= learned->positions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Forward: position {} has no learned vector: the model has them for "
                            "positions 0 to {}",
                            last, learned->positions - 1));
  }
  if (tokens == 0) return;
  sequence.GrowTables(sequence.tokens() + tokens);

  Impl::Scratch scratch(*impl_, std::min(tokens, kChunkTokens));
  for (int64_t t = 0; t < tokens; t += kChunkTokens) {
    const int64_t chunk = std::min(kChunkTokens, tokens - t);
    // Rows of this chunk among the last hidden_rows of the call.
    const int64_t wanted = std::clamp(t + chunk - (tokens - hidden_rows), int64_t{0}, chunk);
    impl_->ForwardChunk(sequence, ids.subspan(t, chunk), wanted, scratch);
    sequence.tokens_ += chunk;
    if (wanted == 0) continue;
    std::memcpy(hidden, scratch.normed.data() + (chunk - wanted) * config().hidden,
                static_cast<std::size_t>(wanted * config().hidden) * sizeof(float));
    hidden += wanted * config().hidden;
  }
}

void Decoder::Logits(const float* hidden, int64_t rows, float* logits) const {
  if (rows > 0) impl_->head.Apply(hidden, rows, config().hidden, logits, config().vocab);
}

}  // namespace ropewalk
