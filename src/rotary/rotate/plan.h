// Plans the kernel arguments of a checked call of Rotate.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "src/rotary/rotate/check.h"
#include "src/rotary/rotate/params.h"

namespace ropewalk::internal {

// The call as numbers, on the CPU and on a GPU alike; without rows of angles that are computed for
// this call alone. The call has tokens.
void SetParams(const RotateArgs& args, const CheckedCall& call, RotateParams& params);

// Whether tensors are only rotated: no norm before, no other type after.
bool KeepsValues(const RotateParams& params);

// What runs on the CPU.
struct RotatePlan {
  RotateParams params;
  bool plain = false;  // RotatePlain, else RotateGeneral
  int threads = 1;
  int64_t scratch = 0;  // doubles per thread
  // Rows of angles for this call alone, to which params point.
  std::vector<int64_t> row_positions;
  AlignedBuffer<float> rows;
};

RotatePlan PlanRotate(const RotateArgs& args, const CheckedCall& call);

}  // namespace ropewalk::internal
