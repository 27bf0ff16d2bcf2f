#include "cli/setting.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/engines/hf_config.h"
#include "src/io/json.h"

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
  const std::string path = folder + "/config.json";
  const auto config = internal::ParseOrderedObject(MappedFile::Open(path)->text(), path);
  return HuggingFaceSetting(internal::HasRopeParameters(config), scaling, target);
}

}  // namespace ropewalk::cli
