#include "src/config/hf/vendor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/hf/alibi.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

std::string Sourced(const HfSource& source, const std::string& key) {
  return source.top.where() + ": " + key;
}

// Keys of attn_config that say nothing about positions.
constexpr const char* kAttentionKeys[] = {
    "attn_impl", "attn_pdrop", "attn_type", "attn_uses_sequence_id", "clip_qkv",   "prefix_lm",
    "qk_ln",     "qk_gn",      "fused_qkv", "softmax_scale",         "model_type", "kv_n_heads",
    "kv_dim",    "bias",       "qk_norm"};

// llm-foundry: {"type": "no_scaling" | "linear" | "dynamic", "factor": s}.
Scaling ReadFoundryScaling(const JsonObject& attn) {
  const json* value = attn.Find("rope_hf_config");
  if (value == nullptr) return NoScaling{};
  const JsonObject config(*value, attn.where() + ".rope_hf_config");
  const std::string type = config.String("type").value_or("no_scaling");
  const double factor = config.Number("factor", 1, kMaxFactor).value_or(1);
  if (type == "linear") return LinearScaling{factor};
  if (type == "dynamic") return DynamicNtkScaling{factor};
  if (type != "no_scaling") config.Fail("type", "no_scaling, linear or dynamic");
  return NoScaling{};
}

// MPT and DBRX.
void ReadAttentionConfig(const HfSource& source, VendorRope& out, ModelConfig& c) {
  const json* value = source.top.Find("attn_config");
  if (value == nullptr) return;
  const JsonObject attn(*value, Sourced(source, "attn_config"));
  out.theta = attn.Number("rope_theta", 1, 1e18);
  const std::string impl = attn.String("rope_impl").value_or("hf");
  if (impl != "hf" && impl != "dail") attn.Fail("rope_impl", "hf or dail");
  out.scaling = ReadFoundryScaling(attn);
  out.source = "attn_config.rope_hf_config";
  if (const json* dail = attn.Find("rope_dail_config")) {
    const JsonObject config(*dail, attn.where() + ".rope_dail_config");
    config.String("type");
    config.Bool("pos_idx_in_fp32");
    // 512: the rotation with xPos' decay.
    if (impl == "dail" && config.Number("xpos_scale_base", 1, 1e6)) {
      throw Error(ErrorCode::kUnsupported,
                  config.where() + ": xpos_scale_base: xPos through llm-foundry is not supported");
    }
  }
  for (const char* key : {"alibi", "alibi_bias_max", "rope"}) attn.Find(key);
  for (const char* key : kAttentionKeys) attn.Find(key);
  if (const auto window = attn.Int("sliding_window_size", -1, kMaxTokens); window && *window > 0) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: sliding_window_size = {} is not supported", attn.where(), *window));
  }
  SortAttentionKeys(source, attn, c);
}

// InternLM 1: {"base": 10000, "type": "origin" | "dynamic"}.
void ReadInternLm(const HfSource& source, VendorRope& out) {
  const json* value = source.top.Find("rotary");
  if (value == nullptr || !value->is_object()) return;
  const JsonObject rotary(*value, Sourced(source, "rotary"));
  out.theta = rotary.Number("base", 1, 1e18);
  const double factor = rotary.Number("scaling_factor", 1, kMaxFactor).value_or(1);
  const std::string type = rotary.String("type").value_or("origin");
  if (type == "dynamic") {
    out.scaling = DynamicNtkScaling{factor};
    out.source = "rotary.type";
  } else if (type != "origin") {
    rotary.Fail("type", "origin or dynamic");
  }
}

// ChatGLM 3 and GLM-4 multiply the base by rope_ratio; ChatGLM2-32k divided positions by it.
void ReadChatGlm(const HfSource& source, VendorRope& out, ModelConfig& c) {
  const auto ratio = source.top.Number("rope_ratio", 1, kMaxFactor);
  if (!ratio || *ratio == 1) return;
  const std::string name = source.top.String("_name_or_path").value_or("");
  if (name.find("chatglm2") != std::string::npos) {
    out.scaling = LinearScaling{*ratio};
    out.source = "rope_ratio";
    c.plan.notes.push_back("rope_ratio divides positions, as ChatGLM2 has it");
  } else {
    out.base_factor = *ratio;
    c.plan.notes.push_back(
        "rope_ratio multiplies the base, as ChatGLM3 and GLM-4 have it (ChatGLM2 divides "
        "positions by it)");
  }
}

// LongRoPE that does not say its original length.
bool HasLongRopeAlone(const JsonObject& top) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* rope = top.Find(key);
    if (rope == nullptr || !rope->is_object()) continue;
    return rope->contains("long_factor") && !rope->contains("original_max_position_embeddings");
  }
  return false;
}

