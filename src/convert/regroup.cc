#include "src/convert/regroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "src/model/rows.h"

namespace ropewalk::internal {
namespace {

using Id = TensorId;
using Qkv = TensorNames::Qkv;

// Tensors that hold the same rows in one format or another.
enum class Kind : uint8_t { kAlone, kQkv, kGateUp, kExpertUp, kExpertDown, kLatentKv };
Kind KindOf(Id id) {
  switch (id) {
    case Id::kQ:
    case Id::kK:
    case Id::kV:
    case Id::kQkv:
      return Kind::kQkv;
    case Id::kGate:
    case Id::kUp:
    case Id::kGateUp:
      return Kind::kGateUp;
    case Id::kExpertGate:
    case Id::kExpertUp:
    case Id::kExpertGateUp:
      return Kind::kExpertUp;
    case Id::kExpertDown:
      return Kind::kExpertDown;
    case Id::kKvB:
    case Id::kKB:
    case Id::kVB:
      return Kind::kLatentKv;
    default:
      return Kind::kAlone;
  }
}

// Rows of a kind in the order that both formats are compared by: of q, then of k, then of v, heads in
// the layout of the model; of gate, then of up; of each expert its gate, then its up; of each head of
// latent attention its key, then its value.
class Order {
 public:
  struct Place {
    Id id;
    int64_t expert;
    int64_t row;
  };
  explicit Order(const Grouping& g) : c_(*g.config), names_(&NamesOf(c_, g.naming)), g_(g) {}

  // Of a tensor's row in this format.
  int64_t Common(const ExpectedTensor& t, int64_t row) const {
    switch (KindOf(t.id)) {
      case Kind::kExpertUp:
      case Kind::kExpertDown:
        return OfExperts(t, row);
      case Kind::kLatentKv:
        return OfLatent(t.id, row);
      default:
        break;
    }
    if (t.id == Id::kQkv && names_->qkv == Qkv::kGrouped) return Ungrouped(row);
    const int64_t at = First(t.id) + row;
    return IsQOrK(t.id, at) ? Rows(t.layer, PairLayout::kInterleaved).Source(at) : at;
  }
  // The tensor that has this row of the kind of `like`, and which of its rows that is.
  Place Find(Id like, int64_t layer, int64_t common) const {
    switch (KindOf(like)) {
      case Kind::kExpertUp:
      case Kind::kExpertDown:
        return FindExpert(like, common);
      case Kind::kLatentKv:
        return FindLatent(common);
      default:
        break;
    }
    const Id id = Holder(like, common);
    if (id == Id::kQkv && names_->qkv == Qkv::kGrouped) return {id, -1, Grouped(common)};
    const int64_t at = IsQOrK(id, common) ? Rows(layer, PairLayout::kHalf).Source(common) : common;
    return {id, -1, at - First(id)};
  }
  bool IsTransposed(const ExpectedTensor& t) const { return !t.bias && names_->IsTransposed(t.id); }
  bool Moves(Id id) const {
    if (id == Id::kQ || id == Id::kK) return g_.permuted;
    if (id == Id::kExpertGateUp) return names_->gate_up_in_turn;
    return id == Id::kQkv && (g_.permuted || names_->qkv == Qkv::kGrouped);
  }

 private:
  Id Holder(Id like, int64_t row) const {
    if (KindOf(like) == Kind::kGateUp) {
      if (names_->Find(Id::kGateUp) != nullptr) return Id::kGateUp;
      return row < c_.feed_forward ? Id::kGate : Id::kUp;
    }
    if (names_->qkv != Qkv::kSplit) return Id::kQkv;
    return row < QDim() ? Id::kQ : row < QDim() + KvDim() ? Id::kK : Id::kV;
  }

  // Rows of one expert, in the common order and in a tensor.
  int64_t ExpertRows(Id id) const {
    const int64_t width = c_.experts.feed_forward;
    if (id == Id::kExpertDown) return c_.hidden;
    return id == Id::kExpertGateUp ? 2 * width : width;
  }
  int64_t CommonExpertRows(Id id) const {
    return id == Id::kExpertDown ? c_.hidden : 2 * c_.experts.feed_forward;
  }
  int64_t OfExperts(const ExpectedTensor& t, int64_t row) const {
    const int64_t rows = ExpertRows(t.id), width = c_.experts.feed_forward;
    const int64_t expert = t.expert < 0 ? row / rows : t.expert;
    int64_t within = row % rows;
    if (t.id == Id::kExpertUp) within += width;
    if (t.id == Id::kExpertGateUp && names_->gate_up_in_turn) {
      within = within % 2 * width + within / 2;
    }
    return expert * CommonExpertRows(t.id) + within;
  }
  Place FindExpert(Id like, int64_t common) const {
    const int64_t all = CommonExpertRows(like), width = c_.experts.feed_forward;
    const int64_t expert = common / all;
    int64_t within = common % all;
    Id id = Id::kExpertDown;
    if (KindOf(like) == Kind::kExpertUp) {
      const bool up = within >= width;
      if (names_->Find(Id::kExpertGateUp) == nullptr) {
        id = up ? Id::kExpertUp : Id::kExpertGate;
        if (up) within -= width;
      } else {
        id = Id::kExpertGateUp;
        if (names_->gate_up_in_turn) within = up ? 2 * (within - width) + 1 : 2 * within;
      }
    }
    if (!names_->experts_stacked) return {id, expert, within};
    return {id, -1, expert * ExpertRows(id) + within};
  }

