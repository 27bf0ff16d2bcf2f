#include "src/convert/regroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/io/quantize.h"
#include "src/model/rows.h"

namespace ropewalk::internal {
namespace {

using Id = TensorId;
using Qkv = TensorNames::Qkv;

// Rows of q, then of k, then of v, heads in the layout of the model: what both formats are compared
// by. Rows of gate, then of up, likewise.
class Order {
 public:
  explicit Order(const Grouping& g) : c_(*g.config), names_(&NamesOf(c_, g.naming)), g_(g) {}

  // Of a tensor's row in this format.
  int64_t Common(Id id, int64_t layer, int64_t row) const {
    if (id == Id::kQkv && names_->qkv == Qkv::kGrouped) return Ungrouped(row);
    const int64_t at = First(id) + row;
    return IsQOrK(id, at) ? Rows(layer, PairLayout::kInterleaved).Source(at) : at;
  }
  // The row in a tensor of this format, of which `row` is one.
  int64_t InFile(Id id, int64_t layer, int64_t row) const {
    if (id == Id::kQkv && names_->qkv == Qkv::kGrouped) return Grouped(row);
    const int64_t at = IsQOrK(id, row) ? Rows(layer, PairLayout::kHalf).Source(row) : row;
    return at - First(id);
  }
  bool IsTransposed(const ExpectedTensor& t) const { return !t.bias && names_->IsTransposed(t.id); }
  bool Moves(Id id) const {
    if (id == Id::kQ || id == Id::kK) return g_.permuted;
    return id == Id::kQkv && (g_.permuted || names_->qkv == Qkv::kGrouped);
  }
  // The tensor that has this row.
  Id Holder(Id like, int64_t row) const {
    if (like == Id::kGate || like == Id::kUp || like == Id::kGateUp) {
      if (names_->Find(Id::kGateUp) != nullptr) return Id::kGateUp;
      return row < c_.feed_forward ? Id::kGate : Id::kUp;
    }
    if (names_->qkv != Qkv::kSplit) return Id::kQkv;
    return row < QDim() ? Id::kQ : row < QDim() + KvDim() ? Id::kK : Id::kV;
  }

 private:
  int64_t QDim() const { return c_.heads * c_.head_dim; }
  int64_t KvDim() const { return c_.kv_heads * c_.head_dim; }
  int64_t First(Id id) const {
    if (id == Id::kK) return QDim();
    if (id == Id::kV) return QDim() + KvDim();
    return id == Id::kUp ? c_.feed_forward : 0;
  }
  bool IsQOrK(Id id, int64_t row) const {
    const bool qkv = id == Id::kQ || id == Id::kK || id == Id::kQkv;
    return g_.permuted && qkv && row < QDim() + KvDim();
  }
  HeadRows Rows(int64_t layer, PairLayout to) const {
    const auto& rotation = c_.plan.layers[static_cast<std::size_t>(layer)].rotation;
    return {c_.head_dim, rotation ? rotation->rotary_dim : c_.head_dim, to};
  }
  // For each key head: the query heads that share it, itself, its values.
  int64_t Grouped(int64_t row) const {
    const int64_t queries = c_.heads / c_.kv_heads, head = row / c_.head_dim;
    const int64_t other = head - c_.heads;  // key heads, then those of values
    const int64_t group = other < 0 ? head / queries : other % c_.kv_heads;
    const int64_t within = other < 0 ? head % queries : queries + other / c_.kv_heads;
    return (group * (queries + 2) + within) * c_.head_dim + row % c_.head_dim;
  }
  int64_t Ungrouped(int64_t row) const {
    const int64_t queries = c_.heads / c_.kv_heads, head = row / c_.head_dim;
    const int64_t group = head / (queries + 2), within = head % (queries + 2);
    const int64_t common = within < queries ? group * queries + within
                                            : c_.heads + (within - queries) * c_.kv_heads + group;
    return common * c_.head_dim + row % c_.head_dim;
  }

