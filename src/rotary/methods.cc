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
    return fmt::format("yarn(factor {}, beta_fast {}, beta_slow {}, {}{}{}{})", s.factor,
                       s.beta_fast, s.beta_slow, s.truncate ? "truncate" : "no truncate",
                       Optional("attention_factor", s.attention_factor),
                       Optional("mscale", s.mscale), Optional("mscale_all_dim", s.mscale_all_dim));
  }
  std::string operator()(const Llama3Scaling& s) const {
    return fmt::format("llama3(factor {}, low_freq_factor {}, high_freq_factor {})", s.factor,
                       s.low_freq_factor, s.high_freq_factor);
  }
  std::string operator()(const LongRopeScaling& s) const {
    return fmt::format("longrope({} divisors{}{})", s.short_factor.size(),
                       Optional("factor", s.factor),
                       Optional("attention_factor", s.attention_factor));
  }
  std::string operator()(const ExplicitScaling& s) const {
    return fmt::format("explicit({} divisors)", s.divisors.size());
  }
};

struct Factor {
  double operator()(const NoScaling&) const { return 1; }
  double operator()(const ExplicitScaling&) const { return 1; }
  double operator()(const LongRopeScaling& s) const { return s.factor.value_or(1); }
  template <class S>
  double operator()(const S& s) const {
    return s.factor;
  }
};

template <class S>
Scaling Make(double factor) {
  S s;
  s.factor = factor;
  return s;
}

}  // namespace

const std::vector<MethodInfo>& Methods() {
  static const std::vector<MethodInfo> methods = {
      {"none", "no scaling", "RoFormer, arXiv 2104.09864", false,
       [](double) { return Scaling(NoScaling{}); }},
      {"linear", "position interpolation", "arXiv 2306.15595", false, Make<LinearScaling>},
      {"ntk", "NTK-aware", "bloc97 2023; arXiv 2309.00071, eq. 16", false, Make<NtkScaling>},
      {"dynamic", "dynamic NTK", "emozilla 2023; Hugging Face", true, Make<DynamicNtkScaling>},
      {"by-parts", "NTK-by-parts (paper)", "arXiv 2309.00071, section 3.2", false,
       Make<ByPartsScaling>},
      {"by-parts-repo", "NTK-by-parts (yarn repository)", "github.com/jquesnelle/yarn", false,
       Make<ByPartsRepoScaling>},
      {"yarn", "YaRN", "arXiv 2309.00071; Hugging Face", false, Make<YarnScaling>},
      {"llama3", "Llama 3.1", "Meta 2024; Hugging Face", false, Make<Llama3Scaling>},
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
         std::holds_alternative<LongRopeScaling>(scaling);
}

double FactorOf(const Scaling& scaling) { return std::visit(Factor{}, scaling); }

}  // namespace ropewalk