void ReadLinearFactor(const HfSource& source, const char* key, VendorRope& out) {
  if (!source.family.Takes(key)) return;
  const auto factor = source.top.Number(key, 1, kMaxFactor);
  if (!factor || *factor == 1) return;
  out.scaling = LinearScaling{*factor};
  out.source = key;
}

}  // namespace

void RefuseTwoDimensions(const HfSource& source) {
  if (!source.family.Takes("position_encoding_2d") ||
      !source.top.Bool("position_encoding_2d").value_or(false)) {
    return;
  }
  throw Error(ErrorCode::kUnsupported,
              Sourced(source, "position_encoding_2d") +
                  ": expected false; the two-dimensional positions of the first ChatGLM-6B are "
                  "not supported, those of ChatGLM2, ChatGLM3 and GLM-4 are");
}

VendorRope ReadVendorRope(const HfSource& source, ModelConfig& c) {
  const Family& family = source.family;
  VendorRope out;
  if (family.Takes("attn_config")) ReadAttentionConfig(source, out, c);
  if (family.Takes("rotary")) ReadInternLm(source, out);
  if (family.Takes("rope_ratio")) ReadChatGlm(source, out, c);
  ReadLinearFactor(source, "rope_position_scale", out);
  ReadLinearFactor(source, "rotary_scaling_factor", out);
  if (family.Takes("use_dynamic_ntk") && source.top.Bool("use_dynamic_ntk").value_or(false)) {
    out.scaling = QwenNtkScaling{};
    out.source = "use_dynamic_ntk";
  }
  if (family.Takes("dual_chunk_attention_config") &&
      source.top.Has("dual_chunk_attention_config")) {
    c.plan.has_dual_chunk_key = true;
    c.plan.notes.push_back(
        "dual_chunk_attention_config: transformers ignores it and so does this plan; a few "
        "versions of vLLM attend by chunks of positions where it is given");
  }
  return out;
}

void ReadLengths(const HfSource& source, RopeContext& context, PositionPlan& plan) {
  const JsonObject& top = source.top;
  const Family& family = source.family;
  const auto max = source.Int("max_position_embeddings", 1, kMaxTokens);
  if (max) {
    context.max_position = plan.stated_length = *max;
  } else if (family.sizes.max_position > 0 &&
             (source.nested || !family.Runs() || family.Has(kLengthByDefault))) {
    context.max_position = family.sizes.max_position;
    plan.notes.push_back(fmt::format("max_position_embeddings is absent: {}, the default of {}",
                                     context.max_position, family.name));
  } else if (family.other == OtherEncoding::kNone) {
    top.Fail("max_position_embeddings", "an integer");
  }
  context.original = top.Int("original_max_position_embeddings", 1, kMaxTokens);
  if (family.Takes("initial_context_length")) {  // gpt-oss says it twice
    const auto initial = top.Int("initial_context_length", 1, kMaxTokens);
    if (initial && context.original && *initial != *context.original) {
      Contradiction(top.where(), "initial_context_length", fmt::format("{}", *initial),
                    "original_max_position_embeddings", fmt::format("{}", *context.original));
    }
    if (initial) context.original = initial;
  }
  if (!context.original && family.default_original > 0 && HasLongRopeAlone(top)) {
    context.original = family.default_original;
    plan.notes.push_back(
        fmt::format("original_max_position_embeddings is absent: {}, the default of {}",
                    *context.original, family.name));
  }
  plan.configured_length = context.max_position;
  plan.trained_length = context.original.value_or(context.max_position);
  if (family.Has(kSeqLengthIsTrained)) {
    plan.trained_length = top.Int("seq_length", 1, kMaxTokens).value_or(plan.trained_length);
  }
}

void ReadRopeNotes(const HfSource& source, const RopeDictionary& rope, PositionPlan& plan) {
  plan.notes.insert(plan.notes.end(), rope.notes.begin(), rope.notes.end());
  if (rope.query_beta && !source.family.Takes("llama_4_scaling_beta")) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: llama_4_scaling_beta = {}: a {} model does not read it",
                            source.top.where(), *rope.query_beta, source.family.name));
  }
}

void ReadRopeLengths(const RopeDictionary& rope, const RopeContext& context, PositionPlan& plan) {
  if (rope.original) plan.trained_length = *rope.original;
  // Qwen's way: max_position_embeddings stays at the original length, the factor says the rest.
  if (!rope.original && !context.original) return;
  const double served = std::floor(double(plan.trained_length) * FactorOf(rope.scaling));
  plan.configured_length =
      std::max(plan.configured_length, static_cast<int64_t>(std::min(served, double(kMaxTokens))));
}

