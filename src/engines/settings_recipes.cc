#include "src/engines/settings_recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/engines/divisors.h"
#include "src/engines/facts.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kNeedsTensor[] =
    "There is no flag for it: llama.cpp reads such frequencies only from the tensor "
    "rope_freqs.weight of the GGUF file. ";

RotarySpec SpecOf(const Scaling& scaling, const SettingsTarget& target) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = target.rotary_dim;
  spec.base = target.base;
  spec.trained_length = target.trained_length;
  spec.scaling = scaling;
  return spec;
}

// The recipe of a scaling that no engine has by name.
std::vector<double> Divisors(const Scaling& scaling, const SettingsTarget& target) {
  return DivisorsOf(SpecOf(scaling, target), Resolve(SpecOf(scaling, target), target.target_length),
                    kZeroInDictionaries);
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
      "It has no rope_type for " + what +
      "; this is the same as a longrope setting, with one divisor per pair and attention factor 1.";
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
      fmt::format("NTK-aware scaling only changes the base: rope_theta {:.10g} instead of {:.10g}.",
                  *r.base, t.base);
  r.llama_flags = fmt::format("--rope-scaling none --rope-freq-base {}", *r.base);
  r.llama_note = "NTK-aware scaling only changes the base.";
  return r;
}

Recipe Make(const DynamicNtkScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = {{"rope_type", "dynamic"}, {"factor", s.factor}};
  r.raise_positions = false;
  const bool stays = t.place.stated_length == 0 || t.place.stated_length == t.trained_length;
  r.hf_note = fmt::format(
      "{} {}: the formula takes it as the trained length. The "
      "frequencies depend on the length of the prompt, and keys that are cached already keep the "
      "earlier ones, so give the whole prompt at once.",
      stays ? "Leave max_position_embeddings at" : "max_position_embeddings must be",
      t.trained_length);
  r.vllm_note =
      "In vLLM it is static despite its name: computed once for one length, which differs between "
      "versions, and used for short prompts too. Measure before relying on it.";
  r.llama_note = "llama.cpp has no dynamic NTK.";
  return r;
}

// A length-dependent method for engines that lack it: its setting at one fixed length.
Recipe Fixed(Recipe r, const char* method, const SettingsTarget& t) {
  const std::string note = fmt::format(
      "It has no {}; this is its setting for sequences of {} tokens, used for shorter ones too. ",
      method, t.target_length);
  r.hf_note = note + r.hf_note;
  r.vllm_note = note + r.vllm_note;
  if (!r.llama_flags.empty()) r.llama_note = note + r.llama_note;
  return r;
}

double Growth(const SettingsTarget& t) {
  return std::max(1.0,
                  static_cast<double>(t.target_length) / static_cast<double>(t.trained_length));
}

Recipe Make(const DynamicLinearScaling&, const SettingsTarget& t) {
  return Fixed(Make(LinearScaling{Growth(t)}, t), "dynamic linear scaling", t);
}

Recipe Make(const QwenNtkScaling&, const SettingsTarget& t) {
  double alpha = 1;  // 2^ceil(log2(length / L) + 1) - 1
  for (int64_t l = t.trained_length; l < t.target_length; l *= 2) alpha = 2 * alpha + 1;
  return Fixed(Make(NtkScaling{alpha}, t), "stepwise NTK", t);
}

Recipe Make(const NtkFixedScaling& s, const SettingsTarget& t) {
  Recipe r = FromDivisors(Divisors(s, t), t, "NTK-aware (fixed)");
  r.vllm_rope = {{"rope_type", "ntk"}, {"factor", s.factor}};
  r.vllm_note = "";
  return r;
}

Recipe Make(const NtkMixedScaling& s, const SettingsTarget& t) {
  Recipe r = FromDivisors(Divisors(s, t), t, "NTK-aware (mixed)");
  r.vllm_rope = {{"rope_type", "ntk"}, {"factor", s.factor}, {"mixed_b", s.exponent}};
  r.vllm_note = "";
  return r;
}

Recipe Make(const HopeScaling& s, const SettingsTarget& t) {
  Recipe r = FromDivisors(Divisors(s, t), t, "HoPE");
  for (std::string* note : {&r.hf_note, &r.vllm_note}) {
    *note += fmt::format(" A divisor of {:g} stands for frequency 0.", kZeroInDictionaries);
  }
  return r;
}

Recipe Make(const ProportionalScaling& s, const SettingsTarget& t) {
  Recipe r = FromDivisors(Divisors(s, t), t, "proportional scaling");
  r.rope = {{"rope_type", "proportional"}, {"partial_rotary_factor", s.fraction}};
  if (s.factor != 1) r.rope["factor"] = s.factor;
  r.vllm_rope = nullptr;
  r.hf_note = "";
  r.vllm_note = "Needs a version with Gemma 4.";
  return r;
}

