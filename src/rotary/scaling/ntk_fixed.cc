// NTK-aware "fixed" (Su 2023, kexue.fm/archives/9706; vLLM's rope_type "ntk"): (b s)^(-i/h) /
// s^(1/h), which is f_i s^(-(i+1)/h): every pair slows, the last one to f / s.
#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const NtkFixedScaling& scaling, const RotarySpec& spec, int64_t) {
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    out.inv_freq.push_back(PlainFrequency(spec, i) *
                           RationalPower({scaling.factor, 0}, -(i + 1), Pairs(spec)));
  }
  out.inv_freq_f32 = RoundedFrequencies(out.inv_freq);
  return out;
}

}  // namespace

template <>
ScalingRow<NtkFixedScaling> RowOf() {
  return {.name = "ntk-fixed",
          .title = "NTK-aware, fixed",
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
