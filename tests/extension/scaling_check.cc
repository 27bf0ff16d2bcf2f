// The made-up scaling of new_scaling.patch as every part of the library sees it. Prints what its
// golden is compared with.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ropewalk/plan/method.h"
#include "ropewalk/ropewalk.h"
#include "ropewalk/rotary/gradient.h"
#include "src/config/rope_dictionary.h"

namespace {

using ropewalk::Scaling;

void Expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "scaling_check: %s\n", what);
  std::exit(1);
}

ropewalk::RotarySpec Spec(const Scaling& scaling) {
  ropewalk::RotarySpec spec(ropewalk::PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 16;
  spec.trained_length = 4096;
  spec.scaling = scaling;
  return spec;
}

std::string HashOf(const Scaling& scaling) {
  ropewalk::PositionPlan plan;
  plan.layers.resize(1);
  plan.layers[0].rotation = Spec(scaling);
  return Resolve(plan, 16384).hash;
}

void CheckNames() {
  const std::vector<ropewalk::MethodInfo>& methods = ropewalk::Methods();
  Expect(std::string(methods.back().name) == "rooted", "the method list ends in rooted");
  const auto method = ropewalk::PositionMethod::Parse("rooted:factor=4+log-n");
  Expect(method.Describe(8, 4096) == "rooted(factor 4, strength 0.5) + log-n(length 4096)",
         "a command line says it");
  Expect(method.uses_factor() == false && ropewalk::PositionMethod::Parse("rooted").uses_factor(),
         "its factor counts");
}

void CheckReader(const Scaling& scaling) {
  const nlohmann::json dictionary = {{"rope_type", "rooted"}, {"factor", 4}};
  nlohmann::json other = dictionary;
  other["strength"] = 0.25;
  const auto parse = [](const nlohmann::json& json) {
    return ropewalk::internal::ParseRope(ropewalk::internal::JsonObject(json, "given"), {});
  };
  Expect(parse(dictionary).scaling == scaling, "a configuration says it");
  Expect(Difference(parse(dictionary), parse(other)) == "strength is 0.5 and 0.25",
         "a conflict names the key");
}

void CheckC(double expected) {
  const ropewalk_parameter parameters[] = {{"factor", 4}, {"strength", 0.25}};
  ropewalk_spec spec = {};
  spec.size = sizeof spec;
  spec.layout = 1;
  spec.head_dim = 16;
  spec.method = "rooted";
  spec.parameters = parameters;
  spec.num_parameters = 2;
  ropewalk_frequencies* frequencies = nullptr;
  Expect(ropewalk_frequencies_create(&spec, 1, &frequencies) == ROPEWALK_OK, "C takes it");
  ropewalk_frequencies_info info = {};
  info.size = sizeof info;
  ropewalk_frequencies_get(frequencies, &info);
  Expect(std::abs(info.inv_freq[0] - expected) < 1e-15, "C's parameters are its fields");
  ropewalk_frequencies_destroy(frequencies);
}

}  // namespace

int main() {
  CheckNames();
  const Scaling scaling = ropewalk::FindMethod("rooted").make(4);
  Expect(Describe(scaling) == "rooted(factor 4, strength 0.5)", "it describes itself");
  Expect(HashOf(scaling) != HashOf(ropewalk::NoScaling{}), "it has a hash of its own");
  Expect(HashOf(scaling) == HashOf(ropewalk::LinearScaling{2}), "of what it computes");
  CheckReader(scaling);
  CheckC(std::pow(4, -0.25));
  const ropewalk::Frequencies f = Resolve(Spec(scaling), 16384);
  Expect(std::abs(BaseDerivative(Spec(scaling), 1)[7] + 0.875 / 10000 * f.inv_freq[7].hi) < 1e-15,
         "it has a derivative by the base");
  nlohmann::json out = {{"spec", {{"dim", 16}, {"base", 10000}}},
                        {"parameters", {{"method", "rooted"}}},
                        {"amplitude", f.amplitude},
                        {"softmax_multiplier", f.softmax_multiplier}};
  std::visit(
      [&]<class S>(const S& s) {
        ropewalk::VisitFields<S>([&](const auto& field) {
          if constexpr (std::is_same_v<std::decay_t<decltype(s.*field.member)>, double>) {
            out["parameters"][field.name] = s.*field.member;
          }
        });
      },
      scaling);
  for (const ropewalk::DoubleDouble& x : f.inv_freq) out["inv_freq"].push_back(x.hi);
  std::puts(out.dump().c_str());
}
