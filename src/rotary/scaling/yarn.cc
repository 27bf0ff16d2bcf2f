// YaRN (Peng et al. 2023, arXiv 2309.00071) as Hugging Face computes it: the ramp runs over pair
// indices between the pairs that make beta_fast and beta_slow rotations within L, rounded outwards
// when `truncate`; cos and sin are multiplied by 0.1 ln s + 1 (eq. 22), which stands for the
// paper's temperature on the scores.
//
// Others differ: the paper's ramp runs over rotations; the yarn repository and ggml always round
// the ramp's ends; each has its own rule for the amplitude (Amplitude below).
#include <algorithm>
#include <cmath>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

// DeepSeek's class in vLLM, chosen by its keys.
bool IsDeepSeek(const YarnScaling& p) {
  return p.mscale.value_or(0) != 0 || p.mscale_all_dim.value_or(0) != 0;
}

bool Truncates(const YarnScaling& p, Dialect dialect) {
  switch (dialect) {
    case Dialect::kYarnRepo:
    case Dialect::kLlamaCpp:
      return true;
    case Dialect::kVllm:
      return p.truncate || IsDeepSeek(p);
    default:
      return p.truncate;
  }
}

// Both ends, clamped to [0, d - 1]: d - 1 although pairs end at d/2 - 1, as everyone computes it.
template <class T>
struct Range {
  T low, high;
};

Range<DoubleDouble> ExactRange(const YarnScaling& p, const RotarySpec& spec) {
  DoubleDouble low = PairOfRotations(spec, p.beta_fast);
  DoubleDouble high = PairOfRotations(spec, p.beta_slow);
  if (Truncates(p, spec.dialect)) low = Floor(low), high = Ceil(high);
  const DoubleDouble last = {static_cast<double>(spec.rotary_dim - 1), 0};
  if (low.hi < 0) low = {0, 0};
  if (high > last) high = last;
  const bool equal = low.hi == high.hi && low.lo == high.lo;
  // ggml: max(0.001, high - low), which makes a step the other way of a range that runs backwards.
  if (equal || (spec.dialect == Dialect::kLlamaCpp && high < low + 0.001)) high = low + 0.001;
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
    const float kept = (1.0f - ramp[i]) * static_cast<float>(p.extrapolation_factor);
    f[i] = interpolated * (1.0f - kept) + plain * kept;
  }
  return f;
}

