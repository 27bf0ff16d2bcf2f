// YaRN (Peng et al. 2023, arXiv 2309.00071) as Hugging Face computes it: the ramp runs over pair
// indices between the pairs that make beta_fast and beta_slow rotations within L, rounded outwards
// when `truncate`; cos and sin are multiplied by 0.1 ln s + 1 (eq. 22), which stands for the
// paper's temperature on the scores.
#include <algorithm>
#include <cmath>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

// Both ends, clamped to [0, d - 1]: d - 1 although pairs end at d/2 - 1, as everyone computes it.
template <class T>
struct Range {
  T low, high;
};

Range<DoubleDouble> ExactRange(const YarnScaling& p, const RotarySpec& spec) {
  DoubleDouble low = PairOfRotations(spec, p.beta_fast);
  DoubleDouble high = PairOfRotations(spec, p.beta_slow);
  if (p.truncate) low = Floor(low), high = Ceil(high);
  const DoubleDouble last = {static_cast<double>(spec.rotary_dim - 1), 0};
  if (low.hi < 0) low = {0, 0};
  if (high > last) high = last;
  if (low.hi == high.hi && low.lo == high.lo) high = high + 0.001;
  return {low, high};
}

Range<double> DoubleRange(const YarnScaling& p, const RotarySpec& spec) {
  double low = PairOfRotationsDouble(spec, p.beta_fast);
  double high = PairOfRotationsDouble(spec, p.beta_slow);
  if (p.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rotary_dim - 1));
  if (low == high) high += 0.001;
  return {low, high};
}

std::vector<float> TorchYarn(const YarnScaling& p, const RotarySpec& spec) {
  const Range<double> range = DoubleRange(p, spec);
  const std::vector<float> ramp = TorchRamp(range.low, range.high, Pairs(spec));
  std::vector<float> f = TorchPowers(static_cast<float>(spec.base), Pairs(spec));
  for (std::size_t i = 0; i < f.size(); ++i) {
    const float plain = 1.0f / f[i];
    const float interpolated = 1.0f / (static_cast<float>(p.factor) * f[i]);
    const float kept = 1.0f - ramp[i];
    f[i] = interpolated * (1.0f - kept) + plain * kept;
  }
  return f;
}

double Magnitude(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

}  // namespace

Frequencies ResolveYarn(const YarnScaling& scaling, const RotarySpec& spec) {
  if (!(scaling.beta_slow > 0 && scaling.beta_slow <= scaling.beta_fast)) {
    BadScaling("yarn: expected 0 < beta_slow <= beta_fast, got beta_slow " +
               std::to_string(scaling.beta_slow) + " and beta_fast " +
               std::to_string(scaling.beta_fast) + "; were they swapped?");
  }
  Frequencies out;
  const Range<DoubleDouble> range = ExactRange(scaling, spec);
  if (range.high < range.low) {
    BadScaling("yarn: trained_length " + std::to_string(spec.trained_length) +
               " is too short for beta_slow " + std::to_string(scaling.beta_slow) +
               ": no pair turns that often");
  }
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    const DoubleDouble f = PlainFrequency(spec, i);
    const DoubleDouble ramp =
        Clamp01((static_cast<double>(i) - range.low) / (range.high - range.low));
    out.inv_freq.push_back(Blend(f, f / scaling.factor, ramp));
  }
  out.inv_freq_f32 = TorchYarn(scaling, spec);
  if (scaling.attention_factor) {
    out.amplitude = *scaling.attention_factor;
  } else if (scaling.mscale.value_or(0) != 0 && scaling.mscale_all_dim.value_or(0) != 0) {
    out.amplitude = Magnitude(scaling.factor, *scaling.mscale) /
                    Magnitude(scaling.factor, *scaling.mscale_all_dim);
  } else {
    out.amplitude = Magnitude(scaling.factor, 1);
  }
  return out;
}

}  // namespace ropewalk::internal
