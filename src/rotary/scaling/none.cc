// No scaling: f_i = b^(-i/h) (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2.2).
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveNone(const RotarySpec& spec) {
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) out.inv_freq.push_back(PlainFrequency(spec, i));
  out.inv_freq_f32 = TorchFrequencies(static_cast<float>(spec.base), Pairs(spec));
  return out;
}

}  // namespace ropewalk::internal
