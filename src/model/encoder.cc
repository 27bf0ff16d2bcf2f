// The encoder of BERT, T5, DeBERTa and XLNet: layers that differ in where they normalise and in
// which form their score bias has.
#include "ropewalk/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ropewalk/absolute/learned.h"
#include "ropewalk/base/error.h"
#include "src/model/elementwise.h"
#include "src/model/encoder_impl.h"

namespace ropewalk {
namespace {

constexpr int64_t kChunkRows = 512;  // of the feed-forward layer, whose rows are the widest

// [tokens, heads, head_dim] inside rows of `stride` elements.
TensorView Heads(float* data, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride) {
  TensorView v = TensorView::Of(data, {tokens, heads, head_dim});
  v.strides[0] = stride;
  return v;
}

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Encoder::Forward: " + message);
}

}  // namespace

struct Encoder::Impl::Scratch {
  Scratch(const Impl& m, int64_t tokens)
      : normed(m.spec().post_norm ? 0 : tokens * m.config.hidden),
        qkv(tokens * 3 * m.width()),
        attended(tokens * m.width()),
        up(std::min(tokens, kChunkRows) * m.config.feed_forward),
        gate(m.config.block.gated ? up.size() : 0) {}
  AlignedBuffer<float> normed;    // [tokens, hidden], where a block reads a norm's result
  AlignedBuffer<float> qkv;       // [tokens, 3 * heads * head_dim]
  AlignedBuffer<float> attended;  // [tokens, heads * head_dim]
  AlignedBuffer<float> up, gate;  // [kChunkRows, feed_forward]
};

int64_t Encoder::Impl::max_tokens(EncoderStates which) const {
  if (hierarchical) return hierarchical->rows * hierarchical->rows;
  if (config.plan.learned) return config.plan.learned->positions;
  return which == EncoderStates::kMaskDecoder ? spec().mask_decoder_positions : INT64_MAX;
}

void Encoder::Impl::CheckMaskDecoder(int64_t tokens) const {
  const auto none = [](const std::string& why) {
    throw Error(ErrorCode::kUnsupported, "Encoder::Forward: the mask decoder's states: " + why);
  };
  if (spec().tensors != EncoderSpec::Tensors::kDeberta) {
    none(fmt::format("expected a DeBERTa model, got {}", config.architecture));
  }
  if (config.plan.learned) return;
  if (config.layers < 2) none("expected 2 layers or more, of which the last is run again, got 1");
  if (positions.empty()) {
    none(fmt::format(
        "the files lack the tensor 'embeddings.position_embeddings.weight' [{}, {}], the absolute "
        "positions (transformers drops it when it saves a model); take the original checkpoint",
        spec().mask_decoder_positions, config.hidden));
  }
  if (tokens > spec().mask_decoder_positions) {
    Refuse(
        fmt::format("{} tokens, but the mask decoder has absolute positions for {}; give fewer "
                    "tokens",
                    tokens, spec().mask_decoder_positions));
  }
}

void Encoder::Impl::Check(std::span<const int32_t> ids, std::span<const int32_t> types,
                          EncoderStates which) const {
  const auto tokens = static_cast<int64_t>(ids.size());
  if (which == EncoderStates::kMaskDecoder) CheckMaskDecoder(tokens);
  if (tokens > max_tokens(which)) {
    const int64_t n = config.plan.learned->positions;
    Refuse(fmt::format("{} tokens, but the model has learned positions for {}{}", tokens, n,
                       hierarchical
                           ? fmt::format(", which hierarchical decomposition makes {}; give fewer "
                                         "tokens",
                                         max_tokens(which))
                           : fmt::format("; give fewer tokens, or load it with hierarchical "
                                         "positions, which serve {}",
                                         n * n)));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if (ids[t] < 0 || ids[t] >= config.vocab) {
      Refuse(fmt::format("ids: expected 0 to {} (the vocabulary), item {} is {}", config.vocab - 1,
                         t, ids[t]));
    }
  }
  if (!types.empty() && types.size() != ids.size()) {
    Refuse(
        fmt::format("token_types: expected one for each of {} ids, got {}", tokens, types.size()));
  }
  const int64_t known = std::max<int64_t>(spec().token_types, 1);
  for (std::size_t t = 0; t < types.size(); ++t) {
    if (types[t] >= 0 && types[t] < known) continue;
    const bool segments = spec().tensors == EncoderSpec::Tensors::kXlnet;
    Refuse(fmt::format("token_types: expected 0{}, item {} is {}{}",
                       known > 1 ? fmt::format(" to {}", known - 1) : std::string(), t, types[t],
                       segments ? "; the segment bias of XLNet is computed for one segment, where "
                                  "it has no effect"
                                : ""));
  }
}

