#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/model/decoder_impl.h"

namespace ropewalk {
namespace {

// Positions are int32 in every engine this compares with, and tables are exact below 2^31.
constexpr int64_t kMaxPosition = (int64_t{1} << 31) - 1;

// Vectors and rows end where their table ends; a plan has those of the model that it is run on.
void CheckEmbedded(const ModelConfig& config, const PositionPlan& plan, int64_t last_position) {
  const auto& own = config.plan.learned;
  const auto& wanted = plan.learned;
  if (own.has_value() != wanted.has_value() ||
      (own && (own->first_row != wanted->first_row || own->positions < wanted->positions))) {
    throw Error(ErrorCode::kMismatch,
                "Sequence: the plan's learned positions are not those of the model");
  }
  if (plan.absolute != config.plan.absolute ||
      plan.recurrent_layer != config.plan.recurrent_layer) {
    throw Error(ErrorCode::kMismatch,
                "Sequence: the plan's encoding of the embeddings is not that of the model");
  }
  if (last_position >= PositionsOf(plan)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Sequence: position {} has {}; give fewer tokens", last_position,
                            DescribeEnd(plan)));
  }
}

// A bias whose numbers are the model's tensors is that of the model.
void CheckLearnedBias(const ModelConfig& config, const PositionPlan& plan) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (plan.layers[l].bias == config.plan.layers[l].bias) continue;
    throw Error(ErrorCode::kMismatch,
                fmt::format("Sequence: layer {} of the plan has another bias than the model, whose "
                            "bias is learned",
                            l));
  }
}

void CheckPlan(const ModelConfig& config, const PositionPlan& plan) {
  if (static_cast<int64_t>(plan.layers.size()) != config.layers) {
    throw Error(ErrorCode::kMismatch, fmt::format("Sequence: the plan has {} layers, the model {}",
                                                  plan.layers.size(), config.layers));
  }
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const auto& rotation = plan.layers[l].rotation;
    if (rotation && rotation->head_dim != config.head_dim) {
      throw Error(
          ErrorCode::kMismatch,
          fmt::format("Sequence: layer {} of the plan rotates heads of {}, the model's have {}", l,
                      rotation->head_dim, config.head_dim));
    }
    if (const auto& bias = plan.layers[l].bias; bias && bias->heads != config.heads) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("Sequence: layer {} of the plan has a bias for {} heads, the model "
                              "has {}",
                              l, bias->heads, config.heads));
    }
    if (plan.layers[l].encoding != config.plan.layers[l].encoding) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("Sequence: layer {} of the plan encodes queries and keys otherwise "
                              "than the model, which learned with its encoding",
                              l));
    }
    // No family that the decoder runs has these; a plan made by hand must not be run without them.
    const char* missing = nullptr;
    if (plan.layers[l].chunk_tokens > 0 && plan.layers[l].map)
      missing = "a position map within chunks";
    if (rotation && !rotation->axes.sections.empty() && rotation->dialect == Dialect::kLlamaCpp) {
      missing = "the zero axis that llama.cpp adds";  // text has one position for all axes
    }
    if (missing != nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("Sequence: layer {} of the plan wants {}, which the decoder does not "
                              "compute",
                              l, missing));
    }
  }
}

}  // namespace

Sequence::Sequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
                   AnglePrecision precision, KvType kv)
    : Sequence(decoder, plan, final_length, precision, WithoutCaches()) {
  const ModelConfig& c = decoder.config();
  caches_.reserve(c.layers);
  const bool rounds = decoder.compute() == ComputeType::kBFloat16 && HasBf16Attention();
  for (int64_t l = 0; l < c.layers; ++l) {
    // What attention would round again for every chunk is kept rounded: the same bits from half the
    // memory. Keys that it rotates are rounded after that, and biases read them in float32.
    const bool as_rounded = rounds && load_of_[l] < 0 && resolved_.layers[l].bias < 0;
    const KvType type = kv == KvType::kF32 && as_rounded ? KvType::kBf16 : kv;
    caches_.emplace_back(c.kv_heads, c.key_dim(), final_length, type, c.value_dim());
  }
}

