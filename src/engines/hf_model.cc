// config.json of a model that came from another format, by the rows of its family.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "src/config/block.h"
#include "src/config/family.h"
#include "src/config/hf/config.h"
#include "src/config/number_keys.h"
#include "src/engines/hf_config.h"
#include "src/engines/hf_experts.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

void Rename(Json& j, const char* from, const char* to) {
  const Json value = j[from];
  j.erase(from);
  j[to] = value;
}

// Families whose files have no key for these.
void CheckUsual(const ModelConfig& c, bool four) {
  if (c.kv_heads != c.heads) FailFor(c.architecture, "fewer key heads than heads");
  if (four && c.feed_forward != 4 * c.hidden) {
    FailFor(c.architecture, fmt::format("feed-forward layers of {}", c.feed_forward));
  }
}

void FinishGpt2(const ModelConfig& c, Json& j) {
  CheckUsual(c, false);
  j.erase("num_key_value_heads");
  Rename(j, "hidden_size", "n_embd");
  Rename(j, "num_hidden_layers", "n_layer");
  Rename(j, "num_attention_heads", "n_head");
  Rename(j, "intermediate_size", "n_inner");
  Rename(j, "max_position_embeddings", "n_positions");
}

void FinishBloom(const ModelConfig& c, Json& j) {
  CheckUsual(c, true);
  for (const char* key : {"num_key_value_heads", "intermediate_size"}) j.erase(key);
  Rename(j, "num_hidden_layers", "n_layer");
  Rename(j, "num_attention_heads", "n_head");
  Rename(j, "max_position_embeddings", "seq_length");
}

void FinishMpt(const ModelConfig& c, Json& j) {
  CheckUsual(c, true);
  for (const char* key : {"num_key_value_heads", "intermediate_size"}) j.erase(key);
  Rename(j, "hidden_size", "d_model");
  Rename(j, "num_hidden_layers", "n_layers");
  Rename(j, "num_attention_heads", "n_heads");
  Rename(j, "max_position_embeddings", "max_seq_len");
  j["expansion_ratio"] = 4;
  j["no_bias"] = true;
  const auto& bias = c.plan.layers[0].bias;
  const auto* alibi = bias ? std::get_if<AlibiBias>(&bias->method) : nullptr;
  if (alibi == nullptr) FailFor(c.architecture, "no ALiBi");
  const double clip = c.layer.attention.clip_qkv;
  j["attn_config"] = {{"alibi", true},
                      {"alibi_bias_max", alibi->max_bias},
                      {"clip_qkv", clip > 0 ? Json(ShortestDecimal(clip)) : Json()}};
}

void FinishNeox(const ModelConfig& c, Json& j) {
  CheckUsual(c, false);
  j.erase("num_key_value_heads");
  Rename(j, "rope_theta", "rotary_emb_base");
  Rename(j, "partial_rotary_factor", "rotary_pct");
}

// Its code has neither log-n nor steps of NTK then; the width counts gate and up.
void FinishQwen1(const ModelConfig& c, Json& j) {
  CheckUsual(c, false);
  j.erase("num_key_value_heads");
  j["intermediate_size"] = 2 * c.feed_forward;
  Rename(j, "rope_theta", "rotary_emb_base");
  if (j.contains("partial_rotary_factor")) Rename(j, "partial_rotary_factor", "rotary_pct");
  j["seq_length"] = c.plan.trained_length;
  for (const char* key : {"use_dynamic_ntk", "use_logn_attn"}) j[key] = false;
  j["no_bias"] = true;
}

// A 13B is told by the name of its length.
void FinishBaichuan(const ModelConfig& c, Json& j) {
  CheckUsual(c, false);
  for (const char* key : {"num_key_value_heads", "head_dim"}) j.erase(key);
  if (c.plan.other != OtherEncoding::kAlibi) return;
  Rename(j, "max_position_embeddings", "model_max_length");
}

