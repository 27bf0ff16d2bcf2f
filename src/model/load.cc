// Weights from the files into the layers: which rows make which product.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "ropewalk/base/error.h"
#include "src/model/convert/rows.h"
#include "src/model/decoder_impl.h"
#include "src/model/tensor_table.h"

namespace ropewalk {
namespace {

using internal::TensorId;

using RowMap = std::function<int64_t(int64_t)>;  // row wanted -> row of the file; empty: the same

AlignedBuffer<float> ReadVector(const Weight& weight, const RowMap& source = {}) {
  AlignedBuffer<float> stored(weight.cols());
  weight.ReadRows(0, 1, stored.data());
  if (!source) return stored;
  AlignedBuffer<float> out(weight.cols());
  for (int64_t i = 0; i < weight.cols(); ++i) out[i] = stored[source(i)];
  return out;
}

// Rows of a weight, in the order that the layers want.
struct Part {
  const Weight* weight;
  int64_t rows;
  RowMap source = {};
  bool transposed = false;  // the file has columns where this has rows
  mutable std::shared_ptr<AlignedBuffer<float>> stored = {};  // then: the whole matrix, once read

  int64_t cols() const { return transposed ? weight->rows() : weight->cols(); }
  // out [count, cols()]
  void Read(int64_t first, int64_t count, float* out) const {
    if (transposed) return ReadColumns(first, count, out);
    if (!source) return weight->ReadRows(first, count, out);
    for (int64_t i = 0; i < count; ++i) weight->ReadRows(source(first + i), 1, out + i * cols());
  }
  // The whole matrix is read at the first call: each row wanted has an element of every row stored.
  void ReadColumns(int64_t first, int64_t count, float* out) const {
    const int64_t width = weight->cols();
    if (!stored) {
      stored = std::make_shared<AlignedBuffer<float>>(cols() * width);
      weight->ReadRows(0, cols(), stored->data());
    }
    for (int64_t c = 0; c < cols(); ++c) {
      const float* row = stored->data() + c * width + first;
      for (int64_t i = 0; i < count; ++i) out[i * cols() + c] = row[i];
    }
  }
};

// One product out of several weights that read the same input.
Linear MakeLinear(const std::vector<Part>& parts, const std::vector<Part>& bias_parts,
                  ComputeType compute) {
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
    int64_t at = 0;
    for (const Part& p : bias_parts) {
      const AlignedBuffer<float> vector = ReadVector(*p.weight, p.source);
      std::copy_n(vector.data(), p.rows, bias.data() + at);
      at += p.rows;
    }
  }
  return Linear(rows, cols, source, bias_parts.empty() ? nullptr : bias.data(), compute);
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

}  // namespace

// Makes layers out of the tensors of one model.
class Decoder::Impl::Loader {
 public:
  Loader(const ModelConfig& config, const ModelFiles& files, internal::Naming naming,
         ComputeType compute)
      : c_(config), compute_(compute) {
    for (const auto& t : internal::ExpectedTensors(config, naming)) {
      found_[{t.layer, t.id}] = &files.tensors.at(t.name);
    }
  }

  const Weight* Find(TensorId id, int64_t layer = -1) const {
    const auto it = found_.find({layer, id});
    return it == found_.end() ? nullptr : it->second;
  }

  // Empty where the model has no such tensor.
  AlignedBuffer<float> Vector(TensorId id, int64_t layer, const RowMap& order = {}) const {
    const Weight* weight = Find(id, layer);
    return weight == nullptr ? AlignedBuffer<float>() : ReadVector(*weight, order);
  }

  Norm MakeNorm(TensorId weight, TensorId bias, int64_t layer = -1) const {
    Norm norm = {Vector(weight, layer), Vector(bias, layer)};
    if (c_.block.norm == BlockStyle::Norm::kLayer && !c_.block.norm_bias) {
      norm.bias = AlignedBuffer<float>(norm.weight.size(), 0.0f);
    }
    return norm;
  }

  Linear Head() const {
    const Weight* weight = Find(c_.tied_head ? TensorId::kEmbedding : TensorId::kHead);
    std::vector<Part> bias;
    if (const Weight* b = Find(TensorId::kHeadBias)) bias = {{b, c_.vocab}};
    return MakeLinear({{weight, c_.vocab}}, bias, compute_);
  }

