#include "src/engines/angles.h"

#include <cmath>

namespace ropewalk::internal {

AngleError AngleDifference(const Frequencies& a, const Frequencies& b, int64_t position) {
  AngleError largest;
  for (std::size_t i = 0; i < a.inv_freq.size() && i < b.inv_freq.size(); ++i) {
    const DoubleDouble difference = a.inv_freq[i] - b.inv_freq[i];
    const double radians = std::abs(difference.hi) * static_cast<double>(position);
    if (radians > largest.radians) largest = {radians, static_cast<int64_t>(i)};
  }
  return largest;
}

}  // namespace ropewalk::internal
