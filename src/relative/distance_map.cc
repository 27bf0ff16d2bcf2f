#include "ropewalk/relative/distance_map.h"

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/relative/check.h"

namespace ropewalk {
namespace {

using internal::CheckAtLeast;
using internal::Refuse;

constexpr PositionMap Constant(int64_t position) { return {0, 1, 0, position}; }

struct MakeViews {
  std::vector<DistanceView> operator()(const Rerope& m) const {
    CheckAtLeast("Rerope.window", m.window, 1);
    return {{}, {Constant(m.window), Constant(0)}};
  }
  std::vector<DistanceView> operator()(const LeakyRerope& m) const {
    CheckAtLeast("LeakyRerope.window", m.window, 1);
    CheckAtLeast("LeakyRerope.factor", m.factor, 1);
    // (i + window (factor - 1) - j) / factor = window + (i - j - window) / factor
    return {{}, {{.offset = m.window * (m.factor - 1)}, {}, m.factor}};
  }
  std::vector<DistanceView> operator()(const SelfExtend& m) const {
    CheckAtLeast("SelfExtend.window", m.window, 1);
    CheckAtLeast("SelfExtend.group", m.group, 1);
    return {{},
            {{.divisor = m.group, .offset = m.window - m.window / m.group}, {.divisor = m.group}}};
  }
  std::vector<DistanceView> operator()(const DualChunk& m) const {
    CheckAtLeast("DualChunk.chunk", m.chunk, 1);
    if (m.limit < m.chunk || m.limit > 2 * m.chunk) {
      Refuse("DualChunk.limit: expected " + std::to_string(m.chunk) + " to " +
             std::to_string(2 * m.chunk) +
             ", one to two chunks, so that no distance is larger than it, got " +
             std::to_string(m.limit));
    }
    const PositionMap within{.modulus = m.chunk};
    return {{within, within},
            {{.modulus = m.chunk, .offset = m.chunk, .limit = m.limit}, within},
            {Constant(m.limit), within}};
  }
  std::vector<DistanceView> operator()(const AttentionSinks& m) const {
    CheckAtLeast("AttentionSinks.sinks", m.sinks, 0);
    CheckAtLeast("AttentionSinks.window", m.window, 1);
    return {{}, {{.limit = m.sinks + m.window - 1}, {}}};
  }
};

// Views of maps that look at the distance alone: 0 below the window, 1 from there on.
uint32_t NearAndFar(int64_t window, int64_t smallest, int64_t largest) {
  uint32_t views = smallest < 0 ? kUnseenBit : 0;
  if (largest >= 0 && smallest < window) views |= 1;
  if (largest >= window) views |= 2;
  return views;
}

struct Tile {
  int64_t first_query, last_query, first_key, last_key;

  uint32_t operator()(const Rerope& m) const { return ByDistance(m.window); }
  uint32_t operator()(const LeakyRerope& m) const { return ByDistance(m.window); }
  uint32_t operator()(const SelfExtend& m) const { return ByDistance(m.window); }
  uint32_t operator()(const DualChunk& m) const {
    uint32_t views = first_query < last_key ? kUnseenBit : 0;
    // Pairs of every number of chunks between these exist.
    const int64_t fewest = first_query / m.chunk - last_key / m.chunk;
    const int64_t most = last_query / m.chunk - first_key / m.chunk;
    if (SharesChunk(m.chunk)) views |= 1;
    if (fewest <= 1 && most >= 1) views |= 2;
    if (most >= 2) views |= 4;
    return views;
  }
  uint32_t operator()(const AttentionSinks& m) const {
    uint32_t views = 0;
    if (first_key < m.sinks) {
      const Tile sinks{first_query, last_query, first_key, std::min(last_key, m.sinks - 1)};
      if (sinks.last_query >= sinks.first_key) views |= 2;
      if (sinks.first_query < sinks.last_key) views |= kUnseenBit;
    }
    if (last_key >= m.sinks) {
      const Tile rest{first_query, last_query, std::max(first_key, m.sinks), last_key};
      const uint32_t seen = rest.ByDistance(m.window);
      views |= seen & 1;
      if ((seen & ~1u) != 0) views |= kUnseenBit;
    }
    return views;
  }

  uint32_t ByDistance(int64_t window) const {
    return NearAndFar(window, first_query - last_key, last_query - first_key);
  }
  // Whether some query has a key of its own chunk at or behind it.
  bool SharesChunk(int64_t chunk) const {
    const int64_t from = std::max(first_query, first_key) / chunk;
    const int64_t to = std::min(last_query, last_key) / chunk;
    if (to - from >= 2) return true;  // a whole chunk between them
    for (int64_t c = from; c <= to; ++c) {
      if (std::min(last_query, c * chunk + chunk - 1) >= std::max(first_key, c * chunk)) {
        return true;
      }
    }
    return false;
  }
};

struct Keys {
  int view;
  int64_t query;

  KeyInterval operator()(const Rerope& m) const { return ByDistance(m.window); }
  KeyInterval operator()(const LeakyRerope& m) const { return ByDistance(m.window); }
  KeyInterval operator()(const SelfExtend& m) const { return ByDistance(m.window); }
  KeyInterval operator()(const DualChunk& m) const {
    const int64_t own = query / m.chunk * m.chunk, before = std::max<int64_t>(0, own - m.chunk);
    if (view == 0) return {own, query + 1};
    return view == 1 ? KeyInterval{before, own} : KeyInterval{0, before};
  }
  KeyInterval operator()(const AttentionSinks& m) const {
    if (view == 1) return {0, std::min(m.sinks, query + 1)};
    return {std::max(m.sinks, query - m.window + 1), query + 1};
  }

