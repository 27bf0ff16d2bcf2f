// Dual chunk attention (An et al. 2024, arXiv 2402.17463, section 3).
#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

int64_t MostOf(int64_t chunk) { return chunk > INT64_MAX / 2 ? INT64_MAX : 2 * chunk; }

DualChunk MakeDualChunk(const MapSettings& s, int64_t known, int64_t) {
  const int64_t chunk = Get(s, "chunk", known / 4 * 3);
  return {chunk, Get(s, "limit", std::min(known - 1, MostOf(chunk)))};
}

void Check(const DualChunk& m) {
  if (m.chunk < 1) CheckAtLeast("DualChunk.chunk", m.chunk, 1);
  if (m.limit < m.chunk || m.limit > MostOf(m.chunk)) {
    Refuse("DualChunk.limit: expected " + std::to_string(m.chunk) + " to " +
           std::to_string(MostOf(m.chunk)) +
           ", one to two chunks, so that no distance is larger than it, got " +
           std::to_string(m.limit));
  }
}

std::vector<DistanceView> MakeViews(const DualChunk& m) {
  Check(m);
  const PositionMap within{.modulus = m.chunk};
  return {{within, within},
          {{.modulus = m.chunk, .offset = m.chunk, .limit = m.limit}, within},
          {Constant(m.limit), within}};
}

// Whether some query has a key of its own chunk at or behind it.
bool SharesChunk(const MapTile& t, int64_t chunk) {
  const int64_t from = std::max(t.first_query, t.first_key) / chunk;
  const int64_t to = std::min(t.last_query, t.last_key) / chunk;
  if (to - from >= 2) return true;  // a whole chunk between them
  for (int64_t c = from; c <= to; ++c) {
    if (std::min(t.last_query, c * chunk + chunk - 1) >= std::max(t.first_key, c * chunk)) {
      return true;
    }
  }
  return false;
}

uint32_t ViewsOf(const DualChunk& m, const MapTile& t) {
  Check(m);
  uint32_t views = t.first_query < t.last_key ? kUnseenBit : 0;
  // Pairs of every number of chunks between these exist.
  const int64_t fewest = t.first_query / m.chunk - t.last_key / m.chunk;
  const int64_t most = t.last_query / m.chunk - t.first_key / m.chunk;
  if (SharesChunk(t, m.chunk)) views |= 1;
  if (fewest <= 1 && most >= 1) views |= 2;
  if (most >= 2) views |= 4;
  return views;
}

KeyInterval Keys(const DualChunk& m, int view, int64_t query) {
  Check(m);
  const int64_t own = query / m.chunk * m.chunk, before = std::max<int64_t>(0, own - m.chunk);
  if (view == 0) return {own, query + 1};
  return view == 1 ? KeyInterval{before, own} : KeyInterval{0, before};
}

double Largest(const DualChunk& m, int64_t length) {
  Check(m);
  return std::min<double>(m.limit, length - 1);
}

int64_t Reach(const DualChunk& m) { return m.limit; }

}  // namespace

template <>
MapRow<DualChunk> MapRowOf() {
  return {.name = "dual-chunk",
          .title = "dual chunk attention",
          .source = "arXiv 2402.17463",
          .make = MakeDualChunk,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
