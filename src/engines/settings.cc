#include "ropewalk/engines/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "src/engines/per_version.h"
#include "src/engines/settings_recipes.h"
#include "src/engines/settings_text.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

using internal::ContextLength;
using internal::Fact;
using internal::Has;
using internal::InFile;
using internal::Join;
using internal::kArchitecture;
using internal::Placed;
using internal::Recipe;
using internal::Told;
using internal::Way;
using Json = nlohmann::ordered_json;

std::string Pretty(const Json& json) {
  // Otherwise each number of a list would take a line.
  return json.dump().find('[') == std::string::npos ? json.dump(2) : json.dump();
}

bool IsYarn(const Json& rope) {
  return rope.is_object() && rope.value("rope_type", Json()) == Json("yarn");
}

// The served length; YaRN's factor times the trained length may exceed the requested one.
int64_t ServedLength(const Json& rope, const SettingsTarget& t) {
  const int64_t length = std::max(t.target_length, t.trained_length);
  if (!IsYarn(rope)) return length;
  return std::max<int64_t>(length, std::llround(rope["factor"].get<double>() * t.trained_length));
}

std::string YarnRatioNote(const SettingsTarget& t) {
  return fmt::format(
      "max_position_embeddings must be exactly factor times {}: transformers {} takes their ratio "
      "as the factor.",
      t.trained_length, Versions(Fact::kYarnFactorFromLengths));
}

std::string YarnLengthNote(const SettingsTarget& t) {
  return fmt::format("Leave max_position_embeddings at {}: transformers {} {}.", t.trained_length,
                     Versions(Fact::kYarnLengthFromConfig), Row(Fact::kYarnLengthFromConfig).text);
}

Json NewForm(const Json& rope, double base) {  // rope_parameters
  Json out = {{"rope_type", "default"}, {"rope_theta", base}};
  if (rope.is_object()) {
    for (const auto& [key, value] : rope.items()) out[key] = value;
  }
  return out;
}

// The keys of config.json around the rope dictionary, in both schemas.
struct HfForms {
  Json older, newer;
};

// A dictionary with the keys that the model has in it beside a scaling.
Json WithModelKeys(const Json& rope, const Json& model_keys) {
  Json out = rope;
  for (const auto& [key, value] : model_keys.items()) {
    if (out.is_null()) out["rope_type"] = "default";
    if (!out.contains(key)) out[key] = value;
  }
  return out;
}

// `local`: for layers with a local base, a dictionary with its rope_theta.
HfForms FormsOf(const Json& scaling, const Recipe& r, const Json& local, const SettingsTarget& t) {
  const double base = r.base.value_or(t.base);
  Json model_keys = t.place.rope_keys.empty() ? Json::object() : Json::parse(t.place.rope_keys);
  const Json rope = WithModelKeys(scaling, model_keys);
  HfForms out;
  if (r.raise_positions) {
    out.older["max_position_embeddings"] = out.newer["max_position_embeddings"] =
        ServedLength(r.rope, t);
  } else if (t.place.stated_length > 0 && t.place.stated_length != t.trained_length) {
    out.older["max_position_embeddings"] = out.newer["max_position_embeddings"] = t.trained_length;
  }
  if (r.base || t.base_changed) out.older["rope_theta"] = base;
  out.newer["rope_parameters"] = NewForm(rope, base);
  // Version 4 reads this one beside the dictionary; one that the user gave goes before.
  constexpr const char* kPartial = "partial_rotary_factor";
  if (model_keys.contains(kPartial) && !scaling.contains(kPartial)) {
    out.older[kPartial] = model_keys[kPartial];
  }
  model_keys.erase(kPartial);
  out.older["rope_scaling"] = WithModelKeys(scaling, model_keys);
  if (t.local_base) {  // Fact::kPerLayerTypeAlone
    out.newer["rope_parameters"] = {{"full_attention", NewForm(rope, base)},
                                    {"sliding_attention", local}};
  }
  return out;
}

