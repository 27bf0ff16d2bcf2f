#include "ropewalk/engines/engines.h"

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/engines/angles.h"

namespace ropewalk {

bool EngineView::Same() const {
  // Files hold divisors and amplitudes in float32: half an ULP is 6e-8, and quotients of two.
  const auto one = [](double ratio) { return std::abs(ratio - 1) < 2e-7; };
  return expressible && one(frequency_ratio) && one(amplitude_ratio) && one(softmax_ratio) &&
         axis_pairs == 0;
}

std::vector<EngineView> CompareEngines(const RotarySpec& spec, int64_t length, int64_t position) {
  RotarySpec other = spec;
  other.dialect = Dialect::kNative;
  const Frequencies native = Resolve(other, length);
  std::vector<EngineView> views;
  for (const Dialect engine : {Dialect::kHuggingFace, Dialect::kVllm, Dialect::kLlamaCpp}) {
    EngineView view;
    view.engine = engine;
    other.dialect = engine;
    try {
      view.frequencies = Resolve(other, length);
    } catch (const Error& e) {
      view.reason = e.what();
      views.push_back(std::move(view));
      continue;
    }
    view.expressible = true;
    const AngleError angle = internal::AngleDifference(view.frequencies, native, position);
    view.angle_rad = angle.radians;
    view.angle_pair = angle.pair;
    for (std::size_t i = 0; i < native.inv_freq.size(); ++i) {
      const double now = view.frequencies.inv_freq[i].hi, then = native.inv_freq[i].hi;
      if (now == then) continue;
      const double ratio = now / then;  // infinity where only the native frequency is 0
      if (std::abs(std::log(ratio)) <= std::abs(std::log(view.frequency_ratio))) continue;
      view.frequency_ratio = ratio;
      view.ratio_pair = static_cast<int64_t>(i);
    }
    view.amplitude = view.frequencies.amplitude;
    view.amplitude_ratio = view.amplitude / native.amplitude;
    view.softmax_ratio = view.frequencies.softmax_multiplier / native.softmax_multiplier;
    const std::vector<uint8_t>& axis = view.frequencies.axis;
    for (std::size_t i = 0; i < axis.size() && i < native.axis.size(); ++i) {
      view.axis_pairs += axis[i] != native.axis[i] ? 1 : 0;
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<EngineView> Narrow(std::vector<EngineView> views,
                               const std::vector<EngineChoice>& choices) {
  std::erase_if(views, [&](const EngineView& view) {
    const EngineKind kind = view.engine == Dialect::kHuggingFace ? EngineKind::kTransformers
                            : view.engine == Dialect::kVllm      ? EngineKind::kVllm
                                                                 : EngineKind::kLlamaCpp;
    return !choices.empty() &&
           std::none_of(choices.begin(), choices.end(),
                        [&](const EngineChoice& c) { return c.engine == kind; });
  });
  return views;
}

}  // namespace ropewalk
