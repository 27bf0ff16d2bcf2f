// The encoder of BERT, RoFormer, NEZHA, T5, DeBERTa and XLNet: the layers of block.h under a mask that hides
// nothing, with the forms of their score biases.
#include "ropewalk/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ropewalk/absolute/learned.h"
#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "src/model/elementwise.h"
#include "src/model/encoder_impl.h"

namespace ropewalk {
namespace {

// The keys and values of a text that is read whole.
void Store(const internal::QkvViews& qkv, KvCache& cache) {
  cache.Truncate(0);
  cache.Append(qkv.k, qkv.v);
}

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Encoder::Forward: " + message);
}

}  // namespace

int64_t Encoder::Impl::max_tokens(EncoderStates which) const {
  if (hierarchical) return hierarchical->rows * hierarchical->rows;
  if (const int64_t end = PositionsOf(config.plan); end < INT64_MAX) return end;
  return which == EncoderStates::kMaskDecoder ? spec().mask_decoder_positions : INT64_MAX;
}

void Encoder::Impl::CheckMaskDecoder(int64_t tokens) const {
  const auto none = [](const std::string& why) {
    throw Error(ErrorCode::kUnsupported, "Encoder::Forward: the mask decoder's states: " + why);
  };
  if (spec().tensors != EncoderSpec::Tensors::kDeberta) {
    none(fmt::format("expected a DeBERTa v2 or v3 model, got {}", config.architecture));
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
  if (tokens > max_tokens(which) && !config.plan.learned) {
    Refuse(fmt::format("{} tokens: position {} has {}; give fewer tokens", tokens, tokens - 1,
                       DescribeEnd(config.plan)));
  }
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
  const int64_t width = embedding_dim(), tokens = static_cast<int64_t>(ids.size());
  const bool projects = width != config.hidden;
  AlignedBuffer<float> narrow(projects ? tokens * width : 0);
  float* out = projects ? narrow.data() : x;
  for (int64_t t = 0; words.data != nullptr && t < tokens; ++t)
    words.ReadRows(ids[t], 1, out + t * width);
  if (token_types.size() > 0) {
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = token_types.data() + (types.empty() ? 0 : types[t]) * width;
      for (int64_t i = 0; i < width; ++i) out[t * width + i] += row[i];
    }
  }
  if (embedder != nullptr) {
    embedder->Run(ids, 0, nullptr, {out, static_cast<std::size_t>(tokens * width)});
  } else if (config.plan.learned) {
    AddPositions(tokens, out);
  }
  if (config.embedding_norm.exists()) {
    ApplyNorm(config.embedding_norm, embedding_norm, config.norm_eps, width, out, tokens, out);
  }
  if (projects) projection.Apply(out, tokens, width, x, config.hidden);
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
  if (!lower.empty() && tokens > lowered_tokens) {
    auto longer = std::make_shared<Forms>();
    for (const auto& make : lower) longer->push_back(make(tokens));
    forms = std::move(longer);
    lowered_tokens = tokens;
  }
  return forms;
}

std::shared_ptr<const Encoder::Impl::Rotation> Encoder::Impl::RotationFor(int64_t tokens) const {
  const LayerPlan& layer = config.plan.layers[0];  // as all layers
  if (!layer.rotation && !layer.encoding) return nullptr;
  const Frequencies frequencies = layer.rotation
                                      ? Resolve(*layer.rotation, tokens)
                                      : EncodingFrequencies(*layer.encoding, config.head_dim);
  const std::lock_guard<std::mutex> lock(lowering);
  if (rotation == nullptr || rotation->table.count() < tokens ||
      rotation->frequencies != frequencies) {
    rotation = std::make_shared<const Rotation>(
        Rotation{frequencies, CosSinTable(frequencies, 0, tokens, AnglePrecision::kExact)});
  }
  return rotation;
}

