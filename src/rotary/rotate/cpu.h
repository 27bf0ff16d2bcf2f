// The rotation kernels on the CPU: plain data in, no checks, no exceptions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/rotary/rotate/params.h"

namespace ropewalk::internal {

// Pairs for which the plain kernel's rearranged row fits its own stack frame.
inline constexpr int64_t kStackPairs = 256;

// Offsets into a thread's scratch of the general kernel, in doubles, each on a cache line.
struct GeneralScratch {
  explicit GeneralScratch(const RotateParams& p) {
    const auto lines = [](int64_t doubles) { return (doubles + 7) / 8 * 8; };
    const int64_t row = lines(p.pairs);  // 2 * pairs floats
    axis = row;
    decayed = axis + lines((p.pairs + 1) / 2);
    prepared = decayed + row;
    heads = prepared + lines(4 * p.pairs);
    int64_t most_heads = 0;  // of an operand that goes through a buffer
    for (int i = 0; i < p.num_operands; ++i) {
      const RotateOperand& o = p.operands[i];
      const bool direct = o.norm_weight == nullptr && o.out_dtype == p.dtype;
      if (!direct) most_heads = std::max(most_heads, o.heads);
    }
    size = heads + lines(most_heads * p.head_dim);
  }
  int64_t gathered = 0, axis, decayed, prepared, heads, size;
};

// Rotate tokens begin .. end - 1 of batch * tokens, at least one. `scratch` is 64-byte aligned.
//
// Plain: every head of every operand rotates by a row of one range of positions, without norm or
// xPos, into the same type and no cache. 4 * pairs doubles when pairs > kStackPairs, else none.
void RotatePlain(const RotateParams& params, int64_t begin, int64_t end, double* scratch) noexcept;
// All else; for what is plain too, with the same bits. GeneralScratch(params).size doubles.
void RotateGeneral(const RotateParams& params, int64_t begin, int64_t end,
                   double* scratch) noexcept;

int64_t RotatePlainTarget();  // the HWY_TARGET that dispatch chooses; for tests
int64_t RotateGeneralTarget();

}  // namespace ropewalk::internal
