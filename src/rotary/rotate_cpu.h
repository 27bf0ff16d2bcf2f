// The rotation kernel on the CPU: plain data in, no checks, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

// q or k. Strides in elements; pointers to element 0 of head 0 of token 0 of batch 0.
struct RotateOperand {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t heads = 0;
  int64_t in_strides[3] = {};   // batch, token, head
  int64_t out_strides[3] = {};  // batch, token, head
};

struct RotateParams {
  RotateOperand operands[2];
  int num_operands = 0;
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
  bool native_bf16 = false;     // round with vcvtneps2bf16
};

// Pairs for which the kernel's rearranged row fits its own stack frame.
inline constexpr int64_t kStackPairs = 256;

// Tokens begin .. end - 1 of batch * tokens, at least one. `scratch`: 4 * pairs doubles, 64-byte
// aligned, used when pairs > kStackPairs; else may be null.
void RotateTokens(const RotateParams& params, int64_t begin, int64_t end, double* scratch) noexcept;

bool HasNativeBf16();    // the CPU has avx512_bf16 and the chosen target is AVX-512
int64_t RotateTarget();  // the HWY_TARGET that dispatch chooses; for tests

}  // namespace ropewalk::internal