Sequence::Sequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
                   AnglePrecision precision, WithoutCaches)
    : embedding_(std::make_unique<internal::EmbeddingState>()),
      hidden_(decoder.config().hidden),
      precision_(precision) {
  const ModelConfig& c = decoder.config();
  if (final_length < 1 || final_length > kMaxPosition) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Sequence: final_length: expected 1 to {} tokens, got {}", kMaxPosition,
                            final_length));
  }
  CheckPlan(c, plan);
  CheckEmbedded(c, plan, final_length - 1);
  resolved_ = Resolve(plan, final_length);
  CentreXpos();
  LowerBiases(decoder, plan);
  if (const auto& encoding = c.plan.layers[0].encoding) {
    encoding_ = EncodingFrequencies(*encoding, c.head_dim);
  }
  for (const ResolvedLayer& layer : resolved_.layers) {
    int& load = load_of_.emplace_back(-1);
    if (!layer.map) continue;
    const auto same = [&](const Load& other) {
      return other.rotation == layer.rotation && other.fused.map() == layer.map;
    };
    const auto found = std::find_if(loads_.begin(), loads_.end(), same);
    load = static_cast<int>(found - loads_.begin());
    if (found != loads_.end()) continue;
    const ResolvedRotation& r = resolved_.rotations[layer.rotation];
    loads_.push_back({layer.rotation, LoadRotation(r.spec, r.frequencies, precision, layer.map)});
  }
}

// The decay of xPos is about the middle of the sequence, where both factors are near 1.
void Sequence::CentreXpos() {
  const int64_t middle = first_position_ + final_length() / 2;
  for (ResolvedRotation& r : resolved_.rotations) {
    if (!r.spec.xpos) continue;
    r.spec.xpos->centre = static_cast<double>(middle);
    r.frequencies = Resolve(r.spec, final_length());
  }
}

void Sequence::LowerBiases(const Decoder& decoder, const PositionPlan& plan) {
  const ModelConfig& c = decoder.config();
  const auto& layers = decoder.impl_->layer_forms;
  const bool learned = !decoder.impl_->learned_forms.empty() || !layers.empty();
  if (learned) CheckLearnedBias(c, plan);
  for (const LayerBias& bias : resolved_.biases) {
    if (learned) break;
    forms_.emplace_back(Lower(bias, final_length(), precision_), c.heads, c.key_dim());
  }
  for (const internal::LayerForm& form : layers) {
    if (form.gate) {
      gate_heads_ = c.heads;
      gates_.emplace_back(RunningForm{});
    } else {
      forms_.push_back(form.lower(final_length()));
    }
    bias_from_first_ = bias_from_first_ || form.from_first;
  }
}

Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

// Tables grow with the tokens, to the double at once, so that a long declared length costs nothing
// until it is used; rows that exist keep their bits.
void Sequence::GrowTables(int64_t tokens) {
  if (tables_.empty()) {
    for (const ResolvedRotation& r : resolved_.rotations) {
      tables_.emplace_back(r.frequencies, first_position_, 0, precision_);
    }
    if (encoding_) tables_.emplace_back(*encoding_, first_position_, 0, precision_);
  }
  for (CosSinTable& table : tables_) {
    if (table.count() >= tokens) continue;
    table.Grow(std::min(final_length(), std::max(tokens, 2 * table.count())));
  }
  GrowLoads(tokens);
}

void Sequence::GrowLoads(int64_t tokens) {
  for (Load& load : loads_) {
    if (load.fused.tokens() >= tokens) continue;
    load.fused.Grow(std::min(final_length(), std::max(tokens, 2 * load.fused.tokens())));
  }
}

void Sequence::ResizeEmbedding(int64_t tokens) {
  const auto floats = static_cast<std::size_t>(tokens * hidden_);
  if (internal::KeepsConvolved(resolved_.absolute)) embedding_->convolved.resize(floats, 0.1f);
  if (resolved_.recurrent_layer) embedding_->recurrent.resize(floats, 0.1f);
}

