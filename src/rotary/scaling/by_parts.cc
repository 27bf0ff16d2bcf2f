// NTK-by-parts: a ramp over the rotations r = L f / 2 pi that a pair makes within the trained
// length: interpolated by s up to alpha rotations, untouched from beta on, linear between (YaRN
// paper, arXiv 2309.00071, section 3.2, eq. 17 to 20). Hugging Face does not have it; the float32
// frequencies are the exact ones rounded once.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveByParts(const ByPartsScaling& scaling, const RotarySpec& spec) {
  if (!(scaling.alpha < scaling.beta)) {
    BadScaling("by-parts: alpha (" + std::to_string(scaling.alpha) + ") must be below beta (" +
               std::to_string(scaling.beta) + "); were they swapped?");
  }
  Frequencies out = RampOverRotations(spec, scaling.factor, scaling.alpha, scaling.beta);
  out.inv_freq_f32 = RoundedFrequencies(out.inv_freq);
  return out;
}

}  // namespace ropewalk::internal
