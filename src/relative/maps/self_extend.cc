// Self-Extend (Jin et al. 2024, arXiv 2401.01325, section 3): groups of positions beyond the
// window.
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

// The smallest group that keeps every distance known.
SelfExtend MakeSelfExtend(const MapSettings& s, int64_t known, int64_t target) {
  SelfExtend m{Get(s, "window", known / 4), 1};
  const int64_t room = std::max<int64_t>(1, known - m.window);
  m.group = std::max<int64_t>(1, (target - m.window) / room);
  while (m.group < target && LargestRelativePosition(m, target) >= static_cast<double>(known)) {
    ++m.group;
  }
  m.group = Get(s, "group", m.group);
  return m;
}

std::vector<DistanceView> MakeViews(const SelfExtend& m) {
  CheckAtLeast("SelfExtend.window", m.window, 1);
  CheckAtLeast("SelfExtend.group", m.group, 1);
  return {{},
          {{.divisor = m.group, .offset = m.window - m.window / m.group}, {.divisor = m.group}}};
}

uint32_t ViewsOf(const SelfExtend& m, const MapTile& tile) { return tile.ByDistance(m.window); }

KeyInterval Keys(const SelfExtend& m, int view, int64_t query) {
  return KeysByDistance(m.window, view, query);
}

double Largest(const SelfExtend& m, int64_t length) {
  const int64_t last = length - 1;
  // floor(last / group) - 0 is the largest of the far ones; the window's last may be larger.
  const int64_t far = last < m.window ? 0 : last / m.group + m.window - m.window / m.group;
  return static_cast<double>(std::max(far, std::min(last, m.window - 1)));
}

int64_t Reach(const SelfExtend& m) { return m.window; }

}  // namespace

template <>
MapRow<SelfExtend> MapRowOf() {
  return {.name = "self-extend",
          .title = "Self-Extend",
          .source = "arXiv 2401.01325",
          .make = MakeSelfExtend,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
