// Position interpolation: f_i / s (Chen et al. 2023, arXiv 2306.15595, eq. 4).
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveLinear(const LinearScaling& scaling, const RotarySpec& spec) {
  Frequencies out = ResolveNone(spec);
  for (DoubleDouble& f : out.inv_freq) f = f / scaling.factor;
  for (float& f : out.inv_freq_f32) f /= static_cast<float>(scaling.factor);
  return out;
}

}  // namespace ropewalk::internal
