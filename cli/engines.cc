#include "cli/engines.h"

#include "cli/options.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
std::vector<EngineChoice> EnginesOf(const std::vector<std::string>& engines) {
  std::vector<EngineChoice> choices;
  choices.reserve(engines.size());
  for (const std::string& text : engines) {
    try {
      choices.push_back(ParseEngineChoice(text));
    } catch (const Error& e) {
      throw UsageError(std::string("--engine: ") + e.what());
    }
  }
  return choices;
}

nlohmann::ordered_json SettingsJson(const std::vector<EngineSetting>& settings) {
  using Json = nlohmann::ordered_json;
  Json out = Json::array();
  for (const EngineSetting& s : settings) {
    const auto end = [&](const std::optional<EngineVersion>& version) {
      return version ? Json(Text(*s.kind, *version)) : Json(nullptr);
    };
    out.push_back({{"engine", s.engine},
                   {"versions", s.versions},
                   {"since", end(s.range.since)},
                   {"before", end(s.range.before)},
                   {"expressible", s.expressible},
                   {"setting", s.setting},
                   {"note", s.note}});
  }
  return out;
}

}  // namespace ropewalk::cli
