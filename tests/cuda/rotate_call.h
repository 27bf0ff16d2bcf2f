// A random call of Rotate in memory of the GPU.
#pragma once

#include <vector>

#include "tests/cuda/check.h"
#include "tests/rotary/rotate/random_call.h"

namespace ropewalk::gpu {

struct Sides {
  random_call::Tensor random_call::Call::*tensor;
  TensorView RotateArgs::*view;
  bool is_output;
};
inline constexpr Sides kSides[] = {{&random_call::Call::q, &RotateArgs::q, false},
                                   {&random_call::Call::k, &RotateArgs::k, false},
                                   {&random_call::Call::v, &RotateArgs::v, false},
                                   {&random_call::Call::q_out, &RotateArgs::q_out, true},
                                   {&random_call::Call::k_out, &RotateArgs::k_out, true},
                                   {&random_call::Call::v_out, &RotateArgs::v_out, true}};

// Fills outputs out of place with bytes of 255: NaN of every type, and nothing that is computed.
void Poison(random_call::Call& call);

// A copy of all that the call points to. `lists` must outlive it.
class CallOnGpu {
 public:
  CallOnGpu(const random_call::Call& call, const random_call::Lists& lists);
  void Download(random_call::Call& to) const;
  RotateArgs args;

 private:
  CosSinTable table_;
  Memory memory_;
  const void* of_side_[6] = {};
};

// Whether its results have the bits of the kernels run by the host: without sums over a head and
// exponentials.
inline bool HasBits(const random_call::Lists& lists) {
  return lists.weight.empty() && lists.frequencies.log_decay.empty();
}

}  // namespace ropewalk::gpu
