// Rows of regrouped tensors as they are written.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/convert/regroup.h"
#include "src/io/mxfp4_pairs.h"
#include "src/io/quantize.h"
#include "src/model/rows.h"

namespace ropewalk::internal {
namespace {

using Id = TensorId;

bool ByElement(const ExpectedTensor& t) { return t.bias || t.shape.size() < 2; }

// A bias or vector as a matrix of one column.
Weight AsColumn(const Weight& weight) {
  Weight out = weight;
  out.shape = {weight.rows() * weight.cols(), 1};
  return out;
}

void CheckWritable(const Weight& weight, WeightType type) {
  if (CanQuantize(type)) return;
  throw Error(ErrorCode::kUnsupported, fmt::format("tensor '{}': weights are not written as {}",
                                                   weight.name, Info(type).name));
}

// Matrices of the new tensor, [out, in], one at a time: of one that is stored [in, out], each row has
// an element of every row stored.
class Matrices {
 public:
  Matrices(Regrouped tensor, int64_t rows, int64_t cols)
      : tensor_(std::move(tensor)), rows_(rows), cols_(cols) {}

  const std::vector<float>& Get(int64_t matrix) {
    if (matrix == current_) return values_;
    values_.resize(static_cast<std::size_t>(rows_ * cols_));
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = matrix * rows_ + r;
      Read(tensor_.where ? tensor_.where(row) : Regrouped::Row{tensor_.from[0], row},
           values_.data() + r * cols_);
    }
    current_ = matrix;
    return values_;
  }

 private:
  void Read(const Regrouped::Row& at, float* out) {
    const std::vector<const Weight*>& transposed = tensor_.from_transposed;
    if (std::find(transposed.begin(), transposed.end(), at.weight) == transposed.end()) {
      at.weight->ReadRows(at.row, 1, out);
      return;
    }
    const int64_t stored = at.weight->cols(), matrix = at.row / stored;
    if (stored_of_ != at.weight || stored_matrix_ != matrix) {
      stored_.resize(static_cast<std::size_t>(cols_ * stored));
      at.weight->ReadRows(matrix * cols_, cols_, stored_.data());
      stored_of_ = at.weight;
      stored_matrix_ = matrix;
    }
    for (int64_t c = 0; c < cols_; ++c) {
      out[c] = stored_[static_cast<std::size_t>(c * stored + at.row % stored)];
    }
  }

  Regrouped tensor_;
  int64_t rows_, cols_;
  std::vector<float> values_;  // of `current_`
  int64_t current_ = -1;
  std::vector<float> stored_;  // one matrix of a tensor that is stored [in, out]
  const Weight* stored_of_ = nullptr;
  int64_t stored_matrix_ = -1;
};

TensorSource Transposed(const Regrouped& tensor, WeightType type) {
  CheckWritable(*tensor.from[0], type);
  const std::vector<int64_t>& shape = tensor.to.shape;
  const int64_t stored_rows = shape[shape.size() - 2], stored_cols = shape.back();
  const bool to = tensor.to_transposed;
  const int64_t cols = to ? stored_rows : stored_cols;
  const auto matrices = std::make_shared<Matrices>(tensor, to ? stored_cols : stored_rows, cols);
  TensorSource out{tensor.to.name, type, shape, {}};
  out.read = [=](int64_t first, int64_t count, std::byte* bytes) {
    std::vector<float> row(static_cast<std::size_t>(stored_cols));
    const int64_t blocks = stored_cols / Info(type).block_elements;
    for (int64_t r = first; r < first + count; ++r, bytes += blocks * Info(type).block_bytes) {
      const float* matrix = matrices->Get(r / stored_rows).data();
      const int64_t i = r % stored_rows;
      for (int64_t j = 0; j < stored_cols; ++j) {
        row[static_cast<std::size_t>(j)] = to ? matrix[j * cols + i] : matrix[i * cols + j];
      }
      Quantize(type, row.data(), blocks, bytes);
    }
  };
  return out;
}

}  // namespace

WeightType Regrouped::type() const {
  const bool alike = std::all_of(from.begin(), from.end(),
                                 [&](const Weight* w) { return w->type == from[0]->type; });
  return alike ? from[0]->type : WeightType::kF32;
}

int64_t Regrouped::bytes() const {
  int64_t bytes = 0;
  for (const Weight* w : from) bytes += w->bytes;
  return bytes;
}

bool IsVector(const ExpectedTensor& tensor) {
  if (tensor.shape.size() < 2 || tensor.bias) return true;
  return tensor.id == Id::kQNorm || tensor.id == Id::kKNorm || tensor.id == Id::kPositions ||
         tensor.id == Id::kRouter || tensor.id == Id::kSharedRouter;
}

TensorSource SourceOf(const Regrouped& tensor, WeightType type) {
  if (tensor.Transposes()) return Transposed(tensor, type);
  const bool repacks = type == WeightType::kMXFP4 && tensor.type() == WeightType::kMXFP4Pair;
  if (!tensor.where && !repacks) {
    TensorSource out = Rearranged(*tensor.from[0], tensor.to.name, {}, type);
    out.shape = tensor.to.shape;  // a router of one score may have one dimension in GGUF
    return out;
  }
  for (const Weight* w : tensor.from) {
    if (w->type != type && !repacks) CheckWritable(*w, type);
  }
  TensorSource out{tensor.to.name, type, tensor.to.shape, {}};
  const bool by_element = ByElement(tensor.to);
  const int64_t length = by_element ? out.shape.back() : 1;
  out.read = [=](int64_t first, int64_t count, std::byte* to) {
    // The writer sees rows of `length` elements.
    first *= length;
    count *= length;
    std::map<const Weight*, Weight> as_rows;
    for (const Weight* w : tensor.from) as_rows.emplace(w, by_element ? AsColumn(*w) : *w);
    std::vector<float> scratch(static_cast<std::size_t>(as_rows.begin()->second.cols()));
    const int64_t blocks = static_cast<int64_t>(scratch.size()) / Info(type).block_elements;
    const int64_t row_bytes = blocks * Info(type).block_bytes;
    for (int64_t i = 0; i < count; ++i, to += row_bytes) {
      const Regrouped::Row at =
          tensor.where ? tensor.where(first + i) : Regrouped::Row{tensor.from[0], first + i};
      const Weight& w = as_rows.at(at.weight);
      if (w.type == type) {
        std::memcpy(to, w.data + at.row * row_bytes, static_cast<std::size_t>(row_bytes));
      } else if (repacks) {
        RepackPair(w, at.row, to);
      } else {
        w.ReadRows(at.row, 1, scratch.data());
        Quantize(type, scratch.data(), blocks, to);
      }
    }
  };
  return out;
}

TensorSource NormalizedRows(const Weight& weight, const ExpectedTensor& to, WeightType type) {
  CheckWritable(weight, type);
  TensorSource out{to.name, type, to.shape, {}};
  out.read = [=](int64_t first, int64_t count, std::byte* bytes) {
    std::vector<float> rows(static_cast<std::size_t>(count * weight.cols()));
    weight.ReadRows(first, count, rows.data());
    NormalizeRows(count, weight.cols(), rows.data());
    Quantize(type, rows.data(), static_cast<int64_t>(rows.size()) / Info(type).block_elements,
             bytes);
  };
  return out;
}

bool Holds(WeightType type, const Regrouped& tensor) {
  return std::all_of(tensor.from.begin(), tensor.from.end(),
                     [&](const Weight* w) { return Holds(type, *w); });
}

}  // namespace ropewalk::internal
