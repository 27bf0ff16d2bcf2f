// params.json beside consolidated weights: Mistral's and Meta's (llama-models). Both rotate
// consecutive elements.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"
#include "src/config/text.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

void ReadParamsSizes(const JsonObject& top, ModelConfig& c) {
  const auto required = [&](const char* key, int64_t high) {
    return top.Require(top.Int(key, 1, high), key, "an integer");
  };
  c.layers = required("n_layers", kMaxLayers);
  c.hidden = required("dim", kMaxDim);
  c.heads = required("n_heads", kMaxDim);
  c.kv_heads = top.Int("n_kv_heads", 1, kMaxDim).value_or(c.heads);
  c.feed_forward = top.Int("hidden_dim", 1, kMaxDim).value_or(0);
  c.vocab = std::max<int64_t>(top.Int("vocab_size", -1, kMaxDim).value_or(0), 0);
  c.norm_eps = top.Number("norm_eps", 0, 1).value_or(1e-5);
  if (const auto head_dim = top.Int("head_dim", 2, kMaxHeadDim)) {
    c.head_dim = *head_dim;
  } else if (c.hidden % c.heads == 0) {
    c.head_dim = c.hidden / c.heads;
  } else {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: dim {} is no multiple of n_heads {} and head_dim is absent",
                            top.where(), c.hidden, c.heads));
  }
  CheckSizes(c, top.where());
}

// Mistral: alpha and beta are YaRN's slow and fast rotations.
Scaling ReadMistralYarn(const JsonObject& top, PositionPlan& plan) {
  const json* value = top.Find("yarn");
  if (value == nullptr) return NoScaling{};
  const JsonObject yarn(*value, top.where() + ": yarn");
  YarnScaling y;
  y.factor = yarn.Require(yarn.Number("factor", 1, kMaxFactor), "factor", "a number from 1");
  y.beta_slow = yarn.Number("alpha", 1e-3, 1e6).value_or(1);
  y.beta_fast = yarn.Number("beta", 1e-3, 1e6).value_or(32);
  if (y.beta_fast < y.beta_slow) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: beta (fast) is {} and alpha (slow) {}; beta must not be smaller, "
                            "are they swapped?",
                            yarn.where(), y.beta_fast, y.beta_slow));
  }
  plan.trained_length = yarn.Require(yarn.Int("original_max_position_embeddings", 1, kMaxTokens),
                                     "original_max_position_embeddings", "an integer");
  // Without it the amplitude is 1, which mscale = mscale_all_dim gives.
  if (!yarn.Bool("apply_scale").value_or(false)) y.mscale = y.mscale_all_dim = 1;
  ModelConfig sorted;
  SortKeys(yarn, {.name = "Mistral"}, false, sorted);
  if (!sorted.unknown_keys.empty()) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: unknown key \"{}\"{}", yarn.where(), sorted.unknown_keys[0],
                            DidYouMean(sorted.unknown_keys[0],
                                       {yarn.asked().begin(), yarn.asked().end()})));
  }
  return y;
}

std::optional<QueryTemperature> ReadMistralTemperature(const JsonObject& top,
                                                       const PositionPlan& plan) {
  const json* value = top.Find("llama_4_scaling");
  if (value == nullptr) return std::nullopt;
  const JsonObject scaling(*value, top.where() + ": llama_4_scaling");
  QueryTemperature t;
  t.beta = scaling.Require(scaling.Number("beta", 0, 1e3), "beta", "a number");
  t.period =
      scaling.Int("original_max_position_embeddings", 1, kMaxTokens).value_or(plan.trained_length);
  if (t.period < 1) scaling.Fail("original_max_position_embeddings", "an integer");
  return t;
}

void ReadMistral(const JsonObject& top, ModelConfig& c) {
  c.format = FileFormat::kMistralParams;
  c.format_name = "Mistral params.json";
  c.architecture = "mistral";
  PositionPlan& plan = c.plan;
  RotarySpec spec(PairLayout::kInterleaved);
  const auto max = top.Int("max_position_embeddings", 1, kMaxTokens);
  const auto seq = top.Int("max_seq_len", 1, kMaxTokens);
  if (max && seq && *max != *seq) {
    Contradiction(top.where(), "max_position_embeddings", fmt::format("{}", *max), "max_seq_len",
                  fmt::format("{}", *seq));
  }
  plan.trained_length = max.value_or(seq.value_or(0));
  spec.scaling = ReadMistralYarn(top, plan);
  plan.configured_length = std::max(max.value_or(seq.value_or(0)), plan.trained_length);
  const int64_t window = top.Int("sliding_window", 0, kMaxTokens).value_or(0);
  const auto theta = top.Number("rope_theta", 1, 1e18);
  spec.base = theta.value_or(window > 0 ? 1e4 : 1e6);
  if (!theta) {
    plan.notes.push_back(fmt::format("rope_theta is absent: {:g}, Mistral's default {} a window",
                                     spec.base, window > 0 ? "with" : "without"));
  }
  spec.head_dim = spec.rotary_dim = c.head_dim;
  if (const auto rope = top.Int("qk_rope_head_dim", 2, kMaxHeadDim)) {  // latent attention
    const int64_t nope =
        top.Require(top.Int("qk_nope_head_dim", 0, kMaxHeadDim), "qk_nope_head_dim", "an integer");
    spec.head_dim = c.head_dim = nope + *rope;
    spec.rotary_dim = *rope;
    spec.first_dim = nope;
  }
  spec.trained_length = plan.trained_length;
  LayerPlan layer;
  layer.rotation = spec;
  layer.window_tokens = window;
  layer.temperature = ReadMistralTemperature(top, plan);
  plan.layers.assign(c.layers, layer);
}

