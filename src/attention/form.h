// What is made once per call from positions, documents and a score form, for the kernel to read.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/buffer.h"
#include "src/attention/load_rotation.h"

namespace ropewalk::internal {

// The unmasked keys of each query: one interval, because neither positions within a document nor
// documents ever descend. Both ends ascend from query to query.
struct QueryRanges {
  std::vector<int64_t> begin, end;  // [queries]
  // Where key positions are consecutive within documents: the distance of query t and key j is
  // base[t] - j.
  bool consecutive = true;
  std::vector<int64_t> base;  // [queries]
  // [queries], [keys]; filled where a form asks for positions and not for distances.
  std::vector<int64_t> query_positions, key_positions;
};

// Throw Error that names the argument.
void CheckAttention(const AttentionArgs& args, bool writes_out = true);
void CheckOut(const char* name, const TensorView& out);  // of a result of any shape
void CheckAddressable(const char* name, const TensorView& view);
void CheckWritten(const char* name, const TensorView& view);  // its rows share no memory
QueryRanges FindRanges(const AttentionArgs& args);

// A content form with the rows of its tables in the order in which a row of scores meets them:
// column 0 is that of the largest distance, and from one distance to the next the column stays or
// grows by one. Where row_of does otherwise, rows are repeated.
struct ContentColumns {
  std::vector<int32_t> column_of;  // [distance - first], the nearest beyond the ends
  std::vector<int32_t> row_of;     // [columns]
  int64_t first = 0, columns = 0, table_heads = 1;
  AlignedBuffer<float> query_rows, key_rows;  // [table_heads, blocks, head_dim, 64], as keys are
  AlignedBuffer<float> value_rows;            // [table_heads, columns, stride of head_dim]

  int64_t PaddedColumns() const { return (columns + 63) / 64 * 64; }
  // Of a head's packed rows.
  int64_t Table(int64_t head, int64_t head_dim) const {
    return table_heads == 1 ? 0 : head * PaddedColumns() * head_dim;
  }
  int64_t Column(int64_t distance) const {
    const int64_t last = static_cast<int64_t>(column_of.size()) - 1;
    const int64_t at = distance < first ? 0 : distance - first;
    return column_of[static_cast<size_t>(at > last ? last : at)];
  }
};

struct FormRun {
  const ScoreForm* form = nullptr;
  const QueryRanges* ranges = nullptr;
  // ContentForm; kContextual: query_rows, one column per row; else null.
  std::shared_ptr<const ContentColumns> own;
  const ContentColumns* content = nullptr;
  std::vector<double> gate_sums;        // kGates: [heads, keys + 1], the sum before each key
  int64_t gate_stride = 0;              // keys + 1
  std::vector<double> query_gate_sums;  // kGates of keys in parts: [heads, queries]; else empty
  const ContextualSums* contextual_sums = nullptr;
  int64_t first_index = 0;  // of query 0 among the keys
};

inline const ScoreForm* FormOf(const AttentionArgs& args) {
  return args.prepared != nullptr ? &args.prepared->form() : args.form;
}

// Whether a RunningForm's keys come in parts.
inline bool InParts(const AttentionArgs& args) {
  return !args.gate_sums.queries.empty() || !args.gate_sums.keys.empty() ||
         !args.contextual_sums.nearer.empty() || !args.contextual_sums.all.empty();
}

inline float ScaleOf(const AttentionArgs& args) {
  return args.scale.value_or(1.0f / std::sqrt(static_cast<float>(args.q.shape[2])));
}

// Null for forms without rows.
std::shared_ptr<const ContentColumns> PackColumns(const ScoreForm& form);

// Of FormOf(args), which is not null. Throws Error that says what does not fit.
FormRun PrepareForm(const AttentionArgs& args, const QueryRanges& ranges);

// Throws Error where a query sees a key at a distance that the form's table lacks.
void CheckDistances(const ScoreForm& form, const QueryRanges& ranges, const RotationRun& rotation);

}  // namespace ropewalk::internal
