#include "ropewalk/absolute/hierarchical.h"

#include <algorithm>
#include <string>

#include "src/absolute/check.h"

namespace ropewalk {
namespace {

void Check(const HierarchicalSpec& spec, std::span<const float> table,
           std::span<const int64_t> positions, std::span<const float> out) {
  internal::CheckSize("HierarchicalRows: rows", spec.rows);
  internal::CheckSize("HierarchicalRows: dim", spec.dim);
  if (!(spec.alpha > 0 && spec.alpha < 1) || spec.alpha == 0.5) {
    internal::Refuse(
        "HierarchicalRows: alpha: expected a number between 0 and 1 other than 0.5, at which "
        "positions i n + j and j n + i are one, got " +
        std::to_string(spec.alpha) + "; the article takes 0.4");
  }
  internal::CheckSpan("HierarchicalRows: table", table, {spec.rows, spec.dim});
  internal::CheckPositions("HierarchicalRows: positions", positions, 0, spec.rows * spec.rows,
                           "; rows^2 is all that this has");
  internal::CheckSpan("HierarchicalRows: out", out,
                      {static_cast<int64_t>(positions.size()), spec.dim});
}

}  // namespace

void HierarchicalRows(const HierarchicalSpec& spec, std::span<const float> table,
                      std::span<const int64_t> positions, std::span<float> out) {
  Check(spec, table, positions, out);
  const double ratio = spec.alpha / (1 - spec.alpha);
  float* to = out.data();
  for (const int64_t k : positions) {
    const float* high = table.data() + k / spec.rows * spec.dim;
    const float* low = table.data() + k % spec.rows * spec.dim;
    for (int64_t e = 0; e < spec.dim; ++e) {
      const double difference = static_cast<double>(high[e]) - static_cast<double>(table[e]);
      *to++ = static_cast<float>(static_cast<double>(low[e]) + ratio * difference);
    }
  }
}

double HierarchicalRowsBackward(const HierarchicalSpec& spec, std::span<const float> table,
                                std::span<const int64_t> positions, std::span<const float> d_out,
                                std::span<double> d_table) {
  Check(spec, table, positions, d_out);
  internal::CheckSpan("HierarchicalRowsBackward: d_table", d_table, {spec.rows, spec.dim});
  const double ratio = spec.alpha / (1 - spec.alpha);
  double d_ratio = 0;
  const float* from = d_out.data();
  for (const int64_t k : positions) {
    const int64_t high = k / spec.rows * spec.dim, low = k % spec.rows * spec.dim;
    for (int64_t e = 0; e < spec.dim; ++e) {
      const double g = static_cast<double>(*from++);
      const std::size_t h = static_cast<std::size_t>(high + e), first = static_cast<std::size_t>(e);
      d_table[static_cast<std::size_t>(low + e)] += g;
      d_table[h] += ratio * g;
      d_table[first] -= ratio * g;
      d_ratio += g * (static_cast<double>(table[h]) - static_cast<double>(table[first]));
    }
  }
  return d_ratio / ((1 - spec.alpha) * (1 - spec.alpha));
}

}  // namespace ropewalk
