// The decoder of the LLaMA family (Touvron et al. 2023, arXiv 2302.13971), and of those that differ
// from it as LayerSpec says: GPT-2 (Radford et al. 2019), GPT-J and GPT-NeoX (Wang & Komatsuzaki
// 2021; Black et al. 2022, arXiv 2204.06745), Falcon (Almazrouei et al. 2023, arXiv 2311.16867).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/model/cross.h"
#include "src/model/decoder_impl.h"
#include "src/model/elementwise.h"

namespace ropewalk {

// Activations of one chunk.
struct Decoder::Impl::Scratch {
  Scratch(const Impl& m, int64_t tokens)
      : x(tokens * m.config.hidden), normed(x.size()), layer(m.config, tokens) {}
  AlignedBuffer<float> x;       // [tokens, hidden], the residual stream
  AlignedBuffer<float> normed;  // [tokens, hidden], the result
  internal::LayerScratch layer;
};

namespace {

// Each query times its temperature.
void Warm(const std::vector<float>& temperatures, const TensorView& q) {
  for (int64_t t = 0; t < q.shape[0]; ++t) {
    const float factor = temperatures[static_cast<std::size_t>(t)];
    if (factor == 1) continue;
    for (int64_t h = 0; h < q.shape[1]; ++h) {
      float* head = static_cast<float*>(q.data) + t * q.strides[0] + h * q.strides[1];
      for (int64_t i = 0; i < q.shape[2]; ++i) head[i] *= factor;
    }
  }
}

// The last rows of [tokens, heads, head_dim].
TensorView LastRows(TensorView view, int64_t rows) {
  view.data = static_cast<float*>(view.data) + (view.shape[0] - rows) * view.strides[0];
  view.shape[0] = rows;
  return view;
}

// Attention within chunks: documents that begin at the multiples of the chunk's length. Of `tokens`
// keys, the first at first_position.
std::vector<int64_t> ChunkStarts(int64_t chunk, int64_t first_position, int64_t tokens) {
  std::vector<int64_t> starts;
  if (chunk == 0) return starts;
  starts.push_back(0);
  for (int64_t t = chunk - first_position % chunk; t < tokens; t += chunk) starts.push_back(t);
  return starts;
}

// Rotates q and k by their positions.
void RotateQk(const ResolvedRotation& rotation, const CosSinTable& table, int64_t first_position,
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
}

// Values by their positions, in place; kInverse: what attention found, back by the query's.
void RotateValues(const ResolvedRotation& rotation, const CosSinTable& table,
                  int64_t first_position, Direction direction, const TensorView& v) {
  TensorView no_queries = v;
  no_queries.shape[1] = 0;
  Rotate({.table = &table,
          .layout = rotation.spec.layout,
          .positions = Positions::From(first_position),
          .q = no_queries,
          .k = {},
          .q_out = {},
          .k_out = {},
          .first_dim = rotation.spec.first_dim,
          .direction = direction,
          .v = v,
          .values = ValueRotation::kRotate,
          .rotated_heads = rotation.spec.rotated_heads});
}

}  // namespace

void Decoder::Impl::CheckIds(std::span<const int32_t> ids) const {
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] >= 0 && ids[t] < config.vocab) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Forward: token id {} at index {} is outside the vocabulary of {} tokens "
                    "(0 to {}); was the text tokenized for another model?",
                    ids[t], t, config.vocab, config.vocab - 1));
  }
}

void Decoder::Impl::Embed(std::span<const int32_t> ids, const Place& place, float* x,
                          float* room) const {
  const int64_t hidden = config.hidden, tokens = static_cast<int64_t>(ids.size());
  if (embedding.data != nullptr) {
    for (int64_t t = 0; t < tokens; ++t) embedding.ReadRows(ids[t], 1, x + t * hidden);
  }
  if (config.embedding_scale != 1) {
    const float scale = static_cast<float>(config.embedding_scale);
    for (int64_t i = 0; i < tokens * hidden; ++i) x[i] *= scale;
  }
  if (embedder != nullptr) {
    embedder->Run(ids, place.first_position, place.embedding,
                  {x, static_cast<std::size_t>(tokens * hidden)});
  } else if (config.plan.learned) {
    const int64_t first_row = config.plan.learned->first_row + place.first_position;
    positions.ReadRows(first_row, tokens, room);
    for (int64_t i = 0; i < tokens * hidden; ++i) x[i] += room[i];
  }
  if (config.embedding_norm.exists()) {
    ApplyNorm(config.embedding_norm, embedding_norm, config, x, tokens, x);
  }
}

// The bias of a layer; null: none.
const PreparedForm* Decoder::Impl::FormOf(const Sequence& sequence, std::size_t layer) const {
  const int bias = sequence.resolved_.layers[layer].bias;
  if (bias < 0 || !sequence.gates_.empty()) return nullptr;
  if (!layer_forms.empty()) return &sequence.forms_[layer];
  return learned_forms.empty() ? &sequence.forms_[bias] : &LearnedForm(layer);
}

