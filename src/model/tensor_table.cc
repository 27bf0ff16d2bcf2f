#include "src/model/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/family.h"
#include "src/model/encoding_tensors.h"

namespace ropewalk::internal {
namespace {

enum class Dim : uint8_t {
  kNone,
  kHidden,
  kQ,
  kKv,
  kQkv,
  kHeads,
  kHeadDim,
  kQNorm,
  kKNorm,
  kFeedForward,
  kGateUp,
  kVocab,
  kEmbedding,
  kPositions,
  kTokenTypes,
  kBuckets,
  kDistances,
  kAttended,
  kQRank,
  kKvRank,
  kKvA,
  kKvB,
  kPlainKey,
  kValue,
  kExperts,
  kExpertWidth,
  kExpertGateUp,
  kSharedWidth,
  kOne
};

using Config = const ModelConfig&;

// Whether a file with these names has such a tensor: q, k and v, and gate and up, may be one.
bool HasPlace(TensorId id, const TensorNames& names) {
  const bool fused = names.qkv != TensorNames::Qkv::kSplit;
  const bool gate_up = names.Find(TensorId::kGateUp) != nullptr;
  const bool experts_gate_up = names.Find(TensorId::kExpertGateUp) != nullptr;
  const bool split_kv = names.Find(TensorId::kKB) != nullptr;
  switch (id) {
    case TensorId::kKvB:
      return !split_kv;
    case TensorId::kKB:
    case TensorId::kVB:
      return split_kv;
    case TensorId::kExpertGate:
    case TensorId::kExpertUp:
      return !experts_gate_up;
    case TensorId::kExpertGateUp:
      return experts_gate_up;
    case TensorId::kQ:
    case TensorId::kK:
    case TensorId::kV:
      return !fused;
    case TensorId::kQkv:
      return fused;
    case TensorId::kGate:
    case TensorId::kUp:
      return !gate_up;
    case TensorId::kGateUp:
      return gate_up;
    default:
      return true;
  }
}

bool Always(Config) { return true; }
// Complex-order embeddings stand in the place of the table.
bool TokenTable(Config c) {
  return !c.plan.absolute || !std::holds_alternative<ComplexOrderEmbedding>(*c.plan.absolute);
}
bool Latent(Config c) { return c.layer.attention.latent.exists(); }
bool LatentQ(Config c) { return Latent(c) && c.layer.attention.latent.q_rank > 0; }
bool WholeQ(Config c) { return !LatentQ(c); }
bool WholeKv(Config c) { return !Latent(c); }
bool DownBias(Config c) { return c.layer.attention.latent.down_bias; }
bool QkvBias(Config c) { return c.layer.attention.qkv_bias; }
bool OutBias(Config c) { return c.layer.attention.out_bias; }
bool MlpBias(Config c) { return c.layer.mlp.bias; }
bool ExpertBias(Config c) { return MlpBias(c) && c.experts.biased; }
bool Gated(Config c) { return c.layer.mlp.gated; }
bool Sinks(Config c) { return c.layer.attention.sinks; }
bool ChoiceBias(Config c) { return c.experts.choice_bias; }
bool RouterBias(Config c) { return c.experts.router_bias; }
bool SharedExpert(Config c) { return c.experts.shared_feed_forward > 0; }
bool SharedRouter(Config c) { return SharedExpert(c) && c.experts.shared_gate; }
bool Cross(Config c) { return c.layer.cross_attention; }
bool QkNorm(Config c) { return c.layer.attention.qk_norm.has_weight(); }
bool MaskedHead(Config c) { return c.masked_head; }
// Of BERT's kind: a dense layer and a norm in front of the matrix.
bool DenseHead(Config c) { return MaskedHead(c) && !c.encoder->plain_head; }
bool Untied(Config c) { return !c.tied_head && (c.encoder == nullptr || MaskedHead(c)); }
// A head that is the embedding and has a bias all the same (Phi, GPT-J).
bool TiedBias(Config c) { return c.tied_head && c.head_bias && c.encoder == nullptr; }
bool Head(Config c) { return Untied(c) || TiedBias(c); }
bool Projects(Config c) { return c.encoder != nullptr && c.encoder->embedding_dim > 0; }
// DeBERTa v1: its one product has no bias, q and v have.
bool QvBias(Config c) {
  return c.encoder != nullptr && c.encoder->tensors == EncoderSpec::Tensors::kDebertaV1;
}
// transformers 5 gives an untied masked language model's last product a bias of its own.
bool HeadBias(Config c) { return c.head_bias || DenseHead(c); }
bool TokenTypes(Config c) { return c.encoder != nullptr && c.encoder->token_types > 0; }
bool MaskDecoder(Config c) {
  return c.encoder != nullptr && !c.plan.learned && c.encoder->mask_decoder_positions > 0;
}
bool Positions(Config c) {
  return !c.encoding_tensors && (c.plan.learned.has_value() || MaskDecoder(c));
}
bool SharedBuckets(Config c) {
  const auto* t5 = BiasOf<T5LayerBias>(c);
  return t5 != nullptr && !t5->per_layer;
}
bool Buckets(Config c) { return BiasOf<T5LayerBias>(c) != nullptr && !SharedBuckets(c); }
bool Distances(Config c) { return BiasOf<DebertaLayerBias>(c) != nullptr; }
bool DistancesNorm(Config c) {
  return Distances(c) && BiasOf<DebertaLayerBias>(c)->normalized_embedding;
}
bool DistanceKey(Config c) {
  const auto* deberta = BiasOf<DebertaLayerBias>(c);
  return deberta != nullptr && !deberta->shared_keys && deberta->content_to_position;
}
bool DistanceKeyBias(Config c) { return !QvBias(c); }
bool DistanceQuery(Config c) {
  const auto* deberta = BiasOf<DebertaLayerBias>(c);
  return deberta != nullptr && !deberta->shared_keys && deberta->position_to_content;
}
bool TransformerXl(Config c) { return BiasOf<TransformerXlBias>(c) != nullptr; }

// Whether a norm has weights, and a bias.
template <NormSpec ModelConfig::*norm>
bool Has(Config c) {
  return (c.*norm).has_weight();
}
template <NormSpec ModelConfig::*norm>
bool HasBias(Config c) {
  return (c.*norm).has_bias();
}
template <NormSpec LayerSpec::*norm>
bool Has(Config c) {
  return (c.layer.*norm).has_weight();
}
template <NormSpec LayerSpec::*norm>
bool HasBias(Config c) {
  return (c.layer.*norm).has_bias();
}

// What has a tensor of its own.
enum class Of : uint8_t {
  kModel,
  kLayer,
  kDenseLayer,   // a layer without experts
  kExpertLayer,  // a layer with experts
  kExpert,       // an expert, or all of a layer as the first dimension
  kHeads         // a matrix for each head of a layer, which are the first dimension
};

struct Row {
  TensorId id;
  Of of;
  Dim rows, cols;  // cols kNone: a vector of `rows`
  bool (*exists)(Config);
  bool (*has_bias)(Config) = nullptr;
};

using Id = TensorId;
constexpr Row kTable[] = {
    {Id::kEmbedding, Of::kModel, Dim::kVocab, Dim::kEmbedding, TokenTable},
    {Id::kPositions, Of::kModel, Dim::kPositions, Dim::kHidden, Positions},
    {Id::kTokenTypes, Of::kModel, Dim::kTokenTypes, Dim::kEmbedding, TokenTypes},
    {Id::kEmbeddingNorm, Of::kModel, Dim::kEmbedding, Dim::kNone, Has<&ModelConfig::embedding_norm>,
     HasBias<&ModelConfig::embedding_norm>},
    {Id::kEmbeddingProjection, Of::kModel, Dim::kHidden, Dim::kEmbedding, Projects, Always},
    {Id::kFinalNorm, Of::kModel, Dim::kHidden, Dim::kNone, Has<&ModelConfig::final_norm>,
     HasBias<&ModelConfig::final_norm>},
    {Id::kMaskedDense, Of::kModel, Dim::kEmbedding, Dim::kHidden, DenseHead, Always},
    {Id::kMaskedNorm, Of::kModel, Dim::kEmbedding, Dim::kNone, DenseHead, Always},
    {Id::kMaskedBias, Of::kModel, Dim::kVocab, Dim::kNone, DenseHead},
    {Id::kHead, Of::kModel, Dim::kVocab, Dim::kEmbedding, Head, HeadBias},
    {Id::kSharedBuckets, Of::kModel, Dim::kBuckets, Dim::kHeads, SharedBuckets},
    {Id::kDistances, Of::kModel, Dim::kDistances, Dim::kHidden, Distances},
    {Id::kDistancesNorm, Of::kModel, Dim::kHidden, Dim::kNone, DistancesNorm, DistancesNorm},
    {Id::kPreAttentionNorm, Of::kLayer, Dim::kHidden, Dim::kNone, Has<&LayerSpec::pre_attention>,
     HasBias<&LayerSpec::pre_attention>},
    {Id::kQ, Of::kLayer, Dim::kQ, Dim::kHidden, WholeQ, QkvBias},
    {Id::kK, Of::kLayer, Dim::kKv, Dim::kHidden, WholeKv, QkvBias},
    {Id::kV, Of::kLayer, Dim::kKv, Dim::kHidden, WholeKv, QkvBias},
    {Id::kQkv, Of::kLayer, Dim::kQkv, Dim::kHidden, WholeKv, QkvBias},
    {Id::kQBias, Of::kLayer, Dim::kQ, Dim::kNone, QvBias},
    {Id::kVBias, Of::kLayer, Dim::kKv, Dim::kNone, QvBias},
    {Id::kQA, Of::kLayer, Dim::kQRank, Dim::kHidden, LatentQ, DownBias},
    {Id::kQANorm, Of::kLayer, Dim::kQRank, Dim::kNone, LatentQ},
    {Id::kQB, Of::kLayer, Dim::kQ, Dim::kQRank, LatentQ},
    {Id::kKvA, Of::kLayer, Dim::kKvA, Dim::kHidden, Latent, DownBias},
    {Id::kKvANorm, Of::kLayer, Dim::kKvRank, Dim::kNone, Latent},
    {Id::kKvB, Of::kLayer, Dim::kKvB, Dim::kKvRank, Latent},
    {Id::kKB, Of::kHeads, Dim::kPlainKey, Dim::kKvRank, Latent},
    {Id::kVB, Of::kHeads, Dim::kValue, Dim::kKvRank, Latent},
    {Id::kSinks, Of::kLayer, Dim::kHeads, Dim::kNone, Sinks},
    {Id::kBuckets, Of::kLayer, Dim::kBuckets, Dim::kHeads, Buckets},
    {Id::kDistanceKey, Of::kLayer, Dim::kQ, Dim::kHidden, DistanceKey, DistanceKeyBias},
    {Id::kDistanceQuery, Of::kLayer, Dim::kQ, Dim::kHidden, DistanceQuery, Always},
    {Id::kDistanceProjection, Of::kLayer, Dim::kQ, Dim::kHidden, TransformerXl},
    {Id::kContentBias, Of::kLayer, Dim::kHeads, Dim::kHeadDim, TransformerXl},
    {Id::kPositionBias, Of::kLayer, Dim::kHeads, Dim::kHeadDim, TransformerXl},
    {Id::kO, Of::kLayer, Dim::kHidden, Dim::kAttended, Always, OutBias},
    {Id::kCrossNorm, Of::kLayer, Dim::kHidden, Dim::kNone, Cross},
    {Id::kCrossQ, Of::kLayer, Dim::kQ, Dim::kHidden, Cross},
    {Id::kCrossK, Of::kLayer, Dim::kKv, Dim::kHidden, Cross},
    {Id::kCrossV, Of::kLayer, Dim::kKv, Dim::kHidden, Cross},
    {Id::kCrossO, Of::kLayer, Dim::kHidden, Dim::kAttended, Cross},
    {Id::kQNorm, Of::kLayer, Dim::kQNorm, Dim::kNone, QkNorm},
    {Id::kKNorm, Of::kLayer, Dim::kKNorm, Dim::kNone, QkNorm},
    {Id::kPostAttentionNorm, Of::kLayer, Dim::kHidden, Dim::kNone, Has<&LayerSpec::post_attention>,
     HasBias<&LayerSpec::post_attention>},
    {Id::kPreMlpNorm, Of::kLayer, Dim::kHidden, Dim::kNone, Has<&LayerSpec::pre_mlp>,
     HasBias<&LayerSpec::pre_mlp>},
    {Id::kGate, Of::kDenseLayer, Dim::kFeedForward, Dim::kHidden, Gated, MlpBias},
    {Id::kUp, Of::kDenseLayer, Dim::kFeedForward, Dim::kHidden, Always, MlpBias},
    {Id::kGateUp, Of::kDenseLayer, Dim::kGateUp, Dim::kHidden, Gated, MlpBias},
    {Id::kDown, Of::kDenseLayer, Dim::kHidden, Dim::kFeedForward, Always, MlpBias},
    {Id::kRouter, Of::kExpertLayer, Dim::kExperts, Dim::kHidden, Always, RouterBias},
    {Id::kChoiceBias, Of::kExpertLayer, Dim::kExperts, Dim::kNone, ChoiceBias},
    {Id::kExpertGate, Of::kExpert, Dim::kExpertWidth, Dim::kHidden, Always, ExpertBias},
    {Id::kExpertUp, Of::kExpert, Dim::kExpertWidth, Dim::kHidden, Always, ExpertBias},
    {Id::kExpertGateUp, Of::kExpert, Dim::kExpertGateUp, Dim::kHidden, Always, ExpertBias},
    {Id::kExpertDown, Of::kExpert, Dim::kHidden, Dim::kExpertWidth, Always, ExpertBias},
    {Id::kSharedGate, Of::kExpertLayer, Dim::kSharedWidth, Dim::kHidden, SharedExpert, MlpBias},
    {Id::kSharedUp, Of::kExpertLayer, Dim::kSharedWidth, Dim::kHidden, SharedExpert, MlpBias},
    {Id::kSharedDown, Of::kExpertLayer, Dim::kHidden, Dim::kSharedWidth, SharedExpert, MlpBias},
    {Id::kSharedRouter, Of::kExpertLayer, Dim::kOne, Dim::kHidden, SharedRouter},
    {Id::kPostMlpNorm, Of::kLayer, Dim::kHidden, Dim::kNone, Has<&LayerSpec::post_mlp>,
     HasBias<&LayerSpec::post_mlp>},
};

int64_t Size(Config c, Dim dim) {
  const LatentSpec& latent = c.layer.attention.latent;
  switch (dim) {
    case Dim::kNone:
      return 1;
    case Dim::kHidden:
      return c.hidden;
    case Dim::kQ:
      return c.heads * c.head_dim;
    case Dim::kKv:
      return c.kv_heads * c.head_dim;
    case Dim::kQkv:
      return (c.heads + 2 * c.kv_heads) * c.head_dim;
    case Dim::kHeads:
      return c.heads;
    case Dim::kHeadDim:
      return c.head_dim;
    case Dim::kQNorm:
    case Dim::kKNorm:
      if (c.layer.attention.qk_norm_over == QkNormOver::kHead) return c.head_dim;
      return (dim == Dim::kQNorm ? c.heads : c.kv_heads) * c.head_dim;
    case Dim::kFeedForward:
      return c.feed_forward;
    case Dim::kGateUp:
      return 2 * c.feed_forward;
    case Dim::kVocab:
      return c.vocab;
    case Dim::kEmbedding:
      return Projects(c) ? c.encoder->embedding_dim : c.hidden;
    case Dim::kPositions:
      return c.plan.learned ? c.plan.learned->first_row + c.plan.learned->positions
                            : c.encoder->mask_decoder_positions;
    case Dim::kTokenTypes:
      return c.encoder->token_types;
    case Dim::kBuckets:
      return BiasOf<T5LayerBias>(c)->bias.buckets;
    case Dim::kDistances:
      return 2 * BiasOf<DebertaLayerBias>(c)->bias.Span();
    case Dim::kAttended:
      return c.heads * c.value_dim();
    case Dim::kQRank:
      return latent.q_rank;
    case Dim::kKvRank:
      return latent.kv_rank;
    case Dim::kKvA:
      return latent.kv_rank + latent.rotary_dim;
    case Dim::kKvB:
      return c.heads * (c.head_dim - latent.rotary_dim + latent.value_dim);
    case Dim::kPlainKey:
      return c.head_dim - latent.rotary_dim;
    case Dim::kValue:
      return latent.value_dim;
    case Dim::kExperts:
      return c.experts.count;
    case Dim::kExpertWidth:
      return c.experts.feed_forward;
    case Dim::kExpertGateUp:
      return 2 * c.experts.feed_forward;
    case Dim::kSharedWidth:
      return c.experts.shared_feed_forward;
    case Dim::kOne:
      return 1;
  }
  return 0;
}

// Matrices that the tensor holds one behind the other; 0: it is one, without a dimension for that.
int64_t MatricesOf(const Row& row, Config c, const TensorNames& names) {
  if (row.of == Of::kHeads) return c.heads;
  return row.of == Of::kExpert && names.experts_stacked ? c.experts.count : 0;
}

// Whether the layer has the row's tensor; layer -1: the model.
bool Exists(const Row& row, Config c, int64_t layer) {
  if ((row.of == Of::kModel) != (layer < 0) || !row.exists(c)) return false;
  if (row.of == Of::kModel || row.of == Of::kLayer || row.of == Of::kHeads) return true;
  return c.experts.In(layer) == (row.of != Of::kDenseLayer);
}

std::vector<int64_t> ShapeOf(const Row& row, Config c, const TensorNames& names) {
  if (row.cols == Dim::kNone) {
    const int64_t size = Size(c, row.rows);
    const bool by_head = c.layer.attention.qk_norm_over == QkNormOver::kEachHead &&
                         (row.rows == Dim::kQNorm || row.rows == Dim::kKNorm);
    return by_head ? std::vector<int64_t>{size / c.head_dim, c.head_dim}
                   : std::vector<int64_t>{size};
  }
  const bool transposed = names.IsTransposed(row.id);
  std::vector<int64_t> shape;
  if (const int64_t matrices = MatricesOf(row, c, names); matrices > 0) shape.push_back(matrices);
  shape.push_back(Size(c, transposed ? row.cols : row.rows));
  const Dim last = transposed ? row.rows : row.cols;
  if (names.heads_apart && (last == Dim::kQ || last == Dim::kAttended || last == Dim::kKv)) {
    shape.insert(shape.end(), {last == Dim::kKv ? c.kv_heads : c.heads, c.head_dim});
  } else {
    shape.push_back(Size(c, last));
  }
  return shape;
}

bool IsOfHead(TensorId id) {
  return id == Id::kHead || id == Id::kMaskedDense || id == Id::kMaskedNorm ||
         id == Id::kMaskedBias;
}

bool IsOfMaskedHead(const TensorNames& names, const std::string& name) {
  return !names.masked_head.empty() && name.starts_with(names.masked_head);
}

std::string FullName(const Row& row, Config config, Naming naming, const ExpectedTensor& t) {
  const TensorNames& names = NamesOf(config, naming);
  const TensorName* name = nullptr;
  if (row.id == Id::kUp && config.layer.mlp.gated) name = names.Find(Id::kGatedUp);
  if (name == nullptr) name = names.Find(row.id);
  if (name == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a '{}' model has tensors that have no name here; it cannot be written",
                            config.architecture));
  }
  const bool below_root = !config.bare_names && !IsOfHead(row.id);
  std::string full = name->name;
  if (const std::size_t star = full.find('*'); star != std::string::npos) {
    full.replace(star, 1, fmt::format("{}", t.expert));
  }
  const char* bias = name->weight[0] == '\0' ? "_bias" : ".bias";
  return fmt::format("{}{}{}{}", below_root ? names.root : "",
                     t.layer >= 0 ? fmt::format("{}{}.", names.layers, t.layer) : std::string(),
                     full, t.bias ? bias : name->weight);
}

