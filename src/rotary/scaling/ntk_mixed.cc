// NTK-aware "mixed" (Su 2023, kexue.fm/archives/9706; vLLM's "ntk" with mixed_b): f_i exp(-a
// (i+1)^e) with a = ln s / h^e, so that the last pair is f / s; an exponent of 1 is the "fixed"
// form.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const NtkMixedScaling& scaling, const RotarySpec& spec, int64_t) {
  if (!(scaling.exponent > 0 && std::isfinite(scaling.exponent))) {
    BadScaling("ntk-mixed: exponent must be a positive number, got " +
               std::to_string(scaling.exponent));
  }
  const DoubleDouble log_factor = Log({scaling.factor, 0});
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    const DoubleDouble share = DoubleDouble{static_cast<double>(i + 1), 0} /
                               static_cast<double>(Pairs(spec));  // (i+1) / h
    const DoubleDouble power = Exp(Log(share) * scaling.exponent);
    out.inv_freq.push_back(PlainFrequency(spec, i) * Exp(-(log_factor * power)));
  }
  out.inv_freq_f32 = RoundedFrequencies(out.inv_freq);
  return out;
}

}  // namespace

template <>
ScalingRow<NtkMixedScaling> RowOf() {
  return {.name = "ntk-mixed",
          .title = "NTK-aware, mixed",
          .source = "kexue.fm/archives/9706; vLLM",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kByFactor,
          .dialects = Dialects{kPaper | kVllm},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