  KeyInterval ByDistance(int64_t window) const {
    const int64_t near = std::max<int64_t>(0, query - window + 1);
    return view == 0 ? KeyInterval{near, query + 1} : KeyInterval{0, near};
  }
};

struct Largest {
  int64_t length;

  double operator()(const Rerope& m) const { return std::min<double>(m.window, length - 1); }
  double operator()(const LeakyRerope& m) const {
    const auto d = static_cast<double>(length - 1);
    const auto window = static_cast<double>(m.window);
    return d <= window ? d : window + (d - window) / static_cast<double>(m.factor);
  }
  double operator()(const SelfExtend& m) const {
    const int64_t last = length - 1;
    // floor(last / group) - 0 is the largest of the far ones; the window's last may be larger.
    const int64_t far = last < m.window ? 0 : last / m.group + m.window - m.window / m.group;
    return static_cast<double>(std::max(far, std::min(last, m.window - 1)));
  }
  double operator()(const DualChunk& m) const { return std::min<double>(m.limit, length - 1); }
  double operator()(const AttentionSinks& m) const {
    return std::min<double>(m.sinks + m.window - 1, length - 1);
  }
};

// The reach that has to lie within the trained length.
struct Reach {
  int64_t operator()(const Rerope& m) const { return m.window; }
  int64_t operator()(const LeakyRerope& m) const { return m.window; }
  int64_t operator()(const SelfExtend& m) const { return m.window; }
  int64_t operator()(const DualChunk& m) const { return m.limit; }
  int64_t operator()(const AttentionSinks& m) const { return m.sinks + m.window - 1; }
};

struct Words {
  static std::string Of(const char* name, const char* a, int64_t x) {
    return std::string(name) + "(" + a + " " + std::to_string(x) + ")";
  }
  static std::string Of(const char* name, const char* a, int64_t x, const char* b, int64_t y) {
    return std::string(name) + "(" + a + " " + std::to_string(x) + ", " + b + " " +
           std::to_string(y) + ")";
  }
  std::string operator()(const Rerope& m) const { return Of("rerope", "window", m.window); }
  std::string operator()(const LeakyRerope& m) const {
    return Of("leaky-rerope", "window", m.window, "factor", m.factor);
  }
  std::string operator()(const SelfExtend& m) const {
    return Of("self-extend", "window", m.window, "group", m.group);
  }
  std::string operator()(const DualChunk& m) const {
    return Of("dual-chunk", "chunk", m.chunk, "limit", m.limit);
  }
  std::string operator()(const AttentionSinks& m) const {
    return Of("sinks", "sinks", m.sinks, "window", m.window);
  }
};

}  // namespace

int64_t PositionMap::operator()(int64_t position) const {
  const int64_t within = modulus > 0 ? position % modulus : position;
  return std::min(slope * (within / divisor) + offset, limit);
}

std::vector<DistanceView> Views(const DistanceMap& map) { return std::visit(MakeViews{}, map); }

uint32_t ViewsOfTile(const DistanceMap& map, int64_t first_query, int64_t last_query,
                     int64_t first_key, int64_t last_key) {
  return std::visit(Tile{first_query, last_query, first_key, last_key}, map);
}

int ViewOf(const DistanceMap& map, int64_t query, int64_t key) {
  switch (ViewsOfTile(map, query, query, key, key)) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    default:
      return -1;
  }
}

KeyInterval KeysOfView(const DistanceMap& map, int view, int64_t query) {
  return std::visit(Keys{view, query}, map);
}

double RelativePosition(const DistanceMap& map, int64_t query, int64_t key) {
  const int v = ViewOf(map, query, key);
  if (v < 0) {
    Refuse("RelativePosition: " + Describe(map) + " does not let the query at " +
           std::to_string(query) + " see the key at " + std::to_string(key));
  }
  const DistanceView view = Views(map)[v];
  return static_cast<double>(view.query(query) - view.key(key)) /
         static_cast<double>(view.frequency_divisor);
}

double LargestRelativePosition(const DistanceMap& map, int64_t length) {
  CheckAtLeast("LargestRelativePosition: length", length, 1);
  return std::visit(Largest{length}, map);
}

void CheckComposition(const DistanceMap& map, const RotarySpec& rotation, int64_t window_tokens) {
  Views(map);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kUnsupported, Describe(map) + ": " + why);
  };
  if (rotation.axes.sections.size() > 1) {
    refuse("expected positions on one axis, got " + std::to_string(rotation.axes.sections.size()) +
           "; a map is one of a distance, and has no meaning for rows and columns");
  }
  if (rotation.xpos) {
    refuse("expected a rotation without xPos; its decay follows the distance that the map hides");
  }
  if (IsLengthDependent(rotation.scaling)) {
    refuse("expected a scaling that does not look at the length of the sequence, got " +
           Describe(rotation.scaling) +
           "; the map already keeps distances near the trained ones, and both would extend twice. "
           "Use the trained frequencies or a fixed factor");
  }
  const int64_t reach = std::visit(Reach{}, map);
  const double factor = FactorOf(rotation.scaling);
  const double known = static_cast<double>(rotation.trained_length) * factor;
  if (rotation.trained_length > 0 && static_cast<double>(reach) >= known) {
    Refuse(Describe(map) + ": expected distances below " +
           std::to_string(static_cast<int64_t>(known)) +
           ", the length that the rotation knows, got " + std::to_string(reach) +
           "; make the window smaller");
  }
  if (window_tokens > 0 && window_tokens <= reach) {
    refuse("expected a layer that sees farther than " + std::to_string(reach) +
           " tokens, got a sliding window of " + std::to_string(window_tokens) +
           ", in which the map changes nothing");
  }
}

std::string Describe(const DistanceMap& map) { return std::visit(Words{}, map); }

}  // namespace ropewalk
