#include "ropewalk/eval/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {
namespace {

using Json = nlohmann::ordered_json;

// What one scaling comes to in each engine, before it is written out.
struct Recipe {
  Json rope = nullptr;          // Hugging Face dictionary without rope_theta; null: plain RoPE
  std::optional<double> base;   // a changed base
  bool raise_positions = true;  // max_position_embeddings becomes the served length
  std::string hf_note, vllm_note;
  Json vllm_rope = nullptr;  // where vLLM's dictionary differs
  std::string llama_flags;   // empty: llama.cpp cannot
  std::string llama_note;
};

constexpr char kNeedsTensor[] =
    "No flag can say it: llama.cpp takes such frequencies only from the tensor rope_freqs.weight "
    "inside the GGUF file. ";

// Divisors f_i / f'_i of a scaling that no engine knows by name.
std::vector<double> Divisors(const Scaling& scaling, const SettingsTarget& target) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = target.rotary_dim;
  spec.base = target.base;
  spec.trained_length = target.trained_length;
  const Frequencies plain = Resolve(spec, target.target_length);
  spec.scaling = scaling;
  const Frequencies scaled = Resolve(spec, target.target_length);
  std::vector<double> divisors;
  for (size_t i = 0; i < plain.inv_freq.size(); ++i) {
    divisors.push_back(plain.inv_freq[i].hi / scaled.inv_freq[i].hi);
  }
  return divisors;
}

// Hugging Face's longrope with the same list twice is a static list of divisors; an
// attention_factor of 1 switches its amplitude off.
Recipe FromDivisors(const std::vector<double>& divisors, const SettingsTarget& target,
                    const std::string& what) {
  Recipe r;
  r.rope = {{"rope_type", "longrope"},
            {"factor", static_cast<double>(target.target_length) / target.trained_length},
            {"original_max_position_embeddings", target.trained_length},
            {"attention_factor", 1.0},
            {"short_factor", divisors},
            {"long_factor", divisors}};
  r.vllm_rope = {
      {"rope_type", "longrope"},  {"original_max_position_embeddings", target.trained_length},
      {"short_mscale", 1.0},      {"long_mscale", 1.0},
      {"short_factor", divisors}, {"long_factor", divisors}};
  r.hf_note = r.vllm_note =
      "It knows no rope_type for " + what +
      "; this says the same through longrope, with one divisor a pair and no amplitude.";
  r.llama_note = kNeedsTensor + ("Its converter does not write that tensor for " + what + ".");
  return r;
}

Recipe Make(const NoScaling&, const SettingsTarget&) {
  Recipe r;
  r.llama_flags = "--rope-scaling none";
  return r;
}

Recipe Make(const LinearScaling& s, const SettingsTarget&) {
  Recipe r;
  r.rope = {{"rope_type", "linear"}, {"factor", s.factor}};
  r.llama_flags = fmt::format("--rope-scaling linear --rope-scale {}", s.factor);
  return r;
}

Recipe Make(const NtkScaling& s, const SettingsTarget& t) {
  Recipe r;
  const double d = static_cast<double>(t.rotary_dim);
  r.base = t.base * std::pow(s.factor, d / (d - 2));
  r.hf_note = r.vllm_note =
      fmt::format("NTK-aware is nothing but a larger base: rope_theta {:.10g} instead of {:.10g}.",
                  *r.base, t.base);
  r.llama_flags = fmt::format("--rope-scaling none --rope-freq-base {}", *r.base);
  r.llama_note = "NTK-aware is nothing but a larger base.";
  return r;
}

Recipe Make(const DynamicNtkScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = {{"rope_type", "dynamic"}, {"factor", s.factor}};
  r.raise_positions = false;
  r.hf_note = fmt::format(
      "Leave max_position_embeddings at {}: the formula takes it for the trained length. The "
      "frequencies follow the prompt's length; keys that are in the cache already keep the older "
      "ones, so give the whole prompt at once.",
      t.trained_length);
  r.vllm_note =
      "Despite its name it is static there: computed once for one length and used for short "
      "prompts "
      "as well. Which length differs between versions, so measure before relying on it.";
  r.llama_note = "llama.cpp has no dynamic NTK.";
  return r;
}

Json Llama3Json(double factor, double low, double high, const SettingsTarget& t) {
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", low},
          {"high_freq_factor", high},
          {"original_max_position_embeddings", t.trained_length}};
}

std::string Llama3TensorNote(const SettingsTarget& t) {
  return kNeedsTensor +
         fmt::format(
             "Put the Hugging Face setting into config.json, add "
             "\"original_max_position_embeddings\": {} at its top level too, and convert "
             "again: the converter writes the tensor. Then serve with -c {}.",
             t.trained_length, t.target_length);
}

Recipe Make(const ByPartsScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = Llama3Json(s.factor, s.alpha, s.beta, t);
  r.hf_note = r.vllm_note =
      "llama3 with low_freq_factor = alpha and high_freq_factor = beta is the paper's "
      "NTK-by-parts.";
  r.llama_note = Llama3TensorNote(t);
  return r;
}

Recipe Make(const Llama3Scaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = Llama3Json(s.factor, s.low_freq_factor, s.high_freq_factor, t);
  r.llama_note = Llama3TensorNote(t);
  return r;
}

