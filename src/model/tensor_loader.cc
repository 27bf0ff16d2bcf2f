#include "src/model/tensor_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "ropewalk/base/error.h"
#include "src/model/decoder_impl.h"
#include "src/model/latent.h"
#include "src/model/layer_forms.h"
#include "src/model/rows.h"
#include "src/model/t5_forms.h"
#include "src/model/weight_storage.h"

namespace ropewalk {
namespace internal {
namespace {

using Id = TensorId;

AlignedBuffer<float> ReadWeight(const Weight& weight) {
  AlignedBuffer<float> out(weight.rows() * weight.cols());
  weight.ReadRows(0, weight.rows(), out.data());
  return out;
}

// Of one tensor that has, for each key head, its query heads, itself, its values: where the rows
// are of all query heads, then of all key heads, then of all values.
RowMap GroupedRow(const ModelConfig& c) {
  const int64_t dim = c.head_dim, kv = c.kv_heads, queries = c.heads / c.kv_heads;
  return [=](int64_t row) {
    const int64_t head = row / dim, group_heads = queries + 2;
    const bool is_q = head < kv * queries;
    const int64_t other = head - kv * queries;  // key heads, then values
    const int64_t group = is_q ? head / queries : other % kv;
    const int64_t within = is_q ? head % queries : queries + other / kv;
    return (group * group_heads + within) * dim + row % dim;
  };
}

// One of the matrices, or vectors, that a tensor holds one behind the other.
Weight Slice(const Weight& all, int64_t index) {
  Weight slice = all;
  slice.name = fmt::format("{}[{}]", all.name, index);
  slice.bytes = all.bytes / all.shape[0];
  slice.data = all.data + index * slice.bytes;
  const WeightTypeInfo& info = Info(all.type);
  if (all.scales != nullptr) {
    slice.scales = all.scales + index * (slice.bytes / info.block_bytes) * info.scale_bytes;
  }
  slice.shape.erase(slice.shape.begin());
  return slice;
}

}  // namespace

// Rows of a weight, in the order that the layers want.
struct TensorLoader::Part {
  const Weight* weight;
  int64_t rows;
  RowMap source = {};
  bool transposed = false;  // the file has columns where this has rows
  mutable std::shared_ptr<AlignedBuffer<float>> stored = {};  // then: the whole matrix, once read