double Magnitude(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

double Amplitude(const YarnScaling& p, Dialect dialect) {
  const auto g = [&](double m) { return Magnitude(p.factor, m); };
  const double mscale = p.mscale.value_or(0), all = p.mscale_all_dim.value_or(0);
  const double attn = p.attn_factor.value_or(1);
  switch (dialect) {
    case Dialect::kPaper:
      return p.attention_factor.value_or(g(1));
    case Dialect::kYarnRepo:
      return g(1) * attn;
    case Dialect::kVllm:  // until its pull request 46280 attention_factor was dropped
      return IsDeepSeek(p) ? g(p.mscale.value_or(1)) / g(all) * attn : g(1) * attn;
    case Dialect::kMegatron:
      return g(p.mscale.value_or(1)) / g(all);
    case Dialect::kLlamaCpp:  // assumes mscale 1, or equal to mscale_all_dim for DeepSeek 2
      if (all == 0) return g(1) * attn;
      return (p.softmax_mscale ? 1.0 : g(1) / g(all)) * attn;
    case Dialect::kHuggingFace:
      return p.attention_factor.value_or(mscale != 0 && all != 0 ? g(mscale) / g(all) : g(1));
    case Dialect::kNative:
      break;
  }
  return p.attention_factor.value_or(attn * (mscale != 0 && all != 0 ? g(mscale) / g(all) : g(1)));
}

void CheckYarn(const YarnScaling& p, const RotarySpec& spec) {
  // Hugging Face warns of swapped betas and goes on, as others do; on request so do we.
  const bool ordered = p.beta_slow <= p.beta_fast || spec.dialect != Dialect::kNative;
  if (!(p.beta_slow > 0 && p.beta_fast > 0 && ordered)) {
    BadScaling("yarn: expected 0 < beta_slow <= beta_fast, got beta_slow " +
               std::to_string(p.beta_slow) + " and beta_fast " + std::to_string(p.beta_fast) +
               "; were they swapped?");
  }
  if (!(p.extrapolation_factor >= 0 && p.extrapolation_factor <= 1)) {
    BadScaling("yarn: extrapolation_factor must be from 0 to 1, got " +
               std::to_string(p.extrapolation_factor));
  }
  if (p.attn_factor && !(*p.attn_factor > 0)) {
    BadScaling("yarn: attn_factor must be positive, got " + std::to_string(*p.attn_factor));
  }
  if (spec.dialect == Dialect::kMegatron && spec.rotary_dim != spec.head_dim) {
    throw Error(ErrorCode::kUnsupported,
                "rotary: megatron computes YaRN for the whole head and ignores rotary_percent; "
                "rotary_dim must be head_dim");
  }
}

Frequencies Resolved(const YarnScaling& scaling, const RotarySpec& given, int64_t) {
  CheckYarn(scaling, given);
  RotarySpec spec = given;
  // vLLM hands M-RoPE's cache length, four times the trained one, to the range.
  const bool multi_axis = !given.axes.sections.empty();
  if (spec.dialect == Dialect::kVllm && multi_axis) spec.trained_length *= 4;
  Frequencies out;
  if (spec.dialect == Dialect::kPaper) {
    out = RampOverRotations(spec, scaling.factor, scaling.beta_slow, scaling.beta_fast);
  } else {
    const Range<DoubleDouble> range = ExactRange(scaling, spec);
    if (spec.dialect == Dialect::kNative && range.high < range.low) {
      if (range.high.hi >= 0) {
        BadScaling("yarn: trained_length " + std::to_string(spec.trained_length) +
                   " is too long for beta_fast " + std::to_string(scaling.beta_fast) +
                   ": every pair makes more rotations, so that the method changes none");
      }
      BadScaling("yarn: trained_length " + std::to_string(spec.trained_length) +
                 " is too short for beta_slow " + std::to_string(scaling.beta_slow) +
                 ": no pair makes that many rotations");
    }
    for (int64_t i = 0; i < Pairs(spec); ++i) {
      const DoubleDouble f = PlainFrequency(spec, i);
      const DoubleDouble ramp =
          Clamp01((static_cast<double>(i) - range.low) / (range.high - range.low));
      out.inv_freq.push_back(
          Blend(f / scaling.factor, f, (1.0 - ramp) * scaling.extrapolation_factor));
    }
  }
  const bool torch = spec.dialect == Dialect::kNative || spec.dialect == Dialect::kHuggingFace;
  out.inv_freq_f32 = torch ? TorchYarn(scaling, spec) : RoundedFrequencies(out.inv_freq);
  out.amplitude = Amplitude(scaling, spec.dialect);
  if (scaling.softmax_mscale) {
    const double g = Magnitude(scaling.factor, scaling.mscale_all_dim.value_or(0));
    out.softmax_multiplier = g * g;
  }
  return out;
}

double ByBase(const YarnScaling& s, const RotarySpec& spec, int64_t pair, double inv_freq) {
  if (!s.truncate) {
    throw Error(ErrorCode::kUnsupported, "BaseDerivative: with truncate off the ramp of " +
                                             Describe(spec.scaling) + " moves");
  }
  return PowerOfBase(spec.base, spec.rotary_dim, pair, inv_freq);
}

}  // namespace

template <>
ScalingRow<YarnScaling> RowOf() {
  return {.name = "yarn",
          .title = "YaRN",
          .source = "arXiv 2309.00071; Hugging Face",
          .needs_trained_length = true,
          .length_dependent = false,
          .trained_with = false,
          .setting = Setting::kUsual,
          .dialects = Dialects{kAllDialects},
          .resolve = Resolved,
          .by_base = ByBase};
}

}  // namespace ropewalk::internal
