// --engine, and settings of engines as --json and reports hold them.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"

namespace ropewalk::cli {

// --engine NAME[=VERSION], repeatable. Text that names no known engine or version is refused.
void AddEngineOption(CLI::App& command, std::vector<std::string>& engines);
// What --engine took.
std::vector<EngineChoice> EnginesOf(const std::vector<std::string>& engines);

nlohmann::ordered_json SettingsJson(const std::vector<EngineSetting>& settings);

}  // namespace ropewalk::cli
