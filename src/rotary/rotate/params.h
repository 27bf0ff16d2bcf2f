// A call of Rotate as its kernels on the CPU see it: plain data, checked.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rotate.h"

namespace ropewalk::internal {

// How the plain kernel converts bf16 and f16 with AVX-512; no bit depends on it. kZen, which needs
// avx512_bf16, is what was fastest on Zen 4, and slower on Sapphire Rapids.
enum class Tuning : uint8_t { kCommon, kZen };
Tuning BestTuning();  // of this CPU

// q, k or v. Strides in elements; pointers to element 0 of head 0 of token 0 of batch 0.
struct RotateOperand {
  const void* in;
  void* out;
  int64_t heads;
  int64_t in_strides[3];   // batch, token, head
  int64_t out_strides[3];  // batch, token, head; of a cache: block, slot, head
  int64_t rotated_heads;   // the first ones; the others are copied
  DType out_dtype;
  int decay;                 // xPos: 1 grows (queries), -1 shrinks (keys), 0 neither
  const float* norm_weight;  // [head_dim], or null: no norm
  double norm_eps;
  bool to_slots;  // out is a cache
  bool in_place;
  float inverse_scale;  // of what is stored in 8 bits
};

struct RotateParams {
  RotateOperand operands[3];
  int num_operands = 0;
  DType dtype = DType::kF32;
  PairLayout layout = PairLayout::kHalf;
  int64_t pairs = 0;
  int64_t head_dim = 0;
  int64_t first_dim = 0;
  int64_t tokens = 0;  // of one sequence of the batch
  Positions positions = Positions::From(0);
  const float* rows = nullptr;             // [.., 2, pairs], cos and sin
  int64_t first_position = 0;              // of rows, where they are those of a range
  const int64_t* row_positions = nullptr;  // of rows, ascending; null: a range
  int64_t num_rows = 0;                    // of row_positions
  double scale = 1;                        // of cos and sin: 1 / amplitude^2 for the inverse
  bool negate_sin = false;                 // adjoint and inverse
  const uint8_t* axis = nullptr;           // [pairs], null: all pairs rotate by axis 0
  int axes = 1;
  const double* log_decay = nullptr;  // [pairs], xPos
  double decay_centre = 0;
  double decay_sign = 1;           // -1 for the inverse
  const int64_t* slots = nullptr;  // [batch * tokens], -1: is not written
  int64_t block_slots = 1;         // slots of one block of the cache
  Tuning tuning = Tuning::kCommon;
  int64_t prefetch_bytes = 0;  // how far ahead of a head to prefetch, 0 for not at all
};

}  // namespace ropewalk::internal
