// What the commands that write models share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/engines/settings.h"

namespace ropewalk::cli {

// The setting for a folder's config.json, in the schema that it has; Error where there is none.
nlohmann::ordered_json HuggingFaceSetting(const std::string& folder, const Scaling& scaling,
                                          const SettingsTarget& target);
// In the schema of transformers 4 or 5.
nlohmann::ordered_json HuggingFaceSetting(bool rope_parameters, const Scaling& scaling,
                                          const SettingsTarget& target);

}  // namespace ropewalk::cli
