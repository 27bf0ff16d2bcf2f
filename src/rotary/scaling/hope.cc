// HoPE (Chen et al. 2024, arXiv 2410.21216, section 4): the pairs that make less than one
// rotation within the trained length, f_i L < 2 pi, get frequency 0: they carry content alone.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const HopeScaling&, const RotarySpec& spec, int64_t) {
  Frequencies out = ResolvePlain(spec);
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i) {
    if (out.inv_freq[i] * static_cast<double>(spec.trained_length) >= kTwoPi) continue;
    out.inv_freq[i] = {0, 0};
    out.inv_freq_f32[i] = 0;
  }
  return out;
}

}  // namespace

template <>
ScalingRow<HopeScaling> RowOf() {
  return {.name = "hope",
          .title = "HoPE",
          .source = "arXiv 2410.21216",
          .needs_trained_length = true,
          .length_dependent = false,
          .trained_with = true,
          .setting = Setting::kByFactor,
          .dialects = Dialects{kPaper},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
