// Position interpolation: f_i / s (Chen et al. 2023, arXiv 2306.15595, eq. 4).
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const LinearScaling& scaling, const RotarySpec& spec, int64_t) {
  Frequencies out = ResolvePlain(spec);
  for (DoubleDouble& f : out.inv_freq) f = f / scaling.factor;
  for (float& f : out.inv_freq_f32) f /= static_cast<float>(scaling.factor);
  return out;
}

}  // namespace

template <>
ScalingRow<LinearScaling> RowOf() {
  return {.name = "linear",
          .title = "position interpolation",
          .source = "arXiv 2306.15595",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kAllDialects},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
