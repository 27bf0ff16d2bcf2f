// The rotation kernel for all that a plain call does not have: rows gathered over axes or from a
// list, xPos, a third tensor, norms in front, other types and cache slots behind. Plain data in, no
// checks, no exceptions.
#pragma once

#include <cstdint>

#include "src/rotary/rotate/cpu.h"

namespace ropewalk::internal {

struct ExtendedOperand {
  RotateOperand views;  // with slots, out_strides are those of a block, a slot, a head
  DType out_dtype;
  int64_t rotated_heads;     // the first ones; the others are copied
  int decay;                 // xPos: 1 grows (queries), -1 shrinks (keys), 0 neither
  const float* norm_weight;  // [head_dim], or null: no norm
  double norm_eps;
  bool to_slots;            // out is a cache
  float inverse_scale = 1;  // of what is stored in 8 bits
};

struct ExtendedParams {
  RotateParams rotate;  // all but its operands
  ExtendedOperand operands[3];
  int num_operands = 0;
  int64_t token_bytes = 0;        // of all operands
  const uint8_t* axis = nullptr;  // [pairs], null: all pairs turn on axis 0
  int64_t axes = 1;
  const double* log_decay = nullptr;  // [pairs], xPos
  double decay_centre = 0;
  double decay_sign = 1;                   // -1 for the inverse
  const int64_t* row_positions = nullptr;  // positions of the rows, ascending; null: a range
  int64_t num_rows = 0;                    // of row_positions
  const int64_t* slots = nullptr;          // [batch * tokens], -1: is not written
  int64_t block_slots = 1;                 // slots of one block of the cache
};

// Doubles of scratch for one thread, 64-byte aligned.
int64_t ExtendedScratchSize(const ExtendedParams& params);

// Tokens begin .. end - 1 of batch * tokens.
void RotateTokensExtended(const ExtendedParams& params, int64_t begin, int64_t end,
                          double* scratch) noexcept;

int64_t RotateExtendedTarget();  // the HWY_TARGET that dispatch chooses; for tests

}  // namespace ropewalk::internal
