// --engine, and settings of engines as --json and reports hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"

namespace ropewalk::cli {

// What --engine took. UsageError for text that names no known engine or version.
std::vector<EngineChoice> EnginesOf(const std::vector<std::string>& engines);

nlohmann::ordered_json SettingsJson(const std::vector<EngineSetting>& settings);

}  // namespace ropewalk::cli
