// Dynamic YaRN (jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding): YaRN with s = length / L,
// and plain RoPE up to L. `length` is the declared final length of the sequence.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

Frequencies ResolveDynamicYarn(const DynamicYarnScaling& scaling, const RotarySpec& spec,
                               int64_t length) {
  if (length <= spec.trained_length) return ResolveNone(spec);
  YarnScaling yarn;
  yarn.factor = static_cast<double>(length) / static_cast<double>(spec.trained_length);
  yarn.beta_fast = scaling.beta_fast;
  yarn.beta_slow = scaling.beta_slow;
  yarn.truncate = scaling.truncate;
  return ResolveYarn(yarn, spec);
}

}  // namespace ropewalk::internal
