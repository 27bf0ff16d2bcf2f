// What a method is in `positions` of the family ropewalk.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ropewalk/engines/settings.h"
#include "src/config/hf/positions_write.h"

namespace ropewalk {

std::vector<EngineSetting> SettingsInPositions(const PositionMethod& method, double factor,
                                               const SettingsTarget& target) {
  using Json = nlohmann::ordered_json;
  Json positions;
  positions["rotation"] = internal::RotationKeys(method.ScalingFor(factor), target.base);
  if (const auto map = method.MapFor(factor, target.trained_length)) {
    positions["map"] = internal::MapObject(*map);
  }
  if (const auto temperature = method.TemperatureFor(target.trained_length)) {
    positions["temperature"] = internal::TemperatureObject(*temperature);
  }
  EngineSetting setting;
  setting.engine = kPositionsSetting;
  setting.setting = Json{{"positions", positions}}.dump(2);
  setting.note = fmt::format(
      "In the place of these parts of positions; xpos, values and partial_rotary_factor of the "
      "rotation stay, and the other parts. ropewalk extend --method {} --factor {:.10g} writes it.",
      method.name(), factor);
  return {setting};
}

}  // namespace ropewalk
