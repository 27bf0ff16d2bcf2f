#include "ropewalk/engines/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "src/engines/settings_recipes.h"

namespace ropewalk {
namespace {

using internal::Recipe;
using Json = nlohmann::ordered_json;

std::string Pretty(const Json& json) {
  // Lists of divisors would take a line each.
  return json.dump().find('[') == std::string::npos ? json.dump(2) : json.dump();
}

std::string Join(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " " + b;
}

// Served length: YaRN's factor times trained length may be more than what was asked for.
int64_t ServedLength(const Json& rope, const SettingsTarget& t) {
  if (!rope.is_object() || rope.value("rope_type", Json()) != Json("yarn")) return t.target_length;
  return std::max<int64_t>(t.target_length,
                           std::llround(rope["factor"].get<double>() * t.trained_length));
}

Json NewForm(const Json& rope, double base) {  // rope_parameters
  Json out = {{"rope_type", "default"}, {"rope_theta", base}};
  if (rope.is_object()) {
    for (const auto& [key, value] : rope.items()) out[key] = value;
  }
  return out;
}

std::vector<EngineSetting> Render(const Recipe& r, const SettingsTarget& t) {
  const double base = r.base.value_or(t.base);
  const int64_t served = ServedLength(r.rope, t);
  const Json vllm_rope = r.vllm_rope.is_null() ? r.rope : r.vllm_rope;
  Json old_form, new_form, vllm_old, vllm_new;
  if (r.raise_positions) {
    for (Json* j : {&old_form, &new_form, &vllm_old, &vllm_new}) {
      (*j)["max_position_embeddings"] = served;
    }
  }
  if (r.base || t.base_changed) old_form["rope_theta"] = vllm_old["rope_theta"] = base;
  old_form["rope_scaling"] = r.rope;
  vllm_old["rope_scaling"] = vllm_rope;
  new_form["rope_parameters"] = NewForm(r.rope, base);
  vllm_new["rope_parameters"] = NewForm(vllm_rope, base);

  const auto vllm = [&](const Json& overrides) {
    return fmt::format("--max-model-len {} --hf-overrides '{}'", t.target_length, overrides.dump());
  };
  std::vector<EngineSetting> out;
  out.push_back({"Hugging Face transformers 5", true, Pretty(new_form),
                 Join("Replace these keys in config.json.", r.hf_note)});
  out.push_back({"Hugging Face transformers 4", true, Pretty(old_form),
                 Join("Replace these keys in config.json.", r.hf_note)});
  out.push_back({"vLLM (on transformers 5)", true, vllm(vllm_new),
                 Join("Append to the command: vllm serve MODEL.", r.vllm_note)});
  out.push_back({"vLLM (on transformers 4)", true, vllm(vllm_old),
                 Join("Append to the command: vllm serve MODEL.", r.vllm_note)});
  if (r.llama_flags.empty()) {
    out.push_back({"llama.cpp", false, "", r.llama_note});
  } else {
    out.push_back({"llama.cpp", true, fmt::format("-c {} {}", t.target_length, r.llama_flags),
                   Join("Append to the command: llama-server -m MODEL.gguf.", r.llama_note)});
  }
  return out;
}

// llama.cpp's flags, with the base where a recipe does not say one of its own.
std::string LlamaFlags(const Recipe& r, const SettingsTarget& t) {
  if (r.llama_flags.empty() || r.base || !t.base_changed) return r.llama_flags;
  return fmt::format("{} --rope-freq-base {}", r.llama_flags, t.base);
}

// The scaling that a dictionary comes to, as the sweep read it. Sets what else it says.
Scaling ScalingOf(Json dictionary, double factor, SettingsTarget& t) {
  if (dictionary.value("rope_type", Json()) != "proportional") {
    dictionary.erase("partial_rotary_factor");  // rotary_dim has it already
  }
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = t.rotary_dim;
  spec.base = t.base;
  spec.trained_length = t.trained_length;
  PositionPlan plan;
  plan.trained_length = t.trained_length;
  // Some types take max_position_embeddings / trained where they have no factor.
  plan.configured_length = std::llround(factor * static_cast<double>(t.trained_length));
  plan.layers.resize(1);
  plan.layers[0].rotation = spec;
  plan = ParseRopeDictionary(dictionary.dump(), "the dictionary", plan, /*allow_unknown=*/true);
  t.trained_length = plan.trained_length;
  t.base_changed = dictionary.contains("rope_theta");
  t.base = plan.layers[0].rotation->base;
  return plan.layers[0].rotation->scaling;
}

}  // namespace

const RotarySpec& OnlyRotation(const PositionPlan& plan) {
  const RotarySpec* first = nullptr;
  for (const LayerPlan& layer : plan.layers) {
    if (!layer.rotation) continue;
    if (first == nullptr) first = &*layer.rotation;
    const RotarySpec& spec = *layer.rotation;
    if (spec.base != first->base || spec.rotary_dim != first->rotary_dim ||
        spec.head_dim != first->head_dim || spec.first_dim != first->first_dim ||
        spec.trained_length != first->trained_length ||
        Describe(spec.scaling) != Describe(first->scaling)) {
      throw Error(ErrorCode::kUnsupported,
                  "the layers of this model rotate in more than one way (local and global bases); "
                  "one setting for all of them would be wrong");
    }
  }
  if (first == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "the model has no rotary layer, so there is nothing to set");
  }
  return *first;
}

