#include "src/engines/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "src/config/block.h"
#include "src/config/family.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

bool IsPerLayerType(const Json& rope_parameters) {
  for (const auto& [key, value] : rope_parameters.items()) {
    if (value.is_object()) return true;
  }
  return false;
}

// The shortest decimal that is the same float: 1e-05 for what a file stores as 9.9999997e-06.
double Shortest(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  const double shown = std::strtod(fmt::format("{}", narrow).c_str(), nullptr);
  return static_cast<float>(shown) == narrow ? shown : value;
}

}  // namespace

const char* TransformersClass(const std::string& family) {
  if (family == "llama") return "LlamaForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  return nullptr;
}

bool HasRopeParameters(const Json& config) {
  const auto it = config.find("rope_parameters");
  return it != config.end() && it->is_object();
}

std::string WithRopeSetting(const std::string& config_text, const std::string& file,
                            const Json& setting, int64_t trained_length) {
  Json config = ParseOrderedObject(config_text, file);
  const auto type = config.find("model_type");
  const Family* family = type != config.end() && type->is_string()
                             ? FindFamily(type->get_ref<const std::string&>())
                             : nullptr;
  if (family != nullptr && !family->Reads("rope_scaling")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: transformers reads no position scaling of a {} model: its code "
                            "has sinusoids of its own, so that the setting would change nothing",
                            file, family->name));
  }
  const bool fresh = HasRopeParameters(config);
  Json rope = setting;
  if (fresh) {
    Json old = config["rope_parameters"];
    Json& all = rope["rope_parameters"];
    const bool local_base = IsPerLayerType(all);  // the setting leaves sliding layers alone
    if (IsPerLayerType(old)) {
      if (!local_base) {
        throw Error(ErrorCode::kUnsupported,
                    file +
                        ": rope_parameters has a dictionary for each layer type; which of them to "
                        "extend is not for a command to guess");
      }
      all["sliding_attention"] = old["sliding_attention"];
      old = Json(old["full_attention"]);
    }
    Json& scaled = local_base ? all["full_attention"] : all;
    if (old.contains("partial_rotary_factor")) {  // no scaling, so no setting has it
      scaled["partial_rotary_factor"] = old["partial_rotary_factor"];
    }
    config.erase("rope_theta");  // of a file that says it in both schemas
    config.erase("rope_scaling");
  }
  config.erase("original_max_position_embeddings");  // the setting's dictionary names it
  if (!rope.contains("max_position_embeddings")) rope["max_position_embeddings"] = trained_length;
  for (const auto& [key, value] : rope.items()) config[key] = value;
  return config.dump(2) + "\n";
}

void CheckFolderCanBe(const ModelConfig& c) {
  if (TransformersClass(c.architecture) != nullptr) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("a '{}' model is not written as a Hugging Face folder; {} are",
                          c.architecture, kConvertedFamilies));
}

Json ConfigJsonOf(const ModelConfig& c, const Json& token_ids, const char* torch_dtype) {
  CheckFolderCanBe(c);
  const Family* family = FindFamily(c.architecture);
  const char* name = TransformersClass(c.architecture);
  Json j;
  j["architectures"] = Json::array({name});
  j["model_type"] = c.architecture;
  j["vocab_size"] = c.vocab;
  j["hidden_size"] = c.hidden;
  j["intermediate_size"] = c.feed_forward;
  j["num_hidden_layers"] = c.layers;
  j["num_attention_heads"] = c.heads;
  j["num_key_value_heads"] = c.kv_heads;
  j["head_dim"] = c.head_dim;
  j["hidden_act"] = "silu";
  const RotarySpec& spec = OnlyRotation(c.plan);
  j["max_position_embeddings"] = c.plan.trained_length;
  j["rope_theta"] = spec.base;
  j["rope_scaling"] = nullptr;
  if (spec.rotary_dim != spec.head_dim) {
    j["partial_rotary_factor"] =
        static_cast<double>(spec.rotary_dim) / static_cast<double>(spec.head_dim);
  }
  j["rms_norm_eps"] = Shortest(c.norm_eps);
  j["tie_word_embeddings"] = c.tied_head;
  const auto fail = [&](const char* what) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("no key of config.json says that a {} model has {}", c.architecture, what));
  };
  const Block& block = *family->block;
  const AttentionSpec& attention = c.layer.attention;
  if (block.out_bias.key != nullptr) {
    if (attention.out_bias != attention.qkv_bias) fail("a bias on some of q, k, v and o alone");
    j[block.out_bias.key] = attention.out_bias;
  } else if (attention.qkv_bias != block.qkv_bias.otherwise || attention.out_bias) {
    fail("these attention biases");
  }
  if (block.mlp_bias.key != nullptr) {
    j[block.mlp_bias.key] = c.layer.mlp.bias;
  } else if (c.layer.mlp.bias) {
    fail("a bias in its feed-forward layers");
  }
  j.update(token_ids);
  j["torch_dtype"] = torch_dtype;
  return j;
}

}  // namespace ropewalk::internal
