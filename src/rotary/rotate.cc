#include "ropewalk/rotary/rotate.h"

#include <omp.h>

#include <algorithm>
#include <string>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/error.h"
#include "src/rotary/overlap.h"
#include "src/rotary/rotate_cpu.h"

namespace ropewalk {
namespace {

using internal::MayOverlap;
using internal::RotateOperand;
using internal::RotateParams;
using internal::SameElements;

// Waking a second thread costs about 2 us, which moves 64 KiB through a core's L2.
constexpr int64_t kParallelBytes = int64_t{1} << 16;

[[noreturn]] void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "Rotate: " + message);
}

std::string Number(int64_t n) { return std::to_string(n); }

// [tokens, heads, head_dim] as [1, tokens, heads, head_dim].
TensorView WithBatch(const TensorView& view, const char* name) {
  if (view.rank == 4) return view;
  if (view.rank != 3) {
    Bad(std::string(name) +
        ": expected [tokens, heads, head_dim] or [batch, tokens, heads, "
        "head_dim], got " +
        view.ShapeString());
  }
  TensorView out = view;
  out.rank = 4;
  for (int i = 3; i > 0; --i) {
    out.shape[i] = view.shape[i - 1];
    out.strides[i] = view.strides[i - 1];
  }
  out.shape[0] = 1;
  out.strides[0] = 0;
  return out;
}

void CheckView(const TensorView& view, const char* name) {
  if (view.device != Device::kCpu) Bad(std::string(name) + ": expected memory of the CPU");
  if (view.strides[3] != 1 && view.shape[3] > 1) {
    Bad(std::string(name) + ": the elements of a head must be contiguous, got last stride " +
        Number(view.strides[3]));
  }
  for (int i = 0; i < 4; ++i) {  // a footprint of over 2^56 bytes is no memory, and could overflow
    int64_t span = 0;
    if (view.shape[i] < 0 || view.strides[i] == INT64_MIN ||
        __builtin_mul_overflow(view.shape[i], std::abs(view.strides[i]), &span) ||
        span > int64_t{1} << 53) {
      Bad(std::string(name) + ": shape " + view.ShapeString() + " with stride " +
          Number(view.strides[i]) + " is not addressable");
    }
  }
}

void CheckSame(const TensorView& a, const char* a_name, const TensorView& b, const char* b_name,
               bool heads_too) {
  const bool same = a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] &&
                    a.shape[3] == b.shape[3] && (!heads_too || a.shape[2] == b.shape[2]);
  if (!same) {
    Bad(std::string(b_name) + ": shape " + b.ShapeString() + " does not fit that of " + a_name +
        ", " + a.ShapeString());
  }
  if (a.dtype != b.dtype) {
    Bad(std::string(b_name) + ": expected " + Name(a.dtype) + " as " + a_name + ", got " +
        Name(b.dtype));
  }
}

// What the call reads and writes, with a batch dimension everywhere.
struct Checked {
  TensorView in[2];
  TensorView out[2];
  int count = 0;
};

const char* const kInNames[] = {"q", "k"};
const char* const kOutNames[] = {"q_out", "k_out"};

Checked CheckViews(const RotateArgs& args) {
  const TensorView* in[] = {&args.q, &args.k};
  const TensorView* out[] = {&args.q_out, &args.k_out};
  Checked c;
  for (int i = 0; i < 2; ++i) {
    if (i == 1 && in[i]->rank == 0) {
      if (out[i]->rank != 0) Bad("k_out is given without k");
      continue;
    }
    c.in[i] = WithBatch(*in[i], kInNames[i]);
    CheckView(c.in[i], kInNames[i]);
    c.out[i] = c.in[i];
    if (out[i]->rank != 0) {
      c.out[i] = WithBatch(*out[i], kOutNames[i]);
      CheckView(c.out[i], kOutNames[i]);
      CheckSame(c.in[i], kInNames[i], c.out[i], kOutNames[i], true);
    }
    if (i == 1) CheckSame(c.in[0], "q", c.in[1], "k", false);
    c.count = i + 1;
  }
  return c;
}

