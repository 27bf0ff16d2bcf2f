#include "src/rotary/rotate_extended.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "src/base/parallel.h"
#include "src/rotary/check_positions.h"
#include "src/rotary/overlap.h"
#include "src/rotary/position_cursor.h"
#include "src/rotary/rotate_extended_cpu.h"
#include "src/rotary/rotate_views.h"

namespace ropewalk::internal {
namespace {

// Of the work: loading, storing, and a row a token; about what one core does in its L2.
constexpr int64_t kBytesPerNs = 20;

std::string Number(int64_t n) { return std::to_string(n); }

// q, k or v, checked by itself.
struct Operand {
  const char* name;
  std::string out_name;
  TensorView in, out;  // four dimensions; a cache is [blocks, slots of a block, heads, head_dim]
  int64_t rotated_heads;
  int decay;
  const HeadNorm* norm;
  bool to_slots;

  bool empty() const { return in.shape[0] == 0 || in.shape[1] == 0 || in.shape[2] == 0; }
  bool in_place() const { return !to_slots && in.dtype == out.dtype && SameElements(in, out); }
  int64_t cache_slots() const { return out.shape[0] * out.shape[1]; }
};

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
  CheckView(out, name.c_str());
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
  CheckView(o.in, name);
  o.to_slots = !args.slots.empty() && decay <= 0;
  if (o.to_slots) {
    if (out.rank == 0) BadRotate(o.out_name + ": slots need the cache to write to");
    o.out = AsCache(out, o.in, o.out_name);
  } else {
    o.out = out.rank == 0 ? o.in : WithBatch(out, o.out_name.c_str());
    CheckView(o.out, o.out_name.c_str());
    CheckSameShape(o.in, name, o.out, o.out_name.c_str(), true);
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

void CheckSlots(const RotateArgs& args, const std::vector<Operand>& operands, int64_t tokens) {
  if (args.slots.empty()) return;
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
  bool ascending = true;
  int64_t last = -1;
  for (std::size_t i = 0; i < args.slots.size(); ++i) {
    const int64_t slot = args.slots[i];
    if (slot < -1 || slot >= count) {
      BadRotate("slots: token " + Number(static_cast<int64_t>(i)) + " goes to slot " +
                Number(slot) + " of a cache of " + Number(count));
    }
    if (slot == -1) continue;
    ascending = ascending && slot > last;
    last = slot;
  }
  if (ascending) return;
  std::vector<int64_t> sorted(args.slots.begin(), args.slots.end());
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] >= 0 && sorted[i] == sorted[i - 1]) {
      BadRotate("slots: slot " + Number(sorted[i]) + " is given to two tokens");
    }
  }
}

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

// What a row and a decay are made from.
const Frequencies& FrequenciesOf(const RotateArgs& args) {
  return args.table != nullptr ? args.table->frequencies() : *args.frequencies;
}

template <class Visit>
void ForEachToken(const Positions& positions, int64_t batch, int64_t tokens, const Visit& visit) {
  PositionCursor cursor(positions, tokens, 0);
  for (int64_t i = 0;;) {
    visit(cursor);
    if (++i == batch * tokens) return;
    cursor.Next();
  }
}

void CheckDecay(const RotateArgs& args, const std::vector<Operand>& operands, int64_t batch,
                int64_t tokens) {
  const Frequencies& f = FrequenciesOf(args);
  if (f.log_decay.empty()) return;
  double low = f.log_decay[0], high = low;
  for (const double d : f.log_decay) low = std::min(low, d), high = std::max(high, d);
  const double inverse = args.direction == Direction::kInverse ? -1 : 1;
  ForEachToken(args.positions, batch, tokens, [&](const PositionCursor& cursor) {
    const double n = static_cast<double>(cursor.position()) - f.decay_centre;
    for (const Operand& o : operands) {
      if (o.decay == 0 || o.empty()) continue;
      const double largest = std::max(o.decay * inverse * n * low, o.decay * inverse * n * high);
      const double limit = (o.out.dtype == DType::kF16 ? 8 : 64) * std::log(2.0);
      if (largest <= limit) continue;
      BadRotate("position " + Number(cursor.position()) + ": xPos multiplies " + o.name + " by e^" +
                std::to_string(largest) + ", out of the range of " + Name(o.out.dtype) +
                "; choose XposDecay::centre nearer to the positions in use (" +
                std::to_string(f.decay_centre) + ")");
    }
  });
}

struct ListedRows {
  std::vector<int64_t> positions;  // ascending
  AlignedBuffer<float> rows;
};

