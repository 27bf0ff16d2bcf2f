// What the commands that write models share.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/eval/settings.h"

namespace ropewalk::cli {

// The setting for a folder's config.json, in the schema that it has; Error where there is none.
nlohmann::ordered_json HuggingFaceSetting(const std::string& folder, const Scaling& scaling,
                                          const SettingsTarget& target);
// In the schema of transformers 4 or 5.
nlohmann::ordered_json HuggingFaceSetting(bool rope_parameters, const Scaling& scaling,
                                          const SettingsTarget& target);

// Who can say this scaling and who cannot, for a refusal.
std::string NotesOn(const Scaling& scaling, const SettingsTarget& target);

// Error when there is something under this name.
void RefuseExisting(const std::string& output);

// What is proven wrong does not stay: removes `output` when `check` throws.
template <class F>
void OrRemove(const std::string& output, F&& check) {
  try {
    check();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(output, ignored);
    throw;
  }
}

}  // namespace ropewalk::cli
