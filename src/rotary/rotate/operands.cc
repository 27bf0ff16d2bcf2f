#include "src/rotary/rotate/operands.h"

#include <algorithm>
#include <cmath>

#include "src/rotary/rotate/views.h"

namespace ropewalk::internal {
namespace {

std::string Number(int64_t n) { return std::to_string(n); }

TensorView AsCache(const TensorView& view, const TensorView& in, const std::string& name) {
  TensorView out = view;
  if (view.rank == 3) {
    out = WithBatch(view, name.c_str());
    std::swap(out.shape[0], out.shape[1]);
    std::swap(out.strides[0], out.strides[1]);
  } else if (view.rank != 4) {
    BadRotate(name +
              ": expected a cache [slots, heads, head_dim] or [blocks, slots, heads, "
              "head_dim], got " +
              view.ShapeString());
  }
  CheckView(out, name.c_str(), in.device);
  if (out.shape[2] != in.shape[2] || out.shape[3] != in.shape[3]) {
    BadRotate(name + ": a cache of " + view.ShapeString() + " does not hold heads of " +
              in.ShapeString());
  }
  return out;
}

Operand MakeOperand(const RotateArgs& args, const char* name, const TensorView& in,
                    const TensorView& out, int64_t rotated_heads, int decay, const HeadNorm* norm) {
  Operand o{name, std::string(name) + "_out", WithBatch(in, name), {}, rotated_heads, decay, norm,
            false};
  CheckView(o.in, name, args.q.device);
  CheckComputes(in, name);
  o.to_slots = !args.slots.empty() && decay <= 0;
  if (o.to_slots) {
    if (out.rank == 0) BadRotate(o.out_name + ": slots need the cache to write to");
    o.out = AsCache(out, o.in, o.out_name);
  } else {
    o.out = out.rank == 0 ? o.in : WithBatch(out, o.out_name.c_str());
    CheckView(o.out, o.out_name.c_str(), args.q.device);
    CheckSameShape(o.in, name, o.out, o.out_name.c_str(), true);
  }
  if (o.out.dtype == DType::kF8E4M3) {
    if (decay > 0) BadRotate("q_out: queries are not stored in f8_e4m3");
    const float scale = decay < 0 ? args.k_scale : args.v_scale;
    if (!(scale > 0) || !std::isfinite(scale)) {
      BadRotate(std::string(name) + "_scale: expected a number above 0, got " +
                std::to_string(scale));
    }
    o.inverse_scale = 1 / scale;
  }
  if (rotated_heads < 0 || rotated_heads > o.in.shape[2]) {
    BadRotate("rotated_heads " + Number(rotated_heads) + " is more than the heads of " + name +
              ", " + Number(o.in.shape[2]));
  }
  return o;
}

std::vector<Operand> Operands(const RotateArgs& args) {
  const auto rotated = [&](const TensorView& view) {
    const int64_t heads = view.rank >= 3 ? view.shape[view.rank - 2] : 0;
    return args.rotated_heads == 0 || heads == 0 ? heads : args.rotated_heads;
  };
  std::vector<Operand> operands;
  operands.push_back(MakeOperand(args, "q", args.q, args.q_out, rotated(args.q), 1, &args.q_norm));
  if (args.k.rank != 0) {
    operands.push_back(
        MakeOperand(args, "k", args.k, args.k_out, rotated(args.k), -1, &args.k_norm));
  } else if (args.k_out.rank != 0 || !args.k_norm.weight.empty()) {
    BadRotate("k_out or k_norm is given without k");
  }
  if (args.v.rank != 0) {
    const bool rotate = args.values == ValueRotation::kRotate;
    if (!rotate && args.v_out.rank == 0) BadRotate("v_out: expected where to copy v to");
    operands.push_back(
        MakeOperand(args, "v", args.v, args.v_out, rotate ? rotated(args.v) : 0, 0, nullptr));
  } else if (args.v_out.rank != 0) {
    BadRotate("v_out is given without v");
  }
  for (const Operand& o : operands) {
    CheckSameShape(operands[0].in, "q", o.in, o.name, false);
    CheckSameType(operands[0].in, "q", o.in, o.name);
  }
  return operands;
}

void CheckNorms(const RotateArgs& args, int64_t head_dim) {
  for (const HeadNorm* norm : {&args.q_norm, &args.k_norm}) {
    if (norm->weight.empty()) continue;
    const char* name = norm == &args.q_norm ? "q_norm" : "k_norm";
    if (static_cast<int64_t>(norm->weight.size()) != head_dim) {
      BadRotate(std::string(name) + ": expected a weight of head_dim " + Number(head_dim) +
                ", got " + Number(static_cast<int64_t>(norm->weight.size())));
    }
    if (!(norm->eps >= 0 && std::isfinite(norm->eps))) {
      BadRotate(std::string(name) + ": eps must be 0 or more, got " + std::to_string(norm->eps));
    }
    if (args.direction != Direction::kForward) {
      BadRotate(std::string(name) + ": a norm in front has no adjoint or inverse here");
    }
  }
}

// How many slots the caches have; 0 without.
int64_t CheckSlots(const RotateArgs& args, const std::vector<Operand>& operands, int64_t tokens) {
  if (args.slots.empty()) return 0;
  int64_t count = INT64_MAX, block = 0;
  for (const Operand& o : operands) {
    if (!o.to_slots) continue;
    if (block != 0 && o.out.shape[1] != block) {
      BadRotate("k_out and v_out have blocks of " + Number(block) + " and " +
                Number(o.out.shape[1]) + " slots");
    }
    block = o.out.shape[1];
    count = std::min(count, o.cache_slots());
  }
  if (block == 0 && count == INT64_MAX) BadRotate("slots: there is neither k nor v to write");
  if (static_cast<int64_t>(args.slots.size()) != tokens) {
    BadRotate("slots: expected one a token, " + Number(tokens) + ", got " +
              Number(static_cast<int64_t>(args.slots.size())));
  }
  return count;
}

void CheckDims(const RotateArgs& args, int64_t pairs, int64_t head_dim) {
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    BadRotate("layout: not a value of PairLayout");
  }
  if (args.first_dim < 0 || pairs == 0 || args.first_dim > head_dim - 2 * pairs) {
    BadRotate("first_dim " + Number(args.first_dim) + " and the rotary_dim " + Number(2 * pairs) +
              " do not fit head_dim " + Number(head_dim));
  }
  const std::vector<uint8_t>& axis = FrequenciesOf(args).axis;
  const int axes = FrequenciesOf(args).axes;
  if (axes < 1 || axes > 4 || (!axis.empty() && static_cast<int64_t>(axis.size()) != pairs) ||
      std::any_of(axis.begin(), axis.end(), [&](uint8_t a) { return a >= axes; })) {
    BadRotate("frequencies: axis must name one of at most 4 axes for each pair");
  }
  const std::vector<double>& decay = FrequenciesOf(args).log_decay;
  if (!decay.empty() && static_cast<int64_t>(decay.size()) != pairs) {
    BadRotate("frequencies: log_decay must be empty or have one entry a pair");
  }
}

}  // namespace

