// Several position axes: the axis of each pair, and the frequencies of axes with their own.
#include <algorithm>
#include <numeric>

#include "src/rotary/scaling/scaling.h"

namespace ropewalk::internal {
namespace {

constexpr std::size_t kMaxAxes = 4;

void CheckAxes(const RotarySpec& spec) {
  const RotaryAxes& axes = spec.axes;
  const std::vector<int64_t>& n = axes.sections;
  if (n.size() > kMaxAxes) {
    BadScaling("axes: at most 4 sections, got " + std::to_string(n.size()));
  }
  int64_t left = Pairs(spec);
  for (const int64_t section : n) {
    if (section < 0 || section > left) {
      left = -1;
      break;
    }
    left -= section;
  }
  if (left != 0) {
    BadScaling("axes: sections are pairs and must add up to rotary_dim / 2 = " +
               std::to_string(Pairs(spec)));
  }
  if (axes.order != AxisOrder::kChunked && n.size() != 3) {
    BadScaling("axes: the interleaved orders are defined for three sections, got " +
               std::to_string(n.size()));
  }
  if (axes.order == AxisOrder::kErnie && n[1] != n[2]) {
    BadScaling(
        "axes: Ernie's order alternates height and width, so their sections must be equal; got " +
        std::to_string(n[1]) + " and " + std::to_string(n[2]));
  }
  if (axes.own_ladders && axes.order != AxisOrder::kChunked) {
    BadScaling("axes: own ladders need the chunked order");
  }
  if (!axes.scalings.empty() && (!axes.own_ladders || axes.scalings.size() != n.size())) {
    BadScaling("axes: scalings need own_ladders, and one entry an axis");
  }
}

// Qwen3-VL: t h w t h w ... with t wherever a section is used up. ggml asks the same of t, so that
// pairs beyond all three fall to a fourth axis, which llama.cpp feeds with zero.
uint8_t InterleavedAxis(const std::vector<int64_t>& n, int64_t pair, Dialect dialect) {
  if (pair % 3 == 1 && pair < 3 * n[1]) return 1;
  if (pair % 3 == 2 && pair < 3 * n[2]) return 2;
  const bool beyond = pair % 3 != 0 || pair >= 3 * n[0];
  return dialect == Dialect::kLlamaCpp && beyond ? 3 : 0;
}

std::vector<uint8_t> AxisOfPairs(const RotarySpec& spec) {
  const std::vector<int64_t>& n = spec.axes.sections;
  std::vector<uint8_t> axis;
  for (int64_t i = 0; i < Pairs(spec); ++i) {
    switch (spec.axes.order) {
      case AxisOrder::kChunked: {
        std::size_t a = 0;
        for (int64_t end = n[0]; i >= end; end += n[++a]) {
        }
        axis.push_back(static_cast<uint8_t>(a));
        break;
      }
      case AxisOrder::kInterleaved:
        axis.push_back(InterleavedAxis(n, i, spec.dialect));
        break;
      case AxisOrder::kErnie:
        axis.push_back(i < n[1] + n[2] ? static_cast<uint8_t>(1 + i % 2) : uint8_t{0});
        break;
    }
  }
  return axis;
}

}  // namespace

Frequencies ResolveAxes(const RotarySpec& spec, int64_t length) {
  CheckAxes(spec);
  Frequencies out;
  if (!spec.axes.own_ladders) {
    out = ResolveScaling(spec, length);
  } else {
    for (std::size_t a = 0; a < spec.axes.sections.size(); ++a) {
      if (spec.axes.sections[a] == 0) continue;
      RotarySpec ladder = spec;
      ladder.rotary_dim = ladder.head_dim = 2 * spec.axes.sections[a];
      ladder.first_dim = 0;
      ladder.axes = {};
      ladder.xpos.reset();
      if (!spec.axes.scalings.empty()) {
        ladder.base = spec.axes.scalings[a].base;
        ladder.scaling = spec.axes.scalings[a].scaling;
        ladder.trained_length = spec.axes.scalings[a].trained_length;
      }
      const Frequencies one = Resolve(ladder, length);
      if (!out.inv_freq.empty() &&
          (one.amplitude != out.amplitude || one.softmax_multiplier != out.softmax_multiplier)) {
        BadScaling("axes: the axes' scalings have different amplitudes; a table has one");
      }
      out.amplitude = one.amplitude;
      out.softmax_multiplier = one.softmax_multiplier;
      out.inv_freq.insert(out.inv_freq.end(), one.inv_freq.begin(), one.inv_freq.end());
      out.inv_freq_f32.insert(out.inv_freq_f32.end(), one.inv_freq_f32.begin(),
                              one.inv_freq_f32.end());
    }
  }
  out.axis = AxisOfPairs(spec);
  out.axes = std::max(static_cast<int>(spec.axes.sections.size()),
                      1 + *std::max_element(out.axis.begin(), out.axis.end()));
  return out;
}

}  // namespace ropewalk::internal
