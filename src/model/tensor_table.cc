#include "src/model/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/config/family.h"

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
  kPositions,
  kTokenTypes,
  kBuckets,
  kDistances
};

using Config = const ModelConfig&;

// Which tensors there are follows from the names that the family has in Hugging Face files.
const TensorNames& HfNamesOf(Config c) {
  return c.tensor_names != nullptr ? *c.tensor_names : kLlamaNames;
}

bool Always(Config) { return true; }
bool Fused(Config c) { return HfNamesOf(c).qkv != TensorNames::Qkv::kSplit; }
bool Split(Config c) { return !Fused(c); }
bool QkvBias(Config c) { return c.layer.attention.qkv_bias; }
bool OutBias(Config c) { return c.layer.attention.out_bias; }
bool MlpBias(Config c) { return c.layer.mlp.bias; }
bool GateUp(Config c) { return HfNamesOf(c).Find(TensorId::kGateUp) != nullptr; }
bool Gate(Config c) { return c.layer.mlp.gated && !GateUp(c); }
bool Up(Config c) { return !GateUp(c); }
bool QkNorm(Config c) { return c.layer.attention.qk_norm.exists(); }
bool Untied(Config c) { return c.encoder == nullptr && !c.tied_head; }
bool HeadBias(Config c) { return c.head_bias; }
bool TokenTypes(Config c) { return c.encoder != nullptr && c.encoder->token_types > 0; }
bool MaskDecoder(Config c) {
  return c.encoder != nullptr && !c.plan.learned && c.encoder->mask_decoder_positions > 0;
}
bool Positions(Config c) { return c.plan.learned.has_value() || MaskDecoder(c); }
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

struct Row {
  TensorId id;
  bool per_layer;
  Dim rows, cols;  // cols kNone: a vector of `rows`
  bool (*exists)(Config);
  bool (*has_bias)(Config) = nullptr;
};

using Id = TensorId;
constexpr Row kTable[] = {
    {Id::kEmbedding, false, Dim::kVocab, Dim::kHidden, Always},
    {Id::kPositions, false, Dim::kPositions, Dim::kHidden, Positions},
    {Id::kTokenTypes, false, Dim::kTokenTypes, Dim::kHidden, TokenTypes},
    {Id::kEmbeddingNorm, false, Dim::kHidden, Dim::kNone, Has<&ModelConfig::embedding_norm>,
     HasBias<&ModelConfig::embedding_norm>},
    {Id::kFinalNorm, false, Dim::kHidden, Dim::kNone, Has<&ModelConfig::final_norm>,
     HasBias<&ModelConfig::final_norm>},
    {Id::kHead, false, Dim::kVocab, Dim::kHidden, Untied, HeadBias},
    {Id::kSharedBuckets, false, Dim::kBuckets, Dim::kHeads, SharedBuckets},
    {Id::kDistances, false, Dim::kDistances, Dim::kHidden, Distances},
    {Id::kDistancesNorm, false, Dim::kHidden, Dim::kNone, DistancesNorm, DistancesNorm},
    {Id::kPreAttentionNorm, true, Dim::kHidden, Dim::kNone, Has<&LayerSpec::pre_attention>,
     HasBias<&LayerSpec::pre_attention>},
    {Id::kQ, true, Dim::kQ, Dim::kHidden, Split, QkvBias},
    {Id::kK, true, Dim::kKv, Dim::kHidden, Split, QkvBias},
    {Id::kV, true, Dim::kKv, Dim::kHidden, Split, QkvBias},
    {Id::kQkv, true, Dim::kQkv, Dim::kHidden, Fused, QkvBias},
    {Id::kBuckets, true, Dim::kBuckets, Dim::kHeads, Buckets},
    {Id::kDistanceKey, true, Dim::kQ, Dim::kHidden, DistanceKey, Always},
    {Id::kDistanceQuery, true, Dim::kQ, Dim::kHidden, DistanceQuery, Always},
    {Id::kDistanceProjection, true, Dim::kQ, Dim::kHidden, TransformerXl},
    {Id::kContentBias, true, Dim::kHeads, Dim::kHeadDim, TransformerXl},
    {Id::kPositionBias, true, Dim::kHeads, Dim::kHeadDim, TransformerXl},
    {Id::kO, true, Dim::kHidden, Dim::kQ, Always, OutBias},
    {Id::kQNorm, true, Dim::kQNorm, Dim::kNone, QkNorm},
    {Id::kKNorm, true, Dim::kKNorm, Dim::kNone, QkNorm},
    {Id::kPostAttentionNorm, true, Dim::kHidden, Dim::kNone, Has<&LayerSpec::post_attention>,
     HasBias<&LayerSpec::post_attention>},
    {Id::kPreMlpNorm, true, Dim::kHidden, Dim::kNone, Has<&LayerSpec::pre_mlp>,
     HasBias<&LayerSpec::pre_mlp>},
    {Id::kGate, true, Dim::kFeedForward, Dim::kHidden, Gate, MlpBias},
    {Id::kUp, true, Dim::kFeedForward, Dim::kHidden, Up, MlpBias},
    {Id::kGateUp, true, Dim::kGateUp, Dim::kHidden, GateUp, MlpBias},
    {Id::kDown, true, Dim::kHidden, Dim::kFeedForward, Always, MlpBias},
    {Id::kPostMlpNorm, true, Dim::kHidden, Dim::kNone, Has<&LayerSpec::post_mlp>,
     HasBias<&LayerSpec::post_mlp>},
};

