// HoPE (Chen et al. 2024, arXiv 2410.21216, section 4): the pairs that complete no turn within the
// trained length, f_i L < 2 pi, are taken out of the position encoding and carry content alone.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveHope(const HopeScaling&, const RotarySpec& spec) {
  Frequencies out = ResolveNone(spec);
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i) {
    if (out.inv_freq[i] * static_cast<double>(spec.trained_length) >= kTwoPi) continue;
    out.inv_freq[i] = {0, 0};
    out.inv_freq_f32[i] = 0;
  }
  return out;
}

}  // namespace ropewalk::internal
