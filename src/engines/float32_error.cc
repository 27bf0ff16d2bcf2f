// The errors of the float32 angles of other implementations.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/engines/angles.h"
#include "src/engines/divisors.h"

namespace ropewalk {
namespace {

// |angle - position * frequency|, the product exact.
double Distance(float angle, DoubleDouble frequency, int64_t position) {
  const double p = static_cast<double>(position);
  const DoubleDouble product = internal::TwoProduct(p, frequency.hi);
  return std::abs(((static_cast<double>(angle) - product.hi) - product.lo) - p * frequency.lo);
}

AngleError Largest(const std::vector<float>& angles, const Frequencies& frequencies,
                   int64_t position) {
  AngleError largest;
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const double radians = Distance(angles[i], frequencies.inv_freq[i], position);
    if (radians > largest.radians) largest = {radians, static_cast<int64_t>(i)};
  }
  return largest;
}

// What ggml's kernel does to theta of one pair, in its order of operations.
struct GgmlStep {
  std::vector<float> divisors = {};  // rope_freqs, one per pair; empty: none
  float freq_scale = 1;
  bool yarn = false;
  float low = 0, high = 0;  // ends of YaRN's ramp

  float operator()(float theta, std::size_t pair) const {
    if (!divisors.empty()) theta /= divisors[pair];
    const float interpolated = freq_scale * theta;
    if (!yarn) return interpolated;
    const float y = (static_cast<float>(pair) - low) / std::max(0.001f, high - low);
    const float mix = 1 - std::min(1.0f, std::max(0.0f, y));
    return interpolated * (1 - mix) + theta * mix;
  }
};

float CorrectionPair(const RotarySpec& spec, double rotations) {
  const float d = static_cast<float>(spec.rotary_dim);
  const float length = static_cast<float>(spec.trained_length);
  return d * std::log(length / (static_cast<float>(rotations) * 2 * std::numbers::pi_v<float>)) /
         (2 * std::log(static_cast<float>(spec.base)));
}

struct GgmlOf {
  const RotarySpec& spec;
  const Frequencies& frequencies;
  std::optional<GgmlStep> operator()(const NoScaling&) const { return GgmlStep{}; }
  std::optional<GgmlStep> operator()(const LinearScaling& s) const {
    GgmlStep step;
    step.freq_scale = 1 / static_cast<float>(s.factor);
    return step;
  }
  std::optional<GgmlStep> operator()(const YarnScaling& s) const {
    if (!s.truncate) return std::nullopt;  // Fact::kYarnAlwaysTruncates
    GgmlStep step;
    step.yarn = true;
    step.freq_scale = 1 / static_cast<float>(s.factor);
    step.low = std::max(0.0f, std::floor(CorrectionPair(spec, s.beta_fast)));
    step.high = std::min(static_cast<float>(spec.rotary_dim - 1),
                         std::ceil(CorrectionPair(spec, s.beta_slow)));
    return step;
  }
  std::optional<GgmlStep> operator()(const Llama3Scaling&) const { return Divided(); }
  std::optional<GgmlStep> operator()(const LongRopeScaling&) const { return Divided(); }
  std::optional<GgmlStep> operator()(const ExplicitScaling&) const { return Divided(); }
  template <class S>
  std::optional<GgmlStep> operator()(const S&) const {
    return std::nullopt;
  }

 private:
  std::optional<GgmlStep> Divided() const {
    GgmlStep step;
    // Rounded to float32 as the file stores them.
    const auto divisors = internal::DivisorsOf(spec, frequencies, internal::kZeroInGguf);
    step.divisors.assign(divisors.begin(), divisors.end());
    return step;
  }
};

}  // namespace

Float32Error Float32AngleError(const RotarySpec& spec, const Frequencies& frequencies,
                               int64_t position) {
  Float32Error out;
  out.position = position;
  const float p = static_cast<float>(position);
  std::vector<float> angles;
  for (const float f : frequencies.inv_freq_f32) angles.push_back(p * f);
  out.hugging_face = Largest(angles, frequencies, position);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    angles[i] = p * static_cast<float>(frequencies.inv_freq[i].hi);
  }
  out.rounded_once = Largest(angles, frequencies, position);
  const std::optional<GgmlStep> step = std::visit(GgmlOf{spec, frequencies}, spec.scaling);
  if (!step || !spec.axes.sections.empty()) return out;
  const float ratio =
      std::pow(static_cast<float>(spec.base), -2.0f / static_cast<float>(spec.rotary_dim));
  float theta = p;
  for (std::size_t i = 0; i < angles.size(); ++i, theta *= ratio) angles[i] = (*step)(theta, i);
  out.ggml_cpu = Largest(angles, frequencies, position);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    angles[i] = (*step)(p * std::pow(ratio, static_cast<float>(i)), i);
  }
  out.ggml_cuda = Largest(angles, frequencies, position);
  return out;
}

}  // namespace ropewalk
