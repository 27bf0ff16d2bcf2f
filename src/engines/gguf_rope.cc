#include "src/engines/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/rotary/frequencies.h"
#include "src/config/gguf/keys.h"
#include "src/engines/divisors.h"
#include "src/engines/facts.h"
#include "src/engines/llamacpp.h"
#include "src/plan/local_base.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(ErrorCode::kUnsupported, "GGUF cannot hold it: " + why);
}

constexpr char kFolders[] = "a Hugging Face folder can";

double Rounded(double value) { return static_cast<float>(value); }

void CheckWholeHead(const std::string& architecture, const RotarySpec& spec) {
  // Other architectures that are read and extended are not known to need whole heads.
  const LlamaCppArchitecture* llama_cpp = FindLlamaCpp(architecture);
  const bool part = llama_cpp == nullptr || llama_cpp->Takes(kPartOfAHead);
  if (spec.rotary_dim == spec.head_dim || part) return;
  Refuse(
      fmt::format("partial rotary, {} of {} dimensions; llama.cpp rotates whole heads of the "
                  "architecture {} alone; {}",
                  spec.rotary_dim, spec.head_dim, architecture, kFolders));
}

void CheckTakesTensors(const std::string& architecture, const std::string& method,
                       LlamaCppTakes tensors) {
  const LlamaCppArchitecture* llama_cpp = FindLlamaCpp(architecture);
  if (llama_cpp != nullptr && llama_cpp->Takes(tensors)) return;
  Refuse(
      fmt::format("{} needs divisors of the frequencies, and llama.cpp does not load their tensor "
                  "for the architecture {}; {}",
                  method, architecture, kFolders));
}

class Writer {
 public:
  Writer(const std::string& architecture, const PositionPlan& plan, int64_t served_length)
      : architecture_(architecture), plan_(plan), spec_(OnlyRotation(plan)) {
    CheckWholeHead(architecture, spec_);
    Integer("context_length", served_length);
    Integer("rope.dimension_count", spec_.rotary_dim);
    Float("rope.freq_base", spec_.base);
    if (std::vector<int64_t> sections = spec_.axes.sections; !sections.empty()) {
      sections.resize(4);  // llama.cpp reads no other number of them
      out_.keys[Key("rope.dimension_sections")] = {sections, GgufType::kI32};
    }
    stored_ = spec_;
    stored_.base = Rounded(spec_.base);
  }

  StoredRope Run() {
    std::visit([this](const auto& s) { Write(s); }, spec_.scaling);
    out_.stored = plan_;
    for (LayerPlan& layer : out_.stored.layers) {
      if (!layer.rotation) continue;
      if (!HasLocalBase(plan_, layer)) {
        layer.rotation = stored_;
      } else if (layer.rotation->base == spec_.base) {  // OLMo 3: one key for all layers
        layer.rotation->base = stored_.base;
      }
    }
    return std::move(out_);
  }

 private:
  std::string Key(const char* key) const { return architecture_ + "." + key; }
  void Integer(const char* key, int64_t value) { out_.keys[Key(key)] = {value, GgufType::kU32}; }
  void Float(const char* key, double value) {
    out_.keys[Key(key)] = {Rounded(value), GgufType::kF32};
  }
  void Type(const char* type) {
    out_.keys[Key("rope.scaling.type")] = {std::string(type), GgufType::kString};
  }
  static double Amplitude(const RotarySpec& spec) {
    return Resolve(spec, spec.trained_length).amplitude;
  }
  void Original() { Integer("rope.scaling.original_context_length", spec_.trained_length); }

