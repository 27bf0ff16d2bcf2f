// LaMPE (ACL 2026; scar-on/LaMPE@4e3c91f): exact positions near and at the far end, between them
// positions squeezed linearly into a length that follows that of the sequence.
#include <cmath>

#include "src/relative/maps/map.h"

namespace ropewalk::internal {
namespace {

// The authors' fit for Llama 3.1, S(T) = c / (1 + e^-(a T + b)), with a and c in units of its
// trained length of 131072 tokens, so that it says something of other lengths.
double MappedLength(double length, double known) {
  constexpr double kA = 4.505261149632588e-05 * 131072, kB = -2.788576860718702;
  constexpr double kC = 82358.52413056031 / 131072;
  return known * kC / (1 + std::exp(-(kA * length / known + kB)));
}

Lampe MakeLampe(const MapSettings& s, int64_t known, int64_t target) {
  Lampe m;
  m.head = Get(s, "head", known / 8);
  m.tail = Get(s, "tail", std::min<int64_t>(200, known / 16));
  m.length = Get(s, "length", target);
  const auto fit =
      static_cast<int64_t>(MappedLength(static_cast<double>(m.length), static_cast<double>(known)));
  m.mapped = Get(s, "mapped", std::min(fit, m.length - 1));
  return m;
}

// A short sequence, or one that nothing would squeeze, keeps its positions.
bool IsPlain(const Lampe& m) { return m.length < 2 * m.head || m.mapped >= m.length - 1; }

PositionMap Squeezed(const Lampe& m, int64_t offset = 0) {
  return {.multiplier = m.mapped, .divisor = m.length - 1, .offset = offset};
}

// The distance from which tokens are far; from head to there positions are squeezed.
int64_t Far(const Lampe& m) { return std::max(m.head, m.length - std::min(m.tail, m.length)); }

// The queries' offset that joins the squeezed positions to the near ones, and the far ones to them.
int64_t NearOffset(const Lampe& m) { return m.head - 1 - Squeezed(m)(m.head); }
int64_t FarOffset(const Lampe& m) {
  const int64_t last = Far(m) - 1;
  return Squeezed(m)(last) + NearOffset(m) - last;
}

std::vector<DistanceView> MakeViews(const Lampe& m) {
  CheckAtLeast("Lampe.head", m.head, 1);
  CheckAtLeast("Lampe.mapped", m.mapped, 1);
  CheckAtLeast("Lampe.tail", m.tail, 0);
  CheckAtLeast("Lampe.length", m.length, 2);
  if (IsPlain(m)) return {{}};
  return {{}, {Squeezed(m, NearOffset(m)), Squeezed(m)}, {{.offset = FarOffset(m)}, {}}};
}

uint32_t ViewsOf(const Lampe& m, const MapTile& tile) {
  if (IsPlain(m)) return tile.ByDistance(INT64_MAX);
  const uint32_t near = tile.ByDistance(m.head), far = tile.ByDistance(Far(m));
  const int64_t smallest = tile.first_query - tile.last_key;
  const int64_t largest = tile.last_query - tile.first_key;
  const bool between = largest >= m.head && smallest < Far(m) && m.head < Far(m);
  return (near & (kUnseenBit | 1)) | (between ? 2 : 0) | ((far & 2) << 1);
}

KeyInterval Keys(const Lampe& m, int view, int64_t query) {
  const int64_t near = IsPlain(m) ? 0 : std::max<int64_t>(0, query - m.head + 1);
  const int64_t far = IsPlain(m) ? 0 : std::max<int64_t>(0, query - Far(m) + 1);
  if (view == 0) return {near, query + 1};
  return view == 1 ? KeyInterval{far, near} : KeyInterval{0, far};
}

double Largest(const Lampe& m, int64_t length) {
  const int64_t d = length - 1, far = Far(m);
  if (IsPlain(m) || d < m.head) return static_cast<double>(d);
  int64_t largest = m.head - 1;
  const PositionMap squeezed = Squeezed(m);
  // What a distance becomes depends on where it begins, with the period of the whole length.
  const int64_t apart = std::min(d, far - 1);
  for (int64_t j = 0; apart >= m.head && j <= std::min(d - apart, m.length - 2); ++j) {
    largest = std::max(largest, squeezed(j + apart) - squeezed(j) + NearOffset(m));
  }
  if (d >= far) largest = std::max(largest, d + FarOffset(m));
  return static_cast<double>(largest);
}

int64_t Reach(const Lampe& m) { return m.head; }

}  // namespace

template <>
MapRow<Lampe> MapRowOf() {
  return {.name = "lampe",
          .title = "LaMPE",
          .source = "ACL 2026, scar-on/LaMPE",
          .make = MakeLampe,
          .views = MakeViews,
          .views_of_tile = ViewsOf,
          .keys = Keys,
          .largest = Largest,
          .reach = Reach};
}

}  // namespace ropewalk::internal
