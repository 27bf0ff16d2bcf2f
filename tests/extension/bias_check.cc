// The made-up bias of new_bias.patch as the library sees it. Prints the case that its golden reads.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/relative/distance_bias.h"

namespace {

void Expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "bias_check: %s\n", what);
  std::exit(1);
}

}  // namespace

int main() {
  const ropewalk::DistanceBiasInfo& info = ropewalk::DistanceBiases().back();
  Expect(std::string(info.name) == "hyperbolic", "the list of biases ends in hyperbolic");
  ropewalk::DistanceBias bias = info.make();
  Expect(ropewalk::LearnedNumbers(bias, 2) == 2, "it learns one number per head");
  const float r[] = {0.5f, 1.25f};
  SetLearned(r, 2, bias);
  Expect(bias != info.make(), "its numbers tell it apart");
  const auto form = std::get<ropewalk::DistanceForm>(Lower(bias, 2, 64));
  ropewalk::DistanceForm gradient = form;
  for (float& x : gradient.values) x = 1;
  Expect(Backward(bias, gradient).size() == 2, "it has a gradient");
  try {
    ropewalk::PositionMethod::Parse("hyperbolic");
    Expect(false, "it is no method");
  } catch (const ropewalk::Error& e) {
    Expect(std::string(e.what()).find("trained with the model") != std::string::npos, e.what());
  }
  nlohmann::json out = {{"id", "hyperbolic"}, {"method", info.name}};
  out["parameters"]["r"] = std::vector<float>(std::begin(r), std::end(r));
  for (const int64_t d : {0, 1, 2, 7, 33, 64}) {
    const auto at = [&](int64_t h) { return form.values[h * form.columns + d - form.first]; };
    out["bias"].push_back({d, at(0), at(1)});
  }
  std::puts(out.dump().c_str());
}
