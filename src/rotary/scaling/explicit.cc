// Divisors of f_i given directly, one per pair: the GGUF tensor `rope_freqs.weight`, into which
// llama.cpp's converters bake Llama 3's scaling. float32: f_i of Hugging Face over the divisor.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const ExplicitScaling& scaling, const RotarySpec& spec, int64_t) {
  if (static_cast<int64_t>(scaling.divisors.size()) != Pairs(spec)) {
    BadScaling("explicit: expected one divisor per pair, " + std::to_string(Pairs(spec)) +
               ", got " + std::to_string(scaling.divisors.size()));
  }
  Frequencies out = ResolvePlain(spec);
  for (std::size_t i = 0; i < scaling.divisors.size(); ++i) {
    const double divisor = scaling.divisors[i];
    if (!(divisor > 0 && std::isfinite(divisor))) {
      BadScaling("explicit: divisor " + std::to_string(i) + " must be a positive number, got " +
                 std::to_string(divisor));
    }
    out.inv_freq[i] = out.inv_freq[i] / divisor;
    out.inv_freq_f32[i] /= static_cast<float>(divisor);
  }
  return out;
}

}  // namespace

template <>
ScalingRow<ExplicitScaling> RowOf() {
  return {.name = "explicit",
          .title = "divisors of a file",
          .source = "GGUF rope_freqs.weight",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kByHand,
          .dialects = Dialects{kLlamaCpp},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