std::string HuggingFaceSetting(ConfigSchema schema, const Scaling& scaling,
                               const SettingsTarget& target) {
  const std::string engine = schema == ConfigSchema::kRopeParameters
                                 ? "Hugging Face transformers 5"
                                 : "Hugging Face transformers 4";
  for (const EngineSetting& setting : SettingsFor(scaling, target)) {
    if (setting.engine != engine) continue;
    if (setting.expressible) return setting.setting;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} cannot say {}: {}", engine, Describe(scaling), setting.note));
  }
  throw Error(ErrorCode::kUnsupported, "no setting is known for " + engine);
}

std::vector<EngineSetting> SettingsFor(const Scaling& scaling, const SettingsTarget& target) {
  if (target.trained_length <= 0 || target.target_length <= 0 || target.rotary_dim < 2) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("settings need a trained length, a target length and a rotary_dim of at "
                    "least 2; got {}, {} and {}",
                    target.trained_length, target.target_length, target.rotary_dim));
  }
  Recipe recipe = internal::RecipeOf(scaling, target);
  recipe.llama_flags = LlamaFlags(recipe, target);
  return Render(recipe, target);
}

std::vector<EngineSetting> SettingsAsShipped(int64_t target_length) {
  const std::string note = "The model's files say it already; only the length is set.";
  const std::string json = Json{{"max_position_embeddings", target_length}}.dump(2);
  const std::string vllm = fmt::format("--max-model-len {}", target_length);
  return {{"Hugging Face transformers 5", true, json, note},
          {"Hugging Face transformers 4", true, json, note},
          {"vLLM", true, vllm, note},
          {"llama.cpp", true, fmt::format("-c {}", target_length), note}};
}

std::vector<EngineSetting> SettingsForDictionary(const std::string& dictionary_text, double factor,
                                                 SettingsTarget t) {
  const Json dictionary = Json::parse(dictionary_text, nullptr, false);
  if (!dictionary.is_object()) {
    return {{"all engines", false, "", "It was given as: " + dictionary_text}};
  }
  Recipe r;
  r.rope = dictionary;
  if (dictionary.contains("rope_theta") && dictionary["rope_theta"].is_number()) {
    r.base = dictionary["rope_theta"].get<double>();
    r.rope.erase("rope_theta");
  }
  if (r.rope.contains("type") && !r.rope.contains("rope_type")) {
    Json renamed = {{"rope_type", r.rope["type"]}};
    r.rope.erase("type");
    for (const auto& [key, value] : r.rope.items()) renamed[key] = value;
    r.rope = renamed;
  }
  const std::string type =
      r.rope.contains("rope_type") && r.rope["rope_type"].is_string() ? r.rope["rope_type"] : "";
  r.raise_positions = type != "dynamic";
  r.hf_note = "This is the dictionary that the sweep was given.";
  try {
    const Recipe same = internal::RecipeOf(ScalingOf(dictionary, factor, t), t);
    r.llama_flags = LlamaFlags(same, t);
    r.llama_note = same.llama_note;
  } catch (const Error& e) {
    r.llama_note = std::string("No flags are known for it: ") + e.what();
  }
  if (type == "yarn" && !(r.rope.contains("factor") && r.rope["factor"].is_number())) {
    r.rope["factor"] = factor;
  }
  return Render(r, t);
}

}  // namespace ropewalk
