// Distance maps: a model that rotates queries and keys reads at lengths that it was not trained at,
// because every distance is mapped to one that it knows. Training-free, causal.
//
// A map is one to three views. A view says at which positions queries and keys are rotated; a pair
// of positions is scored by exactly one view, so a kernel computes a score a view and tile, and
// only tiles on a boundary need two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// d = position of query - position of key, at least 0.

// ReRoPE (Su 2023, kexue.fm/archives/9708): min(d, window).
struct Rerope {
  int64_t window = 512;  // tokens

  static constexpr auto Fields() { return std::tuple{Field{"window", &Rerope::window}}; }
  bool operator==(const Rerope&) const = default;
};

// Leaky ReRoPE (the same): d below the window, window + (d - window) / factor from there on.
struct LeakyRerope {
  int64_t window = 512;
  int64_t factor = 16;  // target length over trained length, or more

  static constexpr auto Fields() {
    return std::tuple{Field{"window", &LeakyRerope::window}, Field{"factor", &LeakyRerope::factor}};
  }
  bool operator==(const LeakyRerope&) const = default;
};

// Self-Extend (Jin et al. 2024, arXiv 2401.01325, section 3): d below the window, else
// floor(i / group) + window - floor(window / group) - floor(j / group).
struct SelfExtend {
  int64_t window = 512;  // neighbours that keep their distance
  int64_t group = 8;

  static constexpr auto Fields() {
    return std::tuple{Field{"window", &SelfExtend::window}, Field{"group", &SelfExtend::group}};
  }
  bool operator==(const SelfExtend&) const = default;
};

// Dual chunk attention (An et al. 2024, arXiv 2402.17463, section 3). Keys stand at j mod chunk.
// Queries stand at i mod chunk for keys of their own chunk, at min(i mod chunk + chunk, limit) for
// those of the chunk before, and at limit for all others.
struct DualChunk {
  int64_t chunk = 3072;
  // The paper: trained length - 1. Qwen's chunk_size and local_size: chunk = chunk_size -
  // local_size, limit = chunk_size, one more.
  int64_t limit = 4095;

  static constexpr auto Fields() {
    return std::tuple{Field{"chunk", &DualChunk::chunk}, Field{"limit", &DualChunk::limit}};
  }
  bool operator==(const DualChunk&) const = default;
};

// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453, section 3.2): the first `sinks` tokens and the
// last `window` are seen, at their places within the cache of sinks + window.
struct AttentionSinks {
  int64_t sinks = 4;
  int64_t window = 1020;

  static constexpr auto Fields() {
    return std::tuple{Field{"sinks", &AttentionSinks::sinks},
                      Field{"window", &AttentionSinks::window}};
  }
  bool operator==(const AttentionSinks&) const = default;
};

using DistanceMap = std::variant<Rerope, LeakyRerope, SelfExtend, DualChunk, AttentionSinks>;

// value(p) = min(slope floor((p mod modulus) / divisor) + offset, limit)
struct PositionMap {
  int64_t modulus = 0;  // 0: p itself
  int64_t divisor = 1;
  int64_t slope = 1;  // 0: one position for all
  int64_t offset = 0;
  int64_t limit = INT64_MAX;
  int64_t operator()(int64_t position) const;
  bool operator==(const PositionMap&) const = default;
};

struct DistanceView {
  PositionMap query, key;
  // Mapped positions are in units of 1 / frequency_divisor: rotate by position * f_i / divisor.
  int64_t frequency_divisor = 1;

  bool operator==(const DistanceView&) const = default;
};

// One to three. Throws Error(kInvalidArgument) for values that make no map.
std::vector<DistanceView> Views(const DistanceMap& map);

// The view of a pair, or -1: not seen (a key ahead of its query, or dropped by AttentionSinks).
int ViewOf(const DistanceMap& map, int64_t query, int64_t key);

// The keys first .. end - 1 that view v scores for a query: one interval, whose ends never fall
// from a query to the next; empty where first >= end. A key is in one interval at most.
struct KeyInterval {
  int64_t first = 0, end = 0;

  bool operator==(const KeyInterval&) const = default;
};
KeyInterval KeysOfView(const DistanceMap& map, int view, int64_t query);

// Which views the pairs of a tile need, both ends included: bit v for view v, bit 3 for pairs that
// are not seen. Exact: a tile with one bit needs no test within.
uint32_t ViewsOfTile(const DistanceMap& map, int64_t first_query, int64_t last_query,
                     int64_t first_key, int64_t last_key);
inline constexpr uint32_t kUnseenBit = 1u << 3;

// What the rotation sees between a pair; throws Error where ViewOf is -1.
double RelativePosition(const DistanceMap& map, int64_t query, int64_t key);

// The largest that a sequence of `length` tokens reaches.
double LargestRelativePosition(const DistanceMap& map, int64_t length);

// Throws Error(kUnsupported) with the reason where the map does not go with the rotation of a
// layer, kInvalidArgument where its numbers do not. window_tokens: of the layer's sliding window,
// 0: none. Query temperatures go with every map: they depend on the query's own position.
void CheckComposition(const DistanceMap& map, const RotarySpec& rotation,
                      int64_t window_tokens = 0);

std::string Describe(const DistanceMap& map);  // "rerope(window 512)"

// What a map is called: a row for each alternative of DistanceMap, in its order, from the end of
// src/relative/maps/<map>.cc.
struct MapInfo {
  const char* name;                   // "rerope"
  const char* title;                  // "ReRoPE"
  const char* source;                 // paper
  std::vector<const char*> settings;  // the fields of its struct
  // From a known length to a target length, in tokens; settings by name, and what is not among
  // them follows from these two.
  DistanceMap (*make)(const std::map<std::string, int64_t>& settings, int64_t known,
                      int64_t target);
};
const std::vector<MapInfo>& DistanceMaps();

}  // namespace ropewalk
