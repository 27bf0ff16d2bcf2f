// The rotation on a GPU: what a launch is told, and how it is planned (lanes_device.h: what
// its threads do).
//
// A row is a token's group of heads_per_row heads of one tensor. Its threads, side by side, share
// out the units of a head (unit_device.h), and those of the rest: one vector of elements that do
// not rotate, if they are written at all. The cosines and sines of a unit are loaded once for all
// heads of the row.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rotate.h"
#include "src/base/cuda.h"
#include "src/base/divisor.h"
#include "src/rotary/exact_angle.h"
#include "src/rotary/positions/device.h"
#include "src/rotary/rotate/unit_device.h"

namespace ropewalk::internal {

inline constexpr int kMostDevicePairs = 256;  // of angles on the fly, and on several axes
inline constexpr int kMostAxes = 4;

struct DeviceOperand {
  const void* in;
  void* out;
  int64_t in_strides[3];   // batch, token, head; in elements
  int64_t out_strides[3];  // the same; with slots of a block, a slot, a head
  int32_t heads;           // that are visited
  int32_t rotated_heads;
  int32_t rows;  // of a token
  int32_t decay;
  DType out_dtype;
  bool to_slots;
  bool copies;  // what does not rotate is written too
  float inverse_scale;
  const float* norm_weight;  // null: no norm
  double norm_eps;
};

struct RotateDeviceParams {
  DeviceOperand operands[3];
  int32_t num_operands = 0;
  int32_t rows_of_token = 0;
  int32_t heads_per_row = 1;
  int32_t units = 0;          // of a head
  int32_t rotated_units = 0;  // the first of them
  Divisor by_rows;            // rows_of_token
  int64_t rows = 0;           // of all tokens
  int64_t tokens = 0;         // of one sequence of the batch
  int64_t pairs = 0;
  int64_t head_dim = 0;
  float inverse_head_dim = 0;
  int64_t first_dim = 0;
  DevicePositions positions = {};
  const float* table = nullptr;  // [num_positions, 2, pairs]
  int64_t first_position = 0;
  int64_t num_positions = 0;
  double scale = 1;  // of cosines and sines
  bool negate_sin = false;
  bool decays = false;                // xPos
  const double* log_decay = nullptr;  // [pairs], of the table
  double decay_centre = 0;
  double decay_sign = 1;
  const int64_t* slots = nullptr;
  int64_t block_slots = 1;
  int64_t cache_slots = 0;
  CudaFaults* faults = nullptr;
  int32_t axes = 1;
  alignas(8) uint8_t axis[kMostDevicePairs] = {};  // where axes > 1
};

// Where cosines and sines come from: the table, or frequencies in the launch itself.
struct TableAngles {};
struct TurnAngles {
  Uint128 turns[kMostDevicePairs];
  double log_decay[kMostDevicePairs];
  double amplitude;
};

// A launch: the kernel by its numbers, and its grid. Threads of a block: lanes x rows.
struct RotateLaunch {
  DType dtype = DType::kF32;
  PairLayout layout = PairLayout::kHalf;
  int width = 1;              // V
  bool plain = false;         // PlainLane, else GeneralLane
  bool several_axes = false;  // PlainLane; GeneralLane always allows for them
  bool as_input = false;      // GeneralLane's, in full vectors, with a table
  bool on_the_fly = false;
  int lanes = 1;
  int rows_of_block = 1;
  int64_t blocks = 0;  // 0: nothing to do
  RotateDeviceParams params;
  TurnAngles angles;  // on the fly
};

// Checks the arguments, whose tensors lie on a GPU, and plans the launch. `log_decay`: of the
// table, in device memory.
RotateLaunch PlanRotateLaunch(const RotateArgs& args, const double* log_decay, int multiprocessors,
                              CudaFaults* faults);

// Puts it on the stream; Error (kUnsupported) where there is no CUDA.
void LaunchRotate(const RotateLaunch& launch, void* stream);

// Rotate for tensors of a GPU.
void RotateOnDevice(const RotateArgs& args);

}  // namespace ropewalk::internal
