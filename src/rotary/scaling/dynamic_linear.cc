// Position interpolation that grows with the sequence: f_i / max(1, length / L) (jquesnelle/yarn,
// LlamaDynamicScaledRotaryEmbedding without NTK). TransformerEngine divides by s up to length s L
// and by length / L beyond. `length` is the declared final length of the sequence.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveDynamicLinear(const DynamicLinearScaling& scaling, const RotarySpec& spec,
                                 int64_t length) {
  if (spec.dialect == Dialect::kMegatron && scaling.factor == 0) {
    BadScaling("dynamic-linear: megatron requires factor, up to which it divides at any length");
  }
  const double least = spec.dialect == Dialect::kMegatron ? scaling.factor : 1.0;
  const DoubleDouble grown =
      DoubleDouble{static_cast<double>(length), 0} / static_cast<double>(spec.trained_length);
  const DoubleDouble divisor = grown < DoubleDouble{least, 0} ? DoubleDouble{least, 0} : grown;
  Frequencies out = ResolveNone(spec);
  for (DoubleDouble& f : out.inv_freq) f = f / divisor;
  for (float& f : out.inv_freq_f32) f /= static_cast<float>(divisor.hi);
  return out;
}

}  // namespace ropewalk::internal
