#include "src/engines/per_version.h"

#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace ropewalk {
namespace internal {
namespace {

// Versions of `way` from which on something is another way, the newest first; the last is where it
// begins.
std::vector<std::optional<EngineVersion>> Beginnings(const Way& way) {
  std::set<EngineVersion, std::greater<>> versions;
  for (const FactRow& row : kFacts) {
    if (row.engine != way.engine) continue;
    for (const auto& version : {row.versions.since, row.versions.before}) {
      if (version && version > way.versions.since && way.versions.Contains(*version)) {
        versions.insert(*version);
      }
    }
  }
  std::vector<std::optional<EngineVersion>> all(versions.begin(), versions.end());
  all.push_back(way.versions.since);
  return all;
}

EngineSetting Setting(const Way& way, const VersionRange& versions, Told told) {
  EngineSetting out;
  out.engine = way.name;
  out.expressible = !told.setting.empty();
  out.setting = std::move(told.setting);
  out.note = std::move(told.note);
  out.kind = way.engine;
  out.range = versions;
  if (versions != way.versions) out.versions = Text(way.engine, versions);
  return out;
}

}  // namespace

void AddPerVersion(const Way& way, const std::function<Told(const Has&)>& tell,
                   std::vector<EngineSetting>& settings) {
  struct Piece {
    VersionRange versions;
    Told told;
  };
  std::vector<Piece> pieces;
  std::optional<EngineVersion> before = way.versions.before;
  for (const std::optional<EngineVersion>& since : Beginnings(way)) {
    const EngineVersion version = since.value_or(EngineVersion{});
    Told told = tell([&](Fact fact) { return Holds(fact, version); });
    if (!pieces.empty() && pieces.back().told == told) {
      pieces.back().versions.since = since;
    } else {
      pieces.push_back({{since, before}, std::move(told)});
    }
    before = since;
  }
  for (Piece& piece : pieces)
    settings.push_back(Setting(way, piece.versions, std::move(piece.told)));
}

EngineSetting InEveryVersion(const Way& way, Told told) {
  return Setting(way, way.versions, std::move(told));
}

}  // namespace internal

std::string EngineSetting::Title() const {
  return versions.empty() ? engine : engine + " " + versions;
}

std::vector<EngineSetting> Narrow(std::vector<EngineSetting> settings,
                                  const std::vector<EngineChoice>& choices) {
  std::erase_if(settings, [&](const EngineSetting& s) {
    return s.kind && !AnyMeets(choices, *s.kind, s.range);
  });
  return settings;
}

}  // namespace ropewalk
