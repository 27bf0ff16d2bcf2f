// Dynamic NTK: NTK-aware with s' = s length / L - (s - 1) beyond L, none up to L (emozilla 2023;
// Hugging Face "dynamic"). `length` is the declared final length of the sequence, so that every
// chunking of a prefill sees the same frequencies.
//
// vLLM until its pull request 41277 computed it once, for s L tokens, whatever the prompt's length;
// later versions once for the served length, which is the native formula at that length.
#include <cmath>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const DynamicNtkScaling& scaling, const RotarySpec& spec, int64_t sequence) {
  if (spec.rotary_dim < 4) {
    BadScaling("dynamic: rotary_dim must be at least 4, the exponent is d/(d-2)");
  }
  const double d = static_cast<double>(spec.rotary_dim);
  const double trained = static_cast<double>(spec.trained_length);
  const double s = scaling.factor;
  const double length =
      spec.dialect == Dialect::kVllm ? s * trained : static_cast<double>(sequence);
  if (length <= trained) return ResolvePlain(spec);
  // s length / L - (s - 1)
  const DoubleDouble grown = TwoProduct(s, length) / trained - (DoubleDouble{s, 0} - 1.0);
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) out.inv_freq.push_back(NtkFrequency(spec, grown, i));

  // In Hugging Face's forward pass the length is a tensor, which makes all of this float32.
  const float grown_f32 =
      static_cast<float>(s) * static_cast<float>(length) / static_cast<float>(trained) -
      static_cast<float>(s - 1);
  // torch.pow of a tensor of one element and a number goes through double.
  const float power = static_cast<float>(std::pow(static_cast<double>(grown_f32), d / (d - 2)));
  out.inv_freq_f32 = TorchFrequencies(static_cast<float>(spec.base) * power, Pairs(spec));
  return out;
}

}  // namespace

template <>
ScalingRow<DynamicNtkScaling> RowOf() {
  return {.name = "dynamic",
          .title = "dynamic NTK",
          .source = "emozilla 2023; Hugging Face",
          .needs_trained_length = true,
          .length_dependent = true,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kPaper | kHuggingFace | kVllm | kYarnRepo},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