void Sequence::Truncate(int64_t tokens) {
  if (tokens < 0 || tokens > tokens_) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Sequence::Truncate: expected 0 to {} tokens, got {}", tokens_, tokens));
  }
  for (KvCache& cache : caches_) cache.Truncate(tokens);
  ResizeEmbedding(tokens);
  tokens_ = tokens;
  ResizeGates();
}

void Sequence::Skip(int64_t tokens) {
  if (tokens < 0 || tokens > final_length() - tokens_) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Sequence::Skip: expected 0 to {} tokens, got {}",
                            final_length() - tokens_, tokens));
  }
  for (KvCache& cache : caches_) {
    const int64_t wider = std::max(cache.head_dim(), cache.value_dim());
    std::vector<float> row(static_cast<std::size_t>(wider), 0.1f);  // of every token
    const auto rows = [&](int64_t dim) {
      TensorView view{.data = row.data(), .dtype = DType::kF32, .rank = 3};
      view.shape[0] = tokens;
      view.shape[1] = cache.kv_heads();
      view.shape[2] = dim;
      view.strides[2] = 1;
      return view;
    };
    cache.Append(rows(cache.head_dim()), rows(cache.value_dim()));
  }
  tokens_ += tokens;
  ResizeEmbedding(tokens_);
  ResizeGates();
}

// To the tokens there are. Those that no layer has computed forget nothing.
void Sequence::ResizeGates() {
  for (ScoreForm& gates : gates_) {
    std::vector<float>& logs = std::get<RunningForm>(gates).log_gates;
    logs.resize(static_cast<std::size_t>(tokens_ * gate_heads_), 0.0f);
  }
}

void Sequence::OffsetPositions(int64_t first) {
  if (tokens_ > 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Sequence::OffsetPositions: the sequence already has {} tokens", tokens_));
  }
  if (!loads_.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("Sequence::OffsetPositions: {} maps the distances of a sequence that "
                            "begins at position 0",
                            Describe(*loads_.front().fused.map())));
  }
  if (first > 0 && bias_from_first_) {
    throw Error(ErrorCode::kUnsupported,
                "Sequence::OffsetPositions: this bias depends on the positions of a sequence that "
                "begins at position 0: " +
                    Describe(resolved_.biases.front()));
  }
  const bool convolves = internal::KeepsConvolved(resolved_.absolute);
  if (convolves || resolved_.recurrent_layer) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("Sequence::OffsetPositions: {} reads the tokens from the first one on "
                            "and knows no position",
                            convolves ? Describe(*resolved_.absolute)
                                      : Describe(*resolved_.recurrent_layer)));
  }
  if (first < 0 || first > kMaxPosition - final_length()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Sequence::OffsetPositions: expected 0 to {}, got {}",
                            kMaxPosition - final_length(), first));
  }
  first_position_ = first;
  CentreXpos();
  tables_.clear();
}

int64_t Sequence::bytes() const {
  int64_t bytes = 0;
  for (const KvCache& cache : caches_) bytes += cache.bytes();
  for (const KvCache& source : sources_) bytes += source.bytes();
  const auto add_table = [&](const Frequencies& f) {
    bytes += static_cast<int64_t>(f.inv_freq.size() * 2 * sizeof(float)) * final_length();
  };
  for (const ResolvedRotation& r : resolved_.rotations) add_table(r.frequencies);
  if (encoding_) add_table(*encoding_);
  const int64_t kept =
      (internal::KeepsConvolved(resolved_.absolute) ? 1 : 0) + (resolved_.recurrent_layer ? 1 : 0);
  bytes += kept * hidden_ * final_length() * static_cast<int64_t>(sizeof(float));
  for (const Load& load : loads_) bytes += load.fused.BytesFor(final_length());
  bytes += static_cast<int64_t>(gates_.size() * sizeof(float)) * gate_heads_ * final_length();
  return bytes;
}

}  // namespace ropewalk
