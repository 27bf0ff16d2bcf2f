#include "ropewalk/rotary/rotate.h"

#include <omp.h>

#include <algorithm>
#include <optional>
#include <string>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"
#include "src/base/parallel.h"
#include "src/rotary/positions/check.h"
#include "src/rotary/rotate/cpu.h"
#include "src/rotary/rotate/device.h"
#include "src/rotary/rotate/extended.h"
#include "src/rotary/rotate/overlap.h"
#include "src/rotary/rotate/views.h"

namespace ropewalk {
namespace {

using internal::CheckView;
using internal::Footprint;
using internal::FootprintOf;
using internal::MayOverlap;
using internal::RotateParams;
using internal::SameElements;
using internal::WithBatch;

// What a core rotates in its second-level cache, and from what on a second one pays: a call is all
// there is to wait for, so the bound is lower than for the many regions of a decoder.
constexpr int64_t kBytesPerNs = 50;
constexpr int64_t kWorthThreadsNs = 4000;

[[noreturn]] void Bad(const std::string& message) { internal::BadRotate(message); }

std::string Number(int64_t n) { return std::to_string(n); }

void CheckSame(const TensorView& a, const char* a_name, const TensorView& b, const char* b_name,
               bool heads_too) {
  internal::CheckSameShape(a, a_name, b, b_name, heads_too);
  internal::CheckSameType(a, a_name, b, b_name);
}

// q or k as it was given, checked by itself: with a batch dimension, and the memory it touches.
struct CheckedOperand {
  CheckedOperand(const TensorView& given, const char* in_name, const TensorView& given_out,
                 const char* name_of_out)
      : name(in_name),
        out_name(name_of_out),
        in(WithBatch(given, in_name)),
        out(given_out.rank == 0 ? in : WithBatch(given_out, name_of_out)) {
    CheckView(in, name);
    internal::CheckComputes(in, name);
    if (given_out.rank != 0) {
      CheckView(out, out_name);
      CheckSame(in, name, out, out_name, true);
    }
    empty = in.shape[0] == 0 || in.shape[1] == 0 || in.shape[2] == 0;
    in_place = given_out.rank == 0 || SameElements(in, out);
    if (empty) return;
    in_memory = FootprintOf(in);
    out_memory = in_place ? in_memory : FootprintOf(out);
  }