void CheckMemory(const std::vector<Operand>& operands) {
  std::vector<const Operand*> used;
  for (const Operand& o : operands) {
    if (o.empty()) continue;
    if (o.in.data == nullptr) BadRotate(std::string(o.name) + ": data is null");
    if (o.out.data == nullptr) BadRotate(o.out_name + ": data is null");
    if (o.to_slots && o.cache_slots() == 0) continue;
    used.push_back(&o);
  }
  for (const Operand* a : used) {
    const Footprint out = FootprintOf(a->out);
    if (out.self_overlap) {
      BadRotate(std::string(a->name) + ": where it is written, elements share memory (strides)");
    }
    for (const Operand* b : used) {
      if ((a != b || !a->in_place()) && MayOverlap(out, FootprintOf(b->in))) {
        BadRotate(a->out_name + " overlaps " + b->name +
                  " in part; rotate in place or into separate memory");
      }
      if (a < b && MayOverlap(out, FootprintOf(b->out))) {
        BadRotate(std::string(a->name) + " and " + b->name + " are written to overlapping memory");
      }
    }
  }
}

CheckedCall CheckCall(const RotateArgs& args) {
  if ((args.table == nullptr) == (args.frequencies == nullptr)) {
    BadRotate("table: expected a CosSinTable, or frequencies to compute angles from, and not both");
  }
  CheckedCall call{Operands(args)};
  const TensorView& q = call.operands[0].in;
  call.pairs = args.table != nullptr ? args.table->pairs()
                                     : static_cast<int64_t>(args.frequencies->inv_freq.size());
  CheckDims(args, call.pairs, q.shape[3]);
  CheckNorms(args, q.shape[3]);
  if (__builtin_mul_overflow(q.shape[0], q.shape[1], &call.tokens)) {
    BadRotate("q: too many tokens");
  }
  call.cache_slots = CheckSlots(args, call.operands, call.tokens);
  return call;
}

}  // namespace ropewalk::internal
