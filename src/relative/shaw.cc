#include "ropewalk/relative/shaw.h"

#include <cmath>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

void CheckTables(const ShawBias& shaw, int64_t heads) {
  internal::CheckAtLeast("ShawBias.left", shaw.left, 0);
  internal::CheckAtLeast("ShawBias.right", shaw.right, 0);
  internal::CheckAtLeast("ShawBias.head_dim", shaw.head_dim, 1);
  if (shaw.table_heads != 1 && shaw.table_heads != heads) {
    internal::Refuse("ShawBias.table_heads: expected 1 or " + std::to_string(heads) + ", got " +
                     std::to_string(shaw.table_heads));
  }
  const int64_t size = shaw.table_heads * (shaw.left + shaw.right + 1) * shaw.head_dim;
  if (shaw.key_rows.empty() && shaw.value_rows.empty()) {
    internal::Refuse("ShawBias: expected key_rows, value_rows or both, got neither");
  }
  if (!shaw.key_rows.empty()) internal::CheckNumbers("ShawBias.key_rows", shaw.key_rows, size);
  if (!shaw.value_rows.empty()) {
    internal::CheckNumbers("ShawBias.value_rows", shaw.value_rows, size);
  }
}

}  // namespace

ContentForm ShawBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("ShawBias", heads, max_distance);
  CheckTables(*this, heads);
  ContentForm form;
  form.first = -right;
  form.rows = left + right + 1;
  for (int64_t row = form.rows - 1; row >= 0; --row) {
    form.row_of.push_back(static_cast<int32_t>(row));
  }
  form.head_dim = head_dim;
  form.table_heads = table_heads;
  form.query_rows = key_rows;
  form.value_rows = value_rows;
  form.repeats_ahead = form.repeats_behind = true;  // distances are clipped
  return form;
}

ShawBias::Gradient ShawBias::Backward(const ContentForm& gradient) const {
  CheckTables(*this, table_heads);
  internal::CheckNumbers("ShawBias.Backward: gradient.query_rows", gradient.query_rows,
                         static_cast<int64_t>(key_rows.size()));
  internal::CheckNumbers("ShawBias.Backward: gradient.value_rows", gradient.value_rows,
                         static_cast<int64_t>(value_rows.size()));
  return {{gradient.query_rows.begin(), gradient.query_rows.end()},
          {gradient.value_rows.begin(), gradient.value_rows.end()}};
}

std::vector<float> ShawSinusoidalRows(int64_t left, int64_t right, int64_t head_dim) {
  return ShawSinusoidalRows(left, right, head_dim, -left);
}

std::vector<float> ShawSinusoidalRows(int64_t left, int64_t right, int64_t head_dim,
                                      int64_t first) {
  internal::CheckAtLeast("ShawSinusoidalRows: left", left, 0);
  internal::CheckAtLeast("ShawSinusoidalRows: right", right, 0);
  if (head_dim < 2 || head_dim % 2 != 0) {
    internal::Refuse("ShawSinusoidalRows: head_dim: expected an even number, 2 or more, got " +
                     std::to_string(head_dim));
  }
  std::vector<float> rows;
  for (int64_t place = first; place <= first + left + right; ++place) {
    for (int64_t i = 0; i < head_dim; i += 2) {
      const double angle = place * std::pow(10000.0, -static_cast<double>(i) / head_dim);
      rows.push_back(static_cast<float>(std::sin(angle)));
      rows.push_back(static_cast<float>(std::cos(angle)));
    }
  }
  return rows;
}

}  // namespace ropewalk
