// The tensors of a call and what must hold of them, for the CPU and for a GPU alike: nothing here
// reads what they point to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/rotary/rotate.h"
#include "src/rotary/rotate/overlap.h"

namespace ropewalk::internal {

// q, k or v, checked by itself.
struct Operand {
  const char* name;
  std::string out_name;
  TensorView in, out;  // four dimensions; a cache is [blocks, slots of a block, heads, head_dim]
  int64_t rotated_heads;
  int decay;
  const HeadNorm* norm;
  bool to_slots;
  float inverse_scale = 1;  // of what is stored in 8 bits

  bool empty() const { return in.shape[0] == 0 || in.shape[1] == 0 || in.shape[2] == 0; }
  bool in_place() const { return !to_slots && in.dtype == out.dtype && SameElements(in, out); }
  int64_t cache_slots() const { return out.shape[0] * out.shape[1]; }
};

// What a row and a decay are made from.
inline const Frequencies& FrequenciesOf(const RotateArgs& args) {
  return args.table != nullptr ? args.table->frequencies() : *args.frequencies;
}

// A call, checked but for positions and slots, whose values a GPU has.
struct CheckedCall {
  std::vector<Operand> operands;  // q, k, v
  int64_t pairs = 0;
  int64_t tokens = 0;       // of the whole batch
  int64_t cache_slots = 0;  // where slots are given
};
CheckedCall CheckCall(const RotateArgs& args);

// Do they lie apart, but for tensors that are rotated in place? Once there are tokens.
void CheckMemory(const std::vector<Operand>& operands);

}  // namespace ropewalk::internal