// TensorFlow's words for a norm, T5 saved without the shared table, a bias where it is tied to; else
// empty.
std::string OtherSpelling(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"LayerNorm.weight", "LayerNorm.gamma"},
      {"LayerNorm.bias", "LayerNorm.beta"},
      {"shared.weight", "encoder.embed_tokens.weight"},
      {"cls.predictions.bias", "cls.predictions.decoder.bias"},
      {"lm_head.bias", "lm_head.decoder.bias"}};
  for (const auto& [end, other] : kSpellings) {
    if (name.ends_with(end)) {
      return name.substr(0, name.size() - end.size()) + std::string(other);
    }
  }
  return "";
}

// Tensors that repeat what the configuration says, that a tied head makes superfluous, or that are
// no part of what is computed.
bool Harmless(Config config, Naming naming, const std::string& name) {
  const TensorNames& names = NamesOf(config, naming);
  if (config.tied_head) {
    const bool named = config.encoder != nullptr || naming == Naming::kGguf;
    const TensorName* head = named ? names.Find(Id::kHead) : nullptr;
    const std::string product = head == nullptr ? "lm_head" : head->name;
    if (name == product + ".weight") return true;
    if (DenseHead(config) && name == product + ".bias") return true;  // tied to the head's
  }
  const std::string_view root = config.bare_names ? "" : names.root;
  const std::string bare = name.starts_with(root) ? name.substr(root.size()) : name;
  for (int64_t l = config.layers; l < config.layers + config.further_layers; ++l) {
    if (bare.starts_with(fmt::format("{}{}.", names.layers, l))) return true;
  }
  const std::vector<std::string> ends = WordsOf(names.harmless), beside = WordsOf(names.beside);
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return name.ends_with(end); }) ||
         (!IsOfMaskedHead(names, name) &&
          std::any_of(beside.begin(), beside.end(),
                      [&](const std::string& part) { return bare.starts_with(part); }));
}