// The gates of `tokens` tokens, whose normalised rows the layer's attention reads.
RunningForm Decoder::Impl::GatesOf(std::size_t layer, int64_t tokens,
                                   const internal::LayerScratch& s) const {
  return layer_forms[layer].gate->Lower(
      config.heads, {s.normed.data(), static_cast<std::size_t>(tokens * config.hidden)});
}

// The gates of all tokens of a layer, those of this chunk appended; null: it has none.
const ScoreForm* Decoder::Impl::AppendGates(Sequence& sequence, std::size_t layer, int64_t tokens,
                                            const internal::LayerScratch& s) const {
  if (sequence.gates_.empty()) return nullptr;
  ScoreForm& gates = sequence.gates_[layer];
  const RunningForm added = GatesOf(layer, tokens, s);
  std::vector<float>& all = std::get<RunningForm>(gates).log_gates;
  all.insert(all.end(), added.log_gates.begin(), added.log_gates.end());
  return &gates;
}

Decoder::Impl::Encoded Decoder::Impl::Encode(const Sequence& sequence, std::size_t l,
                                             int64_t tokens, int64_t rows, const Place& place,
                                             float* x, internal::LayerScratch& s) const {
  const ResolvedLayer& plan = sequence.resolved_.layers[l];
  const int64_t first_position = place.first_position;
  auto [q, k, v] = ProjectQkv(config, layers[l], tokens, x, s);
  if (sequence.observer_) sequence.observer_(static_cast<int64_t>(l), q, k);
  if (sequence.load_of_[l] < 0 && plan.rotation >= 0) {
    RotateQk(sequence.resolved_.rotations[plan.rotation], place.tables[plan.rotation],
             first_position, q, k);
  }
  if (query_keys != nullptr) {
    query_keys->Encode(l, place.tables.back(), first_position, q, k, s);
  }
  if (plan.rotates_values) {
    RotateValues(sequence.resolved_.rotations[plan.rotation], place.tables[plan.rotation],
                 first_position, Direction::kForward, v);
  }
  Encoded encoded{q, k, v, {}};
  if (plan.temperature && !layer_forms.empty() && layer_forms[l].reads_query) {
    // Attention applies them then, beside the bias that reads queries itself.
    encoded.temperatures =
        internal::Temperatures(*plan.temperature, first_position + tokens - rows, rows);
  } else if (plan.temperature) {
    Warm(internal::Temperatures(*plan.temperature, first_position, q.shape[0]), q);
  }
  return encoded;
}

AttentionArgs Decoder::Impl::ArgsOf(const Sequence& sequence, std::size_t l) const {
  const ResolvedLayer& plan = sequence.resolved_.layers[l];
  const int load = sequence.load_of_[l];
  double multiplier = 1;
  if (plan.rotation >= 0) {
    multiplier = sequence.resolved_.rotations[plan.rotation].frequencies.softmax_multiplier;
  }
  AttentionArgs args;
  args.scale = internal::ScoreScale(config, multiplier);
  args.window_tokens = plan.window_tokens;
  args.compute = head.compute();
  args.prepared = FormOf(sequence, l);
  args.rotation = load < 0 ? nullptr : &sequence.loads_[load].fused;
  args.soft_cap = static_cast<float>(config.layer.attention.soft_cap);
  return args;
}

void Decoder::Impl::RotateBack(const Sequence& sequence, std::size_t l, const Place& place,
                               int64_t first_position, const TensorView& out) const {
  const ResolvedLayer& plan = sequence.resolved_.layers[l];
  if (!plan.rotates_values) return;
  RotateValues(sequence.resolved_.rotations[plan.rotation], place.tables[plan.rotation],
               first_position, Direction::kInverse, out);
}

