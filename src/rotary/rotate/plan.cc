#include "src/rotary/rotate/plan.h"

#include <algorithm>

#include "src/base/parallel.h"
#include "src/rotary/positions/cursor.h"
#include "src/rotary/rotate/cpu.h"

namespace ropewalk::internal {
namespace {

// What a core rotates in its second-level cache, and from what on a second one pays: a call is all
// there is to wait for, so the bound is lower than for the many regions of a decoder.
constexpr int64_t kBytesPerNs = 50;
constexpr int64_t kWorthNs = 4000;

// How far ahead to prefetch in a call that moves `bytes`. It gains 1.25 times for 16-bit types from
// memory, costs them 5 % in the second-level cache, and costs wider types 5 to 15 %.
int64_t PrefetchBytes(DType dtype, int64_t bytes) {
  return SizeOf(dtype) == 2 && bytes >= int64_t{1} << 20 ? 1024 : 0;
}

RotateOperand OperandOf(const Operand& o) {
  return {.in = o.in.data,
          .out = o.out().data,
          .heads = o.in.shape[2],
          .in_strides = {o.in.strides[0], o.in.strides[1], o.in.strides[2]},
          .out_strides = {o.out().strides[0], o.out().strides[1], o.out().strides[2]},
          .rotated_heads = o.rotated_heads,
          .out_dtype = o.out().dtype,
          .decay = o.kind.decay,
          .norm_weight = o.norm == nullptr ? nullptr : o.norm->weight.data(),
          .norm_eps = o.norm == nullptr ? 0 : o.norm->eps,
          .to_slots = o.to_slots,
          .in_place = o.in_place,
          .inverse_scale = o.inverse_scale};
}

bool IsPlain(const RotateParams& p) {
  if (p.row_positions != nullptr || p.axis != nullptr || p.log_decay != nullptr ||
      p.slots != nullptr) {
    return false;
  }
  return KeepsValues(p) &&
         std::all_of(p.operands, p.operands + p.num_operands,
                     [](const RotateOperand& o) { return o.rotated_heads == o.heads; });
}

// A row for each position that the call has on any axis.
void SetRows(const RotateArgs& args, int64_t tokens, RotatePlan& plan) {
  const Frequencies& f = *args.frequencies;
  std::vector<int64_t>& positions = plan.row_positions;
  PositionCursor cursor(args.positions, plan.params.tokens, 0);
  for (int64_t i = 0;;) {
    for (int axis = 0; axis < args.positions.axes(); ++axis) {
      positions.push_back(cursor.position(axis));
    }
    if (++i == tokens) break;
    cursor.Next();
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  plan.rows = AlignedBuffer<float>(positions.size() * 2 * f.inv_freq.size());
  FillCosSin(f, positions, args.precision, plan.rows.data());
  plan.params.rows = plan.rows.data();
  plan.params.row_positions = positions.data();
  plan.params.num_rows = static_cast<int64_t>(positions.size());
}

int64_t TokenBytes(const RotateParams& p) {
  int64_t heads = 0;
  for (int i = 0; i < p.num_operands; ++i) heads += p.operands[i].heads;
  return heads * p.head_dim * SizeOf(p.dtype);
}

}  // namespace

Tuning BestTuning() {
#if defined(__x86_64__)
  static const bool zen = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
  return zen ? Tuning::kZen : Tuning::kCommon;
#else
  return Tuning::kCommon;
#endif
}

void SetParams(const RotateArgs& args, const CheckedCall& call, RotateParams& p) {
  const Frequencies& f = *call.frequencies;
  const TensorView& q = call.operands[0].in;
  for (const Operand& o : call.operands) {
    if (o.empty) continue;
    p.operands[p.num_operands++] = OperandOf(o);
    if (o.to_slots) p.block_slots = std::max<int64_t>(1, o.out().shape[1]);
  }
  p.dtype = q.dtype;
  p.layout = args.layout;
  p.pairs = call.pairs;
  p.head_dim = q.shape[3];
  p.first_dim = args.first_dim;
  p.tokens = q.shape[1];
  p.positions = args.positions;
  if (args.table != nullptr) {
    p.rows = args.table->Row(args.table->first());
    p.first_position = args.table->first();
  }
  p.negate_sin = args.direction != Direction::kForward;
  if (args.direction == Direction::kInverse) {
    p.scale = 1 / (f.amplitude * f.amplitude);
    p.decay_sign = -1;
  }
  if (f.axes > 1 && args.positions.axes() > 1 && !f.axis.empty()) {
    p.axis = f.axis.data();
    p.axes = f.axes;
  }
  if (!f.log_decay.empty()) p.log_decay = f.log_decay.data();
  p.decay_centre = f.decay_centre;
  if (!args.slots.empty()) p.slots = args.slots.data();
}

bool KeepsValues(const RotateParams& p) {
  return std::all_of(p.operands, p.operands + p.num_operands, [&](const RotateOperand& o) {
    return o.norm_weight == nullptr && o.out_dtype == p.dtype;
  });
}

RotatePlan PlanRotate(const RotateArgs& args, const CheckedCall& call) {
  RotatePlan plan;
  RotateParams& p = plan.params;
  SetParams(args, call, p);
  if (p.num_operands == 0) return plan;  // nothing rotates: of any number of tokens
  if (args.table == nullptr) SetRows(args, call.tokens, plan);
  const int64_t bytes = TokenBytes(p) * call.tokens;
  p.tuning = BestTuning();
  p.prefetch_bytes = PrefetchBytes(p.dtype, bytes);
  plan.plain = IsPlain(p);
  plan.threads =
      static_cast<int>(std::min<int64_t>(ThreadsFor(bytes / kBytesPerNs, kWorthNs), call.tokens));
  plan.scratch = !plan.plain ? GeneralScratch(p).size : p.pairs > kStackPairs ? 4 * p.pairs : 0;
  return plan;
}

}  // namespace ropewalk::internal
