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
  kHeadDim,
  kFeedForward,
  kVocab,
  kPositions
};
using Style = BlockStyle;

bool Always(const ModelConfig&) { return true; }
bool Split(const ModelConfig& c) { return c.block.qkv == Style::Qkv::kSplit; }
bool Fused(const ModelConfig& c) { return !Split(c); }
bool SplitBias(const ModelConfig& c) { return Split(c) && c.qkv_bias; }
bool FusedBias(const ModelConfig& c) { return Fused(c) && c.qkv_bias; }
bool OutBias(const ModelConfig& c) { return c.out_bias; }
bool MlpBias(const ModelConfig& c) { return c.mlp_bias; }
bool Gated(const ModelConfig& c) { return c.block.gated; }
bool GateBias(const ModelConfig& c) { return c.block.gated && c.mlp_bias; }
bool QkNorm(const ModelConfig& c) { return c.qk_norm; }
bool Untied(const ModelConfig& c) { return !c.tied_head; }
bool HeadBias(const ModelConfig& c) { return c.block.head_bias; }
bool Learned(const ModelConfig& c) { return c.plan.learned.has_value(); }
bool NormBias(const ModelConfig& c) {
  return c.block.norm == Style::Norm::kLayer && c.block.norm_bias;
}
bool EmbeddingNorm(const ModelConfig& c) { return c.block.embedding_norm; }
bool EmbeddingNormBias(const ModelConfig& c) { return EmbeddingNorm(c) && NormBias(c); }
bool SecondNorm(const ModelConfig& c) { return !c.block.one_norm; }
bool SecondNormBias(const ModelConfig& c) { return SecondNorm(c) && NormBias(c); }

struct Row {
  TensorId id;
  TensorId weight;  // itself, or what it is the bias of
  bool per_layer;
  Dim rows, cols;  // cols kNone: a vector of `rows`
  bool (*exists)(const ModelConfig&);
  bool transposable = false;  // stored [cols, rows] where the style is so
};

using Id = TensorId;
constexpr Row kTable[] = {
    {Id::kEmbedding, Id::kEmbedding, false, Dim::kVocab, Dim::kHidden, Always},
    {Id::kPositions, Id::kPositions, false, Dim::kPositions, Dim::kHidden, Learned},
    {Id::kEmbeddingNorm, Id::kEmbeddingNorm, false, Dim::kHidden, Dim::kNone, EmbeddingNorm},
    {Id::kEmbeddingNormBias, Id::kEmbeddingNorm, false, Dim::kHidden, Dim::kNone,
     EmbeddingNormBias},
    {Id::kFinalNorm, Id::kFinalNorm, false, Dim::kHidden, Dim::kNone, Always},
    {Id::kFinalNormBias, Id::kFinalNorm, false, Dim::kHidden, Dim::kNone, NormBias},
    {Id::kHead, Id::kHead, false, Dim::kVocab, Dim::kHidden, Untied},
    {Id::kHeadBias, Id::kHead, false, Dim::kVocab, Dim::kNone, HeadBias},
    {Id::kAttentionNorm, Id::kAttentionNorm, true, Dim::kHidden, Dim::kNone, Always},
    {Id::kAttentionNormBias, Id::kAttentionNorm, true, Dim::kHidden, Dim::kNone, NormBias},
    {Id::kQ, Id::kQ, true, Dim::kQ, Dim::kHidden, Split},
    {Id::kK, Id::kK, true, Dim::kKv, Dim::kHidden, Split},
    {Id::kV, Id::kV, true, Dim::kKv, Dim::kHidden, Split},
    {Id::kQkv, Id::kQkv, true, Dim::kQkv, Dim::kHidden, Fused, true},
    {Id::kO, Id::kO, true, Dim::kHidden, Dim::kQ, Always, true},
    {Id::kQBias, Id::kQ, true, Dim::kQ, Dim::kNone, SplitBias},
    {Id::kKBias, Id::kK, true, Dim::kKv, Dim::kNone, SplitBias},
    {Id::kVBias, Id::kV, true, Dim::kKv, Dim::kNone, SplitBias},
    {Id::kQkvBias, Id::kQkv, true, Dim::kQkv, Dim::kNone, FusedBias},
    {Id::kOBias, Id::kO, true, Dim::kHidden, Dim::kNone, OutBias},
    {Id::kQNorm, Id::kQNorm, true, Dim::kHeadDim, Dim::kNone, QkNorm},
    {Id::kKNorm, Id::kKNorm, true, Dim::kHeadDim, Dim::kNone, QkNorm},
    {Id::kFeedForwardNorm, Id::kFeedForwardNorm, true, Dim::kHidden, Dim::kNone, SecondNorm},
    {Id::kFeedForwardNormBias, Id::kFeedForwardNorm, true, Dim::kHidden, Dim::kNone,
     SecondNormBias},
    {Id::kGate, Id::kGate, true, Dim::kFeedForward, Dim::kHidden, Gated},
    {Id::kUp, Id::kUp, true, Dim::kFeedForward, Dim::kHidden, Always, true},
    {Id::kDown, Id::kDown, true, Dim::kHidden, Dim::kFeedForward, Always, true},
    {Id::kGateBias, Id::kGate, true, Dim::kFeedForward, Dim::kNone, GateBias},
    {Id::kUpBias, Id::kUp, true, Dim::kFeedForward, Dim::kNone, MlpBias},
    {Id::kDownBias, Id::kDown, true, Dim::kHidden, Dim::kNone, MlpBias},
};