ListedRows RowsFor(const RotateArgs& args, int64_t batch, int64_t tokens) {
  const Frequencies& f = *args.frequencies;
  ListedRows out;
  ForEachToken(args.positions, batch, tokens, [&](const PositionCursor& cursor) {
    const int axes = args.positions.axes();
    for (int axis = 0; axis < axes; ++axis) out.positions.push_back(cursor.position(axis));
  });
  std::sort(out.positions.begin(), out.positions.end());
  out.positions.erase(std::unique(out.positions.begin(), out.positions.end()), out.positions.end());
  out.rows = AlignedBuffer<float>(out.positions.size() * 2 * f.inv_freq.size());
  FillCosSin(f, out.positions, args.precision, out.rows.data());
  return out;
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

void AddOperand(const Operand& o, ExtendedParams& p) {
  if (o.empty()) return;
  ExtendedOperand& e = p.operands[p.num_operands++];
  e.views = {.in = o.in.data,
             .out = o.out.data,
             .heads = o.in.shape[2],
             .in_strides = {o.in.strides[0], o.in.strides[1], o.in.strides[2]},
             .out_strides = {o.out.strides[0], o.out.strides[1], o.out.strides[2]}};
  e.out_dtype = o.out.dtype;
  e.rotated_heads = o.rotated_heads;
  e.decay = o.decay;
  e.norm_weight = o.norm == nullptr || o.norm->weight.empty() ? nullptr : o.norm->weight.data();
  e.norm_eps = e.norm_weight == nullptr ? 0 : o.norm->eps;
  e.to_slots = o.to_slots;
  if (o.to_slots) p.block_slots = std::max<int64_t>(1, o.out.shape[1]);
  p.rotate.token_bytes += o.in.shape[2] * o.in.shape[3] * SizeOf(o.in.dtype);
}

ExtendedParams MakeParams(const RotateArgs& args, const Operand& q) {
  const Frequencies& f = FrequenciesOf(args);
  ExtendedParams p;
  p.rotate.dtype = q.in.dtype;
  p.rotate.layout = args.layout;
  p.rotate.head_dim = q.in.shape[3];
  p.rotate.first_dim = args.first_dim;
  p.rotate.tokens = q.in.shape[1];
  p.rotate.positions = args.positions;
  p.rotate.negate_sin = args.direction != Direction::kForward;
  if (args.direction == Direction::kInverse) {
    const double amplitude = args.table != nullptr ? args.table->amplitude() : f.amplitude;
    p.rotate.scale = 1 / (amplitude * amplitude);
    p.decay_sign = -1;
  }
  if (f.axes > 1 && args.positions.axes() > 1 && !f.axis.empty()) {
    p.axis = f.axis.data();
    p.axes = f.axes;
  }
  if (!f.log_decay.empty()) p.log_decay = f.log_decay.data();
  p.decay_centre = f.decay_centre;
  if (!args.slots.empty()) p.slots = args.slots.data();
  return p;
}

void Run(const ExtendedParams& p, int64_t tokens) {
  const int threads = static_cast<int>(
      std::min<int64_t>(ThreadsFor(p.rotate.token_bytes * tokens / kBytesPerNs), tokens));
  const int64_t size = ExtendedScratchSize(p);
  AlignedBuffer<double> scratch(static_cast<std::size_t>(size * threads));
  if (threads == 1) return RotateTokensExtended(p, 0, tokens, scratch.data());
#pragma omp parallel num_threads(threads)
  {
    const int64_t thread = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    RotateTokensExtended(p, tokens * thread / team, tokens * (thread + 1) / team,
                         scratch.data() + thread * size);
  }
}

}  // namespace

bool IsExtended(const RotateArgs& args) {
  const auto converts = [](const TensorView& in, const TensorView& out) {
    return out.rank != 0 && out.dtype != in.dtype;
  };
  if (args.table == nullptr || args.frequencies != nullptr) return true;
  const Frequencies& f = args.table->frequencies();
  return args.positions.axes() > 1 || !f.log_decay.empty() || args.v.rank != 0 ||
         args.v_out.rank != 0 || args.rotated_heads != 0 || !args.slots.empty() ||
         !args.q_norm.weight.empty() || !args.k_norm.weight.empty() ||
         converts(args.q, args.q_out) || converts(args.k, args.k_out);
}

void RotateExtended(const RotateArgs& args) {
  if ((args.table == nullptr) == (args.frequencies == nullptr)) {
    BadRotate("table: expected a CosSinTable, or frequencies to compute angles from, and not both");
  }
  const std::vector<Operand> operands = Operands(args);
  const TensorView& q = operands[0].in;
  const Frequencies& f = FrequenciesOf(args);
  const int64_t pairs =
      args.table != nullptr ? args.table->pairs() : static_cast<int64_t>(f.inv_freq.size());
  CheckDims(args, pairs, q.shape[3]);
  CheckNorms(args, q.shape[3]);
  int64_t tokens = 0;
  if (__builtin_mul_overflow(q.shape[0], q.shape[1], &tokens)) BadRotate("q: too many tokens");
  CheckSlots(args, operands, tokens);
  if (tokens == 0) return;
  CheckPositions(args.positions, f.axes, q.shape[0], q.shape[1], args.table);
  CheckMemory(operands);
  CheckDecay(args, operands, q.shape[0], q.shape[1]);

  ExtendedParams p = MakeParams(args, operands[0]);
  p.rotate.pairs = pairs;
  ListedRows listed;
  if (args.table != nullptr) {
    p.rotate.rows = args.table->Row(args.table->first());
    p.rotate.first_position = args.table->first();
  } else {
    listed = RowsFor(args, q.shape[0], q.shape[1]);
    p.rotate.rows = listed.rows.data();
    p.row_positions = listed.positions.data();
    p.num_rows = static_cast<int64_t>(listed.positions.size());
  }
  for (const Operand& o : operands) AddOperand(o, p);
  p.rotate.prefetch_bytes = PrefetchBytes(p.rotate.dtype, p.rotate.token_bytes * tokens);
  if (p.num_operands > 0) Run(p, tokens);
}

}  // namespace ropewalk::internal
