#include "src/config/hf/alibi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/block.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

// Of attn_config: flags whose other value transformers does not compute, or not as its authors do.
struct AttentionFlag {
  const char* key;
  bool value;
  const char* why;
};
constexpr AttentionFlag kAttentionFlags[] = {
    {"alibi", true, "transformers' MPT adds ALiBi all the same, so that no code runs it"},
    {"rope", false, "transformers' MPT does not rotate"},
    {"prefix_lm", false, "tokens of a prefix see what lies ahead"},
    {"qk_ln", false, "transformers' MPT has no norms of q and k"},
    {"qk_gn", false, "transformers' MPT has no norms of q and k"},
    {"fused_qkv", true, "transformers' MPT reads q, k and v from one tensor"},
};
// Numbers and objects of attn_config that are refused where they are given at all.
constexpr const char* kAttentionAbsent[] = {"attn_logit_softcapping", "reuse_kv_layer_idx",
                                            "reuse_kv_x_layer_idx", "sliding_window_size"};
// Without effect on one sequence that is read from its beginning to its end.
constexpr const char* kAttentionHarmless[] = {
    "attn_impl",           "attn_pdrop",       "attn_uses_sequence_id",
    "model_type",          "rope_dail_config", "rope_hf_config",
    "rope_impl",           "rope_theta",       "kv_dim",
    "transformers_version"};

void Refuse(const JsonObject& object, const char* key, const std::string& why, ModelConfig& c) {
  const json* value = object.Find(key);
  c.not_runnable = fmt::format("{}: {} is {}: the decoder does not compute it ({})", object.where(),
                               key, value != nullptr ? Shown(*value) : "absent", why);
}

// Only what the decoder computes; everything else is a reason not to run.
void ReadMptAttention(const HfSource& source, const JsonObject& attn, ModelConfig& c) {
  if (attn.String("attn_type").value_or("multihead_attention") != "multihead_attention") {
    Refuse(attn, "attn_type", "transformers' MPT has as many key heads as query heads", c);
  }
  const auto kv_heads = attn.Int("kv_n_heads", 1, kMaxDim);
  if (kv_heads && *kv_heads != c.heads) {
    Refuse(attn, "kv_n_heads", "transformers' MPT has as many key heads as query heads", c);
  }
  for (const char* key : kAttentionAbsent) {
    const json* value = attn.Find(key);
    if (value == nullptr || *value == -1) continue;  // -1: no window
    Refuse(attn, key, "transformers' MPT does not read it", c);
  }
  for (const AttentionFlag& flag : kAttentionFlags) {
    if (attn.Bool(flag.key).value_or(flag.value) != flag.value) Refuse(attn, flag.key, flag.why, c);
  }
  c.layer.attention.clip_qkv = attn.Number("clip_qkv", 0, 1e9).value_or(0);
  c.layer.attention.score_scale = attn.Number("softmax_scale", 1e-9, 1e9).value_or(0);
  attn.Number("alibi_bias_max", 1e-3, 100);  // ReadAlibi's
  for (const char* key : kAttentionHarmless) attn.Find(key);
  SortAttentionKeys(source, attn, c);
}

// llm-foundry's feed-forward layers; transformers has one kind.
void ReadMptFeedForward(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  if (const auto ratio = top.Number("expansion_ratio", 1e-3, 1e3); ratio && *ratio != 4) {
    Refuse(top, "expansion_ratio", "transformers' MPT widens 4 times", c);
  }
  const json* value = top.Find("ffn_config");
  if (value == nullptr) return;
  const JsonObject ffn(*value, top.where() + ": ffn_config");
  if (ffn.String("ffn_type").value_or("mptmlp") != "mptmlp") {
    Refuse(ffn, "ffn_type", "transformers' MPT has a GELU between two matrices", c);
  }
  for (const char* key : {"ffn_act_fn", "ffn_hidden_size"}) {
    if (ffn.Has(key)) Refuse(ffn, key, "transformers' MPT does not read it", c);
  }
}

}  // namespace

