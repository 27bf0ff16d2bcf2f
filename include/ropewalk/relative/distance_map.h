// Distance maps (position-remapping methods): they clip or group the relative positions that RoPE
// rotates by, so that none exceeds the trained length. Training-free, causal.
//
// A map consists of one to three views. A view gives the positions by which queries and keys are
// rotated. Exactly one view scores a given query and key, so only tiles on the boundary between two
// views need a second QK^T.
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

// Each map below gives the relative position for the distance d = i - j >= 0 of the query at
// position i and the key at position j.

// ReRoPE (Su 2023, kexue.fm/archives/9708): min(d, window).
struct Rerope {
  int64_t window = 512;  // tokens

  static constexpr auto Fields() { return std::tuple{Field{"window", &Rerope::window}}; }
  bool operator==(const Rerope&) const = default;
};

// Leaky ReRoPE (the same article): d where d < window, else window + (d - window) / factor.
struct LeakyRerope {
  int64_t window = 512;
  int64_t factor = 16;  // target length over trained length, or more

  static constexpr auto Fields() {
    return std::tuple{Field{"window", &LeakyRerope::window}, Field{"factor", &LeakyRerope::factor}};
  }
  bool operator==(const LeakyRerope&) const = default;
};

// Self-Extend (Jin et al. 2024, arXiv 2401.01325, section 3): d where d < window, else
// floor(i / group) + window - floor(window / group) - floor(j / group).
struct SelfExtend {
  int64_t window = 512;  // tokens whose distance is not grouped
  int64_t group = 8;     // tokens per group

  static constexpr auto Fields() {
    return std::tuple{Field{"window", &SelfExtend::window}, Field{"group", &SelfExtend::group}};
  }
  bool operator==(const SelfExtend&) const = default;
};

// Dual chunk attention (DCA; An et al. 2024, arXiv 2402.17463, section 3). Keys are rotated by
// j mod chunk. Queries are rotated by i mod chunk for keys of their own chunk, by
// min(i mod chunk + chunk, limit) for those of the previous chunk, and by limit for all others.
struct DualChunk {
  int64_t chunk = 3072;  // tokens
  // The paper has trained length - 1. Qwen's configuration, with chunk = chunk_size - local_size,
  // has limit = chunk_size, which is one more.
  int64_t limit = 4095;

  static constexpr auto Fields() {
    return std::tuple{Field{"chunk", &DualChunk::chunk}, Field{"limit", &DualChunk::limit}};
  }
  bool operator==(const DualChunk&) const = default;
};

// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453, section 3.2): a query attends to the first
// `sinks` tokens and the last `window`, with their positions within a cache of sinks + window
// tokens.
struct AttentionSinks {
  int64_t sinks = 4;
  int64_t window = 1020;

  static constexpr auto Fields() {
    return std::tuple{Field{"sinks", &AttentionSinks::sinks},
                      Field{"window", &AttentionSinks::window}};
  }
  bool operator==(const AttentionSinks&) const = default;
};

// STRING (An et al. 2024, arXiv 2410.18745, section 4): d where d < shift, else d - shift + window:
// positions of which training saw few are replaced by those of which it saw many.
struct StringMap {
  int64_t shift = 1365;  // tokens; a quarter to two fifths of the trained length
  int64_t window = 128;  // the smallest relative position of a far token

  static constexpr auto Fields() {
    return std::tuple{Field{"shift", &StringMap::shift}, Field{"window", &StringMap::window}};
  }
  bool operator==(const StringMap&) const = default;
};

// LaMPE (ACL 2026; scar-on/LaMPE at 4e3c91f), for sequences of `length` tokens. With
// m(p) = floor(mapped p / (length - 1)) and b = head - 1 - m(head): d where d < head; m(i) + b - m(j)
// up to the distance e = length - tail; from there on d - (e - 1) + m(e - 1) + b. Sequences of fewer
// than 2 head tokens, and those that mapped does not shorten, keep their positions.
struct Lampe {
  int64_t head = 1024;    // tokens whose distance is not squeezed
  int64_t mapped = 4914;  // the length into which positions are squeezed
  int64_t tail = 200;     // the largest distances, one apart as they were
  int64_t length = 32768;

  static constexpr auto Fields() {
    return std::tuple{Field{"head", &Lampe::head}, Field{"mapped", &Lampe::mapped},
                      Field{"tail", &Lampe::tail}, Field{"length", &Lampe::length}};
  }
  bool operator==(const Lampe&) const = default;
};

