// DPE (Lu et al. 2025, arXiv 2504.18857): Self-Extend with a group for each eighth of the pairs.
#include <array>

#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

std::array<int64_t, Dpe::kShares> Groups(const Dpe& m) {
  return {m.group1, m.group2, m.group3, m.group4, m.group5, m.group6, m.group7, m.group8};
}

// What the search of the paper starts from: twice the smallest group that reaches the target. A
// search for each model goes on from there.
Dpe MakeDpe(const MapSettings& s, int64_t known, int64_t target) {
  const int64_t window = Get(s, "window", std::min<int64_t>(1024, known / 4));
  const int64_t group = (2 * target + known - 1) / known;
  const auto of = [&](const char* name) { return Get(s, name, group); };
  return {window,       of("group1"), of("group2"), of("group3"), of("group4"),
          of("group5"), of("group6"), of("group7"), of("group8")};
}

std::vector<DistanceView> MakeViews(const Dpe& m) {
  CheckAtLeast("Dpe.window", m.window, 1);
  DistanceView far;
  int share = 0;
  for (const int64_t group : Groups(m)) {
    CheckAtLeast("Dpe.group" + std::to_string(++share), group, 1);
    far.shares.push_back(
        {{.divisor = group, .offset = m.window - m.window / group}, {.divisor = group}});
  }
  far.query = far.shares[0].query;
  far.key = far.shares[0].key;
  return {{}, far};
}

uint32_t ViewsOf(const Dpe& m, const MapTile& tile) { return tile.ByDistance(m.window); }

KeyInterval Keys(const Dpe& m, int view, int64_t query) {
  return KeysByDistance(m.window, view, query);
}

double Largest(const Dpe& m, int64_t length) {
  const int64_t last = length - 1;
  int64_t largest = std::min(last, m.window - 1);
  for (const int64_t group : Groups(m)) {
    if (last >= m.window) {
      largest = std::max(largest, last / group + m.window - m.window / group);
    }
  }
  return static_cast<double>(largest);
}

int64_t Reach(const Dpe& m) { return m.window; }

}  // namespace

template <>
MapRow<Dpe> MapRowOf() {
  return {.name = "dpe",
          .title = "DPE",
          .source = "arXiv 2504.18857",
          .make = MakeDpe,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
