#include "cli/engines.h"

#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

std::string Problem(std::string& text) {
  try {
    (void)ParseEngineChoice(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

void AddEngineOption(CLI::App& command, std::vector<std::string>& engines) {
  command
      .add_option("--engine", engines,
                  "Only what concerns this engine, and the version that you have: transformers, "
                  "vllm or llama.cpp (by date), as vllm=0.10.2 or llama.cpp=2026-05-01; repeatable")
      ->type_name("NAME[=VERSION]")
      ->expected(1)
      ->take_all()
      ->check(CLI::Validator(Problem, ""));
}

std::vector<EngineChoice> EnginesOf(const std::vector<std::string>& engines) {
  std::vector<EngineChoice> choices;
  choices.reserve(engines.size());
  for (const std::string& text : engines) choices.push_back(ParseEngineChoice(text));
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