// llama-models: L = 8192, factors 1 and 4 are constants of its code; the factor was 8 until
// Llama 3.2, whose files do not say that theirs is 32.
Scaling ReadMetaScaling(const JsonObject& top, ModelConfig& c) {
  const bool scaled = top.Bool("use_scaled_rope").value_or(false);
  const auto factor = top.Number("rope_scaling_factor", 1, kMaxFactor);
  const auto high = top.Number("rope_high_freq_factor", 1e-6, 1e6);
  if (!scaled) {
    if (factor && *factor != 1) {
      Contradiction(top.where(), "use_scaled_rope", "false", "rope_scaling_factor",
                    fmt::format("{}", *factor));
    }
    return NoScaling{};
  }
  const bool llama32 = (c.hidden == 2048 && c.layers == 16) || (c.hidden == 3072 && c.layers == 28);
  Llama3Scaling s;
  s.factor = factor.value_or(llama32 ? 32 : 8);
  s.high_freq_factor = high.value_or(4);
  c.plan.trained_length = 8192;
  c.plan.notes.push_back(
      "use_scaled_rope: trained at 8192 tokens, low_freq_factor 1, a constant "
      "of llama-models");
  if (!factor) {
    c.plan.notes.push_back(fmt::format("rope_scaling_factor is absent: {}, that of {}", s.factor,
                                       llama32 ? "Llama 3.2 (by its size)" : "Llama 3.1"));
  }
  return s;
}

void ReadMeta(const JsonObject& top, ModelConfig& c) {
  c.format = FileFormat::kLlamaModels;
  c.format_name = "llama-models params.json";
  c.architecture = "llama";
  PositionPlan& plan = c.plan;
  for (const char* key : {"multiple_of", "ffn_dim_multiplier"}) top.Find(key);
  RotarySpec spec(PairLayout::kInterleaved);
  const int64_t given = top.Int("max_seq_len", 1, kMaxTokens).value_or(0);
  plan.trained_length = given;
  spec.scaling = ReadMetaScaling(top, c);
  const double served = double(plan.trained_length) * FactorOf(spec.scaling);
  plan.configured_length =
      std::max(given, static_cast<int64_t>(std::min(served, double(kMaxTokens))));
  if (plan.trained_length == 0) {
    plan.notes.push_back("the file does not say at which length the model was trained");
  }
  const auto theta = top.Number("rope_theta", 1, 1e18);
  spec.base = theta.value_or(1e4);
  if (!theta) plan.notes.push_back("rope_theta is absent: 10000, llama-models' default");
  spec.head_dim = spec.rotary_dim = c.head_dim;
  spec.trained_length = plan.trained_length;
  const int64_t nope = top.Int("nope_layer_interval", 0, kMaxLayers).value_or(0);  // Llama 4
  const int64_t chunk = top.Int("attention_chunk_size", 0, kMaxTokens).value_or(0);
  const bool tuned = top.Bool("attn_temperature_tuning").value_or(false);
  QueryTemperature temperature;
  temperature.beta = top.Number("attn_scale", 0, 1e3).value_or(0.1);
  temperature.period = top.Int("floor_scale", 1, kMaxTokens).value_or(8192);
  temperature.offset = 1;
  for (int64_t l = 0; l < c.layers; ++l) {
    LayerPlan layer;
    if (nope > 0 && (l + 1) % nope == 0) {
      if (tuned) layer.temperature = temperature;
    } else {
      layer.rotation = spec;
      layer.chunk_tokens = chunk;
    }
    plan.layers.push_back(layer);
  }
}

}  // namespace

bool IsParamsJson(const JsonObject& top) {
  return !top.Has("model_type") && top.Has("dim") && top.Has("n_layers") && top.Has("n_heads");
}

ModelConfig ParseParamsJson(const JsonObject& top, bool allow_unknown) {
  ModelConfig c;
  ReadParamsSizes(top, c);
  const bool meta = top.Has("multiple_of") || top.Has("ffn_dim_multiplier") ||
                    top.Has("use_scaled_rope") || top.Has("rope_scaling_factor");
  meta ? ReadMeta(top, c) : ReadMistral(top, c);
  c.not_runnable =
      "params.json tells positions; its consolidated weights are not read: give the Hugging Face "
      "folder or a GGUF file of the model";
  for (const LayerPlan& layer : c.plan.layers) {
    if (!layer.rotation) continue;
    try {
      Resolve(*layer.rotation, std::max<int64_t>(c.plan.trained_length, 1));
    } catch (const Error& e) {
      throw Error(ErrorCode::kInvalidConfig, top.where() + ": " + e.what());
    }
    break;  // one rotation for all
  }
  if (top.Has("vision_encoder")) {
    c.plan.notes.push_back("vision_encoder is not read: these are the positions of the text");
  }
  SortKeys(top, {.name = "params.json"}, allow_unknown, c);
  return c;
}

}  // namespace ropewalk::internal
