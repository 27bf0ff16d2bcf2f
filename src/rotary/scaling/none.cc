// No scaling: f_i = b^(-i/h) (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2.2).
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolvePlain(const RotarySpec& spec) {
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) out.inv_freq.push_back(PlainFrequency(spec, i));
  out.inv_freq_f32 = TorchFrequencies(static_cast<float>(spec.base), Pairs(spec));
  return out;
}

namespace {

Frequencies Resolved(const NoScaling&, const RotarySpec& spec, int64_t) {
  return ResolvePlain(spec);
}

}  // namespace

template <>
ScalingRow<NoScaling> RowOf() {
  return {.name = "none",
          .title = "no scaling",
          .source = "RoFormer, arXiv 2104.09864",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kAllDialects},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
