// Leaky ReRoPE (Su 2023, kexue.fm/archives/9708): d where d < window, beyond it 1 / factor per
// token.
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

// window + (target - 1 - window) / factor < known
LeakyRerope MakeLeakyRerope(const MapSettings& s, int64_t known, int64_t target) {
  const int64_t window = Get(s, "window", known / 2);
  const int64_t room = std::max<int64_t>(1, known - window);
  return {window, Get(s, "factor", (target - window + room - 1) / room)};
}

std::vector<DistanceView> MakeViews(const LeakyRerope& m) {
  CheckAtLeast("LeakyRerope.window", m.window, 1);
  CheckAtLeast("LeakyRerope.factor", m.factor, 1);
  // (i + window (factor - 1) - j) / factor = window + (i - j - window) / factor
  return {{}, {{.offset = m.window * (m.factor - 1)}, {}, m.factor}};
}

uint32_t ViewsOf(const LeakyRerope& m, const MapTile& tile) { return tile.ByDistance(m.window); }

KeyInterval Keys(const LeakyRerope& m, int view, int64_t query) {
  return KeysByDistance(m.window, view, query);
}

double Largest(const LeakyRerope& m, int64_t length) {
  const auto d = static_cast<double>(length - 1);
  const auto window = static_cast<double>(m.window);
  return d <= window ? d : window + (d - window) / static_cast<double>(m.factor);
}

int64_t Reach(const LeakyRerope& m) { return m.window; }

}  // namespace

template <>
MapRow<LeakyRerope> MapRowOf() {
  return {.name = "leaky-rerope",
          .title = "leaky ReRoPE",
          .source = "Su 2023, kexue.fm/archives/9708",
          .make = MakeLeakyRerope,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
