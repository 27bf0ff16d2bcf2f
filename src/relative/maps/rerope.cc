// ReRoPE (Su 2023, kexue.fm/archives/9708): min(d, window).
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

// A quarter to a half of the trained length.
Rerope MakeRerope(const MapSettings& s, int64_t known, int64_t) {
  return {Get(s, "window", known / 2)};
}

std::vector<DistanceView> MakeViews(const Rerope& m) {
  CheckAtLeast("Rerope.window", m.window, 1);
  return {{}, {Constant(m.window), Constant(0)}};
}

uint32_t ViewsOf(const Rerope& m, const MapTile& tile) { return tile.ByDistance(m.window); }

KeyInterval Keys(const Rerope& m, int view, int64_t query) {
  return KeysByDistance(m.window, view, query);
}

double Largest(const Rerope& m, int64_t length) { return std::min<double>(m.window, length - 1); }

int64_t Reach(const Rerope& m) { return m.window; }

}  // namespace

template <>
MapRow<Rerope> MapRowOf() {
  return {.name = "rerope",
          .title = "ReRoPE",
          .source = "Su 2023, kexue.fm/archives/9708",
          .make = MakeRerope,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
