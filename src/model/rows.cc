#include "src/model/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/io/dequantize.h"
#include "src/io/quantize.h"

namespace ropewalk::internal {
namespace {

// A vector as a matrix of one column.
Weight AsRows(const Weight& weight) {
  Weight out = weight;
  if (weight.shape.size() == 1) out.shape.push_back(1);
  return out;
}

void CheckHeads(const Weight& weight, const HeadRows& rows) {
  if (rows.head_dim == 0) return;
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("tensor '{}': {}", weight.name, what));
  };
  if (rows.rotary_dim < 2 || rows.rotary_dim % 2 != 0 || rows.rotary_dim > rows.head_dim) {
    fail(fmt::format("rotary_dim is {}; an even number from 2 to head_dim = {} expected",
                     rows.rotary_dim, rows.head_dim));
  }
  if (weight.shape.empty() || weight.shape.size() > 2) fail("a matrix or a vector expected");
  if (weight.shape[0] % rows.head_dim != 0) {
    fail(fmt::format("{} rows are no whole number of heads of {}", weight.shape[0], rows.head_dim));
  }
  if (weight.shape.size() == 1 && Info(weight.type).block_elements != 1) {
    fail(fmt::format("a vector of {} cannot be reordered: its blocks hold several rows",
                     Info(weight.type).name));
  }
}

}  // namespace

TensorSource Rearranged(const Weight& weight, std::string name, const HeadRows& rows,
                        std::optional<WeightType> type) {
  CheckHeads(weight, rows);
  const WeightType to = type.value_or(weight.type);
  const bool recode = to != weight.type;
  if (recode && !CanQuantize(to)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("tensor '{}': weights are not written as {}",
                                                     weight.name, Info(to).name));
  }
  TensorSource out{std::move(name), to, weight.shape, {}};
  if (!recode && rows.head_dim == 0) {
    out.read = CopyOf(weight).read;
    return out;
  }
  // Vectors are read by element where they are reordered, whole where only the type changes.
  const bool by_element = weight.shape.size() == 1 && rows.head_dim != 0;
  const int64_t length = weight.cols();
  const auto source = std::make_shared<const Weight>(by_element ? AsRows(weight) : weight);
  const int64_t cols = source->cols();
  const int64_t row_bytes = source->rows() == 0 ? 0 : source->bytes / source->rows();
  const int64_t row_blocks = cols / Info(to).block_elements;
  const int64_t out_row_bytes = row_blocks * Info(to).block_bytes;
  const auto one = [=](int64_t row, float* scratch, std::byte* to_bytes) {
    if (!recode) {
      std::memcpy(to_bytes, source->data + rows.Source(row) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
      return;
    }
    source->ReadRows(rows.Source(row), 1, scratch);
    Quantize(to, scratch, row_blocks, to_bytes);
  };
  out.read = [=](int64_t first, int64_t count, std::byte* bytes) {
    std::vector<float> scratch(static_cast<std::size_t>(cols));
    if (by_element) {  // the writer sees one row of `length` elements
      first *= length;
      count *= length;
    }
    for (int64_t i = 0; i < count; ++i) one(first + i, scratch.data(), bytes + i * out_row_bytes);
  };
  return out;
}

void NormalizeRows(int64_t rows, int64_t cols, float* values) {
  for (float* row = values; row < values + rows * cols; row += cols) {
    double square = 0;
    for (int64_t i = 0; i < cols; ++i) square += double{row[i]} * row[i];
    // PyTorch's normalize divides by at least this.
    const auto length = static_cast<float>(std::max(std::sqrt(square), 1e-12));
    for (int64_t i = 0; i < cols; ++i) row[i] /= length;
  }
}

bool Holds(WeightType type, const Weight& weight) {
  if (type == WeightType::kMXFP4 &&
      (weight.type == type || weight.type == WeightType::kMXFP4Pair)) {
    return true;
  }
  const WeightTypeInfo& info = Info(type);
  if (weight.cols() % info.block_elements != 0) return false;
  const auto cols = static_cast<std::size_t>(weight.cols());
  std::vector<float> row(cols), back(cols);
  const int64_t blocks = weight.cols() / info.block_elements;
  std::vector<std::byte> bytes(static_cast<std::size_t>(blocks * info.block_bytes));
  for (int64_t r = 0; r < weight.rows(); ++r) {
    weight.ReadRows(r, 1, row.data());
    Quantize(type, row.data(), blocks, bytes.data());
    Dequantize(type, bytes.data(), blocks, back.data());
    if (std::memcmp(row.data(), back.data(), cols * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace ropewalk::internal
