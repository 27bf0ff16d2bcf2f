#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {

void BadScaling(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "rotary: " + message);
}

double PowerOfBase(double base, int64_t dim, int64_t pair, double inv_freq, double elasticity) {
  const double exponent = 2 * static_cast<double>(pair) / static_cast<double>(dim);
  return -exponent / base * inv_freq * elasticity;
}

// d ln(f w(r)) / d ln f for w = (1 - t) / s + t with t = (r - low) / (high - low) between `low` and
// `high` rotations r = L f / 2 pi.
double RampElasticity(const RotarySpec& spec, int64_t pair, double s, double low, double high) {
  const double exponent = 2 * static_cast<double>(pair) / static_cast<double>(spec.rotary_dim);
  const double rotations = static_cast<double>(spec.trained_length) *
                           std::pow(spec.base, -exponent) / (2 * std::numbers::pi);
  if (rotations <= low || rotations >= high) return 1;
  const double t = (rotations - low) / (high - low);
  return 1 + rotations / (high - low) * (1 - 1 / s) / ((1 - t) / s + t);
}

DoubleDouble PlainFrequency(const RotarySpec& spec, int64_t i) {
  return RationalPower({spec.base, 0}, -i, Pairs(spec));
}

DoubleDouble NtkFrequency(const RotarySpec& spec, DoubleDouble s, int64_t i) {
  return PlainFrequency(spec, i) * RationalPower(s, -i, Pairs(spec) - 1);
}

DoubleDouble Blend(DoubleDouble a, DoubleDouble b, DoubleDouble t) { return (1.0 - t) * a + t * b; }

Frequencies RampOverRotations(const RotarySpec& spec, double s, double low, double high) {
  Frequencies out;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    const DoubleDouble f = PlainFrequency(spec, i);
    const DoubleDouble rotations = f * static_cast<double>(spec.trained_length) / kTwoPi;
    const DoubleDouble kept = Clamp01((rotations - low) / (DoubleDouble{high, 0} - low));
    out.inv_freq.push_back(Blend(f / s, f, kept));
  }
  return out;
}

DoubleDouble PairOfRotations(const RotarySpec& spec, double rotations) {
  if (spec.base == 1) BadScaling("base 1: all pairs rotate alike, so no ramp runs over them");
  const DoubleDouble turns = static_cast<double>(spec.trained_length) / (kTwoPi * rotations);
  return Log(turns) * static_cast<double>(Pairs(spec)) / Log({spec.base, 0});
}

double PairOfRotationsDouble(const RotarySpec& spec, double rotations) {
  const double length = static_cast<double>(spec.trained_length);
  return (static_cast<double>(spec.rotary_dim) *
          std::log(length / (rotations * 2 * std::numbers::pi))) /
         (2 * std::log(spec.base));
}

std::vector<float> TorchFrequencies(float base, int64_t pairs) {
  std::vector<float> f = TorchPowers(base, pairs);
  for (float& x : f) x = 1.0f / x;
  return f;
}

std::vector<float> TorchRamp(double low, double high, int64_t pairs) {
  const float low_f32 = static_cast<float>(low);
  const float span = static_cast<float>(high - low);
  std::vector<float> ramp(static_cast<std::size_t>(pairs));
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    ramp[i] = std::clamp((static_cast<float>(i) - low_f32) / span, 0.0f, 1.0f);
  }
  return ramp;
}

std::vector<float> RoundedFrequencies(const std::vector<DoubleDouble>& exact) {
  std::vector<float> f;
  f.reserve(exact.size());
  for (const DoubleDouble& x : exact) f.push_back(static_cast<float>(x.hi));
  return f;
}

}  // namespace ropewalk::internal