  // Of the file's matrix, whose further dimensions are one: those of a vector are columns.
  int64_t stored_rows() const { return weight->shape.size() > 1 ? weight->shape[0] : 1; }
  int64_t stored_cols() const { return weight->rows() * weight->cols() / stored_rows(); }
  int64_t cols() const { return transposed ? stored_rows() : stored_cols(); }
  // out [count, cols()]
  void Read(int64_t first, int64_t count, float* out) const {
    if (transposed) return ReadColumns(first, count, out);
    if (!source) return ReadRows(first, count, out);
    for (int64_t i = 0; i < count; ++i) ReadRows(source(first + i), 1, out + i * cols());
  }
  void ReadRows(int64_t first, int64_t count, float* out) const {
    const int64_t file_rows = stored_cols() / weight->cols();  // for each of ours
    weight->ReadRows(first * file_rows, count * file_rows, out);
  }
  // The same rows, left where they are. A row of a transposed matrix (GPT-2's Conv1D) has an
  // element in every row of the file, so that a band of rows would decode everything: these are
  // copied to memory in float32.
  FileRows InFile() const {
    FileRows out = {weight->type, weight->data, rows, {}, weight->file};
    out.scales = weight->scales;
    out.scales_owner = weight->scales_file;
    for (int64_t i = 0; source && i < rows; ++i) out.order.push_back(source(i));
    if (!transposed) return out;
    const auto copy = std::make_shared<AlignedBuffer<float>>(rows * cols());
    Read(0, rows, copy->data());
    out = {WeightType::kF32, reinterpret_cast<const std::byte*>(copy->data()), rows, {}, copy};
    out.mapped = false;
    return out;
  }
  // The whole matrix is read at the first call: each row wanted has an element of every row stored.
  void ReadColumns(int64_t first, int64_t count, float* out) const {
    const int64_t width = stored_cols();
    if (!stored) stored = std::make_shared<AlignedBuffer<float>>(ReadWeight(*weight));
    for (int64_t c = 0; c < cols(); ++c) {
      const float* row = stored->data() + c * width;
      for (int64_t i = 0; i < count; ++i) {
        out[i * cols() + c] = row[source ? source(first + i) : first + i];
      }
    }
  }
};

TensorLoader::TensorLoader(ModelConfig& config, const ModelFiles& files, Naming naming,
                           ComputeType compute, WeightStorage weights)
    : c_(config), names_(&NamesOf(config, naming)), compute_(compute), weights_(weights) {
  const std::vector<std::string> harmless = config.harmless_keys;
  CheckTensors(config, files.tensors, naming, files.path);
  config.harmless_keys = harmless;  // said when the files were opened
  for (const ExpectedTensor& t : ExpectedTensors(config, naming)) {
    const Weight* weight = FindTensor(files.tensors, t.name);
    if (weight == nullptr) continue;
    if (t.id == Id::kEncoding) {
      encodings_[t.name] = weight;
      continue;
    }
    found_[{t.layer, t.id, t.bias, t.expert}] = weight;
    for (int64_t m = 0; m < t.matrices; ++m) {
      found_[{t.layer, t.id, t.bias, m}] = &slices_.emplace_back(Slice(*weight, m));
    }
  }
}

const Weight* TensorLoader::Find(TensorId id, int64_t layer, bool bias, int64_t expert) const {
  const auto it = found_.find({layer, id, bias, expert});
  return it == found_.end() ? nullptr : it->second;
}

AlignedBuffer<float> TensorLoader::ReadAll(TensorId id, int64_t layer, bool bias) const {
  const Weight* weight = Find(id, layer, bias);
  return weight == nullptr ? AlignedBuffer<float>() : ReadWeight(*weight);
}

std::vector<float> TensorLoader::ReadVector(TensorId id, int64_t layer, bool bias) const {
  const AlignedBuffer<float> all = ReadAll(id, layer, bias);
  return {all.data(), all.data() + all.size()};
}

std::vector<float> TensorLoader::ReadMatrix(TensorId id, int64_t layer) const {
  const Part part = {Find(id, layer), 0, {}, names_->IsTransposed(id)};
  const int64_t rows = part.transposed ? part.stored_cols() : part.stored_rows();
  std::vector<float> matrix(rows * part.cols());
  part.Read(0, rows, matrix.data());
  return matrix;
}

std::vector<float> TensorLoader::ReadEncoding(const std::string& name) const {
  const AlignedBuffer<float> all = ReadWeight(*encodings_.at(name));
  return {all.data(), all.data() + all.size()};
}

NormWeights TensorLoader::MakeNorm(TensorId id, const NormSpec& spec, int64_t layer,
                                   const RowMap& order) const {
  NormWeights norm = {ReadAll(id, layer), ReadAll(id, layer, /*bias=*/true)};
  if (order && norm.weight.size() > 0) {
    const std::vector<float> stored(norm.weight.data(), norm.weight.data() + norm.weight.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      norm.weight[i] = stored[order(static_cast<int64_t>(i))];
    }
  }
  for (std::size_t i = 0; i < norm.weight.size(); ++i) norm.weight[i] += names_->norm_offset;
  if (spec.exists() && !spec.weight)
    norm.weight = AlignedBuffer<float>(std::max(c_.hidden, c_.head_dim), 1.0f);
  if (spec.kind == NormSpec::Kind::kLayer && !spec.bias) {
    norm.bias = AlignedBuffer<float>(norm.weight.size(), 0.0f);
  }
  return norm;
}

Linear TensorLoader::MakeHead() const {
  const Weight* weight = Find(c_.tied_head ? Id::kEmbedding : Id::kHead);
  if (c_.normalized_head) {
    const int64_t hidden = c_.hidden;
    const auto rows = [weight, hidden](int64_t first, int64_t count, float* out) {
      weight->ReadRows(first, count, out);
      NormalizeRows(count, hidden, out);
    };
    return Linear(c_.vocab, hidden, rows, nullptr, compute_);
  }
  std::vector<Part> bias;
  const Weight* own_bias = Find(Id::kHead, -1, true);
  if (own_bias == nullptr) own_bias = Find(Id::kMaskedBias);
  if (own_bias != nullptr) bias = {{own_bias, c_.vocab}};
  return MakeLinear({{weight, c_.vocab}}, bias, compute_);
}

LayerWeights TensorLoader::MakeLayer(int64_t l) const {
  const LayerSpec& spec = c_.layer;
  const RowMap order = PairOrder(l);
  const int64_t ff = c_.feed_forward;
  LayerWeights layer;
  layer.pre_attention = MakeNorm(Id::kPreAttentionNorm, spec.pre_attention, l);
  layer.post_attention = MakeNorm(Id::kPostAttentionNorm, spec.post_attention, l);
  layer.pre_mlp = MakeNorm(Id::kPreMlpNorm, spec.pre_mlp, l);
  layer.post_mlp = MakeNorm(Id::kPostMlpNorm, spec.post_mlp, l);
  if (!spec.attention.qk_norm_where_rotated || c_.plan.layers[l].rotation) {
    layer.q_norm = MakeNorm(Id::kQNorm, spec.attention.qk_norm, l, order);
    layer.k_norm = MakeNorm(Id::kKNorm, spec.attention.qk_norm, l, order);
  }
  layer.sinks = ReadAll(Id::kSinks, l);
  if (spec.attention.latent.exists()) {
    layer.latent = MakeLatent(l);
  } else {
    layer.qkv = MakeLinear(Qkv(l, false), Qkv(l, true), compute_);
  }
  layer.out = MakeLinear({{Id::kO, c_.hidden}}, l);
  if (spec.cross_attention) layer.cross = MakeCross(l);
  if (c_.experts.In(l)) {
    layer.experts = MakeExperts(l);
    return layer;
  }
  layer.mlp.up = MakeLinear({{Id::kGate, ff}, {Id::kUp, ff}, {Id::kGateUp, 2 * ff}}, l);
  layer.mlp.down = MakeLinear({{Id::kDown, c_.hidden}}, l);
  return layer;
}

CrossWeights TensorLoader::MakeCross(int64_t l) const {
  const int64_t q_dim = c_.heads * c_.head_dim, kv_dim = c_.kv_heads * c_.head_dim;
  return {MakeNorm(Id::kCrossNorm, c_.layer.pre_attention, l),
          MakeLinear({{Id::kCrossQ, q_dim}}, l),
          MakeLinear({{Id::kCrossK, kv_dim}, {Id::kCrossV, kv_dim}}, l),
          MakeLinear({{Id::kCrossO, c_.hidden}}, l)};
}

LatentWeights TensorLoader::MakeLatent(int64_t l) const {
  const LatentSpec& spec = c_.layer.attention.latent;
  const NormSpec norm = {NormSpec::Kind::kRms};
  const int64_t q_dim = c_.heads * c_.head_dim;
  LatentWeights latent;
  if (spec.q_rank > 0) {
    latent.q_down = MakeLinear({{Id::kQA, spec.q_rank}}, l);
    latent.q_norm = MakeNorm(Id::kQANorm, norm, l);
  }
  latent.q = MakeLinear({{Id::kQ, q_dim}, {Id::kQB, q_dim}}, l);
  latent.kv_down = MakeLinear({{Id::kKvA, spec.kv_rank + spec.rotary_dim}}, l);
  latent.kv_norm = MakeNorm(Id::kKvANorm, norm, l);
  latent.kv = MakeLinear(KeysAndValues(l), {}, compute_);
  return latent;
}

// For each head the part of its key that does not rotate, then its value.
std::vector<TensorLoader::Part> TensorLoader::KeysAndValues(int64_t l) const {
  const LatentSpec& spec = c_.layer.attention.latent;
  std::vector<Part> parts = Parts({{Id::kKvB, KeyValueDim(c_)}}, l, false);
  if (!parts.empty()) return parts;
  for (int64_t head = 0; head < c_.heads; ++head) {
    for (Part& part : Parts({{Id::kKB, c_.head_dim - spec.rotary_dim}, {Id::kVB, spec.value_dim}},
                            l, false, head)) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

// Scores that choose experts are never rounded.
Linear TensorLoader::MakeRouter(TensorId id, int64_t rows, int64_t l) const {
  return MakeLinear(Parts({{id, rows}}, l, false), Parts({{id, rows}}, l, true),
                    ComputeType::kFloat32);
}

ExpertWeights TensorLoader::MakeExperts(int64_t l) const {
  const int64_t ff = c_.experts.feed_forward, shared = c_.experts.shared_feed_forward;
  ExpertWeights weights;
  weights.router = MakeRouter(Id::kRouter, c_.experts.count, l);
  weights.choice_bias = ReadAll(Id::kChoiceBias, l);
  for (int64_t e = 0; e < c_.experts.count; ++e) {
    weights.experts.push_back(
        {MakeLinear({{Id::kExpertGate, ff}, {Id::kExpertUp, ff}, {Id::kExpertGateUp, 2 * ff}}, l,
                    e),
         MakeLinear({{Id::kExpertDown, c_.hidden}}, l, e)});
  }
  if (shared == 0) return weights;
  weights.shared.up = MakeLinear({{Id::kSharedGate, shared}, {Id::kSharedUp, shared}}, l);
  weights.shared.down = MakeLinear({{Id::kSharedDown, c_.hidden}}, l);
  if (c_.experts.shared_gate) weights.shared_router = MakeRouter(Id::kSharedRouter, 1, l);
  return weights;
}

// Those of them that the model has.
std::vector<TensorLoader::Part> TensorLoader::Parts(Wanted wanted, int64_t layer, bool bias,
                                                    int64_t expert) const {
  std::vector<Part> parts;
  for (const auto& [id, rows] : wanted) {
    if (const Weight* w = Find(id, layer, bias, expert)) {
      parts.push_back({w, rows, {}, !bias && names_->IsTransposed(id)});
      if (id == Id::kExpertGateUp && names_->gate_up_in_turn) {
        const int64_t half = rows / 2;
        parts.back().source = [half](int64_t row) {
          return row < half ? 2 * row : 2 * (row - half) + 1;
        };
      }
    }
  }
  return parts;
}

Linear TensorLoader::MakeLinear(Wanted wanted, int64_t layer, int64_t expert) const {
  return MakeLinear(Parts(wanted, layer, false, expert), Parts(wanted, layer, true, expert),
                    compute_);
}

std::vector<TensorLoader::Part> TensorLoader::Qkv(int64_t layer, bool bias) const {
  const int64_t q_dim = c_.heads * c_.head_dim, kv_dim = c_.kv_heads * c_.head_dim;
  if (const Weight* q = Find(Id::kQBias, layer); bias && q != nullptr) {
    return {{q, q_dim}, {nullptr, kv_dim}, {Find(Id::kVBias, layer), kv_dim}};
  }
  std::vector<Part> parts = Parts({{Id::kQkv, q_dim + 2 * kv_dim}}, layer, bias);
  if (!parts.empty()) {
    if (names_->qkv == TensorNames::Qkv::kGrouped) {
      parts[0].source = GroupedRow(c_);
    } else if (const RowMap order = PairOrder(layer)) {  // heads of values follow those of q and k
      parts[0].source = [=](int64_t row) { return row < q_dim + kv_dim ? order(row) : row; };
    }
    return parts;
  }
  parts = Parts({{Id::kQ, q_dim}, {Id::kK, kv_dim}, {Id::kV, kv_dim}}, layer, bias);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) parts[i].source = PairOrder(layer);
  return parts;
}

// One product out of several weights that read the same input.
Linear TensorLoader::MakeLinear(const std::vector<Part>& parts, const std::vector<Part>& bias_parts,
                                ComputeType compute) const {
  int64_t rows = 0;
  for (const Part& p : parts) rows += p.rows;
  const int64_t cols = parts[0].cols();
  const auto source = [&](int64_t first, int64_t count, float* out) {
    for (const Part& p : parts) {
      if (first < p.rows && count > 0) {
        const int64_t n = std::min(count, p.rows - first);
        p.Read(first, n, out);
        out += n * cols;
        count -= n;
        first = 0;
      } else {
        first -= p.rows;
      }
    }
  };
  AlignedBuffer<float> bias;
  if (!bias_parts.empty()) {
    bias = AlignedBuffer<float>(rows);
    float* at = bias.data();
    for (const Part& p : bias_parts) {
      if (p.weight == nullptr) {  // k has none
        at = std::fill_n(at, p.rows, 0.0f);
        continue;
      }
      const AlignedBuffer<float> vector = ReadWeight(*p.weight);
      for (int64_t i = 0; i < p.rows; ++i) *at++ = vector[p.source ? p.source(i) : i];
    }
  }
  const float* added = bias_parts.empty() ? nullptr : bias.data();
  if (weights_ == WeightStorage::kUnpacked) return Linear(rows, cols, source, added, compute);
  std::vector<FileRows> in_file;
  in_file.reserve(parts.size());
  for (const Part& p : parts) in_file.push_back(p.InFile());
  return Linear(cols, std::move(in_file), added, compute);
}

// Rows of q and k back into the half layout where the file has them interleaved.
RowMap TensorLoader::PairOrder(int64_t layer) const {
  if (!c_.permuted_qk) return {};
  const auto& rotation = c_.plan.layers[layer].rotation;
  const HeadRows rows = {c_.head_dim, rotation ? rotation->rotary_dim : c_.head_dim,
                         PairLayout::kHalf};
  return [rows](int64_t row) { return rows.Source(row); };
}

}  // namespace internal

std::unique_ptr<Decoder> Decoder::Load(const ModelFiles& files, const DecoderOptions& options) {
  if (!files.config.not_runnable.empty()) {
    throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
  }
  using Id = internal::TensorId;
  auto impl = std::make_unique<Impl>();
  impl->config = files.config;
  const ModelConfig& c = impl->config;
  impl->weights = ChooseStorage(files, options.compute, options.weights);
  const internal::TensorLoader loader(impl->config, files, internal::NamingOf(c), options.compute,
                                      impl->weights);
  if (c.encoding_tensors) impl->embedder = std::make_unique<internal::Embedder>(c, loader);
  if (impl->embedder == nullptr || !impl->embedder->replaces_tokens()) {
    impl->embedding = *loader.Find(Id::kEmbedding);
  }
  if (c.plan.learned && impl->embedder == nullptr) impl->positions = *loader.Find(Id::kPositions);
  impl->embedding_norm = loader.MakeNorm(Id::kEmbeddingNorm, c.embedding_norm);
  impl->final_norm = loader.MakeNorm(Id::kFinalNorm, c.final_norm);
  impl->head = loader.MakeHead();
  impl->learned_forms = internal::T5Forms(c, loader);
  impl->layer_forms = internal::LayerForms(c, loader);
  impl->query_keys = internal::QueryKeyEncoder::Load(c, loader);
  for (int64_t l = 0; l < c.layers; ++l) impl->layers.push_back(loader.MakeLayer(l));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

}  // namespace ropewalk
