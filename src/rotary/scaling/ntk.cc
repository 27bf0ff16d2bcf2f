// NTK-aware scaling: b' = b s^(d/(d-2)), so that pair 0 is untouched and the last one is f / s
// (bloc97 2023; YaRN paper, arXiv 2309.00071, eq. 16). Hugging Face has it as a changed rope_theta
// only, and the float32 frequencies are those of that theta, computed in double.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const NtkScaling& scaling, const RotarySpec& spec, int64_t) {
  if (spec.rotary_dim < 4)
    BadScaling("ntk: rotary_dim must be at least 4, the exponent is d/(d-2)");
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    out.inv_freq.push_back(NtkFrequency(spec, {scaling.factor, 0}, i));
  }
  const double d = static_cast<double>(spec.rotary_dim);
  const double base = spec.base * std::pow(scaling.factor, d / (d - 2));
  out.inv_freq_f32 = TorchFrequencies(static_cast<float>(base), Pairs(spec));
  return out;
}

}  // namespace

template <>
ScalingRow<NtkScaling> RowOf() {
  return {.name = "ntk",
          .title = "NTK-aware",
          .source = "bloc97 2023; arXiv 2309.00071, eq. 16",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kPaper | kVllm | kLlamaCpp | kYarnRepo, "; change the base instead"},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
