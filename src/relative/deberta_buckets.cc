// Apart from what lowers the bias: a configuration is read and described without a thread.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ropewalk/relative/deberta.h"
#include "src/relative/check.h"

namespace ropewalk {

namespace internal {

void CheckDebertaBuckets(int64_t buckets, int64_t max_position) {
  CheckAtLeast("DebertaBias.max_position", max_position, 1);
  if (buckets == 0) return;
  CheckAtLeast("DebertaBias.buckets", buckets, 2);
  if (max_position - 1 <= buckets / 2) {
    Refuse("DebertaBias.max_position: expected more than " + std::to_string(buckets / 2 + 1) +
           ", half of the buckets and one, got " + std::to_string(max_position));
  }
}

}  // namespace internal

int64_t DebertaBucket(int64_t distance, int64_t buckets, int64_t max_position) {
  internal::CheckDebertaBuckets(buckets, max_position);
  internal::CheckAtLeast("DebertaBias.buckets", buckets, 2);
  const int64_t middle = buckets / 2;
  const int64_t n = std::abs(std::max(distance, -std::numeric_limits<int64_t>::max()));
  if (n <= middle) return distance;
  const double log_range = std::log(static_cast<double>(max_position - 1) / middle);
  const double place =
      std::log(static_cast<double>(n) / middle) / log_range * static_cast<double>(middle - 1);
  // On a boundary the logarithms may miss the whole number by their last bits.
  const auto bucket = middle + static_cast<int64_t>(std::ceil(place - 1e-11));
  return distance < 0 ? -bucket : bucket;
}

int64_t DebertaBias::Row(int64_t distance) const {
  const int64_t bucket = buckets > 0 ? DebertaBucket(distance, buckets, max_position) : distance;
  return std::clamp<int64_t>(bucket + Span(), 0, 2 * Span() - 1);
}

}  // namespace ropewalk
