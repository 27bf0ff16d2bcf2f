#include "ropewalk/relative/forms.h"

#include <string>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

using internal::CheckNumbers;
using internal::Refuse;

void CheckOptional(const std::string& name, std::span<const float> values, int64_t expected) {
  if (!values.empty()) CheckNumbers(name, values, expected);
}

void CheckTable(const std::string& form, int64_t rows, int64_t table_heads, int64_t heads,
                int64_t form_dim, int64_t head_dim) {
  if (rows < 1 || rows > INT32_MAX) {
    Refuse(form + ".rows: expected 1 or more, got " + std::to_string(rows));
  }
  if (table_heads != 1 && table_heads != heads) {
    Refuse(form + ".table_heads: expected 1 or " + std::to_string(heads) + ", got " +
           std::to_string(table_heads));
  }
  if (form_dim != head_dim) {
    Refuse(form + ".head_dim: expected " + std::to_string(head_dim) + ", got " +
           std::to_string(form_dim));
  }
}

// Of a table over distances, which are those of positions within 2^52.
void CheckFirst(const std::string& form, int64_t first) {
  constexpr int64_t kMost = int64_t{1} << 53;
  if (first < -kMost || first > kMost) {
    Refuse(form + ".first: expected a distance within 2^53, got " + std::to_string(first));
  }
}

struct Checker {
  int64_t heads, head_dim;

  void operator()(const SlopeForm& f) const {
    CheckNumbers("SlopeForm.behind", f.behind, heads);
    CheckOptional("SlopeForm.ahead", f.ahead, heads);
  }
  void operator()(const DistanceForm& f) const {
    CheckFirst("DistanceForm", f.first);
    if (f.columns < 1 || f.columns > INT32_MAX) {
      Refuse("DistanceForm.columns: expected 1 or more, got " + std::to_string(f.columns));
    }
    CheckNumbers("DistanceForm.values", f.values, heads * f.columns);
  }
  void operator()(const ContentForm& f) const {
    CheckFirst("ContentForm", f.first);
    CheckTable("ContentForm", f.rows, f.table_heads, heads, f.head_dim, head_dim);
    if (f.row_of.empty()) Refuse("ContentForm.row_of: expected at least one row, got none");
    for (const int32_t row : f.row_of) {
      if (row < 0 || row >= f.rows) {
        Refuse("ContentForm.row_of: expected rows below " + std::to_string(f.rows) + ", got " +
               std::to_string(row));
      }
    }
    const int64_t table = f.table_heads * f.rows * head_dim;
    CheckOptional("ContentForm.query_rows", f.query_rows, table);
    CheckOptional("ContentForm.key_rows", f.key_rows, table);
    CheckOptional("ContentForm.value_rows", f.value_rows, table);
    CheckOptional("ContentForm.query_bias", f.query_bias, heads * head_dim);
    CheckOptional("ContentForm.key_bias", f.key_bias, heads * head_dim);
  }
  void operator()(const PairForm& f) const {
    if (f.function == nullptr) Refuse("PairForm.function: expected a function, got null");
    if (f.function->heads() != heads) {
      Refuse("PairForm.function: expected one of " + std::to_string(heads) + " heads, got " +
             std::to_string(f.function->heads()));
    }
  }
  void operator()(const RunningForm& f) const {
    if (f.kind == RunningForm::Kind::kGates) {
      if (f.log_gates.empty() || static_cast<int64_t>(f.log_gates.size()) % heads != 0) {
        Refuse("RunningForm.log_gates: expected a number for each token and each of " +
               std::to_string(heads) + " heads, got " + std::to_string(f.log_gates.size()));
      }
      CheckNumbers("RunningForm.log_gates", f.log_gates, static_cast<int64_t>(f.log_gates.size()));
      return;
    }
    CheckTable("RunningForm", f.rows, f.table_heads, heads, f.head_dim, head_dim);
    CheckNumbers("RunningForm.position_rows", f.position_rows, f.table_heads * f.rows * head_dim);
  }
};

}  // namespace

void CheckForm(const ScoreForm& form, int64_t heads, int64_t head_dim) {
  std::visit(Checker{heads, head_dim}, form);
}

}  // namespace ropewalk
