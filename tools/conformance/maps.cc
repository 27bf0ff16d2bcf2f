// Cases of the distance maps: what the rotation sees between a query and a key, and by which view.
#include "ropewalk/relative/distance_map.h"
#include "tools/conformance/conformance.h"

namespace ropewalk::conformance {
namespace {

// [[position of the query, of the key, relative position or null where it is not seen]]
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
      Json relative = nullptr;
      if (ViewOf(map, i, j) >= 0) relative = RelativePosition(map, i, j);
      rows.push_back({i, j, relative});
    }
  }
  return rows;
}

}  // namespace

void AddMapCases(std::vector<Json>& cases) {
  const auto add = [&](const char* id, const char* method, Json parameters,
                       const DistanceMap& map) {
    cases.push_back({{"id", id},
                     {"method", method},
                     {"parameters", std::move(parameters)},
                     {"relative", Pairs(map)},
                     {"largest_of_4096_tokens", LargestRelativePosition(map, 4096)}});
  };
  add("rerope", "rerope", {{"window", 8}}, Rerope{8});
  add("leaky-rerope", "leaky-rerope", {{"window", 8}, {"factor", 16}}, LeakyRerope{8, 16});
  add("self-extend", "self-extend", {{"window", 8}, {"group", 4}}, SelfExtend{8, 4});
  add("self-extend.odd", "self-extend", {{"window", 7}, {"group", 3}}, SelfExtend{7, 3});
  add("dual-chunk", "dual-chunk", {{"chunk", 12}, {"limit", 15}}, DualChunk{12, 15});
  add("dual-chunk.qwen", "dual-chunk", {{"chunk", 12}, {"limit", 16}}, DualChunk{12, 16});
  add("sinks", "sinks", {{"sinks", 4}, {"window", 24}}, AttentionSinks{4, 24});
}

}  // namespace ropewalk::conformance
