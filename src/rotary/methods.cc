// The one list of methods, and how a scaling is written in words.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {
namespace {

std::string Optional(const char* name, const std::optional<double>& value) {
  return value ? fmt::format(", {} {}", name, *value) : std::string();
}

struct Words {
  std::string operator()(const NoScaling&) const { return "none"; }
  std::string operator()(const LinearScaling& s) const {
    return fmt::format("linear(factor {})", s.factor);
  }
  std::string operator()(const NtkScaling& s) const {
    return fmt::format("ntk(factor {})", s.factor);
  }
  std::string operator()(const NtkFixedScaling& s) const {
    return fmt::format("ntk-fixed(factor {})", s.factor);
  }
  std::string operator()(const NtkMixedScaling& s) const {
    return fmt::format("ntk-mixed(factor {}, exponent {})", s.factor, s.exponent);
  }
  std::string operator()(const DynamicLinearScaling& s) const {
    return s.factor == 0 ? "dynamic-linear" : fmt::format("dynamic-linear(factor {})", s.factor);
  }
  std::string operator()(const QwenNtkScaling&) const { return "qwen"; }
  std::string operator()(const ProportionalScaling& s) const {
    return fmt::format("proportional(fraction {}, factor {})", s.fraction, s.factor);
  }
  std::string operator()(const HopeScaling&) const { return "hope"; }
  std::string operator()(const BaseScaling& s) const { return fmt::format("base({})", s.base); }
  std::string operator()(const DynamicYarnScaling& s) const {
    return fmt::format("dynamic-yarn(beta_fast {}, beta_slow {}, {})", s.beta_fast, s.beta_slow,
                       s.truncate ? "truncate" : "no truncate");
  }
  std::string operator()(const DynamicNtkScaling& s) const {
    return fmt::format("dynamic(factor {})", s.factor);
  }
  std::string operator()(const ByPartsScaling& s) const {
    return fmt::format("by-parts(factor {}, alpha {}, beta {})", s.factor, s.alpha, s.beta);
  }
  std::string operator()(const ByPartsRepoScaling& s) const {
    return fmt::format(
        "by-parts-repo(factor {}, ntk_factor {}, extrapolation_factor {}, beta {} {}, gamma {} {})",
        s.factor, s.ntk_factor, s.extrapolation_factor, s.beta_0, s.beta_1, s.gamma_0, s.gamma_1);
  }
  std::string operator()(const YarnScaling& s) const {
    return fmt::format("yarn(factor {}, beta_fast {}, beta_slow {}, {}{}{}{}{}{}{})", s.factor,
                       s.beta_fast, s.beta_slow, s.truncate ? "truncate" : "no truncate",
                       Optional("attention_factor", s.attention_factor),
                       Optional("attn_factor", s.attn_factor), Optional("mscale", s.mscale),
                       Optional("mscale_all_dim", s.mscale_all_dim),
                       s.softmax_mscale ? ", softmax times mscale_all_dim's squared" : "",
                       s.extrapolation_factor != 1
                           ? fmt::format(", extrapolation_factor {}", s.extrapolation_factor)
                           : std::string());
  }
  std::string operator()(const Llama3Scaling& s) const {
    return fmt::format("llama3(factor {}, low_freq_factor {}, high_freq_factor {})", s.factor,
                       s.low_freq_factor, s.high_freq_factor);
  }
  std::string operator()(const LongRopeScaling& s) const {
    return fmt::format(
        "longrope({} divisors{}{}{}{})", s.short_factor.size(), Optional("factor", s.factor),
        Optional("attention_factor", s.attention_factor), Optional("short_mscale", s.short_mscale),
        Optional("long_mscale", s.long_mscale));
  }
  std::string operator()(const ExplicitScaling& s) const {
    return fmt::format("explicit({} divisors)", s.divisors.size());
  }
};

struct Factor {
  double operator()(const LongRopeScaling& s) const { return s.factor.value_or(1); }
  double operator()(const DynamicLinearScaling& s) const { return s.factor == 0 ? 1 : s.factor; }
  template <class S>
  double operator()(const S& s) const {
    if constexpr (requires { s.factor; }) {
      return s.factor;
    } else {
      return 1;
    }
  }
};

template <class S>
Scaling Make([[maybe_unused]] double factor) {
  S s;
  if constexpr (requires { s.factor; }) s.factor = factor;
  return s;
}

}  // namespace

const std::vector<MethodInfo>& Methods() {
  static const std::vector<MethodInfo> methods = {
      {"none", "no scaling", "RoFormer, arXiv 2104.09864", false,
       [](double) { return Scaling(NoScaling{}); }, true},
      {"linear", "position interpolation", "arXiv 2306.15595", false, Make<LinearScaling>, true},
      {"ntk", "NTK-aware", "bloc97 2023; arXiv 2309.00071, eq. 16", false, Make<NtkScaling>, true},
      {"ntk-fixed", "NTK-aware, fixed", "kexue.fm/archives/9706; vLLM", false,
       Make<NtkFixedScaling>, false},
      {"ntk-mixed", "NTK-aware, mixed", "kexue.fm/archives/9706; vLLM", false,
       Make<NtkMixedScaling>, false},
      {"dynamic", "dynamic NTK", "emozilla 2023; Hugging Face", true, Make<DynamicNtkScaling>,
       true},
      {"dynamic-linear", "dynamic position interpolation", "github.com/jquesnelle/yarn", true,
       Make<DynamicLinearScaling>, false},
      {"qwen", "Qwen's stepwise NTK", "QwenLM/Qwen issue 401", true, Make<QwenNtkScaling>, false},
      {"by-parts", "NTK-by-parts (paper)", "arXiv 2309.00071, section 3.2", false,
       Make<ByPartsScaling>, true},
      {"by-parts-repo", "NTK-by-parts (yarn repository)", "github.com/jquesnelle/yarn", false,
       Make<ByPartsRepoScaling>, true},
      {"yarn", "YaRN", "arXiv 2309.00071; Hugging Face", false, Make<YarnScaling>, true},
      {"dynamic-yarn", "dynamic YaRN", "github.com/jquesnelle/yarn", true, Make<DynamicYarnScaling>,
       false},
      {"llama3", "Llama 3.1", "Meta 2024; Hugging Face", false, Make<Llama3Scaling>, true},
      {"hope", "HoPE", "arXiv 2410.21216", false, Make<HopeScaling>, false},
  };
  return methods;
}

const MethodInfo& FindMethod(const std::string& name) {
  std::string names;
  for (const MethodInfo& method : Methods()) {
    if (name == method.name) return method;
    names += names.empty() ? method.name : std::string(", ") + method.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("method: expected one of {}; got \"{}\"", names, name));
}

std::string Describe(const Scaling& scaling) { return std::visit(Words{}, scaling); }

bool IsLengthDependent(const Scaling& scaling) {
  return std::holds_alternative<DynamicNtkScaling>(scaling) ||
         std::holds_alternative<DynamicLinearScaling>(scaling) ||
         std::holds_alternative<QwenNtkScaling>(scaling) ||
         std::holds_alternative<DynamicYarnScaling>(scaling) ||
         std::holds_alternative<LongRopeScaling>(scaling);
}

double FactorOf(const Scaling& scaling) { return std::visit(Factor{}, scaling); }

}  // namespace ropewalk