  Layer MakeLayer(int64_t l) const {
    Layer layer;
    const RowMap order = PairOrder(l);
    layer.attention_norm = MakeNorm(TensorId::kAttentionNorm, TensorId::kAttentionNormBias, l);
    layer.feed_forward_norm =
        MakeNorm(TensorId::kFeedForwardNorm, TensorId::kFeedForwardNormBias, l);
    layer.q_norm.weight = Vector(TensorId::kQNorm, l, order);
    layer.k_norm.weight = Vector(TensorId::kKNorm, l, order);
    layer.qkv = MakeLinear(
        Qkv(TensorId::kQ, TensorId::kK, TensorId::kV, TensorId::kQkv, l),
        Qkv(TensorId::kQBias, TensorId::kKBias, TensorId::kVBias, TensorId::kQkvBias, l), compute_);
    layer.out = MakeLinear(Parts({{TensorId::kO, c_.hidden}}, l),
                           Parts({{TensorId::kOBias, c_.hidden}}, l), compute_);
    const int64_t ff = c_.feed_forward;
    layer.up = MakeLinear(Parts({{TensorId::kGate, ff}, {TensorId::kUp, ff}}, l),
                          Parts({{TensorId::kGateBias, ff}, {TensorId::kUpBias, ff}}, l), compute_);
    layer.down = MakeLinear(Parts({{TensorId::kDown, c_.hidden}}, l),
                            Parts({{TensorId::kDownBias, c_.hidden}}, l), compute_);
    return layer;
  }

 private:
  // Those of them that the model has.
  std::vector<Part> Parts(std::initializer_list<std::pair<TensorId, int64_t>> wanted,
                          int64_t layer) const {
    std::vector<Part> parts;
    for (const auto& [id, rows] : wanted) {
      if (const Weight* w = Find(id, layer)) {
        parts.push_back({w, rows, {}, c_.block.transposed && w->shape.size() > 1});
      }
    }
    return parts;
  }

  std::vector<Part> Qkv(TensorId q, TensorId k, TensorId v, TensorId fused, int64_t layer) const {
    const int64_t q_dim = c_.heads * c_.head_dim, kv_dim = c_.kv_heads * c_.head_dim;
    std::vector<Part> parts = Parts({{fused, q_dim + 2 * kv_dim}}, layer);
    if (!parts.empty()) {
      if (c_.block.qkv == BlockStyle::Qkv::kGrouped) parts[0].source = GroupedRow(c_);
      return parts;
    }
    parts = Parts({{q, q_dim}, {k, kv_dim}, {v, kv_dim}}, layer);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) parts[i].source = PairOrder(layer);
    return parts;
  }

  // Rows of q and k back into the half layout where the file has them interleaved.
  RowMap PairOrder(int64_t layer) const {
    if (!c_.permuted_qk) return {};
    const auto& rotation = c_.plan.layers[layer].rotation;
    const internal::HeadRows rows = {c_.head_dim, rotation ? rotation->rotary_dim : c_.head_dim,
                                     PairLayout::kHalf};
    return [rows](int64_t row) { return rows.Source(row); };
  }

  const ModelConfig& c_;
  ComputeType compute_;
  std::map<std::pair<int64_t, TensorId>, const Weight*> found_;
};

std::unique_ptr<Decoder> Decoder::Load(const ModelFiles& files, ComputeType compute) {
  if (!files.config.not_runnable.empty()) {
    throw Error(ErrorCode::kUnsupported, files.path + ": " + files.config.not_runnable);
  }
  const internal::Naming naming = files.config.format == FileFormat::kGguf
                                      ? internal::Naming::kGguf
                                      : internal::Naming::kHuggingFace;
  auto impl = std::make_unique<Impl>();
  impl->config = files.config;
  internal::CheckTensors(impl->config, files.tensors, naming, files.path);
  impl->config.harmless_keys = files.config.harmless_keys;
  const ModelConfig& c = impl->config;

  const Impl::Loader loader(c, files, naming, compute);
  impl->embedding = *loader.Find(TensorId::kEmbedding);
  if (c.plan.learned) impl->positions = *loader.Find(TensorId::kPositions);
  impl->embedding_norm = loader.MakeNorm(TensorId::kEmbeddingNorm, TensorId::kEmbeddingNormBias);
  impl->final_norm = loader.MakeNorm(TensorId::kFinalNorm, TensorId::kFinalNormBias);
  impl->head = loader.Head();
  for (int64_t l = 0; l < c.layers; ++l) impl->layers.push_back(loader.MakeLayer(l));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

}  // namespace ropewalk