// ggml has four dimensions, of which a file leaves out the last ones that are 1.
bool HasShape(const Weight& weight, const ExpectedTensor& t, Naming naming) {
  if (weight.shape == t.shape) return true;
  return naming == Naming::kGguf && t.shape.size() == 2 && t.shape[0] == 1 &&
         weight.shape == std::vector<int64_t>{t.shape[1]};
}

}  // namespace

const TensorNames& NamesOf(Config c, Naming naming) {
  const bool own = (naming == Naming::kGguf) == (c.format == FileFormat::kGguf);
  if (own && c.tensor_names != nullptr) return *c.tensor_names;
  const Family* family = FindFamily(c.architecture);
  const Block* block = family == nullptr ? nullptr : family->block;
  const bool two_norms = block != nullptr && block->two_norms != nullptr &&
                         c.layer.residual == Residual::kParallel && c.layer.pre_mlp.exists();
  if (two_norms) return naming == Naming::kGguf ? kGgufTwoNormNames : *block->two_norms;
  if (naming == Naming::kGguf) return block == nullptr ? kGgufNames : *block->gguf_names;
  return block == nullptr ? kLlamaNames : *block->names;
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming) {
  const TensorNames& names = NamesOf(config, naming);
  std::vector<ExpectedTensor> all;
  const auto add = [&](const Row& row, int64_t layer, int64_t expert) {
    ExpectedTensor t;
    t.id = row.id;
    t.layer = layer;
    t.expert = expert;
    t.matrices = MatricesOf(row, config, names);
    t.optional = row.id == Id::kPositions && MaskDecoder(config);
    t.name = FullName(row, config, naming, t);
    t.shape = ShapeOf(row, config, names);
    if (row.id != Id::kHead || !config.tied_head) all.push_back(t);
    if (row.has_bias == nullptr || !row.has_bias(config)) return;
    t.bias = true;
    t.optional = row.id == Id::kHead && config.masked_head;
    t.name = FullName(row, config, naming, t);
    t.shape = {Size(config, row.rows)};
    if (t.matrices > 0) t.shape.insert(t.shape.begin(), t.matrices);
    all.push_back(t);
  };
  for (int64_t layer = -1; layer < config.layers; ++layer) {
    for (const Row& row : kTable) {
      if (!Exists(row, config, layer) || !HasPlace(row.id, names)) continue;
      const bool each = row.of == Of::kExpert && !names.experts_stacked;
      for (int64_t e = 0; e < (each ? config.experts.count : 1); ++e) {
        add(row, layer, each ? e : -1);
      }
    }
  }
  for (EncodingTensor& t : EncodingTensors(config)) {
    all.push_back({.id = TensorId::kEncoding,
                   .layer = t.layer,
                   .name = std::move(t.name),
                   .shape = std::move(t.shape)});
  }
  return all;
}