void Encoder::Impl::AddPositions(int64_t tokens, float* x) const {
  std::vector<int64_t> where(tokens);
  std::iota(where.begin(), where.end(), 0);
  std::vector<float> rows(tokens * config.hidden);
  if (hierarchical) {
    HierarchicalRows(*hierarchical, positions, where, rows);
  } else {
    LookUpRows(positions, config.hidden, where, rows);
  }
  for (int64_t i = 0; i < tokens * config.hidden; ++i) x[i] += rows[i];
}

void Encoder::Impl::Embed(std::span<const int32_t> ids, std::span<const int32_t> types,
                          float* x) const {
  const int64_t hidden = config.hidden, tokens = static_cast<int64_t>(ids.size());
  for (int64_t t = 0; t < tokens; ++t) words.ReadRows(ids[t], 1, x + t * hidden);
  if (token_types.size() > 0) {
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = token_types.data() + (types.empty() ? 0 : types[t]) * hidden;
      for (int64_t i = 0; i < hidden; ++i) x[t * hidden + i] += row[i];
    }
  }
  if (config.plan.learned) AddPositions(tokens, x);
  if (embedding_norm.weight.size() > 0) Normalize(embedding_norm, x, tokens, x);
}

void Encoder::Impl::Normalize(const Norm& norm, const float* x, int64_t rows, float* out) const {
  const internal::NormArgs args = {x,
                                   config.hidden,
                                   out,
                                   config.hidden,
                                   rows,
                                   1,
                                   config.hidden,
                                   norm.weight.data(),
                                   static_cast<float>(config.norm_eps),
                                   norm.bias.data()};
  norm.bias.size() > 0 ? internal::LayerNorm(args) : internal::RmsNorm(args);
}

std::shared_ptr<const Encoder::Impl::Forms> Encoder::Impl::FormsFor(int64_t tokens) const {
  const std::lock_guard<std::mutex> lock(lowering);
  if (!sinusoidal.empty() && tokens > lowered_tokens) {
    auto longer = std::make_shared<Forms>();
    for (const TransformerXlBias& bias : sinusoidal) {
      longer->emplace_back(bias.Lower(config.heads, tokens - 1), config.heads, config.head_dim);
    }
    forms = std::move(longer);
    lowered_tokens = tokens;
  }
  return forms;
}

void Encoder::Impl::Project(const Layer& layer, int64_t tokens, const float* x, Scratch& s) const {
  if (!spec().post_norm) {
    Normalize(layer.attention_norm, x, tokens, s.normed.data());
    x = s.normed.data();
  }
  layer.qkv.Apply(x, tokens, config.hidden, s.qkv.data(), 3 * width());
}

void Encoder::Impl::Store(int64_t tokens, KvCache& cache, Scratch& s) const {
  const int64_t stride = 3 * width(), heads = config.heads, dim = config.head_dim;
  cache.Truncate(0);
  cache.Append(Heads(s.qkv.data() + width(), tokens, heads, dim, stride),
               Heads(s.qkv.data() + 2 * width(), tokens, heads, dim, stride));
}