  const char* name;
  const char* out_name;
  TensorView in;
  TensorView out;
  bool empty;
  bool in_place;
  Footprint in_memory;  // not set when empty, out_memory neither
  Footprint out_memory;
};

void CheckDims(const RotateArgs& args, const TensorView& q) {
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    Bad("layout: not a value of PairLayout");
  }
  const int64_t rotary_dim = 2 * args.table->pairs();
  if (args.first_dim < 0 || rotary_dim == 0 || args.first_dim > q.shape[3] - rotary_dim) {
    Bad("first_dim " + Number(args.first_dim) + " and the table's rotary_dim " +
        Number(rotary_dim) + " do not fit head_dim " + Number(q.shape[3]));
  }
}

void CheckMemory(const CheckedOperand& o) {
  if (o.empty) return;
  if (o.in.data == nullptr) Bad(std::string(o.name) + ": data is null");
  if (o.out.data == nullptr) Bad(std::string(o.out_name) + ": data is null");
  if (o.out_memory.self_overlap) {
    Bad(std::string(o.name) + ": where it is written, elements share memory (strides)");
  }
  if (!o.in_place && MayOverlap(o.in_memory, o.out_memory)) {
    Bad(std::string(o.out_name) + " overlaps " + o.name +
        " in part; rotate in place or into separate memory");
  }
}

void CheckApart(const CheckedOperand& q, const CheckedOperand& k) {
  if (q.empty || k.empty) return;
  if (MayOverlap(q.out_memory, k.out_memory)) Bad("q and k are written to overlapping memory");
  if (!q.in_place && MayOverlap(q.out_memory, k.in_memory)) Bad("q_out overlaps k");
  if (!k.in_place && MayOverlap(k.out_memory, q.in_memory)) Bad("k_out overlaps q");
}

void AddOperand(const CheckedOperand& o, RotateParams& p) {
  if (o.empty) return;
  p.operands[p.num_operands++] = {
      .in = o.in.data,
      .out = o.out.data,
      .heads = o.in.shape[2],
      .in_strides = {o.in.strides[0], o.in.strides[1], o.in.strides[2]},
      .out_strides = {o.out.strides[0], o.out.strides[1], o.out.strides[2]}};
  p.token_bytes += o.in.shape[2] * o.in.shape[3] * SizeOf(o.in.dtype);
}

RotateParams MakeParams(const RotateArgs& args, const TensorView& q) {
  RotateParams p;
  p.dtype = q.dtype;
  p.layout = args.layout;
  p.pairs = args.table->pairs();
  p.head_dim = q.shape[3];
  p.first_dim = args.first_dim;
  p.tokens = q.shape[1];
  p.positions = args.positions;
  p.rows = args.table->Row(args.table->first());
  p.first_position = args.table->first();
  p.negate_sin = args.direction != Direction::kForward;
  if (args.direction == Direction::kInverse) {
    p.scale = 1 / (args.table->amplitude() * args.table->amplitude());
  }
  return p;
}

// Tokens are independent, so how they are shared out changes no bit.
void RotateOn(int threads, const RotateParams& params, int64_t tokens) {
  const int64_t scratch_size = params.pairs > internal::kStackPairs ? 4 * params.pairs : 0;
  AlignedBuffer<double> scratch(static_cast<std::size_t>(scratch_size * threads));
  double* const all_scratch = scratch.data();
  if (threads == 1) {
    internal::RotateTokens(params, 0, tokens, all_scratch);
    return;
  }
#pragma omp parallel num_threads(threads) firstprivate(tokens, scratch_size, all_scratch)
  {
    // A team can be smaller than asked for.
    const int64_t thread = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    internal::RotateTokens(params, tokens * thread / team, tokens * (thread + 1) / team,
                           all_scratch + thread * scratch_size);
  }
}

}  // namespace

void Rotate(const RotateArgs& args) {
  if (args.q.device == Device::kCuda) return internal::RotateOnDevice(args);
  if (internal::IsExtended(args)) return internal::RotateExtended(args);
  const CheckedOperand q(args.q, "q", args.q_out, "q_out");
  std::optional<CheckedOperand> k;
  if (args.k.rank != 0) {
    k.emplace(args.k, "k", args.k_out, "k_out");
    CheckSame(q.in, "q", k->in, "k", false);
  } else if (args.k_out.rank != 0) {
    Bad("k_out is given without k");
  }
  CheckDims(args, q.in);
  const int64_t batch = q.in.shape[0];
  const int64_t tokens = q.in.shape[1];
  int64_t all_tokens = 0;
  if (__builtin_mul_overflow(batch, tokens, &all_tokens)) Bad("q: too many tokens");
  if (all_tokens == 0) return;
  internal::CheckPositions(args.positions, args.table->frequencies().axes, batch, tokens,
                           args.table);
  CheckMemory(q);
  if (k) {
    CheckMemory(*k);
    CheckApart(q, *k);
  }

  RotateParams p = MakeParams(args, q.in);
  AddOperand(q, p);
  if (k) AddOperand(*k, p);
  if (p.num_operands == 0) return;
  const int64_t bytes = p.token_bytes * all_tokens;
  p.prefetch_bytes = internal::PrefetchBytes(p.dtype, bytes);
  const int64_t work_ns = bytes / kBytesPerNs;
  RotateOn(static_cast<int>(
               std::min<int64_t>(internal::ThreadsFor(work_ns, kWorthThreadsNs), all_tokens)),
           p, all_tokens);
}

}  // namespace ropewalk
