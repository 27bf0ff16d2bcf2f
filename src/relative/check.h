// Checks of arguments that all methods of this folder share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace ropewalk::internal {

// Throws Error(kInvalidArgument).
[[noreturn]] void Refuse(const std::string& what);

// Exactly `expected` finite numbers.
void CheckNumbers(const std::string& name, std::span<const float> values, int64_t expected);
void CheckAtLeast(const std::string& name, int64_t value, int64_t least);
void CheckPositive(const std::string& name, double value);
// Arguments of every Lower: 1 to 65536 heads, distances 0 to 2^30.
void CheckLowering(const std::string& method, int64_t heads, int64_t max_distance);
// 0 to 2^31 - 1.
void CheckPositions(const std::string& method, std::span<const int64_t> positions);
// Of a tile's ascending positions: within 0 .. positions - 1.
void CheckTile(const std::string& method, int64_t positions, std::span<const int64_t> tile);

// Each is the one before and 1.
inline bool IsRun(std::span<const int64_t> positions) {
  return std::adjacent_find(positions.begin(), positions.end(),
                            [](int64_t a, int64_t b) { return b != a + 1; }) == positions.end();
}

// Log buckets of DeBERTa, 0: a row for each distance.
void CheckDebertaBuckets(int64_t buckets, int64_t max_position);

}  // namespace ropewalk::internal
