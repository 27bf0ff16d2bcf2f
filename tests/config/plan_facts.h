// What a layer does with positions as JSON, and a whole plan in one line, for tests to compare.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/config/config.h"

namespace ropewalk::test {

template <class T>
nlohmann::json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

struct ScalingFacts {
  using json = nlohmann::json;
  json operator()(const NoScaling&) const { return {{"method", "none"}}; }
  json operator()(const LinearScaling& s) const {
    return {{"method", "linear"}, {"factor", s.factor}};
  }
  json operator()(const DynamicNtkScaling& s) const {
    return {{"method", "dynamic"}, {"factor", s.factor}};
  }
  json operator()(const Llama3Scaling& s) const {
    return {{"method", "llama3"},
            {"factor", s.factor},
            {"low", s.low_freq_factor},
            {"high", s.high_freq_factor}};
  }
  json operator()(const YarnScaling& s) const {
    return {{"method", "yarn"},
            {"factor", s.factor},
            {"beta_fast", s.beta_fast},
            {"beta_slow", s.beta_slow},
            {"truncate", s.truncate},
            {"mscale", OrNull(s.mscale)},
            {"mscale_all_dim", OrNull(s.mscale_all_dim)},
            {"softmax", s.softmax_mscale}};
  }
  json operator()(const LongRopeScaling& s) const {
    return {{"method", "longrope"},
            {"short", s.short_factor},
            {"long", s.long_factor},
            {"factor", OrNull(s.factor)}};
  }
  template <class T>
  json operator()(const T& s) const {
    return {{"method", Describe(Scaling(s))}};
  }
};

inline nlohmann::json Facts(const RotarySpec& r) {
  nlohmann::json axes;
  if (!r.axes.sections.empty()) {
    const char* const orders[] = {"chunked", "interleaved", "ernie"};
    axes = {{"order", orders[static_cast<int>(r.axes.order)]}, {"sections", r.axes.sections}};
  }
  return {{"layout", r.layout == PairLayout::kHalf ? "half" : "interleaved"},
          {"head_dim", r.head_dim},
          {"rotary_dim", r.rotary_dim},
          {"first_dim", r.first_dim},
          {"base", r.base},
          {"trained_length", r.trained_length},
          {"scaling", std::visit(ScalingFacts{}, r.scaling)},
          {"axes", axes}};
}

inline nlohmann::json Facts(const LayerPlan& layer) {
  nlohmann::json temperature;
  if (const auto& t = layer.temperature) {
    temperature = {{"kind", t->kind == QueryTemperature::Kind::kLogN ? "log_n" : "step_log"},
                   {"beta", t->beta},
                   {"period", t->period},
                   {"offset", t->offset}};
  }
  return {{"rotation", layer.rotation ? Facts(*layer.rotation) : nlohmann::json()},
          {"window", layer.window_tokens},
          {"chunk", layer.chunk_tokens},
          {"temperature", temperature}};
}

// "half 16/16 base 10000 linear(factor 4) window 128", runs of equal layers as "3 x ...; 1 x ...".
inline std::string Line(const LayerPlan& layer) {
  std::string s = layer.recurrent ? "recurrent" : "none";
  if (layer.rotation) {
    const RotarySpec& r = *layer.rotation;
    s = fmt::format("{} {}/{} base {:g}", r.layout == PairLayout::kHalf ? "half" : "interleaved",
                    r.rotary_dim, r.head_dim, r.base);
    if (r.first_dim > 0) s += fmt::format(" from {}", r.first_dim);
    if (!std::holds_alternative<NoScaling>(r.scaling)) s += " " + Describe(r.scaling);
    if (!r.axes.sections.empty()) {
      const char* const orders[] = {"chunked", "interleaved", "ernie"};
      s += fmt::format(" {} [{}]", orders[static_cast<int>(r.axes.order)],
                       fmt::join(r.axes.sections, " "));
    }
  }
  if (layer.bias) {
    const auto& alibi = std::get<AlibiBias>(layer.bias->method);
    s += fmt::format(" bias {} alibi {:g}", layer.bias->heads, alibi.max_bias);
    if (alibi.scale != 1) s += fmt::format(" times {:g}", alibi.scale);
    if (alibi.bfloat16) s += " bfloat16";
  }
  if (layer.window_tokens > 0) s += fmt::format(" window {}", layer.window_tokens);
  if (layer.chunk_tokens > 0) s += fmt::format(" chunk {}", layer.chunk_tokens);
  if (const auto& t = layer.temperature) {
    s += t->kind == QueryTemperature::Kind::kLogN
             ? fmt::format(" log-n {}", t->period)
             : fmt::format(" temperature {} {} +{}", t->beta, t->period, t->offset);
  }
  return s;
}

inline std::string Lines(const PositionPlan& plan) {
  std::string out;
  for (std::size_t first = 0; first < plan.layers.size();) {
    const std::string line = Line(plan.layers[first]);
    std::size_t last = first + 1;
    while (last < plan.layers.size() && Line(plan.layers[last]) == line) ++last;
    if (!out.empty()) out += "; ";
    out += fmt::format("{} x {}", last - first, line);
    first = last;
  }
  return out;
}

}  // namespace ropewalk::test
