// The interface of a distance map: one row, at the end of its file in this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/relative/distance_map.h"
#include "src/base/required.h"
#include "src/relative/check.h"

namespace ropewalk::internal {

// A tile of pairs, both ends included.
struct MapTile {
  int64_t first_query, last_query, first_key, last_key;

  // The views of a map that depends on the distance alone: 0 below the window, 1 from there on.
  uint32_t ByDistance(int64_t window) const;
};
// The keys of these two views.
KeyInterval KeysByDistance(int64_t window, int view, int64_t query);

constexpr PositionMap Constant(int64_t position) { return {.slope = 0, .offset = position}; }

using MapSettings = std::map<std::string, int64_t>;
// The setting of that name, or what follows from the lengths, at least 1.
inline int64_t Get(const MapSettings& settings, const char* name, int64_t otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::max<int64_t>(1, otherwise) : found->second;
}

template <class M>
struct MapRow {
  Required<const char*> name;    // "rerope"
  Required<const char*> title;   // "ReRoPE"
  Required<const char*> source;  // paper
  // The map from a known length to a target length.
  Required<M (*)(const MapSettings&, int64_t known, int64_t target)> make;
  // Throws Error for numbers that make no map.
  Required<std::vector<DistanceView> (*)(const M&)> views;
  Required<uint32_t (*)(const M&, const MapTile&)> views_of_tile;
  Required<KeyInterval (*)(const M&, int view, int64_t query)> keys;
  // The largest relative position that a sequence of `length` tokens reaches.
  Required<double (*)(const M&, int64_t length)> largest;
  // The relative position that has to lie within the trained length.
  Required<int64_t (*)(const M&)> reach;
};

// Each file defines the specialization of its map; the linker misses one that is not there.
template <class M>
MapRow<M> MapRowOf();

}  // namespace ropewalk::internal
