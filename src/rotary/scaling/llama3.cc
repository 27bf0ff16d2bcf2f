// Llama 3.1's scaling (Meta 2024), stated there in wavelengths w = 2 pi / f: f for w < L / high, f
// / s for w > L / low, and between them a blend linear in L / w. That is NTK-by-parts of the YaRN
// paper with alpha = low and beta = high.
#include <cmath>
#include <numbers>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

// The branches of Hugging Face's _compute_llama3_parameters in float32.
std::vector<float> TorchLlama3(const Llama3Scaling& p, const RotarySpec& spec) {
  const double length = static_cast<double>(spec.trained_length);
  const float low_wavelength = static_cast<float>(length / p.low_freq_factor);
  const float high_wavelength = static_cast<float>(length / p.high_freq_factor);
  const float factor = static_cast<float>(p.factor);
  std::vector<float> f = TorchFrequencies(static_cast<float>(spec.base), Pairs(spec));
  for (float& x : f) {
    const float wavelength = (1.0f / x) * static_cast<float>(2 * std::numbers::pi);
    const float scaled = wavelength > low_wavelength ? x / factor : x;
    if (wavelength < high_wavelength || wavelength > low_wavelength) {
      x = scaled;
      continue;
    }
    const float rotations = (1.0f / wavelength) * static_cast<float>(length);
    const float smooth = (rotations - static_cast<float>(p.low_freq_factor)) /
                         static_cast<float>(p.high_freq_factor - p.low_freq_factor);
    x = (1.0f - smooth) * scaled / factor + smooth * scaled;
  }
  return f;
}

Frequencies Resolved(const Llama3Scaling& given, const RotarySpec& given_spec, int64_t) {
  Llama3Scaling scaling = given;
  RotarySpec spec = given_spec;
  if (spec.dialect == Dialect::kMegatron) {  // takes the factor alone
    scaling.low_freq_factor = 1;
    scaling.high_freq_factor = 4;
    spec.trained_length = 8192;
  }
  // Equal factors, as Llama 4 Scout has them, are a step.
  if (scaling.low_freq_factor == scaling.high_freq_factor) {
    scaling.high_freq_factor = std::nextafter(scaling.high_freq_factor, INFINITY);
  }
  if (!(scaling.low_freq_factor > 0 && scaling.low_freq_factor < scaling.high_freq_factor)) {
    BadScaling("llama3: expected 0 < low_freq_factor <= high_freq_factor, got " +
               std::to_string(scaling.low_freq_factor) + " and " +
               std::to_string(scaling.high_freq_factor));
  }
  Frequencies out =
      RampOverRotations(spec, scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor);
  out.inv_freq_f32 = TorchLlama3(scaling, spec);
  if (spec.dialect == Dialect::kLlamaCpp) {  // divisors stored in float32 (rope_freqs.weight)
    for (int64_t i = 0; i < Pairs(spec); ++i) {
      const DoubleDouble f = PlainFrequency(spec, i);
      DoubleDouble& scaled = out.inv_freq[static_cast<std::size_t>(i)];
      scaled = f / static_cast<double>(static_cast<float>((f / scaled).hi));
    }
    out.inv_freq_f32 = RoundedFrequencies(out.inv_freq);
  }
  return out;
}

double ByBase(const Llama3Scaling& s, const RotarySpec& spec, int64_t pair, double inv_freq) {
  return PowerOfBase(spec.base, spec.rotary_dim, pair, inv_freq,
                     RampElasticity(spec, pair, s.factor, s.low_freq_factor, s.high_freq_factor));
}

}  // namespace

template <>
ScalingRow<Llama3Scaling> RowOf() {
  return {.name = "llama3",
          .title = "Llama 3.1",
          .source = "Meta 2024; Hugging Face",
          .needs_trained_length = true,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kAllDialects & ~(kPaper | kYarnRepo)},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
