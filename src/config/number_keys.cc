#include "src/config/number_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {
namespace {

// Of the configurations of transformers 4.57 and of models that bring their own code; of llama.cpp
// on the right. Families that have one of them by right ask for it before this table is looked at.
constexpr NumberKey kNumberKeys[] = {
    // Soft caps and clips.
    {"attn_logit_softcapping", "attn_logit_softcapping", Neutral::kOff},
    {"final_logit_softcapping", "final_logit_softcapping", Neutral::kOff},
    {nullptr, "router_logit_softcapping", Neutral::kOff},
    {"logits_soft_cap", nullptr, Neutral::kOff},
    {"output_logit_soft_cap", nullptr, Neutral::kOff},
    {"max_attn_value", nullptr, Neutral::kOff},
    {"clip_qkv", "attention.clamp_kqv", Neutral::kOff},
    {nullptr, "swiglu_clamp_exp", Neutral::kOff},
    {nullptr, "swiglu_clamp_shexp", Neutral::kOff},
    // Multipliers.
    {"embedding_multiplier", "embedding_scale", Neutral::kOne},
    {"embedding_multiplier_scale", nullptr, Neutral::kOne},
    {"scale_emb", nullptr, Neutral::kOne},
    {"scale_embedding", nullptr, Neutral::kOff},
    {"rescale_embeddings", nullptr, Neutral::kOff},
    {"residual_multiplier", "residual_scale", Neutral::kOne},
    {"scale_depth", nullptr, Neutral::kOff},
    {"logits_scaling", nullptr, Neutral::kOne},
    {"logit_scale", "logit_scale", Neutral::kOne},
    {"lm_head_multiplier", nullptr, Neutral::kOne},
    {"output_multiplier_scale", nullptr, Neutral::kOne},
    {"dim_model_base", nullptr, Neutral::kHidden},
    {"mup_embedding_multiplier", nullptr, Neutral::kOne},
    {"mup_width_multiplier", nullptr, Neutral::kOne},
    {"mup_attn_multiplier", nullptr, Neutral::kOne},
    {"attention_in_multiplier", nullptr, Neutral::kOne},
    {"attention_out_multiplier", nullptr, Neutral::kOne},
    {"attn_output_multiplier", "attention.output_scale", Neutral::kOne},
    {"key_multiplier", nullptr, Neutral::kOne},
    {"mlp_multipliers", nullptr, Neutral::kOne},
    {nullptr, "expert_weights_scale", Neutral::kOne},
    {nullptr, "expert_group_scale", Neutral::kOne},
    {nullptr, "expert_latent_length", Neutral::kOff},
    {"full_attn_alpha_factor", nullptr, Neutral::kOne},
    {"full_attn_beta_factor", nullptr, Neutral::kOne},
    {"mlp_alpha_factor", nullptr, Neutral::kOne},
    {"mlp_beta_factor", nullptr, Neutral::kOne},
    // Scores.
    {"attention_multiplier", "attention.scale", Neutral::kScale},
    {"softmax_scale", nullptr, Neutral::kScale},
    {"query_pre_attn_scalar", nullptr, Neutral::kHeadDim},
    {"attn_scale", nullptr, Neutral::kOff},
    {"floor_scale", nullptr, Neutral::kOff},
    {"scale_attn_weights", nullptr, Neutral::kOn},
    {"scale_attn_by_inverse_layer_idx", nullptr, Neutral::kOff},
    {"use_qk_norm", nullptr, Neutral::kOff},
    {"qk_norm", nullptr, Neutral::kOff},
    {"qk_layernorm", nullptr, Neutral::kOff},
    {"is_causal", "attention.causal", Neutral::kOn},
    {"use_bidirectional_attention", nullptr, Neutral::kOff},
    // How the layers are put together.
    {"use_parallel_residual", "use_parallel_residual", Neutral::kOff},
    {"parallel_attn", nullptr, Neutral::kOff},
    {"apply_residual_connection_post_layernorm", nullptr, Neutral::kOff},
    {"apply_layernorm_1p", nullptr, Neutral::kOff},
};

}  // namespace

std::span<const NumberKey> NumberKeys() { return kNumberKeys; }

bool IsNeutral(const NumberKey& key, double value, const ModelConfig& c) {
  switch (key.neutral) {
    case Neutral::kOff:
      return value == 0;
    case Neutral::kOn:
    case Neutral::kOne:
      return value == 1;
    case Neutral::kScale:  // files hold a float32 or few digits of it
      return std::abs(value * std::sqrt(static_cast<double>(c.head_dim)) - 1) < 1e-6;
    case Neutral::kHeadDim:
      return value == static_cast<double>(c.head_dim);
    case Neutral::kHidden:
      return value == static_cast<double>(c.hidden);
  }
  return false;
}

double ShortestDecimal(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  const double shown = std::strtod(fmt::format("{}", narrow).c_str(), nullptr);
  return static_cast<float>(shown) == narrow ? shown : value;
}

void RefuseNumbers(const std::string& file, const std::vector<std::string>& said,
                   bool allow_unknown, ModelConfig& c) {
  if (said.empty()) return;
  if (allow_unknown) {
    for (const std::string& key : said) {
      c.not_honoured.push_back(
          fmt::format("{}: {}: the decoder does not compute it; ignored", file, key));
    }
    return;
  }
  c.encoder = nullptr;
  c.decoder = nullptr;
  c.not_runnable = fmt::format(
      "{}: {}: this changes the model's numbers and is not computed here; remove it, or allow "
      "unknown keys (--allow-unknown) to run the model without it",
      file, fmt::join(said, ", "));
}

}  // namespace ropewalk::internal