Recipe Make(const ByPartsRepoScaling& s, const SettingsTarget& t) {
  return FromDivisors(Divisors(s, t), t, "the by-parts of the yarn repository");
}

Recipe Make(const ExplicitScaling& s, const SettingsTarget& t) {
  Recipe r = FromDivisors(Divisors(s, t), t, "a plain list of divisors");
  r.llama_note = std::string(kNeedsTensor) + "A GGUF file that carries it needs no flag but -c.";
  return r;
}

Recipe Make(const YarnScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = {{"rope_type", "yarn"},
            {"factor", s.factor},
            {"original_max_position_embeddings", t.trained_length}};
  r.llama_flags = fmt::format("--rope-scaling yarn --rope-scale {} --yarn-orig-ctx {}", s.factor,
                              t.trained_length);
  if (s.beta_fast != 32 || s.beta_slow != 1) {
    r.rope["beta_fast"] = s.beta_fast;
    r.rope["beta_slow"] = s.beta_slow;
    r.llama_flags +=
        fmt::format(" --yarn-beta-fast {} --yarn-beta-slow {}", s.beta_fast, s.beta_slow);
  }
  if (!s.truncate) r.rope["truncate"] = false;
  if (s.attention_factor) r.rope["attention_factor"] = *s.attention_factor;
  if (s.mscale) r.rope["mscale"] = *s.mscale;
  if (s.mscale_all_dim) r.rope["mscale_all_dim"] = *s.mscale_all_dim;
  if (s.attention_factor || s.mscale || s.mscale_all_dim) {
    r.llama_flags.clear();
    r.llama_note =
        "llama.cpp computes YaRN's amplitude itself (0.1 ln factor + 1) and overwrites any other, "
        "so "
        "this amplitude cannot be set.";
    r.vllm_note = "Some versions drop attention_factor; check the one in use.";
  } else if (!s.truncate) {
    r.llama_flags.clear();
    r.llama_note =
        "llama.cpp always rounds the ends of YaRN's ramp (truncate), this setting does not.";
  }
  r.hf_note = fmt::format(
      "max_position_embeddings must be exactly factor times {}: some 4.x versions take their ratio "
      "for the factor.",
      t.trained_length);
  return r;
}

Recipe Make(const LongRopeScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = {{"rope_type", "longrope"}};
  if (s.factor) r.rope["factor"] = *s.factor;
  if (s.attention_factor) r.rope["attention_factor"] = *s.attention_factor;
  r.rope["original_max_position_embeddings"] = t.trained_length;
  r.rope["short_factor"] = s.short_factor;
  r.rope["long_factor"] = s.long_factor;
  r.hf_note =
      "The long divisors take over when a prompt passes the trained length; keys in the cache keep "
      "the short ones, so give the whole prompt at once.";
  r.vllm_note =
      "vLLM uses the long divisors for every prompt once --max-model-len passes the "
      "trained length.";
  r.llama_note =
      "No flag can say it: llama.cpp takes the divisors from the tensors rope_factors_long.weight "
      "and "
      "rope_factors_short.weight inside the GGUF file, which its converter writes for Phi-3.";
  return r;
}

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
  if (r.base) old_form["rope_theta"] = vllm_old["rope_theta"] = base;
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

// The scaling is in the model's files already; only the length has to be allowed.
std::vector<EngineSetting> AsShipped(int64_t length) {
  const std::string note = "The model's files say it already; only the length is set.";
  const std::string json = Json{{"max_position_embeddings", length}}.dump(2);
  const std::string vllm = fmt::format("--max-model-len {}", length);
  return {{"Hugging Face transformers 5", true, json, note},
          {"Hugging Face transformers 4", true, json, note},
          {"vLLM", true, vllm, note},
          {"llama.cpp", true, fmt::format("-c {}", length), note}};
}

// A dictionary that the user gave with --rope-scaling.
std::vector<EngineSetting> FromDictionary(const std::string& text, const SettingsTarget& t) {
  const Json dictionary = Json::parse(text, nullptr, false);
  if (!dictionary.is_object()) {
    return {{"all engines", false, "", "It was given as: " + text}};
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
  r.llama_note = "Flags for a dictionary of one's own have to be worked out by hand.";
  if (type == "yarn" && !(r.rope.contains("factor") && r.rope["factor"].is_number())) {
    r.rope["factor"] = static_cast<double>(t.target_length) / t.trained_length;
  }
  return Render(r, t);
}

}  // namespace

std::vector<EngineSetting> SettingsFor(const Scaling& scaling, const SettingsTarget& target) {
  if (target.trained_length <= 0 || target.target_length <= 0 || target.rotary_dim < 2) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("settings need a trained length, a target length and a rotary_dim of at "
                    "least 2; got {}, {} and {}",
                    target.trained_length, target.target_length, target.rotary_dim));
  }
  return Render(std::visit([&](const auto& s) { return Make(s, target); }, scaling), target);
}

std::vector<EngineSetting> SettingsFor(const Cell& cell, int64_t target_length) {
  const SettingsTarget target{cell.trained_length, target_length, cell.rope_base, cell.rotary_dim};
  if (cell.method == "as-shipped") return AsShipped(target_length);
  for (const MethodInfo& method : Methods()) {
    if (cell.method == method.name) return SettingsFor(method.make(cell.factor), target);
  }
  return FromDictionary(cell.scaling, target);
}

}  // namespace ropewalk
