// NTK-by-parts as jquesnelle/yarn computes it (LlamaPartNTKScaledRotaryEmbedding, 2023): linear and
// NTK-aware frequencies blended over a ramp in pair index whose ends make beta_0 and beta_1
// rotations within L, the result blended with the plain frequencies between gamma_0 and gamma_1
// rotations. Ends are rounded outwards. The float32 frequencies follow the repository's operations.
#include <algorithm>
#include <cmath>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

struct Ends {
  double low, high;  // whole pair indices, so exact in double
};

// `fast` rotations bound the ramp below (a smaller pair index has a higher frequency), `slow`
// above.
Ends RampEnds(const RotarySpec& spec, double fast, double slow) {
  Ends ends = {
      std::max(Floor(PairOfRotations(spec, fast)).hi, 0.0),
      std::min(Ceil(PairOfRotations(spec, slow)).hi, static_cast<double>(spec.rotary_dim - 1))};
  if (ends.high < ends.low) {
    BadScaling("by-parts-repo: trained_length " + std::to_string(spec.trained_length) +
               " is too short: no pair makes " + std::to_string(slow) + " rotations");
  }
  if (ends.low == ends.high) ends.high += 0.001;
  return ends;
}

// weight * (1 - ramp): how much of the less interpolated frequency pair i gets.
DoubleDouble Kept(const Ends& ends, double weight, int64_t i) {
  const DoubleDouble ramp = Clamp01((DoubleDouble{static_cast<double>(i), 0} - ends.low) /
                                    (DoubleDouble{ends.high, 0} - ends.low));
  return (1.0 - ramp) * weight;
}

std::vector<float> TorchByPartsRepo(const ByPartsRepoScaling& p, const RotarySpec& spec,
                                    const Ends& beta, const Ends& gamma) {
  const int64_t pairs = Pairs(spec);
  const double d = static_cast<double>(spec.rotary_dim);
  const double ntk_base = spec.base * std::pow(p.factor, d / (d - 2));
  const std::vector<float> powers = TorchPowers(static_cast<float>(spec.base), pairs);
  const std::vector<float> ntk = TorchFrequencies(static_cast<float>(ntk_base), pairs);
  const std::vector<float> beta_ramp = TorchRamp(beta.low, beta.high, pairs);
  const std::vector<float> gamma_ramp = TorchRamp(gamma.low, gamma.high, pairs);
  std::vector<float> f(powers.size());
  for (std::size_t i = 0; i < f.size(); ++i) {
    const float linear = 1.0f / (static_cast<float>(p.factor) * powers[i]);
    const float ntk_part = (1.0f - beta_ramp[i]) * static_cast<float>(p.ntk_factor);
    const float mixed = linear * (1.0f - ntk_part) + ntk[i] * ntk_part;
    const float plain_part = (1.0f - gamma_ramp[i]) * static_cast<float>(p.extrapolation_factor);
    f[i] = mixed * (1.0f - plain_part) + (1.0f / powers[i]) * plain_part;
  }
  return f;
}

Frequencies Resolved(const ByPartsRepoScaling& scaling, const RotarySpec& spec, int64_t) {
  if (spec.rotary_dim < 4) {
    BadScaling("by-parts-repo: rotary_dim must be at least 4, the NTK exponent is d/(d-2)");
  }
  if (!(scaling.beta_1 > 0 && scaling.beta_1 < scaling.beta_0 && scaling.gamma_1 > 0 &&
        scaling.gamma_1 < scaling.gamma_0)) {
    BadScaling(
        "by-parts-repo: expected 0 < beta_1 < beta_0 and 0 < gamma_1 < gamma_0; were they "
        "swapped?");
  }
  for (const double share : {scaling.ntk_factor, scaling.extrapolation_factor}) {
    if (!(share >= 0 && share <= 1)) {
      BadScaling("by-parts-repo: ntk_factor and extrapolation_factor must be from 0 to 1, got " +
                 std::to_string(share));
    }
  }
  const Ends beta = RampEnds(spec, scaling.beta_0, scaling.beta_1);
  const Ends gamma = RampEnds(spec, scaling.gamma_0, scaling.gamma_1);
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    const DoubleDouble f = PlainFrequency(spec, i);
    const DoubleDouble ntk = NtkFrequency(spec, {scaling.factor, 0}, i);
    const DoubleDouble mixed = Blend(f / scaling.factor, ntk, Kept(beta, scaling.ntk_factor, i));
    out.inv_freq.push_back(Blend(mixed, f, Kept(gamma, scaling.extrapolation_factor, i)));
  }
  out.inv_freq_f32 = TorchByPartsRepo(scaling, spec, beta, gamma);
  return out;
}

}  // namespace

template <>
ScalingRow<ByPartsRepoScaling> RowOf() {
  return {.name = "by-parts-repo",
          .title = "NTK-by-parts (yarn repository)",
          .source = "github.com/jquesnelle/yarn",
          .needs_trained_length = true,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kYarnRepo, "; the paper's is the method by-parts"},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
