// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453, section 3.2): attention sinks and a window.
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

AttentionSinks MakeAttentionSinks(const MapSettings& s, int64_t known, int64_t) {
  const int64_t sinks = Get(s, "sinks", std::min<int64_t>(4, known / 2));
  return {sinks, Get(s, "window", known - sinks)};
}

void Check(const AttentionSinks& m) {
  if (m.sinks < 0) CheckAtLeast("AttentionSinks.sinks", m.sinks, 0);
  if (m.window < 1) CheckAtLeast("AttentionSinks.window", m.window, 1);
}

std::vector<DistanceView> MakeViews(const AttentionSinks& m) {
  Check(m);
  return {{}, {{.limit = m.sinks + m.window - 1}, {}}};
}

uint32_t ViewsOf(const AttentionSinks& m, const MapTile& t) {
  Check(m);
  uint32_t views = 0;
  if (t.first_key < m.sinks) {
    const int64_t last_key = std::min(t.last_key, m.sinks - 1);
    if (t.last_query >= t.first_key) views |= 2;
    if (t.first_query < last_key) views |= kUnseenBit;
  }
  if (t.last_key >= m.sinks) {
    const MapTile rest{t.first_query, t.last_query, std::max(t.first_key, m.sinks), t.last_key};
    const uint32_t seen = rest.ByDistance(m.window);
    views |= seen & 1;
    if ((seen & ~1u) != 0) views |= kUnseenBit;
  }
  return views;
}

KeyInterval Keys(const AttentionSinks& m, int view, int64_t query) {
  Check(m);
  if (view == 1) return {0, std::min(m.sinks, query + 1)};
  return {std::max(m.sinks, query - m.window + 1), query + 1};
}

double Largest(const AttentionSinks& m, int64_t length) {
  Check(m);
  return std::min<double>(m.sinks + m.window - 1, length - 1);
}

int64_t Reach(const AttentionSinks& m) { return m.sinks + m.window - 1; }

}  // namespace

template <>
MapRow<AttentionSinks> MapRowOf() {
  return {.name = "sinks",
          .title = "window and attention sinks",
          .source = "arXiv 2309.17453",
          .make = MakeAttentionSinks,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
