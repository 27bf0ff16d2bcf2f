#include "ropewalk/relative/sandwich.h"

#include <cmath>
#include <vector>

#include "src/relative/bias_row.h"
#include "src/relative/distance_table.h"

namespace ropewalk {
namespace {

constexpr int64_t kMostDims = int64_t{1} << 20;

std::vector<int64_t> Learned(const SandwichBias& /*sandwich*/, int64_t /*heads*/) { return {}; }

std::vector<double> BackwardNothing(const SandwichBias& /*sandwich*/, const ScoreForm& /*d*/) {
  return {};
}

}  // namespace

DistanceForm SandwichBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("SandwichBias", heads, max_distance);
  internal::CheckPositive("SandwichBias.base", base);
  if (dim < 2 || dim % 2 != 0 || dim > kMostDims) {
    internal::Refuse("SandwichBias.dim: expected an even number, 2 to 1048576, got " +
                     std::to_string(dim));
  }
  std::vector<double> sums(max_distance + 1);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / dim);
    for (int64_t d = 0; d <= max_distance; ++d) sums[d] += std::cos(d * frequency);
  }
  return internal::MakeDistanceForm(heads, causal ? 0 : -max_distance, max_distance,
                                    [&](int64_t h, int64_t distance) {
                                      return sums[std::abs(distance)] * heads / (8.0 * (h + 1));
                                    });
}

template <>
internal::BiasRow<SandwichBias> internal::BiasRowOf() {
  return {.name = "sandwich",
          .title = "Sandwich",
          .source = "arXiv 2212.10356",
          .learned_optional = true,
          .learned = Learned,
          .lower = LowerOf,
          .backward = BackwardNothing};
}

}  // namespace ropewalk
