// Position interpolation that grows with the sequence: f_i / max(1, length / L) (jquesnelle/yarn,
// LlamaDynamicScaledRotaryEmbedding without NTK). TransformerEngine divides by s up to length s L
// and by length / L beyond. `length` is the declared final length of the sequence.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const DynamicLinearScaling& scaling, const RotarySpec& spec, int64_t length) {
  if (spec.dialect == Dialect::kMegatron && !scaling.factor) {
    BadScaling("dynamic-linear: megatron requires factor, up to which it divides at any length");
  }
  const double least = spec.dialect == Dialect::kMegatron ? *scaling.factor : 1.0;
  const DoubleDouble grown =
      DoubleDouble{static_cast<double>(length), 0} / static_cast<double>(spec.trained_length);
  const DoubleDouble divisor = grown < DoubleDouble{least, 0} ? DoubleDouble{least, 0} : grown;
  Frequencies out = ResolvePlain(spec);
  for (DoubleDouble& f : out.inv_freq) f = f / divisor;
  for (float& f : out.inv_freq_f32) f /= static_cast<float>(divisor.hi);
  return out;
}

}  // namespace

template <>
ScalingRow<DynamicLinearScaling> RowOf() {
  return {.name = "dynamic-linear",
          .title = "dynamic position interpolation",
          .source = "github.com/jquesnelle/yarn",
          .needs_trained_length = true,
          .length_dependent = true,
          .trained_with = false,
          .setting = Setting::kByFactor,
          .dialects = Dialects{kYarnRepo | kMegatron},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