void CheckDims(const RotateArgs& args, const TensorView& q) {
  if (args.table == nullptr) Bad("table: expected a CosSinTable, got null");
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    Bad("layout: not a value of PairLayout");
  }
  const int64_t rotary_dim = 2 * args.table->pairs();
  if (args.first_dim < 0 || rotary_dim == 0 || args.first_dim > q.shape[3] - rotary_dim) {
    Bad("first_dim " + Number(args.first_dim) + " and the table's rotary_dim " +
        Number(rotary_dim) + " do not fit head_dim " + Number(q.shape[3]));
  }
}

bool Empty(const TensorView& view) {
  return view.shape[0] == 0 || view.shape[1] == 0 || view.shape[2] == 0;
}

void CheckOverlap(const Checked& c) {
  for (int i = 0; i < c.count; ++i) {
    if (Empty(c.in[i])) continue;
    if (c.in[i].data == nullptr) Bad(std::string(kInNames[i]) + ": data is null");
    if (c.out[i].data == nullptr) Bad(std::string(kOutNames[i]) + ": data is null");
    if (internal::FootprintOf(c.out[i]).self_overlap) {
      Bad(std::string(kInNames[i]) + ": where it is written, elements share memory (strides)");
    }
    if (!SameElements(c.in[i], c.out[i]) && MayOverlap(c.in[i], c.out[i])) {
      Bad(std::string(kOutNames[i]) + " overlaps " + kInNames[i] +
          " in part; rotate in place or into separate memory");
    }
  }
  if (c.count < 2 || Empty(c.in[0]) || Empty(c.in[1])) return;
  if (MayOverlap(c.out[0], c.out[1])) Bad("q and k are written to overlapping memory");
  const bool in_place[] = {SameElements(c.in[0], c.out[0]), SameElements(c.in[1], c.out[1])};
  if (!in_place[0] && MayOverlap(c.out[0], c.in[1])) Bad("q_out overlaps k");
  if (!in_place[1] && MayOverlap(c.out[1], c.in[0])) Bad("k_out overlaps q");
}

void CheckRange(const CosSinTable& table, int64_t low, int64_t high, const std::string& whose) {
  if (table.Contains(low) && table.Contains(high)) return;
  const int64_t bad = table.Contains(low) ? high : low;
  const std::string holds = table.count() == 0 ? "no positions"
                                               : "positions " + Number(table.first()) + " to " +
                                                     Number(table.first() + table.count() - 1);
  Bad("position " + Number(bad) + " (" + whose + ") is outside the table, which holds " + holds +
      "; build or grow the table for the positions in use");
}

template <class I>
void CheckEach(const RotateArgs& args, int64_t tokens, int64_t batch) {
  const I* p = static_cast<const I*>(args.positions.data());
  const int64_t n = args.positions.size();
  if (n != tokens && n != tokens * batch) {
    Bad("positions: expected one a token, " + Number(batch * tokens) + ", got " + Number(n));
  }
  I low = p[0];
  I high = p[0];
  for (int64_t i = 1; i < n; ++i) {
    low = std::min(low, p[i]);
    high = std::max(high, p[i]);
  }
  if (args.table->Contains(low) && args.table->Contains(high)) return;
  for (int64_t i = 0; i < n; ++i) CheckRange(*args.table, p[i], p[i], "of token " + Number(i));
}

void CheckStart(const CosSinTable& table, int64_t start, int64_t tokens, int64_t sequence) {
  // start + tokens - 1 could overflow, so it is looked at only if the start is in the table.
  if (table.Contains(start) && table.Contains(start + tokens - 1)) return;
  CheckRange(table, start, start, "the start of sequence " + Number(sequence));
  CheckRange(table, start + tokens - 1, start + tokens - 1,
             "the last token of sequence " + Number(sequence));
}

void CheckPacked(const RotateArgs& args, int64_t all_tokens) {
  const int64_t* b = static_cast<const int64_t*>(args.positions.data());
  const int64_t n = args.positions.size();
  if (n < 2 || b[0] != 0 || b[n - 1] != all_tokens) {
    Bad("positions: packed boundaries must go from 0 to the number of tokens, " +
        Number(all_tokens));
  }
  int64_t longest = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (b[i] < b[i - 1]) Bad("positions: packed boundaries decrease at " + Number(i));
    longest = std::max(longest, b[i] - b[i - 1]);
  }
  CheckRange(*args.table, 0, 0, "the first of a packed sequence");
  CheckRange(*args.table, longest - 1, longest - 1, "the last of the longest packed sequence");
}