// Why a version of transformers cannot read the dictionary; empty: it can.
std::string HfObjection(const Json& rope, const Has& has) {
  const auto is = [&](const char* key, const Json& value) {
    return rope.is_object() && rope.value(key, Json()) == value;
  };
  if (is("rope_type", "proportional") && !has(Fact::kProportional)) {
    return "It has no rope_type for proportional scaling.";
  }
  if (is("rope_type", "yarn") && is("truncate", false) && !has(Fact::kYarnReadsTruncate)) {
    return "It always rounds the ends of YaRN's ramp (truncate), this setting does not.";
  }
  return "";
}

std::string LlamaCppSetting(const Recipe& r, const SettingsTarget& t, const Has& has) {
  std::string flags = fmt::format("-c {} {}", t.target_length, r.llama_flags);
  const bool raised = r.llama_yarn && has(Fact::kYarnRaisesContextLength);
  if (t.target_length > t.trained_length && !raised) {
    flags += ContextLength(t.target_length);
  }
  return flags;
}

const Json& VllmRope(const Recipe& r) { return r.vllm_rope.is_null() ? r.rope : r.vllm_rope; }

// As config.json has it. Transformers 5 takes a rope_scaling in the file before rope_parameters.
// null goes first: set on a loaded configuration it is another name of rope_parameters.
Json WithoutRopeScaling(const Json& form) {
  Json out = {{"rope_scaling", nullptr}};
  out.update(form);
  return out;
}

// `local`: the recipe of the layers with a local base, where the setting is for them too, else null.
std::vector<EngineSetting> Render(const Recipe& r, const SettingsTarget& t,
                                  const Recipe* local = nullptr) {
  const double local_base = t.local_base.value_or(0);
  const auto local_form = [&](const Json& (*rope)(const Recipe&)) {
    return local == nullptr ? NewForm(nullptr, local_base)
                            : NewForm(rope(*local), local->base.value_or(local_base));
  };
  const HfForms hf =
      FormsOf(r.rope, r, local_form([](const Recipe& of) -> const Json& { return of.rope; }), t);
  const HfForms vllm = FormsOf(VllmRope(r), r, local_form(VllmRope), t);
  // Fact::kPerLayerTypeAlone
  constexpr const char* kFullAlone =
      "It scales the layers that see everything alone, not those that slide.";
  std::vector<EngineSetting> out;
  const auto add_hf = [&](const Way& way, const Json& form) {
    const auto tell = [&](const Has& has) -> Told {
      std::string objection = HfObjection(r.rope, has);
      if (local != nullptr && form == hf.older) objection = kFullAlone;
      if (!objection.empty()) return {"", objection};
      std::string note = Join("Replace these keys in config.json.", r.hf_note);
      Json keys = form;
      if (IsYarn(r.rope) && has(Fact::kYarnFactorFromLengths)) note = Join(note, YarnRatioNote(t));
      if (r.longrope_amplitude && has(Fact::kLongRopeFromTopLevel)) {
        keys["original_max_position_embeddings"] = t.trained_length;
        keys["rope_scaling"]["attention_factor"] = *r.longrope_amplitude;
      }
      if (IsYarn(r.rope) && has(Fact::kYarnLengthFromConfig)) {
        keys["max_position_embeddings"] = t.trained_length;
        note = Join(note, YarnLengthNote(t));
      }
      return {Pretty(InFile(std::move(keys), t.place)), note};
    };
    internal::AddPerVersion(way, tell, out);
  };
  const auto add_vllm = [&](const Way& way, const Json& form) {
    const auto tell = [&](const Has&) -> Told {
      if (local != nullptr && form == vllm.older) return {"", kFullAlone};
      return {fmt::format("--max-model-len {} --hf-overrides '{}'", t.target_length,
                          Placed(form, t.place.text_part).dump()),
              Join("Append to the command: vllm serve MODEL.", r.vllm_note)};
    };
    internal::AddPerVersion(way, tell, out);
  };
  add_hf(internal::kTransformers5, WithoutRopeScaling(hf.newer));
  add_hf(internal::kTransformers4, hf.older);
  add_vllm(internal::kVllmOn5, vllm.newer);
  add_vllm(internal::kVllmOn4, vllm.older);
  const auto tell_llama = [&](const Has& has) -> Told {
    if (local != nullptr) return {"", kFullAlone};
    if (r.llama_flags.empty()) return {"", r.llama_note};
    if (t.place.kept_in_gguf) return {"", internal::kKeptInGguf};
    std::string setting = LlamaCppSetting(r, t, has);
    std::string note = Join("Append to the command: llama-server -m MODEL.gguf.", r.llama_note);
    if (setting.find("ARCH") != std::string::npos) note = Join(note, kArchitecture);
    return {std::move(setting), std::move(note)};
  };
  internal::AddPerVersion(internal::kLlamaCpp, tell_llama, out);
  return out;
}

