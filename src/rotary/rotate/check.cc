#include "src/rotary/rotate/check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/base/addressable.h"
#include "src/rotary/positions/check.h"
#include "src/rotary/positions/cursor.h"
#include "src/rotary/rotate/overlap.h"

namespace ropewalk::internal {

void BadRotate(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Rotate: " + message);
}

TensorView WithBatch(const TensorView& view, const char* name) {
  if (view.rank == 4) return view;
  if (view.rank != 3) {
    BadRotate(std::string(name) +
              ": expected [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], got " +
              view.ShapeString());
  }
  const int64_t* shape = view.shape;
  const int64_t* strides = view.strides;
  return {view.data,
          view.dtype,
          view.device,
          4,
          {1, shape[0], shape[1], shape[2], 0},
          {0, strides[0], strides[1], strides[2], 0}};
}

void CheckView(const TensorView& view, const char* name, Device device) {
  if (view.device != device) {
    BadRotate(std::string(name) + ": expected memory of the " +
              (device == Device::kCpu ? "CPU" : "GPU, as q"));
  }
  if (view.strides[3] != 1 && view.shape[3] > 1) {
    BadRotate(std::string(name) + ": the elements of a head must be contiguous, got last stride " +
              std::to_string(view.strides[3]));
  }
  for (int i = 0; i < 4; ++i) {
    if (!Addressable(view.shape[i], view.strides[i])) {
      BadRotate(std::string(name) + ": shape " + view.ShapeString() + " with stride " +
                std::to_string(view.strides[i]) + " is not addressable");
    }
  }
}

namespace {

constexpr OperandKind kQ = {"q", "q_out", 1}, kK = {"k", "k_out", -1}, kV = {"v", "v_out", 0};

// The same batch, tokens and head_dim, and heads if asked.
void CheckSameShape(const TensorView& a, const char* a_name, const TensorView& b,
                    const char* b_name, bool heads_too) {
  const bool same = a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] &&
                    a.shape[3] == b.shape[3] && (!heads_too || a.shape[2] == b.shape[2]);
  if (!same) {
    BadRotate(std::string(b_name) + ": shape " + b.ShapeString() + " does not fit that of " +
              a_name + ", " + a.ShapeString());
  }
}

TensorView AsCache(const TensorView& view, const TensorView& in, const char* name) {
  TensorView out = view;
  if (view.rank == 3) {
    out = WithBatch(view, name);
    std::swap(out.shape[0], out.shape[1]);
    std::swap(out.strides[0], out.strides[1]);
  } else if (view.rank != 4) {
    BadRotate(std::string(name) +
              ": expected a cache [slots, heads, head_dim] or [blocks, slots, heads, "
              "head_dim], got " +
              view.ShapeString());
  }
  CheckView(out, name, in.device);
  if (out.shape[2] != in.shape[2] || out.shape[3] != in.shape[3]) {
    BadRotate(std::string(name) + ": a cache of " + view.ShapeString() +
              " does not hold heads of " + in.ShapeString());
  }
  return out;
}

TensorView CheckedIn(const TensorView& given, const char* name, Device device) {
  TensorView in = WithBatch(given, name);
  CheckView(in, name, device);
  if (in.dtype == DType::kF8E4M3) {
    BadRotate(std::string(name) + ": nothing computes in f8_e4m3, it is for caches to write");
  }
  return in;
}

// Where an operand is written, if the call says so.
std::optional<TensorView> OutOf(const OperandKind& kind, const TensorView& given_out,
                                const TensorView& in, bool to_slots) {
  if (to_slots) {
    if (given_out.rank == 0) {
      BadRotate(std::string(kind.out_name) + ": slots need the cache to write to");
    }
    return AsCache(given_out, in, kind.out_name);
  }
  if (given_out.rank == 0) return std::nullopt;
  TensorView out = WithBatch(given_out, kind.out_name);
  CheckView(out, kind.out_name, in.device);
  CheckSameShape(in, kind.name, out, kind.out_name, true);
  return out;
}

float InverseScale(const OperandKind& kind, DType out, const RotateArgs& args) {
  if (out != DType::kF8E4M3) return 1;
  if (kind.decay > 0) BadRotate("q_out: queries are not stored in f8_e4m3");
  const float scale = kind.decay < 0 ? args.k_scale : args.v_scale;
  if (!(scale > 0) || !std::isfinite(scale)) {
    BadRotate(std::string(kind.name) + "_scale: expected a number above 0, got " +
              std::to_string(scale));
  }
  return 1 / scale;
}

int64_t RotatedHeads(const OperandKind& kind, int64_t heads, bool rotates, const RotateArgs& args) {
  if (!rotates) return 0;
  if (args.rotated_heads == 0 || heads == 0) return heads;
  if (args.rotated_heads < 0 || args.rotated_heads > heads) {
    BadRotate("rotated_heads " + std::to_string(args.rotated_heads) +
              " is more than the heads of " + kind.name + ", " + std::to_string(heads));
  }
  return args.rotated_heads;
}

void AddOperands(const RotateArgs& args, Operands& operands) {
  operands.Add(kQ, args.q, args.q_out, args, true, &args.q_norm);
  if (args.k.rank != 0) {
    operands.Add(kK, args.k, args.k_out, args, true, &args.k_norm);
  } else if (args.k_out.rank != 0) {
    BadRotate("k_out is given without k");
  } else if (!args.k_norm.weight.empty()) {
    BadRotate("k_norm is given without k");
  }
  if (args.v.rank != 0) {
    const bool rotates = args.values == ValueRotation::kRotate;
    if (!rotates && args.v_out.rank == 0) BadRotate("v_out: expected where to copy v to");
    operands.Add(kV, args.v, args.v_out, args, rotates, nullptr);
  } else if (args.v_out.rank != 0) {
    BadRotate("v_out is given without v");
  }
  const TensorView& q = operands[0].in;
  for (const Operand* o = operands.begin() + 1; o < operands.end(); ++o) {
    CheckSameShape(q, "q", o->in, o->kind.name, false);
    if (o->in.dtype == q.dtype) continue;
    BadRotate(std::string(o->kind.name) + ": expected " + Name(q.dtype) + " as q, got " +
              Name(o->in.dtype));
  }
}

void CheckNorms(const RotateArgs& args, const CheckedCall& call) {
  for (const Operand& o : call.operands) {
    if (o.norm == nullptr) continue;
    const std::string name = std::string(o.kind.name) + "_norm";
    const int64_t head_dim = o.in.shape[3];
    if (static_cast<int64_t>(o.norm->weight.size()) != head_dim) {
      BadRotate(name + ": expected a weight of head_dim " + std::to_string(head_dim) + ", got " +
                std::to_string(static_cast<int64_t>(o.norm->weight.size())));
    }
    if (!(o.norm->eps >= 0 && std::isfinite(o.norm->eps))) {
      BadRotate(name + ": eps must be 0 or more, got " + std::to_string(o.norm->eps));
    }
    if (args.direction != Direction::kForward) {
      BadRotate(name + ": a norm in front has no adjoint or inverse here");
    }
  }
}

void CheckDims(const RotateArgs& args, int64_t pairs, int64_t head_dim) {
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    BadRotate("layout: not a value of PairLayout");
  }
  if (args.first_dim < 0 || pairs == 0 || args.first_dim > head_dim - 2 * pairs) {
    BadRotate("first_dim " + std::to_string(args.first_dim) + " and the rotary_dim " +
              std::to_string(2 * pairs) + " do not fit head_dim " + std::to_string(head_dim));
  }
}

