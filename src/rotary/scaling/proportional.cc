// Proportional scaling, p-RoPE (Barbero et al. 2024, arXiv 2410.06205, section 6; Hugging Face
// "proportional", Gemma 4): the first int(fraction head_dim / 2) pairs of the whole head have
// frequency b^(-2i/head_dim) / s, the others 0.
#include <algorithm>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

Frequencies Resolved(const ProportionalScaling& scaling, const RotarySpec& spec, int64_t length) {
  if (spec.rotary_dim != spec.head_dim) {
    BadScaling("proportional: rotary_dim must be head_dim (" + std::to_string(spec.head_dim) +
               "), got " + std::to_string(spec.rotary_dim) + "; `fraction` is the rotated share");
  }
  if (!(scaling.fraction > 0 && scaling.fraction <= 1)) {
    BadScaling("proportional: fraction must be above 0 and at most 1, got " +
               std::to_string(scaling.fraction));
  }
  const auto rotating =
      static_cast<std::size_t>(scaling.fraction * static_cast<double>(spec.head_dim) / 2);
  Frequencies out = ResolveAs(LinearScaling{scaling.factor}, spec, length);
  std::fill(out.inv_freq.begin() + static_cast<std::ptrdiff_t>(rotating), out.inv_freq.end(),
            DoubleDouble{0, 0});
  out.inv_freq_f32 =
      TorchPowers(static_cast<float>(spec.base), static_cast<int64_t>(rotating), spec.head_dim);
  for (float& f : out.inv_freq_f32) f = 1.0f / f / static_cast<float>(scaling.factor);
  out.inv_freq_f32.resize(out.inv_freq.size());
  return out;
}

double ByBase(const ProportionalScaling&, const RotarySpec& spec, int64_t pair, double inv_freq) {
  return PowerOfBase(spec.base, spec.head_dim, pair, inv_freq);
}

}  // namespace

template <>
ScalingRow<ProportionalScaling> RowOf() {
  return {.name = "proportional",
          .title = "proportional (p-RoPE)",
          .source = "arXiv 2410.06205; Gemma 4",
          .needs_trained_length = false,
          .length_dependent = false,
          .trained_with = true,
          .setting = Setting::kByHand,
          .dialects = Dialects{kPaper | kHuggingFace | kVllm | kLlamaCpp},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
