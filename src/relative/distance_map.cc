#include "ropewalk/relative/distance_map.h"

#include <algorithm>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/base/fields_text.h"
#include "src/relative/maps/map.h"

namespace ropewalk {
namespace {

using internal::MapRowOf;
using internal::Refuse;

static_assert(kListsAllFields<DistanceMap>, "Fields() of a map leaves out a member");

template <class M>
DistanceMap Make(const internal::MapSettings& settings, int64_t known, int64_t target) {
  return MapRowOf<M>().make(settings, known, target);
}

template <class M>
MapInfo MakeMapInfo() {
  const internal::MapRow<M> row = MapRowOf<M>();
  MapInfo info{row.name, row.title, row.source, {}, Make<M>};
  VisitFields<M>([&](const auto& field) { info.settings.push_back(field.name); });
  return info;
}

template <std::size_t... I>
std::vector<MapInfo> MakeMapInfos(std::index_sequence<I...> /*alternatives*/) {
  return {MakeMapInfo<std::variant_alternative_t<I, DistanceMap>>()...};
}

// Calls `call` with the row of the map and its struct.
template <class Call>
auto WithRow(const DistanceMap& map, const Call& call) {
  return std::visit([&]<class M>(const M& m) { return call(MapRowOf<M>(), m); }, map);
}

}  // namespace

int64_t PositionMap::operator()(int64_t position) const {
  const int64_t within = modulus > 0 ? position % modulus : position;
  return std::max<int64_t>(0, std::min(slope * (multiplier * within / divisor) + offset, limit));
}

std::vector<DistanceView> Views(const DistanceMap& map) {
  constexpr int64_t kMost = int64_t{1} << 31;  // products of two stay within 63 bits
  WithRow(map, [&]<class M>(const auto& /*row*/, const M& m) {
    VisitFields<M>([&](const auto& field) {
      if (m.*field.member <= kMost) return;
      Refuse(Describe(map) + ": " + field.name + ": expected at most 2^31, got " +
             std::to_string(m.*field.member));
    });
  });
  return WithRow(map, [](const auto& row, const auto& m) { return row.views(m); });
}

uint32_t ViewsOfTile(const DistanceMap& map, int64_t first_query, int64_t last_query,
                     int64_t first_key, int64_t last_key) {
  const internal::MapTile tile{first_query, last_query, first_key, last_key};
  return WithRow(map, [&](const auto& row, const auto& m) { return row.views_of_tile(m, tile); });
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
  return WithRow(map, [&](const auto& row, const auto& m) { return row.keys(m, view, query); });
}

double RelativePosition(const DistanceMap& map, int64_t query, int64_t key, int share) {
  if (share < 0 || share >= Dpe::kShares) {
    Refuse("RelativePosition: share: expected 0 to 7, got " + std::to_string(share));
  }
  const int v = ViewOf(map, query, key);
  if (v < 0) {
    Refuse("RelativePosition: " + Describe(map) + " does not let the query at " +
           std::to_string(query) + " see the key at " + std::to_string(key));
  }
  const DistanceView view = Views(map)[static_cast<std::size_t>(v)];
  const PairShare at = view.shares.empty() ? PairShare{view.query, view.key}
                                           : view.shares[static_cast<std::size_t>(share)];
  return static_cast<double>(at.query(query) - at.key(key)) /
         static_cast<double>(view.frequency_divisor);
}

double LargestRelativePosition(const DistanceMap& map, int64_t length) {
  internal::CheckAtLeast("LargestRelativePosition: length", length, 1);
  return WithRow(map, [&](const auto& row, const auto& m) { return row.largest(m, length); });
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
  const int64_t reach = WithRow(map, [](const auto& row, const auto& m) { return row.reach(m); });
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

std::string Describe(const DistanceMap& map) {
  return WithRow(
      map, [](const auto& row, const auto& m) { return internal::DescribeFields(row.name, m); });
}

const std::vector<MapInfo>& DistanceMaps() {
  static const std::vector<MapInfo> maps =
      MakeMapInfos(std::make_index_sequence<std::variant_size_v<DistanceMap>>());
  return maps;
}

uint32_t internal::MapTile::ByDistance(int64_t window) const {
  const int64_t smallest = first_query - last_key, largest = last_query - first_key;
  uint32_t views = smallest < 0 ? kUnseenBit : 0;
  if (largest >= 0 && smallest < window) views |= 1;
  if (largest >= window) views |= 2;
  return views;
}

KeyInterval internal::KeysByDistance(int64_t window, int view, int64_t query) {
  const int64_t near = std::max<int64_t>(0, query - window + 1);
  return view == 0 ? KeyInterval{near, query + 1} : KeyInterval{0, near};
}

}  // namespace ropewalk