int64_t Size(const ModelConfig& c, Dim dim) {
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
    case Dim::kHeadDim:
      return c.head_dim;
    case Dim::kFeedForward:
      return c.feed_forward;
    case Dim::kVocab:
      return c.vocab;
    case Dim::kPositions:
      return c.plan.learned ? c.plan.learned->first_row + c.plan.learned->positions : 0;
  }
  return 0;
}

const TensorNames& NamesOf(const ModelConfig& c, Naming naming) {
  if (naming == Naming::kGguf) return kGgufNames;
  return c.tensor_names != nullptr ? *c.tensor_names : kLlamaNames;
}

std::string FullName(const Row& row, const ModelConfig& config, Naming naming, int64_t layer) {
  const TensorNames& names = NamesOf(config, naming);
  const char* stem = names.Find(row.weight);
  if (stem == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a '{}' model has tensors that have no name here; it cannot be written",
                            config.architecture));
  }
  std::string name = row.per_layer ? fmt::format("{}{}.{}", names.layers, layer, stem) : stem;
  if (config.bare_names && name.starts_with(names.root)) {
    name.erase(0, std::string_view(names.root).size());
  }
  return name + (row.id == row.weight ? ".weight" : ".bias");
}

// Tensors that repeat what the configuration says, or that a tied head makes superfluous.
bool Harmless(const ModelConfig& config, Naming naming, const std::string& name) {
  if (naming == Naming::kHuggingFace && config.tied_head && name == "lm_head.weight") return true;
  const std::vector<std::string> ends = Words(NamesOf(config, naming).harmless);
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return name.ends_with(end); });
}

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming) {
  std::vector<ExpectedTensor> all;
  for (int64_t layer = -1; layer < config.layers; ++layer) {
    for (const Row& row : kTable) {
      if (row.per_layer != (layer >= 0) || !row.exists(config)) continue;
      std::vector<int64_t> shape = {Size(config, row.rows)};
      if (row.cols != Dim::kNone) shape.push_back(Size(config, row.cols));
      if (row.transposable && config.block.transposed) std::swap(shape[0], shape[1]);
      all.push_back({row.id, layer, FullName(row, config, naming, layer), std::move(shape)});
    }
  }
  return all;
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
  std::set<std::string> known;
  for (const ExpectedTensor& t : ExpectedTensors(config, naming)) {
    const auto it = tensors.find(t.name);
    if (it == tensors.end()) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' is missing (expected shape [{}]); is a weight file "
                              "missing, or is this another architecture than '{}'?",
                              file, t.name, fmt::join(t.shape, ", "), config.architecture));
    }
    if (it->second.shape != t.shape) {
      throw Error(
          ErrorCode::kInvalidFile,
          fmt::format("{}: tensor '{}' has shape [{}], the configuration says [{}]; the "
                      "weights belong to another configuration",
                      file, t.name, fmt::join(it->second.shape, ", "), fmt::join(t.shape, ", ")));
    }
    known.insert(t.name);
  }
  for (const auto& [name, weight] : tensors) {
    if (known.contains(name)) continue;
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