int64_t Size(Config c, Dim dim) {
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
    case Dim::kPositions:
      return c.plan.learned ? c.plan.learned->first_row + c.plan.learned->positions
                            : c.encoder->mask_decoder_positions;
    case Dim::kTokenTypes:
      return c.encoder->token_types;
    case Dim::kBuckets:
      return BiasOf<T5LayerBias>(c)->bias.buckets;
    case Dim::kDistances:
      return 2 * BiasOf<DebertaLayerBias>(c)->bias.Span();
  }
  return 0;
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
  std::vector<int64_t> shape = {Size(c, transposed ? row.cols : row.rows)};
  const Dim last = transposed ? row.rows : row.cols;
  if (names.heads_apart && (last == Dim::kQ || last == Dim::kKv)) {
    shape.insert(shape.end(), {last == Dim::kQ ? c.heads : c.kv_heads, c.head_dim});
  } else {
    shape.push_back(Size(c, last));
  }
  return shape;
}

std::string FullName(const Row& row, Config config, Naming naming, int64_t layer, bool bias) {
  const TensorNames& names = NamesOf(config, naming);
  const TensorName* name = nullptr;
  if (row.id == Id::kUp && config.layer.mlp.gated) name = names.Find(Id::kGatedUp);
  if (name == nullptr) name = names.Find(row.id);
  if (name == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a '{}' model has tensors that have no name here; it cannot be written",
                            config.architecture));
  }
  const bool below_root = !config.bare_names && row.id != Id::kHead;
  return fmt::format("{}{}{}{}", below_root ? names.root : "",
                     row.per_layer ? fmt::format("{}{}.", names.layers, layer) : std::string(),
                     name->name, bias ? ".bias" : name->weight);
}

// TensorFlow's words for a norm, T5 saved without the shared table; else empty.
std::string OtherSpelling(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"LayerNorm.weight", "LayerNorm.gamma"},
      {"LayerNorm.bias", "LayerNorm.beta"},
      {"shared.weight", "encoder.embed_tokens.weight"}};
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
  if (naming == Naming::kHuggingFace && config.tied_head && name == "lm_head.weight") return true;
  const TensorNames& names = NamesOf(config, naming);
  const std::string_view root = config.bare_names ? "" : names.root;
  const std::string bare = name.starts_with(root) ? name.substr(root.size()) : name;
  const std::vector<std::string> ends = WordsOf(names.harmless), beside = WordsOf(names.beside);
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return name.ends_with(end); }) ||
         std::any_of(beside.begin(), beside.end(),
                     [&](const std::string& part) { return bare.starts_with(part); });
}

}  // namespace

const TensorNames& NamesOf(Config c, Naming naming) {
  return naming == Naming::kGguf ? kGgufNames : HfNamesOf(c);
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming) {
  const TensorNames& names = NamesOf(config, naming);
  std::vector<ExpectedTensor> all;
  for (int64_t layer = -1; layer < config.layers; ++layer) {
    for (const Row& row : kTable) {
      if (row.per_layer != (layer >= 0) || !row.exists(config)) continue;
      ExpectedTensor t = {row.id, false, layer, FullName(row, config, naming, layer, false),
                          ShapeOf(row, config, names)};
      t.optional = row.id == Id::kPositions && MaskDecoder(config);
      all.push_back(t);
      if (row.has_bias == nullptr || !row.has_bias(config)) continue;
      all.push_back({row.id,
                     true,
                     layer,
                     FullName(row, config, naming, layer, true),
                     {Size(config, row.rows)}});
    }
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
  const std::string root = NamesOf(config, naming).root;
  config.bare_names = !root.empty() && std::none_of(tensors.begin(), tensors.end(), [&](auto& t) {
    return t.first.starts_with(root);
  });
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
    if (weight->shape != t.shape) {
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