  int64_t PlainKey() const { return c_.head_dim - c_.layer.attention.latent.rotary_dim; }
  int64_t OfLatent(Id id, int64_t row) const {
    const int64_t key = PlainKey(), value = c_.layer.attention.latent.value_dim;
    if (id == Id::kKvB) return row;
    const int64_t rows = id == Id::kKB ? key : value;
    return row / rows * (key + value) + (id == Id::kVB ? key : 0) + row % rows;
  }
  Place FindLatent(int64_t common) const {
    const int64_t key = PlainKey(), value = c_.layer.attention.latent.value_dim;
    if (names_->Find(Id::kKB) == nullptr) return {Id::kKvB, -1, common};
    const int64_t head = common / (key + value), within = common % (key + value);
    if (within < key) return {Id::kKB, -1, head * key + within};
    return {Id::kVB, -1, head * value + within - key};
  }

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
  Grouping g_;
};

// By layer, tensor, whether it is the bias, and expert.
using Found = std::map<std::tuple<int64_t, Id, bool, int64_t>, const Weight*>;

// Rows of the tensor as the product has them; elements of a bias or vector.
int64_t RowsOf(const ExpectedTensor& t, bool transposed) {
  if (t.bias || t.shape.size() < 2) {
    int64_t elements = 1;
    for (const int64_t extent : t.shape) elements *= extent;
    return elements;
  }
  const std::size_t last = t.shape.size() - 1;
  int64_t rows = t.shape[transposed ? last : last - 1];
  for (std::size_t i = 0; i + 1 < last; ++i) rows *= t.shape[i];
  return rows;
}

void AddOnce(const Weight* weight, std::vector<const Weight*>& all) {
  if (std::find(all.begin(), all.end(), weight) == all.end()) all.push_back(weight);
}

Regrouped Make(const ExpectedTensor& to, const std::shared_ptr<const Found>& found,
               const Order& from_order, const Order& to_order) {
  Regrouped out{to, {}, {}, to_order.IsTransposed(to)};
  const auto add = [&](const Weight* weight, Id id) {
    AddOnce(weight, out.from);
    ExpectedTensor t = to;
    t.id = id;
    if (from_order.IsTransposed(t)) AddOnce(weight, out.from_transposed);
  };
  const auto same = found->find({to.layer, to.id, to.bias, to.expert});
  if (same != found->end() && !from_order.Moves(to.id) && !to_order.Moves(to.id)) {
    add(same->second, to.id);
    if (out.to_transposed && !out.from_transposed.empty()) {  // as it is stored
      out.to_transposed = false;
      out.from_transposed.clear();
    }
    return out;
  }
  // Not a table of all rows: those of 256 experts are many.
  const auto place = [=](int64_t row) {
    return from_order.Find(to.id, to.layer, to_order.Common(to, row));
  };
  const auto weight = [=](const Order::Place& at) {
    return found->at({to.layer, at.id, to.bias, at.expert});
  };
  const int64_t rows = RowsOf(to, out.to_transposed);
  Order::Place last = {Id::kEmbedding, -1, 0};
  for (int64_t row = 0; row < rows; ++row) {
    const Order::Place at = place(row);
    if (at.id == last.id && at.expert == last.expert) continue;
    add(weight(at), at.id);
    last = at;
  }
  out.where = [=](int64_t row) {
    const Order::Place at = place(row);
    return Regrouped::Row{weight(at), at.row};
  };
  return out;
}

}  // namespace

std::vector<Regrouped> Regroup(const ModelFiles& files, const Grouping& from, const Grouping& to) {
  const auto found = std::make_shared<Found>();
  for (const ExpectedTensor& t : ExpectedTensors(*from.config, from.naming)) {
    (*found)[{t.layer, t.id, t.bias, t.expert}] = FindTensor(files.tensors, t.name);
  }
  const Order from_order(from), to_order(to);
  std::vector<Regrouped> all;
  for (const ExpectedTensor& t : ExpectedTensors(*to.config, to.naming)) {
    all.push_back(Make(t, found, from_order, to_order));
  }
  return all;
}

}  // namespace ropewalk::internal
