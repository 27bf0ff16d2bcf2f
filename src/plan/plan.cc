#include "ropewalk/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numbers>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"

namespace ropewalk {
namespace {

bool SameBits(const std::vector<DoubleDouble>& a, const std::vector<DoubleDouble>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const DoubleDouble& x, const DoubleDouble& y) { return x.hi == y.hi && x.lo == y.lo; });
}

// Rotates the same elements by the same angles.
bool SameRotation(const ResolvedRotation& a, const ResolvedRotation& b) {
  return a.spec.layout == b.spec.layout && a.spec.head_dim == b.spec.head_dim &&
         a.spec.rotary_dim == b.spec.rotary_dim && a.spec.first_dim == b.spec.first_dim &&
         SameBits(a.frequencies.inv_freq, b.frequencies.inv_freq) &&
         a.frequencies.inv_freq_f32 == b.frequencies.inv_freq_f32 &&
         a.frequencies.amplitude == b.frequencies.amplitude &&
         a.frequencies.softmax_multiplier == b.frequencies.softmax_multiplier;
}

// The exact frequencies rounded to float32, so that a file that stores divisors in float32 hashes
// like the formula they came from wherever the divisors are exact.
void HashRotation(const ResolvedRotation& rotation, Hasher& hasher) {
  hasher.UpdateValue(static_cast<int64_t>(rotation.frequencies.inv_freq.size()));
  hasher.UpdateValue(rotation.spec.first_dim);
  for (const DoubleDouble& f : rotation.frequencies.inv_freq) {
    hasher.UpdateValue(static_cast<float>(f.hi));
  }
  hasher.UpdateValue(static_cast<float>(rotation.frequencies.amplitude));
  hasher.UpdateValue(static_cast<float>(rotation.frequencies.softmax_multiplier));
}

std::string HashPlan(const ResolvedPlan& plan) {
  Hasher hasher;
  hasher.UpdateValue(static_cast<int64_t>(plan.layers.size()));
  for (const ResolvedLayer& layer : plan.layers) {
    hasher.UpdateValue(layer.window_tokens);
    hasher.UpdateValue(static_cast<uint8_t>(layer.rotation >= 0));
    if (layer.rotation >= 0) {
      HashRotation(plan.rotations[static_cast<std::size_t>(layer.rotation)], hasher);
    }
  }
  return hasher.Hex();
}

std::string LayerNames(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("layer {}", first) : fmt::format("layers {}-{}", first, last);
}

std::string DescribeRotation(const ResolvedRotation& rotation) {
  const RotarySpec& spec = rotation.spec;
  const auto wavelength = [](const DoubleDouble& f) { return 2 * std::numbers::pi / f.hi; };
  const std::vector<DoubleDouble>& f = rotation.frequencies.inv_freq;
  std::string where = fmt::format("{} of {} dims", spec.rotary_dim, spec.head_dim);
  if (spec.first_dim != 0) where += fmt::format(" from {}", spec.first_dim);
  std::string text =
      fmt::format("rotary, {} pairs, {}, base {}, scaling {}, wavelengths {:.6g} to {:.6g} tokens",
                  spec.layout == PairLayout::kHalf ? "half" : "interleaved", where, spec.base,
                  Describe(spec.scaling), wavelength(f.front()), wavelength(f.back()));
  if (rotation.frequencies.amplitude != 1) {
    text += fmt::format(", cos and sin times {:.10g}", rotation.frequencies.amplitude);
  }
  if (rotation.frequencies.softmax_multiplier != 1) {
    text += fmt::format(", scores times {:.10g}", rotation.frequencies.softmax_multiplier);
  }
  return text;
}

}  // namespace

PositionPlan WithScaling(const PositionPlan& plan, const Scaling& scaling, int64_t trained_length) {
  PositionPlan out = plan;
  if (trained_length > 0) out.trained_length = trained_length;
  for (LayerPlan& layer : out.layers) {
    if (!layer.rotation) continue;
    layer.rotation->scaling = scaling;
    if (out.trained_length > 0) layer.rotation->trained_length = out.trained_length;
  }
  return out;
}

ResolvedPlan Resolve(const PositionPlan& plan, int64_t length) {
  ResolvedPlan out;
  out.length = length;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    if (layer.window_tokens < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("plan: layer {}: window_tokens must be 0 (all) or more, got {}", i,
                              layer.window_tokens));
    }
    ResolvedLayer resolved;
    resolved.window_tokens = layer.window_tokens;
    if (layer.rotation) {
      ResolvedRotation rotation{*layer.rotation, Resolve(*layer.rotation, length)};
      const auto same = std::find_if(
          out.rotations.begin(), out.rotations.end(),
          [&](const ResolvedRotation& other) { return SameRotation(rotation, other); });
      resolved.rotation = static_cast<int>(same - out.rotations.begin());
      if (same == out.rotations.end()) out.rotations.push_back(std::move(rotation));
    }
    out.layers.push_back(resolved);
  }
  out.hash = HashPlan(out);
  return out;
}

std::string Describe(const PositionPlan& plan, int64_t length) {
  const ResolvedPlan resolved = Resolve(plan, length);
  std::string text =
      fmt::format("positions of {} layers, resolved for {} tokens", plan.layers.size(), length);
  if (plan.trained_length > 0) text += fmt::format(", trained at {}", plan.trained_length);
  if (plan.configured_length > 0 && plan.configured_length != plan.trained_length) {
    text += fmt::format(", configured for {}", plan.configured_length);
  }
  text += '\n';
  for (std::size_t first = 0; first < resolved.layers.size();) {
    const ResolvedLayer& layer = resolved.layers[first];
    std::size_t last = first;
    while (last + 1 < resolved.layers.size() &&
           resolved.layers[last + 1].rotation == layer.rotation &&
           resolved.layers[last + 1].window_tokens == layer.window_tokens) {
      ++last;
    }
    text += "  " + LayerNames(first, last) + ": ";
    text += layer.rotation < 0
                ? "no position information (NoPE)"
                : DescribeRotation(resolved.rotations[static_cast<std::size_t>(layer.rotation)]);
    if (layer.window_tokens > 0) {
      text += fmt::format(", sliding window of {} tokens", layer.window_tokens);
    }
    text += '\n';
    first = last + 1;
  }
  for (const std::string& note : plan.notes) text += "  note: " + note + '\n';
  return text + "  hash: " + resolved.hash + '\n';
}

}  // namespace ropewalk