// DPE (Lu et al. 2025, arXiv 2504.18857, section 3): Self-Extend whose group is a number of each
// eighth of the pairs of frequencies, pair p of n being in share floor(8 p / n). The defaults are
// those of the authors' configuration for Llama 3 from 8192 to 131072 tokens.
struct Dpe {
  static constexpr int kShares = 8;
  int64_t window = 1024;  // tokens whose distance is not grouped
  int64_t group1 = 2;     // tokens per group, of the pairs that rotate fastest
  int64_t group2 = 8, group3 = 2, group4 = 8, group5 = 32, group6 = 32, group7 = 32;
  int64_t group8 = 4;

  static constexpr auto Fields() {
    return std::tuple{Field{"window", &Dpe::window}, Field{"group1", &Dpe::group1},
                      Field{"group2", &Dpe::group2}, Field{"group3", &Dpe::group3},
                      Field{"group4", &Dpe::group4}, Field{"group5", &Dpe::group5},
                      Field{"group6", &Dpe::group6}, Field{"group7", &Dpe::group7},
                      Field{"group8", &Dpe::group8}};
  }
  bool operator==(const Dpe&) const = default;
};

using DistanceMap =
    std::variant<Rerope, LeakyRerope, SelfExtend, DualChunk, AttentionSinks, StringMap, Lampe, Dpe>;

// value(p) = max(0, min(slope floor(multiplier (p mod modulus) / divisor) + offset, limit)); what is
// below 0 belongs to queries that see no key through the view.
struct PositionMap {
  int64_t modulus = 0;  // 0: p itself
  int64_t multiplier = 1;
  int64_t divisor = 1;
  int64_t slope = 1;  // 0: the same position for all tokens
  int64_t offset = 0;
  int64_t limit = INT64_MAX;
  int64_t operator()(int64_t position) const;
  bool operator==(const PositionMap&) const = default;
};

// What a share of the pairs of frequencies is rotated by.
struct PairShare {
  PositionMap query, key;

  bool operator==(const PairShare&) const = default;
};

struct DistanceView {
  PositionMap query, key;
  // Mapped positions are in units of 1 / frequency_divisor: rotate by position * f_i / divisor.
  int64_t frequency_divisor = 1;
  // Where pairs have positions of their own: those of equal shares of them, pair p of n in share
  // floor(size p / n); query and key are then those of the first. Empty: all pairs have these.
  std::vector<PairShare> shares = {};

  bool operator==(const DistanceView&) const = default;
};

// One to three views. Throws Error(kInvalidArgument) for settings that give no valid map.
std::vector<DistanceView> Views(const DistanceMap& map);

// The index of the view that scores a query and a key by their positions, or -1: masked (a key
// after its query, or one outside AttentionSinks).
int ViewOf(const DistanceMap& map, int64_t query, int64_t key);

// The keys first .. end - 1 that a view scores for a query; empty where first >= end. Both ends are
// nondecreasing in the query's position. The intervals of the views of a query are disjoint.
struct KeyInterval {
  int64_t first = 0, end = 0;

  bool operator==(const KeyInterval&) const = default;
};
KeyInterval KeysOfView(const DistanceMap& map, int view, int64_t query);

// The views that score the queries and keys of a tile (both ends included): bit v for view v, bit 3
// (kUnseenBit) if some are masked. Exact: a tile with one bit needs no test per element.
uint32_t ViewsOfTile(const DistanceMap& map, int64_t first_query, int64_t last_query,
                     int64_t first_key, int64_t last_key);
inline constexpr uint32_t kUnseenBit = 1u << 3;

// The mapped relative position of a query and a key; throws Error where ViewOf is -1. share: of the
// pairs of frequencies, 0 to 7, which only Dpe tells apart.
double RelativePosition(const DistanceMap& map, int64_t query, int64_t key, int share = 0);

// The largest mapped relative position in a sequence of `length` tokens, of all shares.
double LargestRelativePosition(const DistanceMap& map, int64_t length);

// Throws Error(kUnsupported) with the reason where the map cannot be combined with the rotation of
// a layer, kInvalidArgument where its settings do not fit. window_tokens: the layer's sliding
// window, 0: none. Query temperatures work with every map: they depend on the query's own position.
void CheckComposition(const DistanceMap& map, const RotarySpec& rotation,
                      int64_t window_tokens = 0);

std::string Describe(const DistanceMap& map);  // "rerope(window 512)"

// Name and source of a map: one row per alternative of DistanceMap, in its order, from the end of
// src/relative/maps/<map>.cc.
struct MapInfo {
  const char* name;                   // "rerope"
  const char* title;                  // "ReRoPE"
  const char* source;                 // paper
  std::vector<const char*> settings;  // the fields of its struct
  // The map from the length `known` that the rotation covers to the target length, in tokens.
  // Settings that are not given by name follow from these two.
  DistanceMap (*make)(const std::map<std::string, int64_t>& settings, int64_t known,
                      int64_t target);
};
const std::vector<MapInfo>& DistanceMaps();

}  // namespace ropewalk
