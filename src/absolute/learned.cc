#include "ropewalk/absolute/learned.h"

#include <algorithm>
#include <string>

#include "src/absolute/check.h"

namespace ropewalk {
namespace {

// Rows of a table of which the first `offset` stand in front of position 0.
int64_t CheckLookUp(std::size_t table_size, int64_t dim, std::span<const int64_t> positions,
                    int64_t offset) {
  internal::CheckSize("LookUpRows: dim", dim);
  internal::CheckRange("LookUpRows: offset", offset, 0, int64_t{1} << 31);
  const int64_t rows = static_cast<int64_t>(table_size) / dim;
  if (rows * dim != static_cast<int64_t>(table_size)) {
    internal::Refuse("LookUpRows: table: expected [rows, " + std::to_string(dim) + "], got " +
                     std::to_string(table_size) + " numbers");
  }
  internal::CheckPositions("LookUpRows: positions", positions, 0, rows - offset,
                           "; resize the table, or use HierarchicalRows");
  return static_cast<int64_t>(positions.size());
}

}  // namespace

void LookUpRows(std::span<const float> table, int64_t dim, std::span<const int64_t> positions,
                std::span<float> out, int64_t offset) {
  const int64_t tokens = CheckLookUp(table.size(), dim, positions, offset);
  internal::CheckSpan("LookUpRows: out", out, {tokens, dim});
  float* to = out.data();
  for (const int64_t position : positions) {
    const float* row = table.data() + (position + offset) * dim;
    to = std::copy_n(row, dim, to);
  }
}

void LookUpRowsBackward(std::span<const float> d_out, int64_t dim,
                        std::span<const int64_t> positions, std::span<double> d_table,
                        int64_t offset) {
  const int64_t tokens = CheckLookUp(d_table.size(), dim, positions, offset);
  internal::CheckSpan("LookUpRowsBackward: d_out", d_out, {tokens, dim});
  const float* from = d_out.data();
  for (const int64_t position : positions) {
    double* row = d_table.data() + (position + offset) * dim;
    for (int64_t e = 0; e < dim; ++e) row[e] += static_cast<double>(*from++);
  }
}

}  // namespace ropewalk
