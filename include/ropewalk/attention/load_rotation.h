// Fused RoPE: queries and cached keys come unrotated, and attention rotates them as it reads them.
// Position-remapping methods (ReRoPE, Self-Extend, DCA) need this: a key has another rotation in
// each view of the map, so it cannot be rotated before it is cached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/relative/distance_map.h"
#include "ropewalk/rotary/cos_sin_rows.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {

// What one rotation needs for the keys of a cache; layers and sequences that rotate alike share it.
// Key j has position j, and so has the query of that token.
class LoadRotation {
 public:
  // `frequencies` are those of `spec`. Throws Error(kUnsupported) for several axes, xPos and heads
  // that do not all rotate, and what CheckComposition throws.
  LoadRotation(const RotarySpec& spec, const Frequencies& frequencies, AnglePrecision precision,
               const std::optional<DistanceMap>& map = std::nullopt);

  // Makes room for `tokens` keys; what is there keeps its bits. Throws Error past 2^31 positions.
  void Grow(int64_t tokens);

  int64_t tokens() const { return tokens_; }
  int64_t head_dim() const { return spec_.head_dim; }
  const std::optional<DistanceMap>& map() const { return map_; }
  int64_t BytesFor(int64_t tokens) const;  // of the tables that Grow(tokens) makes

 private:
  friend struct LoadRotationAccess;
  // Made once: a decoding step asks each layer for one row.
  struct Angles {
    Angles(const Frequencies& f, AnglePrecision precision);
    void Fill(std::span<const int64_t> positions, float* out) const;
    Frequencies frequencies;
    std::optional<CosSinRows> exact;  // absent: kFloat32
  };
  // cos and sin of the keys at one map of positions.
  struct KeyTable {
    PositionMap map;
    int64_t divisor = 1;
    Angles angles;                            // of frequencies over the divisor
    std::vector<AlignedBuffer<float>> parts;  // each [blocks, 2, pairs, 64]
  };
  struct View {
    PositionMap query;
    Angles angles;
    int table = -1;  // of its keys, -1: they have position 0 and are not rotated
  };

  RotarySpec spec_;
  std::optional<DistanceMap> map_;
  int64_t tokens_ = 0;
  std::vector<KeyTable> tables_;
  std::vector<View> views_;
};

}  // namespace ropewalk