  void Write(const NoScaling&) { Type("none"); }
  void Write(const LinearScaling& s) {
    Type("linear");
    Float("rope.scaling.factor", s.factor);
    Original();
    stored_.scaling = LinearScaling{Rounded(s.factor)};
  }
  // Both are another base and nothing else.
  void Write(const NtkScaling& s) {
    const auto d = static_cast<double>(spec_.rotary_dim);
    Base(spec_.base * std::pow(s.factor, d / (d - 2)));
  }
  void Write(const BaseScaling& s) { Base(s.base); }
  void Base(double base) {
    Type("none");
    Float("rope.freq_base", base);
    Original();
    stored_.base = Rounded(base);
    stored_.scaling = NoScaling{};
  }
  void Write(const YarnScaling& s) {
    if (!s.truncate) {
      Refuse(
          fmt::format("{}, this setting does not; {}, and ropewalk extend --method yarn writes one "
                      "whose YaRN is truncated",
                      Sentence(Fact::kYarnAlwaysTruncates), kFolders));
    }
    const bool reads_betas = LlamaCppReadsBetas(architecture_);
    if (!reads_betas && (s.beta_fast != 32 || s.beta_slow != 1)) {
      Refuse(
          fmt::format("llama.cpp takes 32 and 1 for YaRN's beta_fast and beta_slow, whatever a "
                      "file of the architecture {} says, this setting has {} and {}; {}",
                      architecture_, s.beta_fast, s.beta_slow, kFolders));
    }
    const bool latent = IsDeepseekGguf(architecture_);
    if ((s.softmax_mscale && !latent) || s.extrapolation_factor != 1) {
      Refuse(
          fmt::format("llama.cpp has no key for {} of the architecture {}; {}",
                      s.softmax_mscale ? "YaRN's factor on the scores" : "an extrapolation factor",
                      architecture_, kFolders));
    }
    Type("yarn");
    Float("rope.scaling.factor", s.factor);
    Original();
    YarnScaling stored{.factor = Rounded(s.factor)};
    if (latent) return WriteLatent(s, stored);
    if (reads_betas) {
      Float("rope.scaling.yarn_beta_fast", s.beta_fast);
      Float("rope.scaling.yarn_beta_slow", s.beta_slow);
      stored.beta_fast = Rounded(s.beta_fast);
      stored.beta_slow = Rounded(s.beta_slow);
    }
    RotarySpec usual = spec_;
    usual.scaling = YarnScaling{.factor = s.factor};
    const double ratio = Amplitude(spec_) / Amplitude(usual);
    if (Rounded(ratio) != 1) {  // the key multiplies what llama.cpp has of itself
      Float("rope.scaling.attn_factor", ratio);
      stored.attn_factor = Rounded(ratio);
    }
    stored_.scaling = stored;
  }
  // llama.cpp takes mscale for the same as mscale_all_dim, of which the key holds a tenth; for 1 in
  // Mistral 4.
  void WriteLatent(const YarnScaling& s, YarnScaling stored) {
    if (architecture_ != "deepseek2" && s.mscale != 1) {
      Refuse(fmt::format("llama.cpp takes YaRN's mscale for 1 in the architecture {}; {}",
                         architecture_, kFolders));
    }
    if (!s.softmax_mscale || s.mscale != s.mscale_all_dim || s.attention_factor || s.attn_factor) {
      Refuse(
          fmt::format("llama.cpp takes YaRN of the architecture {} with an mscale_all_dim, which "
                      "multiplies scores, and the same mscale; this setting has {}; {}",
                      architecture_, Describe(Scaling(s)), kFolders));
    }
    Float("rope.scaling.yarn_log_multiplier", 0.1 * *s.mscale_all_dim);
    stored.mscale = stored.mscale_all_dim = LatentMscale(Rounded(0.1 * *s.mscale_all_dim));
    stored.softmax_mscale = true;
    stored_.scaling = stored;
  }
  void Write(const LongRopeScaling& s) {
    CheckTakesTensors(architecture_, "LongRoPE", kLongRopeTensors);
    const double amplitude = Rounded(Resolve(spec_, spec_.trained_length).amplitude);
    if (Rounded(Resolve(spec_, spec_.trained_length + 1).amplitude) != amplitude) {
      Refuse(fmt::format("it has one amplitude for short and long texts; {}", kFolders));
    }
    Type("longrope");
    Original();
    Float("rope.scaling.attn_factor", amplitude);
    LongRopeScaling stored;
    stored.short_factor = Divisors("rope_factors_short.weight", s.short_factor);
    stored.long_factor = Divisors("rope_factors_long.weight", s.long_factor);
    stored.attention_factor = amplitude;
    stored_.scaling = std::move(stored);
  }
  // Every other method that does not depend on the length is a list of divisors.
  template <class S>
  void Write(const S& s) {
    const std::string method = Describe(Scaling(s));
    if (IsLengthDependent(Scaling(s))) {
      Refuse(
          fmt::format("{} follows the length of the text, and GGUF holds fixed frequencies "
                      "alone (a Hugging Face folder can say dynamic NTK); give the fixed method "
                      "that it comes to at the length you need",
                      method));
    }
    CheckTakesTensors(architecture_, method, kDivisorTensor);
    const Frequencies with = Resolve(spec_, spec_.trained_length);
    if (with.amplitude != 1 || with.softmax_multiplier != 1) {
      Refuse(fmt::format("{} has an amplitude, and rope_freqs.weight holds none", method));
    }
    const std::vector<double> divisors = DivisorsOf(spec_, with, kZeroInGguf);
    const auto alike = [&](double divisor) {
      return std::count(divisors.begin(), divisors.end(), divisor);
    };
    const bool some_still = alike(kZeroInGguf) > 0;
    const bool others_unchanged =
        alike(kZeroInGguf) + alike(1) == static_cast<int64_t>(divisors.size());
    if (some_still && !others_unchanged) {
      Refuse(fmt::format("{} gives some pairs frequency 0 and changes others", method));
    }
    Type("none");
    Original();
    std::vector<double> rounded = Divisors("rope_freqs.weight", divisors);
    if (!some_still) stored_.scaling = ExplicitScaling{std::move(rounded)};
  }

  std::vector<double> Divisors(const char* name, const std::vector<double>& divisors) {
    std::vector<float> values(divisors.begin(), divisors.end());
    const auto pairs = static_cast<int64_t>(values.size());
    std::vector<double> rounded(values.begin(), values.end());
    const auto still = std::count(divisors.begin(), divisors.end(), kZeroInGguf);
    out_.notes.push_back(
        fmt::format("{} written: a divisor for each of {} pairs{}", name, pairs,
                    still > 0 ? fmt::format("; {} of them are 1e30, for frequency 0", still) : ""));
    out_.tensors.push_back(FromFloats(name, {pairs}, std::move(values)));
    return rounded;
  }

  std::string architecture_;
  const PositionPlan& plan_;
  const RotarySpec& spec_;
  RotarySpec stored_{PairLayout::kHalf};
  StoredRope out_;
};

}  // namespace

StoredRope GgufRopeOf(const std::string& architecture, const PositionPlan& plan,
                      int64_t served_length) {
  return Writer(architecture, plan, served_length).Run();
}

bool IsGgufRopeKey(const std::string& architecture, const std::string& key) {
  return key.starts_with(architecture + ".rope.") || key == architecture + ".context_length";
}

bool IsGgufRopeTensor(const std::string& name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

}  // namespace ropewalk::internal