void CheckFrequencies(const Frequencies& f, int64_t pairs) {
  uint8_t last = 0;
  for (const uint8_t axis : f.axis) last = std::max(last, axis);
  if (f.axes < 1 || f.axes > 4 || last >= f.axes ||
      (!f.axis.empty() && static_cast<int64_t>(f.axis.size()) != pairs)) {
    BadRotate("frequencies: axis must name one of at most 4 axes for each pair");
  }
  if (!f.log_decay.empty() && static_cast<int64_t>(f.log_decay.size()) != pairs) {
    BadRotate("frequencies: log_decay must be empty or have one entry a pair");
  }
}

// How many slots the caches have; 0 without.
int64_t CheckSlots(const RotateArgs& args, const CheckedCall& call) {
  if (args.slots.empty()) return 0;
  int64_t count = INT64_MAX, block = 0;
  for (const Operand& o : call.operands) {
    if (!o.to_slots) continue;
    if (block != 0 && o.out().shape[1] != block) {
      BadRotate("k_out and v_out have blocks of " + std::to_string(block) + " and " +
                std::to_string(o.out().shape[1]) + " slots");
    }
    block = o.out().shape[1];
    count = std::min(count, o.out().shape[0] * o.out().shape[1]);
  }
  if (block == 0 && count == INT64_MAX) BadRotate("slots: there is neither k nor v to write");
  if (static_cast<int64_t>(args.slots.size()) != call.tokens) {
    BadRotate("slots: expected one per token, " + std::to_string(call.tokens) + ", got " +
              std::to_string(static_cast<int64_t>(args.slots.size())));
  }
  return count;
}

// The memory of an operand.
struct Memory {
  const Operand* operand;
  Footprint in;
  Footprint elsewhere;  // where it is written, unless in place
  const Footprint& out() const { return operand->in_place ? in : elsewhere; }
};

void CheckApart(const Memory& a, const Memory& b) {
  const auto read = [](const Memory& written, const Memory& other) {
    if (written.operand->in_place && &written == &other) return;
    if (!MayOverlap(written.out(), other.in)) return;
    BadRotate(std::string(written.operand->kind.out_name) + " overlaps " +
              other.operand->kind.name + " in part; rotate in place or into separate memory");
  };
  if (&a != &b && MayOverlap(a.out(), b.out())) {
    BadRotate(std::string(a.operand->kind.name) + " and " + b.operand->kind.name +
              " are written to overlapping memory");
  }
  read(a, b);
  read(b, a);
}

