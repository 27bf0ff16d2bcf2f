#include "src/rotary/rotate/extended.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "src/base/parallel.h"
#include "src/rotary/positions/check.h"
#include "src/rotary/positions/cursor.h"
#include "src/rotary/rotate/extended_cpu.h"
#include "src/rotary/rotate/operands.h"
#include "src/rotary/rotate/views.h"

namespace ropewalk::internal {
namespace {

// Of the work: loading, storing, and a row a token; about what one core does in its L2.
constexpr int64_t kBytesPerNs = 20;

std::string Number(int64_t n) { return std::to_string(n); }

void CheckSlotValues(std::span<const int64_t> slots, int64_t count) {
  bool ascending = true;
  int64_t last = -1;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const int64_t slot = slots[i];
    if (slot < -1 || slot >= count) {
      BadRotate("slots: token " + Number(static_cast<int64_t>(i)) + " goes to slot " +
                Number(slot) + " of a cache of " + Number(count));
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
      BadRotate("slots: slot " + Number(sorted[i]) + " is given to two tokens");
    }
  }
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
  e.inverse_scale = o.inverse_scale;
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
  const CheckedCall call = CheckCall(args);
  const std::vector<Operand>& operands = call.operands;
  CheckSlotValues(args.slots, call.cache_slots);
  if (call.tokens == 0) return;
  const TensorView& q = operands[0].in;
  CheckPositions(args.positions, FrequenciesOf(args).axes, q.shape[0], q.shape[1], args.table);
  CheckMemory(operands);
  CheckDecay(args, operands, q.shape[0], q.shape[1]);

  ExtendedParams p = MakeParams(args, operands[0]);
  p.rotate.pairs = call.pairs;
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
  p.rotate.prefetch_bytes = PrefetchBytes(p.rotate.dtype, p.rotate.token_bytes * call.tokens);
  if (p.num_operands > 0) Run(p, call.tokens);
}

}  // namespace ropewalk::internal
