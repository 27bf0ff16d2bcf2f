#include "src/model/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

enum class Dim : uint8_t { kNone, kHidden, kQ, kKv, kHeadDim, kFeedForward, kVocab };
enum class When : uint8_t { kAlways, kUntied, kQkvBias, kOutBias, kMlpBias, kQkNorm };

struct Row {
  TensorId id;
  bool per_layer;
  const char* hf;
  const char* gguf;
  Dim rows, cols;  // cols kNone: a vector of `rows`
  When when;
};

constexpr Row kTable[] = {
    {TensorId::kEmbedding, false, "model.embed_tokens.weight", "token_embd.weight", Dim::kVocab,
     Dim::kHidden, When::kAlways},
    {TensorId::kFinalNorm, false, "model.norm.weight", "output_norm.weight", Dim::kHidden,
     Dim::kNone, When::kAlways},
    {TensorId::kHead, false, "lm_head.weight", "output.weight", Dim::kVocab, Dim::kHidden,
     When::kUntied},
    {TensorId::kAttentionNorm, true, "input_layernorm.weight", "attn_norm.weight", Dim::kHidden,
     Dim::kNone, When::kAlways},
    {TensorId::kQ, true, "self_attn.q_proj.weight", "attn_q.weight", Dim::kQ, Dim::kHidden,
     When::kAlways},
    {TensorId::kK, true, "self_attn.k_proj.weight", "attn_k.weight", Dim::kKv, Dim::kHidden,
     When::kAlways},
    {TensorId::kV, true, "self_attn.v_proj.weight", "attn_v.weight", Dim::kKv, Dim::kHidden,
     When::kAlways},
    {TensorId::kO, true, "self_attn.o_proj.weight", "attn_output.weight", Dim::kHidden, Dim::kQ,
     When::kAlways},
    {TensorId::kQBias, true, "self_attn.q_proj.bias", "attn_q.bias", Dim::kQ, Dim::kNone,
     When::kQkvBias},
    {TensorId::kKBias, true, "self_attn.k_proj.bias", "attn_k.bias", Dim::kKv, Dim::kNone,
     When::kQkvBias},
    {TensorId::kVBias, true, "self_attn.v_proj.bias", "attn_v.bias", Dim::kKv, Dim::kNone,
     When::kQkvBias},
    {TensorId::kOBias, true, "self_attn.o_proj.bias", "attn_output.bias", Dim::kHidden, Dim::kNone,
     When::kOutBias},
    {TensorId::kQNorm, true, "self_attn.q_norm.weight", "attn_q_norm.weight", Dim::kHeadDim,
     Dim::kNone, When::kQkNorm},
    {TensorId::kKNorm, true, "self_attn.k_norm.weight", "attn_k_norm.weight", Dim::kHeadDim,
     Dim::kNone, When::kQkNorm},
    {TensorId::kFeedForwardNorm, true, "post_attention_layernorm.weight", "ffn_norm.weight",
     Dim::kHidden, Dim::kNone, When::kAlways},
    {TensorId::kGate, true, "mlp.gate_proj.weight", "ffn_gate.weight", Dim::kFeedForward,
     Dim::kHidden, When::kAlways},
    {TensorId::kUp, true, "mlp.up_proj.weight", "ffn_up.weight", Dim::kFeedForward, Dim::kHidden,
     When::kAlways},
    {TensorId::kDown, true, "mlp.down_proj.weight", "ffn_down.weight", Dim::kHidden,
     Dim::kFeedForward, When::kAlways},
    {TensorId::kGateBias, true, "mlp.gate_proj.bias", "ffn_gate.bias", Dim::kFeedForward,
     Dim::kNone, When::kMlpBias},
    {TensorId::kUpBias, true, "mlp.up_proj.bias", "ffn_up.bias", Dim::kFeedForward, Dim::kNone,
     When::kMlpBias},
    {TensorId::kDownBias, true, "mlp.down_proj.bias", "ffn_down.bias", Dim::kHidden, Dim::kNone,
     When::kMlpBias},
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
    case Dim::kHeadDim:
      return c.head_dim;
    case Dim::kFeedForward:
      return c.feed_forward;
    case Dim::kVocab:
      return c.vocab;
  }
  return 0;
}

bool Present(const ModelConfig& c, When when) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kUntied:
      return !c.tied_head;
    case When::kQkvBias:
      return c.qkv_bias;
    case When::kOutBias:
      return c.out_bias;
    case When::kMlpBias:
      return c.mlp_bias;
    case When::kQkNorm:
      return c.qk_norm;
  }
  return false;
}

std::string FullName(const Row& row, Naming naming, int64_t layer) {
  const bool hf = naming == Naming::kHuggingFace;
  const char* name = hf ? row.hf : row.gguf;
  if (!row.per_layer) return name;
  return hf ? fmt::format("model.layers.{}.{}", layer, name)
            : fmt::format("blk.{}.{}", layer, name);
}

// Tensors that repeat what the configuration says, or that a tied head makes superfluous.
bool Harmless(const ModelConfig& config, Naming naming, const std::string& name) {
  if (naming == Naming::kGguf) {
    return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
           name == "rope_factors_short.weight";
  }
  return name.ends_with("rotary_emb.inv_freq") || (name == "lm_head.weight" && config.tied_head);
}

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Naming naming) {
  std::vector<ExpectedTensor> all;
  for (int64_t layer = -1; layer < config.layers; ++layer) {
    for (const Row& row : kTable) {
      if (row.per_layer != (layer >= 0) || !Present(config, row.when)) continue;
      std::vector<int64_t> shape = {Size(config, row.rows)};
      if (row.cols != Dim::kNone) shape.push_back(Size(config, row.cols));
      all.push_back({row.id, layer, FullName(row, naming, layer), std::move(shape)});
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
