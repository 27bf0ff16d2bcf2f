#include "cli/setting.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/model/convert/hf_config.h"

namespace ropewalk::cli {

nlohmann::ordered_json HuggingFaceSetting(bool rope_parameters, const Scaling& scaling,
                                          const SettingsTarget& target) {
  const std::string engine =
      rope_parameters ? "Hugging Face transformers 5" : "Hugging Face transformers 4";
  for (const EngineSetting& setting : SettingsFor(scaling, target)) {
    if (setting.engine != engine) continue;
    if (setting.expressible) return nlohmann::ordered_json::parse(setting.setting);
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} cannot say {}: {}", engine, Describe(scaling), setting.note));
  }
  throw Error(ErrorCode::kUnsupported, "no setting is known for " + engine);
}

nlohmann::ordered_json HuggingFaceSetting(const std::string& folder, const Scaling& scaling,
                                          const SettingsTarget& target) {
  const auto file = MappedFile::Open((std::filesystem::path(folder) / "config.json").string());
  const auto config = nlohmann::ordered_json::parse(file->text());
  return HuggingFaceSetting(internal::HasRopeParameters(config), scaling, target);
}

std::string NotesOn(const Scaling& scaling, const SettingsTarget& target) {
  std::string can, cannot;
  for (const EngineSetting& setting : SettingsFor(scaling, target)) {
    std::string& list = setting.expressible ? can : cannot;
    list += (list.empty() ? "" : "; ") + setting.engine;
    if (!setting.note.empty()) list += " (" + setting.note + ")";
  }
  return fmt::format("By hand: {}{}", can.empty() ? "none" : can,
                     cannot.empty() ? "" : ". Not: " + cannot);
}

void RefuseExisting(const std::string& output) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(output, error))) return;
  throw Error(ErrorCode::kIo,
              output + ": exists; choose another name with -o, nothing is overwritten");
}

}  // namespace ropewalk::cli