Recipe Make(const BaseScaling& s, const SettingsTarget&) {
  Recipe r;
  r.base = s.base;
  r.llama_flags = fmt::format("--rope-scaling none --rope-freq-base {}", s.base);
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
  r.llama_note = std::string(kNeedsTensor) + "A GGUF file with it needs no flag but -c.";
  return r;
}

Recipe Make(const YarnScaling& s, const SettingsTarget& t) {
  Recipe r;
  r.rope = {{"rope_type", "yarn"},
            {"factor", s.factor},
            {"original_max_position_embeddings", t.trained_length}};
  r.llama_flags = fmt::format("--rope-scaling yarn --rope-scale {} --yarn-orig-ctx {}", s.factor,
                              t.trained_length);
  r.llama_yarn = true;
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
  if (s.attn_factor && !s.attention_factor) {  // transformers ignores the key
    r.vllm_rope = r.rope;
    r.vllm_rope["attn_factor"] = *s.attn_factor;
    r.rope["attention_factor"] = Resolve(SpecOf(s, t), t.target_length).amplitude;
  }
  if (s.attention_factor || s.attn_factor || s.mscale || s.mscale_all_dim) {
    r.llama_flags.clear();
    r.llama_note =
        Sentence(Fact::kYarnOwnAmplitude) + "; ropewalk extend writes this one into a GGUF file.";
    if (r.vllm_rope.is_null()) {
      r.vllm_note = "Some versions drop attention_factor; check the one in use.";
    }
  } else if (!s.truncate) {
    r.llama_flags.clear();
    r.llama_note = Sentence(Fact::kYarnAlwaysTruncates) + ", which this setting does not.";
  }
  return r;
}

Recipe Make(const DynamicYarnScaling& s, const SettingsTarget& t) {
  YarnScaling yarn;
  yarn.factor = Growth(t);
  yarn.beta_fast = s.beta_fast;
  yarn.beta_slow = s.beta_slow;
  yarn.truncate = s.truncate;
  return Fixed(Make(yarn, t), "dynamic YaRN", t);
}

Recipe Make(const LongRopeScaling& s, const SettingsTarget& t) {
  Recipe r;
  const double amplitude = Resolve(SpecOf(s, t), t.target_length).amplitude;
  r.rope = {{"rope_type", "longrope"}};
  if (s.factor) r.rope["factor"] = *s.factor;
  if (s.attention_factor || s.long_mscale) r.rope["attention_factor"] = amplitude;
  r.rope["original_max_position_embeddings"] = t.trained_length;
  r.rope["short_factor"] = s.short_factor;
  r.rope["long_factor"] = s.long_factor;
  r.longrope_amplitude = amplitude;
  // It knows no attention_factor; unless the amplitudes are given, the factor that it takes is
  // max_position_embeddings over the original length.
  r.vllm_rope = {{"rope_type", "longrope"},
                 {"original_max_position_embeddings", t.trained_length},
                 {"short_mscale", s.short_mscale.value_or(amplitude)},
                 {"long_mscale", amplitude},
                 {"short_factor", s.short_factor},
                 {"long_factor", s.long_factor}};
  r.hf_note =
      "The long divisors are used once a prompt exceeds the trained length; keys that are cached "
      "already keep the short ones, so give the whole prompt at once.";
  r.vllm_note =
      "vLLM uses the long divisors for every prompt if --max-model-len exceeds the trained length.";
  r.llama_note =
      "There is no flag for it: llama.cpp reads the divisors from the tensors "
      "rope_factors_long.weight and rope_factors_short.weight of the GGUF file, which its "
      "converter "
      "writes for Phi-3.";
  return r;
}

// A method that no engine has by name: as divisors and an attention factor.
template <class S>
Recipe Make(const S& s, const SettingsTarget& t) {
  const MethodInfo& info = InfoOf(s);
  Recipe r = FromDivisors(Divisors(s, t), t, info.title);
  const double amplitude = Resolve(SpecOf(s, t), t.target_length).amplitude;
  if (amplitude != 1) {
    r.rope["attention_factor"] = amplitude;
    r.vllm_rope["short_mscale"] = r.vllm_rope["long_mscale"] = amplitude;
    for (std::string* note : {&r.hf_note, &r.vllm_note}) {
      *note += fmt::format(" Its attention factor is {:.10g}.", amplitude);
    }
  }
  return info.length_dependent ? Fixed(r, info.title, t) : r;
}

}  // namespace

Recipe RecipeOf(const Scaling& scaling, const SettingsTarget& target) {
  return std::visit([&](const auto& s) { return Make(s, target); }, scaling);
}

}  // namespace ropewalk::internal