std::vector<std::optional<QueryTemperature>> ReadTemperatures(const HfSource& source,
                                                              const RopeDictionaries& ropes,
                                                              const std::vector<LayerFacts>& layers,
                                                              int64_t trained_length) {
  std::vector<std::optional<QueryTemperature>> out(layers.size());
  const JsonObject& top = source.top;
  if (source.family.Takes("attn_temperature_tuning")) {  // Llama 4: on layers that do not rotate
    const json* value = top.Find("attn_temperature_tuning");
    // Its first release writes 4 for true.
    const bool on = value == nullptr || (value->is_number() ? value->get<double>() != 0
                                                            : *top.Bool("attn_temperature_tuning"));
    QueryTemperature t;
    t.beta = top.Number("attn_scale", 0, 1e3).value_or(0.1);
    t.period = top.Int("floor_scale", 1, kMaxTokens).value_or(8192);
    t.offset = 1;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      if (on && !layers[l].rotates) out[l] = t;
    }
  }
  for (const auto& [type, rope] : ropes) {
    if (!rope || !rope->query_beta || *rope->query_beta == 0) continue;
    QueryTemperature t;
    t.beta = *rope->query_beta;
    t.period = rope->original.value_or(trained_length);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      if (type.empty() || type == layers[l].type) out[l] = t;
    }
  }
  if (source.family.Takes("use_logn_attn") && top.Bool("use_logn_attn").value_or(false)) {
    QueryTemperature t;
    t.kind = QueryTemperature::Kind::kLogN;
    t.period = trained_length;
    if (t.period < 2) top.Fail("seq_length", "2 or more, because use_logn_attn divides by its log");
    std::fill(out.begin(), out.end(), t);
  }
  return out;
}

InsteadOfRotation ReadOtherEncoding(const HfSource& source) {
  const JsonObject& top = source.top;
  const Family& family = source.family;
  const auto named = [](OtherEncoding other) { return InsteadOfRotation{other, NameOf(other)}; };
  const auto nothing = [](std::string words) {
    return InsteadOfRotation{OtherEncoding::kNoPositions, std::move(words)};
  };
  if (family.Takes("attention_type")) return nothing("no positions (DroPE removed the rotation)");
  if (family.other != OtherEncoding::kNone) {
    const auto type = family.Takes("position_embedding_type")
                          ? top.String("position_embedding_type")
                          : std::nullopt;
    if (!type || *type == "absolute") return named(family.other);
    return {OtherEncoding::kOther, fmt::format("position_embedding_type \"{}\"", *type)};
  }
  if (family.Takes("alibi") && top.Bool("alibi").value_or(false))
    return named(OtherEncoding::kAlibi);
  if (family.Takes("model_max_length") && !top.Has("max_position_embeddings")) {
    return named(OtherEncoding::kAlibi);  // Baichuan 13B
  }
  if (family.Takes("rope") && !top.Bool("rope").value_or(true))
    return nothing("no positions (rope: false)");
  if (family.Takes("rotary") && top.Find("rotary") != nullptr && *top.Find("rotary") == false) {
    return nothing("no positions (rotary: false)");
  }
  if (family.Takes("position_embedding_type")) {
    const auto type = top.String("position_embedding_type");
    if (type && *type == "nope") {
      top.Find("rope_theta");  // transformers writes it all the same
      std::string words = "no positions (position_embedding_type: nope";
      for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const json* rope = top.Find(key);
        if (rope != nullptr && rope->is_object() && rope->contains("factor")) {
          words += fmt::format("; {} does not count", key);
        }
      }
      return nothing(words + ")");
    }
    if (!type && family.Takes("position_embedding_type") && !family.pattern &&
        HasWord(family.layer_kinds, "mamba")) {
      return nothing("no positions (position_embedding_type is absent)");
    }
    if (type && !type->starts_with("rope")) {
      top.Fail("position_embedding_type", "\"rope\" or \"nope\"");
    }
  }
  if (family.Takes("learned_pos_emb")) {  // MPT
    const json* value = top.Find("attn_config");
    if (value == nullptr) return named(OtherEncoding::kAlibi);  // its default
    const JsonObject attn(*value, Sourced(source, "attn_config"));
    if (attn.Bool("alibi").value_or(true)) return named(OtherEncoding::kAlibi);
    if (!attn.Bool("rope").value_or(false)) {
      return top.Bool("learned_pos_emb").value_or(true) ? named(OtherEncoding::kLearned)
                                                        : nothing("no positions");
    }
  }
  return {};
}

}  // namespace ropewalk::internal
