#include "src/relative/check.h"

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

void Refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

void CheckNumbers(const std::string& name, std::span<const float> values, int64_t expected) {
  if (static_cast<int64_t>(values.size()) != expected) {
    Refuse(name + ": expected " + std::to_string(expected) + " numbers, got " +
           std::to_string(values.size()));
  }
  const auto bad =
      std::find_if_not(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  if (bad != values.end()) {
    Refuse(name + ": expected finite numbers, got " + std::to_string(*bad) + " at " +
           std::to_string(bad - values.begin()));
  }
}

void CheckAtLeast(const std::string& name, int64_t value, int64_t least) {
  if (value < least) {
    Refuse(name + ": expected " + std::to_string(least) + " or more, got " + std::to_string(value));
  }
}

void CheckPositive(const std::string& name, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    Refuse(name + ": expected a number above 0, got " + std::to_string(value));
  }
}

void CheckLowering(const std::string& method, int64_t heads, int64_t max_distance) {
  if (heads < 1 || heads > 65536) {
    Refuse(method + ".Lower: heads: expected 1 to 65536, got " + std::to_string(heads));
  }
  if (max_distance < 0 || max_distance > (int64_t{1} << 30)) {
    Refuse(method + ".Lower: max_distance: expected 0 to 2^30, got " +
           std::to_string(max_distance));
  }
}

void CheckPositions(const std::string& method, std::span<const int64_t> positions) {
  for (const int64_t position : positions) {
    if (position < 0 || position > INT32_MAX) {
      Refuse(method + ": positions: expected 0 to 2^31 - 1, got " + std::to_string(position));
    }
  }
}

void CheckTile(const std::string& method, int64_t positions, std::span<const int64_t> tile) {
  for (const int64_t end : {tile.front(), tile.back()}) {
    if (end < 0 || end >= positions) {
      Refuse(method + ": positions: expected 0 to " + std::to_string(positions - 1) + ", got " +
             std::to_string(end));
    }
  }
}

}  // namespace ropewalk::internal
