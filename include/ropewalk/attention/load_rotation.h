// Fused RoPE: keys are cached unrotated, and attention rotates queries and keys as it loads them.
// Position-remapping methods (ReRoPE, Self-Extend, DCA) need this: their maps rotate one key by
// different positions for near and for far queries, so it cannot be rotated before it is cached.
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

// The cos and sin tables that fused RoPE needs for the keys of a cache. Layers and sequences with
// the same rotation share one. Token j, query and key, has position j.
class LoadRotation {
 public:
  // `frequencies` are those of `spec`. Throws Error(kUnsupported) for several axes, for xPos and
  // where only some heads rotate, and as CheckComposition does.
  LoadRotation(const RotarySpec& spec, const Frequencies& frequencies, AnglePrecision precision,
               const std::optional<DistanceMap>& map = std::nullopt);

  // Extends the tables to `tokens` keys; rows that exist keep their bits. Throws Error past 2^31
  // positions.
  void Grow(int64_t tokens);

  int64_t tokens() const { return tokens_; }
  int64_t head_dim() const { return spec_.head_dim; }
  const std::optional<DistanceMap>& map() const { return map_; }
  int64_t BytesFor(int64_t tokens) const;  // of the tables that Grow(tokens) makes

 private:
  friend struct LoadRotationAccess;
  // Kept because each decoding step asks for one row per layer.
  struct Angles {
    Angles(const Frequencies& f, AnglePrecision precision);
    void Fill(std::span<const int64_t> positions, float* out) const;
    Frequencies frequencies;
    std::optional<CosSinRows> exact;  // absent: kFloat32
  };
  // Rows of tokens whose pairs of frequencies share one map of positions, or have one per share.
  struct Rows {
    Rows(const std::vector<PositionMap>& maps, const Frequencies& f, AnglePrecision precision);
    // out [count, 2, pairs], of the tokens first .. first + count - 1.
    void Fill(int64_t first, int64_t count, float* out) const;
    std::vector<PositionMap> maps;
    std::vector<Angles> angles;  // of each map's pairs, which follow one another
    int64_t pairs = 0;
  };
  // cos and sin of the keys under one map of positions, or one per share of the pairs.
  struct KeyTable {
    int64_t divisor = 1;
    Rows rows;                                // of frequencies over the divisor
    std::vector<AlignedBuffer<float>> parts;  // each [blocks, 2, pairs, 64]
  };
  struct View {
    Rows queries;
    int table = -1;  // index into tables_; -1: its keys have position 0 and are not rotated
  };

  RotarySpec spec_;
  std::optional<DistanceMap> map_;
  int64_t tokens_ = 0;
  std::vector<KeyTable> tables_;
  std::vector<View> views_;
};

}  // namespace ropewalk
