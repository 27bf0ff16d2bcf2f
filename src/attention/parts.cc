// Attention over keys that come in parts.
#include <algorithm>
#include <string>
#include <utility>

#include "ropewalk/attention/attention.h"
#include "ropewalk/base/error.h"
#include "src/attention/kernel/tile.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

[[noreturn]] void RefuseParts(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

AttentionSums::AttentionSums(int64_t tokens, int64_t heads, int64_t value_dim)
    : tokens_(tokens), heads_(heads), value_dim_(value_dim) {
  if (tokens < 1 || heads < 1 || value_dim < 1) {
    RefuseParts("AttentionSums: expected tokens, heads and a value_dim of 1 or more, got " +
                std::to_string(tokens) + ", " + std::to_string(heads) + " and " +
                std::to_string(value_dim));
  }
  rows_ = AlignedBuffer<float>(
      static_cast<size_t>(tokens * heads * AttentionAccess::RecordOf(value_dim)));
  Clear();
}

float* AttentionAccess::Row(const AttentionSums& sums, int64_t row) {
  return const_cast<float*>(sums.rows_.data()) + row * sums.heads_ * RecordOf(sums.value_dim_);
}

void AttentionAccess::CheckRows(const char* function, const AttentionSums& sums, int64_t first_row,
                                const RowsShape& rows) {
  const bool fits = rows.heads == sums.heads_ && rows.value_dim == sums.value_dim_ &&
                    first_row >= 0 && rows.tokens <= sums.tokens_ - first_row;
  if (fits) return;
  const auto shape = [](int64_t tokens, int64_t heads, int64_t dim) {
    return std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads of " +
           std::to_string(dim);
  };
  RefuseParts(std::string(function) + ": sums: expected room for " +
              shape(rows.tokens, rows.heads, rows.value_dim) + " from row " +
              std::to_string(first_row) + " on, got " +
              shape(sums.tokens_, sums.heads_, sums.value_dim_));
}

void AttentionSums::Clear() {
  const int64_t values = AttentionAccess::RowStride(value_dim_);
  const int64_t record = AttentionAccess::RecordOf(value_dim_);
  std::fill(rows_.data(), rows_.data() + rows_.size(), 0.0f);
  for (int64_t r = 0; r < tokens_ * heads_; ++r) {
    rows_[static_cast<size_t>(r * record + values)] = internal::kNoScore;
  }
}

void AttendPart(const AttentionArgs& args, AttentionSums& sums, int64_t first_row,
                bool want_entropy) {
  internal::CheckAttention(args, /*writes_out=*/false);
  const int64_t tokens = args.q.shape[0];
  if (tokens == 0 || args.cache->tokens() == 0) return;
  AttentionAccess::CheckRows("AttendPart", sums, first_row,
                             {tokens, args.q.shape[1], args.cache->value_dim()});
  internal::RunAttention(args, AttentionAccess::Row(sums, first_row), want_entropy);
}

void FinishParts(const AttentionSums& sums, int64_t first_row, const FinishedRows& rows) {
  internal::CheckOut("out", rows.out);
  AttentionAccess::CheckRows("FinishParts", sums, first_row,
                             {rows.out.shape[0], rows.out.shape[1], rows.out.shape[2]});
  const int64_t tokens = rows.out.shape[0], heads = rows.out.shape[1], dim = rows.out.shape[2];
  const int64_t record = AttentionAccess::RecordOf(dim), values = AttentionAccess::RowStride(dim);
  for (const auto& [name, room] :
       {std::pair{"log_sum_exp", rows.log_sum_exp}, std::pair{"entropy", rows.entropy}}) {
    if (room.empty() || static_cast<int64_t>(room.size()) == tokens * heads) continue;
    RefuseParts(std::string("FinishParts: ") + name + ": expected room for " +
                std::to_string(tokens * heads) + " numbers, got " + std::to_string(room.size()));
  }
  internal::AttentionTile t{};
  t.sinks = rows.sinks.empty() ? nullptr : rows.sinks.data();
  t.log_sum_exp = rows.log_sum_exp.empty() ? nullptr : rows.log_sum_exp.data();
  t.entropy = rows.entropy.empty() ? nullptr : rows.entropy.data();
  t.log_sum_exp_stride = heads;
  const int threads = internal::ThreadsFor(tokens * heads * dim);  // 1 ns an element
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t token = 0; token < tokens; ++token) {
    const float* from = AttentionAccess::Row(sums, first_row + token);
    float* out = static_cast<float*>(rows.out.data) + token * rows.out.strides[0];
    for (int64_t h = 0; h < heads; ++h, from += record) {
      const internal::RowSums row{from[values], from[values + 1], from[values + 2]};
      const float factor = internal::FinishRow(t, h, token, row);
      internal::WriteEntropy(t, h, token, row);
      for (int64_t i = 0; i < dim; ++i) out[h * rows.out.strides[1] + i] = from[i] * factor;
    }
  }
}

}  // namespace ropewalk
