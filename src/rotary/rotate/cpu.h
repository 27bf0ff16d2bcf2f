// The rotation kernel on the CPU: plain data in, no checks, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

// q or k. Strides in elements; pointers to element 0 of head 0 of token 0 of batch 0.
struct RotateOperand {
  const void* in;
  void* out;
  int64_t heads;
  int64_t in_strides[3];   // batch, token, head
  int64_t out_strides[3];  // batch, token, head
};

struct RotateParams {
  RotateOperand operands[2];
  int num_operands = 0;
  int64_t token_bytes = 0;  // of all operands
  DType dtype = DType::kF32;
  PairLayout layout = PairLayout::kHalf;
  int64_t pairs = 0;
  int64_t head_dim = 0;
  int64_t first_dim = 0;
  int64_t tokens = 0;  // of one sequence of the batch
  Positions positions = Positions::From(0);
  const float* rows = nullptr;  // [.., 2, pairs], the table
  int64_t first_position = 0;   // of rows
  double scale = 1;             // multiplies cos and sin: 1 / amplitude^2 for the inverse
  bool negate_sin = false;      // adjoint and inverse
  int64_t prefetch_bytes = 0;   // how far ahead of a head to prefetch, 0 for not at all
};

// How far ahead to prefetch in a call that moves `bytes`. It gains 1.25 times for 16-bit types from
// memory, costs them 5 % in the second-level cache, and costs wider types 5 to 15 %.
inline int64_t PrefetchBytes(DType dtype, int64_t bytes) {
  return SizeOf(dtype) == 2 && bytes >= int64_t{1} << 20 ? 1024 : 0;
}

// Pairs for which the kernel's rearranged row fits its own stack frame.
inline constexpr int64_t kStackPairs = 256;

// Tokens begin .. end - 1 of batch * tokens, at least one. `scratch`: 4 * pairs doubles, 64-byte
// aligned, used when pairs > kStackPairs; else may be null.
void RotateTokens(const RotateParams& params, int64_t begin, int64_t end, double* scratch) noexcept;

int64_t RotateTarget();  // the HWY_TARGET that dispatch chooses; for tests

}  // namespace ropewalk::internal
