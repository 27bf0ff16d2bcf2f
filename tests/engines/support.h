// Plans, their warnings, and YaRN's formula typed again, for the tests of engines and rules.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/analysis/analysis.h"
#include "ropewalk/engines/engines.h"

namespace ropewalk {

inline RotarySpec Spec(double base, int64_t d, int64_t trained, Scaling scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = d;
  spec.base = base;
  spec.trained_length = trained;
  spec.scaling = std::move(scaling);
  return spec;
}

inline PositionPlan Plan(const RotarySpec& spec, int64_t configured) {
  PositionPlan plan;
  plan.trained_length = spec.trained_length;
  plan.configured_length = configured;
  plan.layers.resize(2);
  for (LayerPlan& layer : plan.layers) layer.rotation = spec;
  return plan;
}

inline std::vector<Finding> WarningsOf(const PositionPlan& plan, int64_t length) {
  return Warnings(plan, Resolve(plan, length));
}
inline std::optional<Finding> Find(const std::vector<Finding>& findings, const std::string& id) {
  for (const Finding& f : findings) {
    if (f.id == id) return f;
  }
  return std::nullopt;
}
inline std::optional<Finding> Warning(const RotarySpec& spec, int64_t length,
                                      const std::string& id) {
  return Find(WarningsOf(Plan(spec, length), length), id);
}

inline EngineView View(const std::vector<EngineView>& views, Dialect engine) {
  return *std::find_if(views.begin(), views.end(),
                       [&](const EngineView& v) { return v.engine == engine; });
}

// YaRN as every engine runs it, its ramp over pair indices, on plain doubles: frequency of pair i.
inline double TypedYarn(double base, double d, double trained, double s, int64_t i, bool truncate) {
  const auto pair = [&](double turns) {
    return d * std::log(trained / (2 * std::numbers::pi * turns)) / (2 * std::log(base));
  };
  double low = pair(32), high = pair(1);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  const double f = std::pow(base, -2 * static_cast<double>(i) / d);
  return f / s * ramp + f * (1 - ramp);
}

// The largest of |a(i) - b(i)| position over pairs.
template <class A, class B>
double LargestAngle(int64_t pairs, int64_t position, const A& a, const B& b) {
  double largest = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    largest = std::max(largest, std::abs(a(i) - b(i)) * static_cast<double>(position));
  }
  return largest;
}

}  // namespace ropewalk