void Encoder::Impl::AttendAndFinish(std::size_t layer, const TensorView& q,
                                    const PreparedForm* form, const KvCache& cache, float* x,
                                    internal::LayerScratch& s, double multiplier) const {
  const int64_t tokens = q.shape[0];
  std::vector<float> temperatures;
  if (const auto& temperature = config.plan.layers[layer].temperature) {
    temperatures = internal::Temperatures(*temperature, 0, tokens);
  }
  Attention({.q = q,
             .out = AttendedView(config, tokens, s),
             .cache = &cache,
             .scale = internal::ScoreScale(config, multiplier),
             .mask = AttentionMask::kBidirectional,
             .prepared = form,
             .temperatures = temperatures});
  FinishLayer(config, layers[layer], tokens, tokens, x, s);
}

void Encoder::Impl::DecodeMasks(const PreparedForm* form, KvCache& cache, int64_t tokens, float* x,
                                internal::LayerScratch& s) const {
  constexpr int kSteps = 2;  // as the models were trained
  const std::size_t last = layers.size() - 1;
  Store(ProjectQkv(config, layers[last], tokens, x, s), cache);
  AddPositions(tokens, x);
  for (int step = 0; step < kSteps; ++step) {
    const internal::QkvViews qkv = ProjectQkv(config, layers[last], tokens, x, s);
    AttendAndFinish(last, qkv.q, form, cache, x, s);
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
  const auto rotation = m.RotationFor(tokens);
  internal::LayerScratch scratch(m.config, tokens);
  KvCache cache(m.config.kv_heads, m.config.key_dim(), tokens, KvType::kF32, m.config.value_dim());
  float* x = hidden;  // [tokens, hidden], the residual stream
  m.Embed(ids, token_types, x);
  for (std::size_t l = 0; l < m.layers.size(); ++l) {
    const PreparedForm* form = forms->empty() ? nullptr : &(*forms)[forms->size() == 1 ? 0 : l];
    if (l + 1 == m.layers.size() && m.DecodesMasks(which)) {
      m.DecodeMasks(form, cache, tokens, x, scratch);
      continue;
    }
    internal::QkvViews qkv = ProjectQkv(m.config, m.layers[l], tokens, x, scratch);
    if (m.query_keys != nullptr) {
      m.query_keys->Encode(l, rotation->table, 0, qkv.q, qkv.k, scratch);
    } else if (rotation != nullptr) {
      Rotate({.table = &rotation->table,
              .layout = m.config.plan.layers[l].rotation->layout,
              .positions = Positions::From(0),
              .q = qkv.q,
              .k = qkv.k});
    }
    Store(qkv, cache);
    m.AttendAndFinish(l, qkv.q, form, cache, x, scratch,
                      rotation == nullptr ? 1 : rotation->frequencies.softmax_multiplier);
  }
  if (m.config.final_norm.exists()) {
    ApplyNorm(m.config.final_norm, m.final_norm, m.config, x, tokens, x);
  }
}

void Encoder::Logits(const float* states, int64_t rows, float* logits) const {
  if (!impl_->head) {
    throw Error(ErrorCode::kInvalidArgument,
                "Encoder::Logits: the head of the masked language model was not loaded; load it "
                "with EncoderOptions.masked_head");
  }
  if (rows < 1) return;
  const Impl::MaskedHead& head = *impl_->head;
  const ModelConfig& c = config();
  const int64_t width = impl_->embedding_dim();
  if (spec().plain_head) {
    head.vocab.Apply(states, rows, c.hidden, logits, c.vocab);
    return;
  }
  AlignedBuffer<float> x(rows * width);
  head.dense.Apply(states, rows, c.hidden, x.data(), width);
  internal::Activate(spec().head_activation, x.data(), rows, width, x.data());
  ApplyNorm({NormSpec::Kind::kLayer}, head.norm, c.norm_eps, width, x.data(), rows, x.data());
  head.vocab.Apply(x.data(), rows, width, logits, c.vocab);
}

}  // namespace ropewalk