void SortAttentionKeys(const HfSource& source, const JsonObject& attn, ModelConfig& c) {
  for (const auto& [key, value] : attn.value().items()) {
    // transformers 5 writes what every configuration has into attn_config too.
    if (attn.asked().contains(key) || value.is_null() || IsHarmless(key)) continue;
    const std::string message =
        fmt::format("{}: unknown key {} = {}{}", attn.where(), Shown(json(key)), Shown(value),
                    DidYouMean(key, {attn.asked().begin(), attn.asked().end()}));
    if (IsAboutPositions(key) && !source.allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message +
                      "; by its name it changes positions: remove it, or allow unknown "
                      "keys (--allow-unknown)");
    }
    const std::string name = "attn_config." + key;  // MPT's is read for its bias and its rotation
    auto& unknown = c.unknown_keys;
    if (std::find(unknown.begin(), unknown.end(), name) != unknown.end()) continue;
    unknown.push_back(name);
    if (IsAboutPositions(key)) c.not_honoured.push_back(message + "; ignored");
  }
}

void ReadAlibi(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  if (c.heads > kMaxAlibiHeads) {
    throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: {} heads: at most {} with ALiBi",
                                                       top.where(), c.heads, kMaxAlibiHeads));
  }
  AlibiBias alibi;
  if (source.family.block != nullptr && source.family.block->falcon_alibi) {
    alibi.bfloat16 = true;
    alibi.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
    c.plan.notes.push_back(
        "transformers multiplies slopes and positions in bfloat16, which makes steps of its bias: "
        "float32 angles compute them, exact ones the straight line");
    if (top.Has("rope_scaling")) {
      throw Error(ErrorCode::kInvalidConfig,
                  top.where() + ": rope_scaling: with alibi nothing rotates; remove it");
    }
  }
  if (source.family.Takes("alibi_bias_max")) {
    alibi.max_bias = top.Number("alibi_bias_max", 1e-3, 100).value_or(8);
  }
  if (const json* value = top.Find("attn_config");
      value != nullptr && source.family.Takes("attn_config")) {
    const JsonObject attn(*value, top.where() + ": attn_config");
    alibi.max_bias = attn.Number("alibi_bias_max", 1e-3, 100).value_or(8);
    if (alibi.max_bias != 8) {
      c.plan.notes.push_back(fmt::format(
          "alibi_bias_max is {:g}, as the model was trained; transformers 4.57 does not read it "
          "and computes with 8",
          alibi.max_bias));
    }
  }
  for (LayerPlan& layer : c.plan.layers) layer.bias = LayerBias{c.heads, alibi};
}

void ReadBloom(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  if (top.Bool("apply_residual_connection_post_layernorm").value_or(false)) {
    c.layer.residual = Residual::kNormedInput;
  }
  const bool slow = top.Bool("slow_but_exact").value_or(false);
  if (top.Int("pretraining_tp", 0, kMaxDim).value_or(1) > 1 && slow) {
    Refuse(top, "slow_but_exact",
           "with pretraining_tp above 1 transformers then leaves out the biases of two layers; "
           "say false: it is about rounding alone",
           c);
  }
}

void ReadMpt(const HfSource& source, ModelConfig& c) {
  const JsonObject& top = source.top;
  const std::string norm = top.String("norm_type").value_or("low_precision_layernorm");
  if (norm != "low_precision_layernorm" && norm != "layernorm") {
    Refuse(top, "norm_type", "transformers' MPT has LayerNorm", c);
  }
  for (const char* key : {"logit_scale", "block_overrides"}) {
    if (top.Has(key)) Refuse(top, key, "transformers' MPT does not read it", c);
  }
  ReadMptFeedForward(source, c);
  if (const json* value = top.Find("attn_config")) {
    ReadMptAttention(source, JsonObject(*value, top.where() + ": attn_config"), c);
  }
}

}  // namespace ropewalk::internal