void Encoder::Impl::AddAttention(const Layer& layer, const PreparedForm* form, const KvCache& cache,
                                 int64_t tokens, float* x, Scratch& s) const {
  const ModelConfig& c = config;
  Attention({.q = Heads(s.qkv.data(), tokens, c.heads, c.head_dim, 3 * width()),
             .out = Heads(s.attended.data(), tokens, c.heads, c.head_dim, width()),
             .cache = &cache,
             .scale = static_cast<float>(spec().score_scale),
             .mask = AttentionMask::kBidirectional,
             .prepared = form});
  layer.out.Apply(s.attended.data(), tokens, width(), x, c.hidden, /*accumulate=*/true);
  if (spec().post_norm) Normalize(layer.attention_norm, x, tokens, x);
}

void Encoder::Impl::AddFeedForward(const Layer& layer, int64_t tokens, float* x, Scratch& s) const {
  const ModelConfig& c = config;
  for (int64_t first = 0; first < tokens; first += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, tokens - first);
    float* chunk = x + first * c.hidden;
    const float* input = chunk;
    if (!spec().post_norm) {
      Normalize(layer.feed_forward_norm, chunk, rows, s.normed.data());
      input = s.normed.data();
    }
    layer.up.Apply(input, rows, c.hidden, s.up.data(), c.feed_forward);
    if (c.block.gated) {
      layer.gate.Apply(input, rows, c.hidden, s.gate.data(), c.feed_forward);
      internal::Activate(c.block.activation, s.gate.data(), rows, c.feed_forward, s.gate.data());
      for (int64_t i = 0; i < rows * c.feed_forward; ++i) s.up[i] *= s.gate[i];
    } else {
      internal::Activate(c.block.activation, s.up.data(), rows, c.feed_forward, s.up.data());
    }
    layer.down.Apply(s.up.data(), rows, c.feed_forward, chunk, c.hidden, /*accumulate=*/true);
    if (spec().post_norm) Normalize(layer.feed_forward_norm, chunk, rows, chunk);
  }
}

// x: the states below the last layer, which keys and values stay with.
void Encoder::Impl::DecodeMasks(const PreparedForm* form, KvCache& cache, int64_t tokens, float* x,
                                Scratch& s) const {
  constexpr int kSteps = 2;  // as the models were trained
  const Layer& last = layers.back();
  Project(last, tokens, x, s);
  Store(tokens, cache, s);
  AddPositions(tokens, x);
  for (int step = 0; step < kSteps; ++step) {
    Project(last, tokens, x, s);
    AddAttention(last, form, cache, tokens, x, s);
    AddFeedForward(last, tokens, x, s);
  }
}

Encoder::Encoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Encoder::~Encoder() = default;

const ModelConfig& Encoder::config() const { return impl_->config; }
const EncoderSpec& Encoder::spec() const { return impl_->spec(); }
int64_t Encoder::max_tokens(EncoderStates which) const { return impl_->max_tokens(which); }

void Encoder::Forward(std::span<const int32_t> ids, float* hidden,
                      std::span<const int32_t> token_types, EncoderStates which) const {
  const Impl& m = *impl_;
  const auto tokens = static_cast<int64_t>(ids.size());
  m.Check(ids, token_types, which);
  if (tokens == 0) return;
  if (hidden == nullptr) Refuse("hidden: expected room for the states, got null");
  const auto forms = m.FormsFor(tokens);
  Impl::Scratch scratch(m, tokens);
  KvCache cache(m.config.heads, m.config.head_dim, tokens);
  float* x = hidden;  // [tokens, hidden], the residual stream
  m.Embed(ids, token_types, x);
  for (std::size_t l = 0; l < m.layers.size(); ++l) {
    const PreparedForm* form = forms->empty() ? nullptr : &(*forms)[forms->size() == 1 ? 0 : l];
    if (l + 1 == m.layers.size() && m.DecodesMasks(which)) {
      m.DecodeMasks(form, cache, tokens, x, scratch);
      continue;
    }
    m.Project(m.layers[l], tokens, x, scratch);
    m.Store(tokens, cache, scratch);
    m.AddAttention(m.layers[l], form, cache, tokens, x, scratch);
    m.AddFeedForward(m.layers[l], tokens, x, scratch);
  }
  if (m.final_norm.weight.size() > 0) m.Normalize(m.final_norm, x, tokens, x);
}

}  // namespace ropewalk
