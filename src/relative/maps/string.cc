// STRING (An et al. 2024, arXiv 2410.18745, section 4): d where d < shift, beyond it d - shift + window.
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

// A third of the trained length, or what brings the target length within it: positions reach
// target - 1 - shift + window.
StringMap MakeStringMap(const MapSettings& s, int64_t known, int64_t target) {
  const int64_t most = s.count("shift") != 0 ? s.at("shift") : 128;
  const int64_t window = Get(s, "window", std::min({most, int64_t{128}, known / 8}));
  const int64_t shift = std::max(known / 3, target + window - known);
  return {Get(s, "shift", std::min(shift, known - 1)), window};
}

std::vector<DistanceView> MakeViews(const StringMap& m) {
  CheckAtLeast("StringMap.shift", m.shift, 1);
  if (m.window < 0 || m.window > m.shift) {
    Refuse("StringMap.window: expected 0 to " + std::to_string(m.shift) +
           ", so that far distances become smaller, got " + std::to_string(m.window));
  }
  return {{}, {{.offset = m.window - m.shift}, {}}};
}

uint32_t ViewsOf(const StringMap& m, const MapTile& tile) { return tile.ByDistance(m.shift); }

KeyInterval Keys(const StringMap& m, int view, int64_t query) {
  return KeysByDistance(m.shift, view, query);
}

double Largest(const StringMap& m, int64_t length) {
  const int64_t d = length - 1;
  return static_cast<double>(d < m.shift ? d : std::max(m.shift - 1, d - m.shift + m.window));
}

int64_t Reach(const StringMap& m) { return m.shift; }

}  // namespace

template <>
MapRow<StringMap> MapRowOf() {
  return {.name = "string",
          .title = "STRING",
          .source = "arXiv 2410.18745",
          .make = MakeStringMap,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