// Throws if any input and output overlap, except exact in-place. Call only when tokens > 0.
void CheckMemory(const Operands& operands) {
  Memory used[3];
  int n = 0;
  for (const Operand& o : operands) {
    if (o.empty) continue;
    if (o.in.data == nullptr) BadRotate(std::string(o.kind.name) + ": data is null");
    if (o.out().data == nullptr) BadRotate(std::string(o.kind.out_name) + ": data is null");
    if (o.to_slots && o.out().shape[0] * o.out().shape[1] == 0) continue;
    Memory& m = used[n++];
    m.operand = &o;
    m.in.Set(o.in);
    if (!o.in_place) m.elsewhere.Set(o.out());
    if (m.out().self_overlap) {
      BadRotate(std::string(o.kind.name) +
                ": where it is written, elements share memory (strides)");
    }
  }
  for (int i = 0; i < n; ++i) {
    for (int j = i; j < n; ++j) CheckApart(used[i], used[j]);
  }
}

void CheckSlotValues(std::span<const int64_t> slots, int64_t count) {
  bool ascending = true;
  int64_t last = -1;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const int64_t slot = slots[i];
    if (slot < -1 || slot >= count) {
      BadRotate("slots: token " + std::to_string(static_cast<int64_t>(i)) + " goes to slot " +
                std::to_string(slot) + " of a cache of " + std::to_string(count));
    }
    if (slot == -1) continue;
    ascending = ascending && slot > last;
    last = slot;
  }
  if (ascending) return;
  std::vector<int64_t> sorted(slots.begin(), slots.end());
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] >= 0 && sorted[i] == sorted[i - 1]) {
      BadRotate("slots: slot " + std::to_string(sorted[i]) + " is given to two tokens");
    }
  }
}

// xPos: no factor may leave the range of the type that it is stored in.
void CheckDecay(const RotateArgs& args, const CheckedCall& call) {
  const Frequencies& f = *call.frequencies;
  if (f.log_decay.empty()) return;
  const auto [low, high] = std::minmax_element(f.log_decay.begin(), f.log_decay.end());
  const double sign = args.direction == Direction::kInverse ? -1 : 1;
  PositionCursor cursor(args.positions, call.operands[0].in.shape[1], 0);
  for (int64_t i = 0;;) {
    const double n = static_cast<double>(cursor.position()) - f.decay_centre;
    for (const Operand& o : call.operands) {
      if (o.kind.decay == 0 || o.empty) continue;
      const double largest =
          std::max(o.kind.decay * sign * n * *low, o.kind.decay * sign * n * *high);
      const double limit = (o.out().dtype == DType::kF16 ? 8 : 64) * std::log(2.0);
      if (largest <= limit) continue;
      BadRotate("position " + std::to_string(cursor.position()) + ": xPos multiplies " +
                o.kind.name + " by e^" + std::to_string(largest) + ", out of the range of " +
                Name(o.out().dtype) +
                "; choose XposDecay::centre nearer to the positions in use (" +
                std::to_string(f.decay_centre) + ")");
    }
    if (++i == call.tokens) return;
    cursor.Next();
  }
}

}  // namespace

Operand::Operand(const OperandKind& kind, const TensorView& given, const TensorView& call_out,
                 const RotateArgs& args, bool rotates, const HeadNorm* head_norm)
    : kind(kind),
      in(CheckedIn(given, kind.name, args.q.device)),
      to_slots(!args.slots.empty() && kind.decay <= 0),
      given_out(OutOf(kind, call_out, in, to_slots)),
      in_place(!to_slots && in.dtype == out().dtype && SameElements(in, out())),
      empty(in.shape[0] == 0 || in.shape[1] == 0 || in.shape[2] == 0),
      inverse_scale(InverseScale(kind, out().dtype, args)),
      rotated_heads(RotatedHeads(kind, in.shape[2], rotates, args)),
      norm(head_norm == nullptr || head_norm->weight.empty() ? nullptr : head_norm) {}

CheckedCall CheckRotate(const RotateArgs& args) {
  if ((args.table == nullptr) == (args.frequencies == nullptr)) {
    BadRotate("table: expected a CosSinTable, or frequencies to compute angles from, and not both");
  }
  CheckedCall call;
  AddOperands(args, call.operands);
  const TensorView& q = call.operands[0].in;
  call.frequencies = args.table != nullptr ? &args.table->frequencies() : args.frequencies;
  call.pairs = args.table != nullptr ? args.table->pairs()
                                     : static_cast<int64_t>(args.frequencies->inv_freq.size());
  CheckDims(args, call.pairs, q.shape[3]);
  CheckFrequencies(*call.frequencies, call.pairs);
  CheckNorms(args, call);
  if (__builtin_mul_overflow(q.shape[0], q.shape[1], &call.tokens)) {
    BadRotate("q: too many tokens");
  }
  call.cache_slots = CheckSlots(args, call);
  if (call.tokens == 0) return call;
  CheckPositions(args.positions, call.frequencies->axes, q.shape[0], q.shape[1], args.table,
                 q.device);
  CheckMemory(call.operands);
  if (q.device == Device::kCpu) {
    CheckSlotValues(args.slots, call.cache_slots);
    CheckDecay(args, call);
  }
  return call;
}

}  // namespace ropewalk::internal
