// Dynamic YaRN (jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding): YaRN with s = length / L,
// and plain RoPE up to L. `length` is the declared final length of the sequence.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {

template <>
ScalingRow<YarnScaling> RowOf();

namespace {

Frequencies Resolved(const DynamicYarnScaling& scaling, const RotarySpec& spec, int64_t length) {
  if (length <= spec.trained_length) return ResolvePlain(spec);
  YarnScaling yarn;
  yarn.factor = static_cast<double>(length) / static_cast<double>(spec.trained_length);
  yarn.beta_fast = scaling.beta_fast;
  yarn.beta_slow = scaling.beta_slow;
  yarn.truncate = scaling.truncate;
  return ResolveAs(yarn, spec, length);
}

double ByBase(const DynamicYarnScaling& s, const RotarySpec& spec, int64_t pair, double inv_freq) {
  YarnScaling yarn;
  yarn.truncate = s.truncate;
  return RowOf<YarnScaling>().by_base(yarn, spec, pair, inv_freq);
}

}  // namespace

template <>
ScalingRow<DynamicYarnScaling> RowOf() {
  return {.name = "dynamic-yarn",
          .title = "dynamic YaRN",
          .source = "github.com/jquesnelle/yarn",
          .needs_trained_length = true,
          .length_dependent = true,
          .trained_with = false,
          .setting = Setting::kByFactor,
          .dialects = Dialects{kYarnRepo},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