// Afterwards the last `wanted_rows` rows of s.normed hold the final normalised states.
void Decoder::Impl::ForwardChunk(Sequence& sequence, std::span<const int32_t> ids,
                                 int64_t wanted_rows, Scratch& s) const {
  const ModelConfig& c = config;
  const int64_t tokens = static_cast<int64_t>(ids.size());
  const Place place = {.first_position = sequence.first_position_ + sequence.tokens_,
                       .tables = sequence.tables_,
                       .embedding = sequence.embedding_.get()};
  const bool observed =
      sequence.attention_observer_ && sequence.tokens_ + tokens > sequence.observed_from_;
  float* x = s.x.data();  // [tokens, hidden]

  Embed(ids, place, x, s.normed.data());

  for (std::size_t l = 0; l < layers.size(); ++l) {
    KvCache& cache = sequence.caches_[l];
    // Apart from its keys and values, the last layer is computed only for rows that are read.
    const int64_t rows = l + 1 < layers.size() ? tokens : wanted_rows;

    const Encoded encoded = Encode(sequence, l, tokens, rows, place, x, s.layer);
    cache.Append(encoded.k, encoded.v);
    const ScoreForm* gates = AppendGates(sequence, l, tokens, s.layer);
    if (rows == 0) continue;
    std::vector<float> entropy(observed ? rows * c.heads : 0);
    const std::vector<int64_t> chunks = ChunkStarts(sequence.resolved_.layers[l].chunk_tokens,
                                                    sequence.first_position_, cache.tokens());
    AttentionArgs args = ArgsOf(sequence, l);
    args.q = LastRows(encoded.q, rows);
    args.out = AttendedView(c, rows, s.layer);
    args.cache = &cache;
    args.form = gates;
    args.sinks = {layers[l].sinks.data(), layers[l].sinks.size()};
    args.temperatures = encoded.temperatures;
    args.document_starts = chunks;
    args.entropy = entropy;
    Attention(args);
    RotateBack(sequence, l, place, place.first_position + tokens - rows, args.out);
    if (observed) sequence.attention_observer_(static_cast<int64_t>(l), args);
    FinishLayer(c, layers[l], tokens, rows, x, s.layer,
                sequence.sources_.empty() ? nullptr : &sequence.sources_[l]);
  }
  const int64_t first = (tokens - wanted_rows) * c.hidden;
  ApplyNorm(c.final_norm, final_norm, c, x + first, wanted_rows, s.normed.data() + first);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
ComputeType Decoder::compute() const { return impl_->head.compute(); }
const char* Decoder::arithmetic() const {
  const bool attention = compute() == ComputeType::kBFloat16 && HasBf16Attention();
  return attention ? "bf16+attention" : Name(compute());
}
WeightStorage Decoder::weights() const { return impl_->weights; }

int64_t Decoder::weight_bytes() const {
  int64_t bytes = impl_->head.bytes() + Bytes(impl_->final_norm) + Bytes(impl_->embedding_norm);
  if (impl_->embedder != nullptr) bytes += impl_->embedder->bytes();
  if (impl_->query_keys != nullptr) bytes += impl_->query_keys->bytes();
  for (const internal::LayerWeights& layer : impl_->layers) bytes += Bytes(layer);
  return bytes;
}

int64_t Decoder::mapped_bytes() const {
  int64_t bytes = impl_->head.mapped_bytes();
  for (const internal::LayerWeights& layer : impl_->layers) bytes += MappedBytes(layer);
  return bytes;
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
      sequence.caches_[0].head_dim() != config().key_dim() ||
      sequence.caches_[0].value_dim() != config().value_dim()) {
    throw Error(ErrorCode::kMismatch, "Forward: the sequence was made for another model");
  }
  if (config().layer.cross_attention && sequence.sources_.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "Forward: the decoder has cross-attention, and the sequence no states of an encoder; "
        "call ReadSource first");
  }
  impl_->CheckIds(ids);
  if (tokens > sequence.final_length() - sequence.tokens()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Forward: {} tokens after {} pass the sequence's declared final length "
                            "of {}; declare a longer one",
                            tokens, sequence.tokens(), sequence.final_length()));
  }
  const int64_t last = sequence.first_position_ + sequence.tokens() + tokens - 1;
  if (last >= PositionsOf(config().plan)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Forward: position {} has {}", last, DescribeEnd(config().plan)));
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

void Decoder::ReadSource(Sequence& sequence, const float* states, int64_t tokens) const {
  if (!config().layer.cross_attention) {
    throw Error(ErrorCode::kInvalidArgument,
                "ReadSource: the decoder has no cross-attention, so it reads no encoder");
  }
  if (states == nullptr || tokens < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("ReadSource: expected the states of one token or more, got {}", tokens));
  }
  if (sequence.tokens() > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ReadSource: the sequence has {} tokens already, which have read other "
                            "states; truncate it first",
                            sequence.tokens()));
  }
  sequence.sources_.clear();
  for (const internal::LayerWeights& layer : impl_->layers) {
    sequence.sources_.push_back(
        internal::ProjectSource(config(), layer.cross, states, tokens, sequence.caches_[0].type()));
  }
}

void Decoder::Logits(const float* hidden, int64_t rows, float* logits) const {
  if (rows < 1) return;
  impl_->head.Apply(hidden, rows, config().hidden, logits, config().vocab);
  if (const auto scale = static_cast<float>(config().logit_scale); scale != 1) {
    for (int64_t i = 0; i < rows * config().vocab; ++i) logits[i] *= scale;
  }
  if (config().logit_cap > 0) {
    internal::SoftCap(static_cast<float>(config().logit_cap), rows, config().vocab, logits);
  }
}

}  // namespace ropewalk