void CheckPositions(const RotateArgs& args, int64_t batch, int64_t tokens) {
  const Positions& p = args.positions;
  if (p.data() == nullptr && p.kind() != Positions::Kind::kStart) {
    Bad("positions: expected one a token or a sequence, got none");
  }
  switch (p.kind()) {
    case Positions::Kind::kStart:
      return CheckStart(*args.table, p.start(), tokens, 0);
    case Positions::Kind::kEach32:
      return CheckEach<int32_t>(args, tokens, batch);
    case Positions::Kind::kEach64:
      return CheckEach<int64_t>(args, tokens, batch);
    case Positions::Kind::kStarts:
      if (p.size() != batch) {
        Bad("positions: expected one start a sequence, " + Number(batch) + ", got " +
            Number(p.size()));
      }
      for (int64_t b = 0; b < batch; ++b) {
        CheckStart(*args.table, static_cast<const int64_t*>(p.data())[b], tokens, b);
      }
      return;
    case Positions::Kind::kPacked:
      return CheckPacked(args, batch * tokens);
  }
}

RotateParams MakeParams(const RotateArgs& args, const Checked& c) {
  RotateParams p;
  for (int i = 0; i < c.count; ++i) {
    if (Empty(c.in[i])) continue;
    RotateOperand& operand = p.operands[p.num_operands++];
    operand.in = c.in[i].data;
    operand.out = c.out[i].data;
    operand.heads = c.in[i].shape[2];
    std::copy(c.in[i].strides, c.in[i].strides + 3, operand.in_strides);
    std::copy(c.out[i].strides, c.out[i].strides + 3, operand.out_strides);
  }
  p.dtype = c.in[0].dtype;
  p.layout = args.layout;
  p.pairs = args.table->pairs();
  p.head_dim = c.in[0].shape[3];
  p.first_dim = args.first_dim;
  p.tokens = c.in[0].shape[1];
  p.positions = args.positions;
  p.rows = args.table->Row(args.table->first());
  p.first_position = args.table->first();
  p.negate_sin = args.direction != Direction::kForward;
  if (args.direction == Direction::kInverse) {
    p.scale = 1 / (args.table->amplitude() * args.table->amplitude());
  }
  p.native_bf16 = p.dtype == DType::kBF16 && internal::HasNativeBf16();
  return p;
}

}  // namespace

void Rotate(const RotateArgs& args) {
  const Checked c = CheckViews(args);
  CheckDims(args, c.in[0]);
  const int64_t batch = c.in[0].shape[0];
  const int64_t tokens = c.in[0].shape[1];
  int64_t all_tokens = 0;
  if (__builtin_mul_overflow(batch, tokens, &all_tokens)) Bad("q: too many tokens");
  if (all_tokens == 0) return;
  CheckPositions(args, batch, tokens);
  CheckOverlap(c);
  const RotateParams p = MakeParams(args, c);
  if (p.num_operands == 0) return;

  const int64_t token_bytes =
      (p.operands[0].heads + p.operands[1].heads) * p.head_dim * SizeOf(p.dtype);
  int64_t threads = 1;
  if (all_tokens > 1 && token_bytes >= kParallelBytes / all_tokens && !omp_in_parallel()) {
    threads = std::min<int64_t>(omp_get_max_threads(), all_tokens);
  }
  const int64_t scratch_size = p.pairs > internal::kStackPairs ? 4 * p.pairs : 0;
  AlignedBuffer<double> scratch(static_cast<std::size_t>(scratch_size * threads));
  const auto scratch_of = [&](int64_t thread) {
    return scratch_size == 0 ? nullptr : scratch.data() + thread * scratch_size;
  };
  if (threads == 1) {
    internal::RotateTokens(p, 0, all_tokens, scratch_of(0));
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    // A team can be smaller than asked for.
    const int64_t thread = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    internal::RotateTokens(p, all_tokens * thread / team, all_tokens * (thread + 1) / team,
                           scratch_of(thread));
  }
}

}  // namespace ropewalk