// llama.cpp's flags, with the base unless the recipe has one.
std::string LlamaFlags(const Recipe& r, const SettingsTarget& t) {
  if (r.llama_flags.empty() || r.base || !t.base_changed) return r.llama_flags;
  return fmt::format("{} --rope-freq-base {}", r.llama_flags, t.base);
}

// The scaling of a dictionary, as a sweep reads it. Sets the base and lengths that it has.
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
    if (!layer.rotation || internal::HasLocalBase(plan, layer)) continue;
    if (first == nullptr) first = &*layer.rotation;
    if (*layer.rotation != *first) {
      throw Error(ErrorCode::kUnsupported,
                  "the layers of this model rotate in more than one way; "
                  "one setting for all of them would be wrong");
    }
  }
  if (first == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "the model has no rotary layer, so there is nothing to set");
  }
  return *first;
}

std::optional<double> LocalBase(const PositionPlan& plan) {
  for (const LayerPlan& layer : plan.layers) {
    if (internal::HasLocalBase(plan, layer)) return layer.rotation->base;
  }
  return std::nullopt;
}

std::string HuggingFaceSetting(ConfigSchema schema, const Scaling& scaling,
                               const SettingsTarget& target) {
  const std::string engine = schema == ConfigSchema::kRopeParameters
                                 ? "Hugging Face transformers 5"
                                 : "Hugging Face transformers 4";
  SettingsTarget top = target;
  top.place.text_part.clear();
  for (const EngineSetting& setting : SettingsFor(scaling, top)) {
    if (setting.engine != engine) continue;
    if (setting.expressible) return setting.setting;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} does not have {}: {}", engine, Describe(scaling), setting.note));
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
  if (!target.local_base || !target.scales_local) return Render(recipe, target);
  SettingsTarget of_local = target;
  of_local.base = *target.local_base;
  const Recipe local = internal::RecipeOf(scaling, of_local);
  return Render(recipe, target, &local);
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
  r.hf_note = "This is the dictionary that was given.";
  try {
    const Recipe same = internal::RecipeOf(ScalingOf(dictionary, factor, t), t);
    r.llama_flags = LlamaFlags(same, t);
    r.llama_yarn = same.llama_yarn;
    r.llama_note = same.llama_note;
    if (same.rope.is_object() && same.rope["rope_type"] == type) {  // the same in these engines too
      r.hf_note = Join(r.hf_note, same.hf_note);
      r.vllm_note = same.vllm_note;
      r.longrope_amplitude = same.longrope_amplitude;
      r.vllm_rope = same.vllm_rope;
      r.rope.erase("attn_factor");  // of vLLM alone
      // Without them engines count from max_position_embeddings, which the setting raises.
      for (const char* key : {"original_max_position_embeddings", "factor", "attention_factor"}) {
        if (same.rope.contains(key) && !r.rope.contains(key)) r.rope[key] = same.rope[key];
      }
    }
  } catch (const Error& e) {
    r.llama_note = std::string("No flags are known for it: ") + e.what();
  }
  if (type == "yarn" && !(r.rope.contains("factor") && r.rope["factor"].is_number())) {
    r.rope["factor"] = factor;
  }
  return Render(r, t);
}

}  // namespace ropewalk
