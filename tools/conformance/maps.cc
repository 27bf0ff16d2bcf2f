// Cases of the distance maps: what the rotation sees between a query and a key, and by which view.
#include "ropewalk/relative/distance_map.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

Json Relative(const DistanceMap& map, int64_t i, int64_t j) {
  if (ViewOf(map, i, j) < 0) return nullptr;
  if (!std::holds_alternative<Dpe>(map)) return RelativePosition(map, i, j);
  Json shares = Json::array();
  for (int share = 0; share < Dpe::kShares; ++share) {
    shares.push_back(RelativePosition(map, i, j, share));
  }
  return shares;
}

// [[position of the query, of the key, relative position or null where it is not seen]]; of DPE the
// relative position of each share of the pairs.
Json Pairs(const DistanceMap& map) {
  Json rows = Json::array();
  std::vector<int64_t> queries = {2, 3, 7, 8, 9, 11, 12, 13, 23, 24, 25, 40};
  queries.insert(queries.end(), kGoldenPositions.begin(), kGoldenPositions.end());
  for (const int64_t i : queries) {
    int64_t last = -1;
    for (const int64_t j : {int64_t{0}, int64_t{1}, int64_t{4}, i / 3, i - 25, i - 24, i - 12,
                            i - 9, i - 8, i - 7, i - 1, i}) {
      if (j <= last || j > i) continue;  // rising, behind the query
      last = j;
      rows.push_back({i, j, Relative(map, i, j)});
    }
  }
  return rows;
}

}  // namespace

void AddMapCases(std::vector<Json>& cases) {
  const auto add = [&](const char* id, const DistanceMap& map) {
    Json parameters = std::visit([](const auto& m) { return ParametersOf(m); }, map);
    cases.push_back({{"id", id},
                     {"method", DistanceMaps()[map.index()].name},
                     {"parameters", std::move(parameters)},
                     {"relative", Pairs(map)},
                     {"largest_of_4096_tokens", LargestRelativePosition(map, 4096)}});
  };
  add("rerope", Rerope{8});
  add("leaky-rerope", LeakyRerope{8, 16});
  add("self-extend", SelfExtend{8, 4});
  add("self-extend.odd", SelfExtend{7, 3});
  add("dual-chunk", DualChunk{12, 15});
  add("dual-chunk.qwen", DualChunk{12, 16});
  add("sinks", AttentionSinks{4, 24});
  add("string", StringMap{9, 3});
  add("lampe", Lampe{8, 20, 5, 60});
  add("dpe", Dpe{8, 4, 2, 3, 1, 8, 5, 7, 6});
}

}  // namespace ropewalk::conformance
