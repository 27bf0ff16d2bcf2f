// NTK-by-parts: a ramp over the rotations r = L f / 2 pi that a pair makes within the trained
// length: interpolated by s up to alpha rotations, untouched from beta on, linear between (YaRN
// paper, arXiv 2309.00071, section 3.2, eq. 17 to 20). Hugging Face does not have it; the float32
// frequencies are the exact ones rounded once.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const ByPartsScaling& scaling, const RotarySpec& spec, int64_t) {
  if (!(scaling.alpha < scaling.beta)) {
    BadScaling("by-parts: alpha (" + std::to_string(scaling.alpha) + ") must be below beta (" +
               std::to_string(scaling.beta) + "); were they swapped?");
  }
  Frequencies out = RampOverRotations(spec, scaling.factor, scaling.alpha, scaling.beta);
  out.inv_freq_f32 = RoundedFrequencies(out.inv_freq);
  return out;
}

double ByBase(const ByPartsScaling& s, const RotarySpec& spec, int64_t pair, double inv_freq) {
  return PowerOfBase(spec.base, spec.rotary_dim, pair, inv_freq,
                     RampElasticity(spec, pair, s.factor, s.alpha, s.beta));
}

}  // namespace

template <>
ScalingRow<ByPartsScaling> RowOf() {
  return {.name = "by-parts",
          .title = "NTK-by-parts (paper)",
          .source = "arXiv 2309.00071, section 3.2",
          .needs_trained_length = true,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kPaper, "; the yarn repository's is the method by-parts-repo"},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