// The first architecture has one key head and one norm, the newer one any number and one or two.
void FinishFalcon(const ModelConfig& c, Json& j) {
  const bool two_norms = c.layer.pre_mlp.exists();
  const bool newer = c.kv_heads != 1 || two_norms;
  j.erase("num_key_value_heads");
  Rename(j, "intermediate_size", "ffn_hidden_size");
  j["alibi"] = false;
  j["multi_query"] = !newer;
  j["new_decoder_architecture"] = newer;
  j["num_kv_heads"] = c.kv_heads;
  j["num_ln_in_parallel_attn"] = newer ? Json(two_norms ? 2 : 1) : Json();
}

struct ConvertedFamily {
  const char* name;
  const char* transformers_class;    // of the vendor's own code where transformers has none
  const char* written_as = nullptr;  // the family of the folder, where that is another one
  void (*finish)(const ModelConfig& c, Json& config) = nullptr;  // its own words
};
constexpr ConvertedFamily kConverted[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen2_vl", "Qwen2ForCausalLM", "qwen2"},  // the text alone
    {"qwen3_vl_text", "Qwen3ForCausalLM", "qwen3"},
    {"phi3", "Phi3ForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"olmo", "OlmoForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},
    {"olmo3", "Olmo3ForCausalLM"},
    {"cohere", "CohereForCausalLM"},
    {"cohere2", "Cohere2ForCausalLM"},
    {"glm", "GlmForCausalLM"},
    {"glm4", "Glm4ForCausalLM"},
    {"chatglm", "ChatGLMModel", "glm"},  // the same model, and transformers runs it by itself
    {"starcoder2", "Starcoder2ForCausalLM"},
    {"internlm2", "InternLM2ForCausalLM"},
    {"minicpm", "MiniCPMForCausalLM"},
    {"orion", "OrionForCausalLM"},
    {"stablelm", "StableLmForCausalLM"},
    {"gpt_neox", "GPTNeoXForCausalLM", nullptr, FinishNeox},
    {"falcon", "FalconForCausalLM", nullptr, FinishFalcon},
    {"phi", "PhiForCausalLM"},
    {"gpt2", "GPT2LMHeadModel", nullptr, FinishGpt2},
    {"bloom", "BloomForCausalLM", nullptr, FinishBloom},
    {"mpt", "MptForCausalLM", nullptr, FinishMpt},
    {"mixtral", "MixtralForCausalLM", nullptr, FinishMixtral},
    {"qwen2_moe", "Qwen2MoeForCausalLM", nullptr, FinishQwen2Moe},
    {"qwen3_moe", "Qwen3MoeForCausalLM", nullptr, FinishQwen3Moe},
    {"qwen3_vl_moe_text", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"olmoe", "OlmoeForCausalLM", nullptr, FinishOlmoe},
    {"gpt_oss", "GptOssForCausalLM", nullptr, FinishGptOss},
    {"deepseek_v2", "DeepseekV2ForCausalLM", nullptr, FinishDeepseekV2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", nullptr, FinishDeepseekV3},
    {"mistral4", "Mistral4ForCausalLM", nullptr, FinishMistral4},
    {"llama4_text", "Llama4ForCausalLM", nullptr, FinishLlama4},
    {"minicpm3", "MiniCPM3ForCausalLM", nullptr, FinishMiniCpm3},
    {"ministral3", "Ministral3ForCausalLM", nullptr, FinishMinistral3},
    {"qwen", "QWenLMHeadModel", nullptr, FinishQwen1},
    {"baichuan", "BaichuanForCausalLM", nullptr, FinishBaichuan},
};

const ConvertedFamily* Find(const std::string& family) {
  for (const ConvertedFamily& f : kConverted) {
    if (family == f.name) return &f;
  }
  return nullptr;
}

// Writes the keys of one model; each method for a part of them.
class ConfigWriter {
 public:
  ConfigWriter(const ModelConfig& c, const Family& family)
      : c_(c), family_(family), block_(*family.block) {}

  Json Run(const Json& token_ids, const char* torch_dtype) {
    j_["architectures"] = Json::array({Find(family_.name)->transformers_class});
    j_["model_type"] = family_.name;
    WriteSizes();
    WritePositions();
    WriteWindows();
    if (block_.norm_eps_key != nullptr) j_[block_.norm_eps_key] = ShortestDecimal(c_.norm_eps);
    j_["tie_word_embeddings"] = c_.tied_head;
    WriteParts();
    WriteBiases();
    WriteScales();
    j_.update(token_ids);
    j_["torch_dtype"] = torch_dtype;
    if (const auto finish = Find(family_.name)->finish) finish(c_, j_);
    return j_;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const { FailFor(family_.name, what); }
  bool Reads(const char* key) const { return family_.Reads(key); }

  void WriteSizes() {
    j_["vocab_size"] = c_.vocab;
    j_["hidden_size"] = c_.hidden;
    j_["intermediate_size"] = c_.feed_forward;
    j_["num_hidden_layers"] = c_.layers;
    j_["num_attention_heads"] = c_.heads;
    j_["num_key_value_heads"] = c_.kv_heads;
    if (Reads("head_dim")) {
      j_["head_dim"] = c_.head_dim;
    } else if (c_.head_dim * c_.heads != c_.hidden) {
      Fail(fmt::format("heads of {} for {} hidden elements", c_.head_dim, c_.hidden));
    }
    if (block_.activation_key != nullptr) j_[block_.activation_key] = block_.activation;
  }

  void WritePositions() {
    j_["max_position_embeddings"] =
        c_.plan.learned ? c_.plan.learned->positions : c_.plan.trained_length;
    if (family_.gguf_rope == GgufRope::kNone || c_.plan.other == OtherEncoding::kAlibi) return;
    const RotarySpec& spec = OnlyRotation(c_.plan);
    j_["rope_theta"] = spec.base;
    j_["rope_scaling"] = nullptr;
    const bool whole = spec.rotary_dim == spec.head_dim;
    if (whole && family_.default_partial == 1) return;
    j_["partial_rotary_factor"] =
        static_cast<double>(spec.rotary_dim) / static_cast<double>(spec.head_dim);
  }

  // layer_types where layers differ; else one window, or null for none.
  void WriteWindows() {
    if (!family_.Takes("sliding_window")) return;
    int64_t window = 0;
    std::vector<const char*> types;
    for (const LayerPlan& layer : c_.plan.layers) {
      if (layer.window_tokens > 0) window = layer.window_tokens;
      types.push_back(layer.window_tokens > 0 ? kSliding : kFull);
    }
    const auto sliding = std::count(types.begin(), types.end(), std::string_view(kSliding));
    if (family_.Takes("layer_types") && family_.pattern > 0) {
      if (window > 0) j_["sliding_window"] = window;
      j_["layer_types"] = types;
      return;
    }
    const bool all = family_.window == Family::Window::kAll;
    if (window > 0 && (!all || sliding < c_.layers)) Fail("a window in these layers");
    if (all) j_["sliding_window"] = window > 0 ? Json(window) : Json();
  }

  // Norms of q and k, and which parts lie side by side.
  void WriteParts() {
    const bool qk_norm = c_.layer.attention.qk_norm.exists();
    const bool usual = block_.layer.attention.qk_norm.exists();
    if (block_.qk_norm.key != nullptr) {
      j_[block_.qk_norm.key] = qk_norm;
    } else if (qk_norm != usual) {
      Fail(qk_norm ? "norms of q and k" : "none of q and k");
    }
    if (block_.parallel.key != nullptr) {
      j_[block_.parallel.key] = c_.layer.residual == Residual::kParallel;
    }
  }

  void WriteBias(const Flag& flag, bool value, const char* name) {
    if (flag.key == nullptr) {
      if (value != flag.otherwise)
        Fail(fmt::format("{} {}", value ? "a bias on" : "none on", name));
      return;
    }
    const auto it = j_.find(flag.key);
    if (it != j_.end() && *it != value) Fail("a bias on some of q, k, v, o and the MLP alone");
    j_[flag.key] = value;
  }
  void WriteBiases() {
    WriteBias(block_.qkv_bias, c_.layer.attention.qkv_bias, "q, k and v");
    WriteBias(block_.out_bias, c_.layer.attention.out_bias, "o");
    WriteBias(block_.mlp_bias, c_.layer.mlp.bias, "its feed-forward layers");
    if (c_.head_bias != block_.head_bias) Fail(c_.head_bias ? "a bias on its head" : "none there");
  }

  void WriteScales() {
    const auto number = [&](const Number& n, double value) {
      if (n.key != nullptr) j_[n.key] = ShortestDecimal(value);
    };
    const double usual = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    const double scores = c_.layer.attention.score_scale;
    number(block_.embedding_scale, c_.embedding_scale);
    number(block_.residual_scale, c_.layer.residual_scale);
    number(block_.score_scale, scores > 0 ? scores : usual);
    number(block_.logit_scale, c_.logit_scale);
    number(block_.logit_divisor, static_cast<float>(1 / c_.logit_scale));  // as GGUF has it
    if (const double clip = c_.layer.attention.clip_qkv; clip > 0) number(block_.clip_qkv, clip);
    const GgufScales kind = block_.gguf_scales;
    if (kind != GgufScales::kMiniCpm && kind != GgufScales::kMiniCpm3) return;
    const double depth = c_.layer.residual_scale * std::sqrt(static_cast<double>(c_.layers));
    j_["scale_depth"] = ShortestDecimal(static_cast<float>(depth));
    const double base = c_.logit_scale * static_cast<double>(c_.hidden);
    j_["dim_model_base"] = ShortestDecimal(static_cast<float>(base));
  }

  const ModelConfig& c_;
  const Family& family_;
  const Block& block_;
  Json j_;
};

}  // namespace

std::string ConvertedFamilies() {
  std::vector<std::string_view> names;
  for (const ConvertedFamily& f : kConverted) names.emplace_back(f.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool IsConverted(const std::string& family) { return Find(family) != nullptr; }

const Family& FolderFamilyOf(const ModelConfig& c) {
  const ConvertedFamily* found = Find(c.architecture);
  if (found == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a '{}' model is not written as a Hugging Face folder; {} are",
                            c.architecture, ConvertedFamilies()));
  }
  return *FindFamily(found->written_as != nullptr ? found->written_as : found->name);
}

Json ConfigJsonOf(const ModelConfig& c, const Json& token_ids, const char* torch_dtype) {
  return ConfigWriter(c, FolderFamilyOf(c)).Run(token_ids, torch_dtype);
}

Json WithPhi3Rope(Json config, PositionPlan& plan) {
  const RotarySpec spec = OnlyRotation(plan);
  const auto* rope = std::get_if<LongRopeScaling>(&spec.scaling);
  if (rope == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("transformers takes no scaling of a phi3 model but LongRoPE, and this "
                            "one has {}",
                            Describe(spec.scaling)));
  }
  // Phi-3's own code has no key for it.
  const auto trained = static_cast<double>(plan.trained_length);
  const double factor = static_cast<double>(plan.configured_length) / trained;
  const double usual = factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(trained)) : 1;
  const double amplitude = Resolve(spec, plan.trained_length).amplitude;
  if (std::abs(amplitude - usual) > 1e-6 * usual) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("transformers has no key for an attention factor of a phi3 model: it "
                            "takes {:.7g} for {} tokens trained at {}, this one has {:.7g}",
                            usual, plan.configured_length, plan.trained_length, amplitude));
  }
  for (LayerPlan& layer : plan.layers) {
    layer.rotation->scaling = LongRopeScaling{
        .short_factor = rope->short_factor, .long_factor = rope->long_factor, .factor = factor};
  }
  config["max_position_embeddings"] = plan.configured_length;
  config["original_max_position_embeddings"] = plan.trained_length;
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", rope->short_factor},
                            {"long_factor", rope->long_factor}};
  return config;
}

}  // namespace ropewalk::internal