  const ModelConfig& c_;
  const TensorNames* names_;
  const Grouping& g_;
};

bool MayMove(Id id) {
  return id == Id::kQ || id == Id::kK || id == Id::kV || id == Id::kQkv || id == Id::kGate ||
         id == Id::kUp || id == Id::kGateUp;
}

using Found = std::map<std::tuple<int64_t, Id, bool>, const Weight*>;

Regrouped Make(const ExpectedTensor& to, const Found& found, const Order& from_order,
               const Order& to_order) {
  Regrouped out{to, {}, {}, false};
  const auto same = found.find({to.layer, to.id, to.bias});
  const bool moves = MayMove(to.id) && (from_order.Moves(to.id) || to_order.Moves(to.id));
  if (same != found.end() && !moves) {
    out.from = {same->second};
    out.transposed = from_order.IsTransposed(to) != to_order.IsTransposed(to);
    return out;
  }
  const auto locate = [=, &found](int64_t row) {
    const int64_t common = to_order.Common(to.id, to.layer, row);
    const Id id = from_order.Holder(to.id, common);
    return Regrouped::Row{found.at({to.layer, id, to.bias}),
                          from_order.InFile(id, to.layer, common)};
  };
  std::vector<Regrouped::Row> rows;
  for (int64_t row = 0; row < to.shape[0]; ++row) rows.push_back(locate(row));
  for (const Regrouped::Row& row : rows) {
    if (std::find(out.from.begin(), out.from.end(), row.weight) == out.from.end()) {
      out.from.push_back(row.weight);
    }
  }
  const auto table = std::make_shared<const std::vector<Regrouped::Row>>(std::move(rows));
  out.where = [table](int64_t row) { return (*table)[static_cast<std::size_t>(row)]; };
  return out;
}

// A vector as a matrix of one column.
Weight AsRows(const Weight& weight) {
  Weight out = weight;
  if (weight.shape.size() == 1) out.shape.push_back(1);
  return out;
}

// The whole matrix is decoded at the first row: each row has an element of every row stored.
TensorSource Transposed(const Regrouped& tensor, WeightType type) {
  const Weight* weight = tensor.from[0];
  if (!CanQuantize(type)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("tensor '{}': weights are not written as {}",
                                                     weight->name, Info(type).name));
  }
  const int64_t rows = weight->rows(), cols = weight->cols();
  const auto stored = std::make_shared<std::vector<float>>();
  TensorSource out{tensor.to.name, type, tensor.to.shape, {}};
  out.read = [=](int64_t first, int64_t count, std::byte* to) {
    if (stored->empty()) {
      stored->resize(static_cast<std::size_t>(rows * cols));
      weight->ReadRows(0, rows, stored->data());
    }
    std::vector<float> row(static_cast<std::size_t>(rows));
    const int64_t blocks = rows / Info(type).block_elements;
    for (int64_t r = first; r < first + count; ++r, to += blocks * Info(type).block_bytes) {
      for (int64_t i = 0; i < rows; ++i) {
        row[static_cast<std::size_t>(i)] = (*stored)[static_cast<std::size_t>(i * cols + r)];
      }
      Quantize(type, row.data(), blocks, to);
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

std::vector<Regrouped> Regroup(const ModelFiles& files, const Grouping& from, const Grouping& to) {
  Found found;
  for (const ExpectedTensor& t : ExpectedTensors(*from.config, from.naming)) {
    found[{t.layer, t.id, t.bias}] = FindTensor(files.tensors, t.name);
  }
  const Order from_order(from), to_order(to);
  std::vector<Regrouped> all;
  for (const ExpectedTensor& t : ExpectedTensors(*to.config, to.naming)) {
    all.push_back(Make(t, found, from_order, to_order));
  }
  return all;
}

bool IsVector(const ExpectedTensor& tensor) {
  return tensor.shape.size() < 2 || tensor.id == Id::kQNorm || tensor.id == Id::kKNorm ||
         tensor.id == Id::kPositions;
}

TensorSource SourceOf(const Regrouped& tensor, WeightType type) {
  if (tensor.transposed) return Transposed(tensor, type);
  if (!tensor.where) return Rearranged(*tensor.from[0], tensor.to.name, {}, type);
  if (!CanQuantize(type)) {
    for (const Weight* w : tensor.from) {
      if (w->type != type) Rearranged(*w, tensor.to.name, {}, type);  // says why it cannot
    }
  }
  TensorSource out{tensor.to.name, type, tensor.to.shape, {}};
  const bool vector = out.shape.size() == 1;
  const int64_t length = out.shape[0];
  out.read = [tensor, type, vector, length](int64_t first, int64_t count, std::byte* to) {
    if (vector) {  // the writer sees one row of `length` elements
      first *= length;
      count *= length;
    }
    std::map<const Weight*, Weight> as_rows;
    for (const Weight* w : tensor.from) as_rows.emplace(w, AsRows(*w));
    std::vector<float> scratch(static_cast<std::size_t>(as_rows.begin()->second.cols()));
    const int64_t blocks = static_cast<int64_t>(scratch.size()) / Info(type).block_elements;
    const int64_t row_bytes = blocks * Info(type).block_bytes;
    for (int64_t i = 0; i < count; ++i, to += row_bytes) {
      const Regrouped::Row at = tensor.where(first + i);
      const Weight& w = as_rows.at(at.weight);
      if (w.type == type) {
        std::memcpy(to, w.data + at.row * row_bytes, static_cast<std::size_t>(row_bytes));
      } else {
        w.ReadRows(at.row, 1, scratch.data());
        Quantize(type, scratch.data(), blocks, to);
      }
    }
  };
  return out;
}

bool Holds(WeightType type, const Regrouped& tensor) {
  return std::all_of(tensor.from.begin(), tensor.from.end(),
                     [&](const Weight* w) { return Holds(type, *w); });
}

}  // namespace ropewalk::internal
