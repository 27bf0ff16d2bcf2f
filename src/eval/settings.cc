#include "ropewalk/engines/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/eval/eval.h"
#include "ropewalk/plan/method.h"

namespace ropewalk {

namespace {

std::vector<EngineSetting> OfPositions(const Cell& cell, const SettingsTarget& target) {
  EngineSetting setting;
  setting.engine = kPositionsSetting;
  const auto method = cell.named();
  // Pairs that a model is trained not to rotate stay so under a method, which names others.
  const bool still = std::ranges::any_of(cell.inv_freq, [](double f) { return f == 0; });
  if (cell.as_shipped()) {
    setting.note = "The model's config.json says it already.";
  } else if (!method) {
    setting.setting = cell.scaling;
    setting.note = "positions.rotation; its xpos and values stay.";
  } else if (still && !std::holds_alternative<HopeScaling>(method->ScalingFor(cell.factor))) {
    setting.note = fmt::format("ropewalk extend --method {} --factor {:.10g} writes it.",
                               method->name(), cell.factor);
  } else {
    return SettingsInPositions(*method, cell.factor, target);
  }
  return {setting};
}

}  // namespace

std::vector<EngineSetting> SettingsFor(const Cell& cell, int64_t target_length,
                                       const std::string& family) {
  SettingsTarget target{cell.trained_length, target_length, cell.rope_base, cell.rotary_dim};
  target.place = cell.setting_place;
  if (!std::isnan(cell.local_base)) target.local_base = cell.local_base;
  if (family == kPositionsFamily) return OfPositions(cell, target);
  if (cell.as_shipped()) return SettingsAsShipped(target_length, cell.setting_place);
  if (const auto method = cell.named()) {
    return SettingsFor(*method, cell.factor, target);
  }
  return SettingsForDictionary(cell.scaling, cell.factor, target);
}

}  // namespace ropewalk