const Weight* FindTensor(const std::map<std::string, Weight>& tensors, const std::string& name) {
  auto it = tensors.find(name);
  if (it == tensors.end()) it = tensors.find(OtherSpelling(name));
  return it == tensors.end() ? nullptr : &it->second;
}

void CheckTensors(ModelConfig& config, const std::map<std::string, Weight>& tensors, Naming naming,
                  const std::string& file) {
  if (config.layers > static_cast<int64_t>(tensors.size())) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: the configuration says {} layers but there are only {} tensors; "
                            "is a weight file missing?",
                            file, config.layers, tensors.size()));
  }
  const int64_t experts = config.experts.count;
  const auto with_experts =
      std::count(config.experts.layers.begin(), config.experts.layers.end(), true);
  if (!NamesOf(config, naming).experts_stacked && with_experts > 0 &&
      experts > static_cast<int64_t>(tensors.size()) / with_experts) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: the configuration says {} experts in {} layers but there are only "
                            "{} tensors; is a weight file missing?",
                            file, experts, with_experts, tensors.size()));
  }
  const std::string root = NamesOf(config, naming).root;
  config.bare_names = !root.empty() && std::none_of(tensors.begin(), tensors.end(), [&](auto& t) {
    return t.first.starts_with(root);
  });
  config.masked_head =
      config.encoder != nullptr &&
      (config.encoder->plain_head || std::any_of(tensors.begin(), tensors.end(), [&](auto& t) {
         return IsOfMaskedHead(NamesOf(config, naming), t.first);
       }));
  if (config.experts.biased_by_files) {
    config.experts.biased = std::any_of(tensors.begin(), tensors.end(), [](auto& t) {
      return t.first.find(".experts.") != std::string::npos && t.first.ends_with(".bias");
    });
  }
  std::set<const Weight*> known;
  for (const ExpectedTensor& t : ExpectedTensors(config, naming)) {
    const Weight* weight = FindTensor(tensors, t.name);
    if (weight == nullptr && t.optional) continue;
    if (weight == nullptr) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' is missing (expected shape [{}]); is a weight file "
                              "missing, or is this another architecture than '{}'?",
                              file, t.name, fmt::join(t.shape, ", "), config.architecture));
    }
    if (!HasShape(*weight, t, naming)) {
      throw Error(
          ErrorCode::kInvalidFile,
          fmt::format("{}: tensor '{}' has shape [{}], the configuration says [{}]; the "
                      "weights belong to another configuration",
                      file, t.name, fmt::join(weight->shape, ", "), fmt::join(t.shape, ", ")));
    }
    known.insert(weight);
  }
  for (const auto& [name, weight] : tensors) {
    if (known.contains(&weight)) continue;
    if (!Harmless(config, naming, name)) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' with shape [{}] has no place in a '{}' model; its "
                              "part of the model would be ignored",
                              file, name, fmt::join(weight.shape, ", "), config.architecture));
    }
    config.harmless_keys.push_back("tensor " + name);
  }
}

}  // namespace ropewalk::internal
