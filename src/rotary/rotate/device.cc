// Plans the launch of a rotation on a GPU.
#include "src/rotary/rotate/device.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/rotary/rotate/check.h"
#include "src/rotary/rotate/plan.h"
#include "src/rotary/table_device.h"

namespace ropewalk::internal {
namespace {

constexpr int kWarp = 32;
constexpr int64_t kThreadsOfBlock = 256;
constexpr int64_t kThreadsOfSmallBlock = 64;  // spreads a token over more multiprocessors
// Threads that keep a multiprocessor's loads under way; beyond them a row takes several heads.
constexpr int64_t kThreadsToFill = 1024;
constexpr int32_t kMostHeadsOfRow = 8;

void CheckDevice(const RotateArgs& args, const CheckedCall& call) {
  if (args.table == nullptr && args.precision != AnglePrecision::kExact) {
    BadRotate("precision: angles on the fly are exact on a GPU; build a table of float32 ones");
  }
  if ((args.table == nullptr || call.frequencies->axes > 1) && call.pairs > kMostDevicePairs) {
    BadRotate("frequencies: on a GPU angles on the fly and several axes take at most " +
              std::to_string(kMostDevicePairs) + " pairs, got " + std::to_string(call.pairs));
  }
  for (const Operand& o : call.operands) {
    if (!o.empty && o.in.shape[2] > INT32_MAX / 2)
      BadRotate(std::string(o.kind.name) + ": too many heads");
  }
}

// Rows of the table are aligned by the number of their pairs.
bool Aligned(const void* data, const int64_t* strides, const int64_t* shape, int64_t size,
             int64_t width) {
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size * width) != 0) return false;
  for (int i = 0; i < 3; ++i) {
    if (shape[i] > 1 && strides[i] % width != 0) return false;
  }
  return true;
}

// Whether there are elements that are not rotated but are written or squared.
bool HasRest(const RotateDeviceParams& p) {
  return 2 * p.pairs != p.head_dim && std::any_of(p.operands, p.operands + p.num_operands,
                                                  [](const DeviceOperand& o) { return o.copies; });
}

// Whether vectors of `width` elements of the input's type are aligned everywhere.
bool Fits(const RotateArgs& args, const CheckedCall& call, int64_t width, bool rest) {
  const int64_t head_dim = call.operands[0].in.shape[3];
  const int64_t size = SizeOf(call.operands[0].in.dtype);
  const int64_t unit = args.layout == PairLayout::kInterleaved ? width / 2 : width;
  if (width > 1 && call.pairs % unit != 0) return false;
  if (args.first_dim % width != 0 || (rest && head_dim % width != 0)) return false;
  return std::all_of(call.operands.begin(), call.operands.end(), [&](const Operand& o) {
    return o.empty ||
           (Aligned(o.in.data, o.in.strides, o.in.shape, size, width) &&
            Aligned(o.out().data, o.out().strides, o.out().shape, SizeOf(o.out().dtype), width));
  });
}

int32_t RotatedUnits(const RotateArgs& args, const CheckedCall& call, int64_t width) {
  const bool one_vector = args.layout == PairLayout::kInterleaved && width > 1;
  return static_cast<int32_t>(call.pairs / (one_vector ? width / 2 : width));
}
int32_t Units(const RotateArgs& args, const CheckedCall& call, int64_t width, bool rest) {
  const int64_t others = call.operands[0].in.shape[3] - 2 * call.pairs;
  return RotatedUnits(args, call, width) + static_cast<int32_t>(rest ? others / width : 0);
}

// The widest vectors that fit and that there are kernels for.
int WidthFor(const RotateArgs& args, const CheckedCall& call, bool rest, bool plain) {
  const auto full = static_cast<int>(16 / SizeOf(call.operands[0].in.dtype));
  if (Fits(args, call, full, rest) && (plain || Units(args, call, full, rest) <= kWarp)) {
    return full;
  }
  return full == 8 && args.table != nullptr && Fits(args, call, 2, rest) ? 2 : 1;
}

DeviceOperand OperandOf(const RotateOperand& o) {
  DeviceOperand d{};
  d.in = o.in;
  d.out = o.out;
  std::copy(o.in_strides, o.in_strides + 3, d.in_strides);
  std::copy(o.out_strides, o.out_strides + 3, d.out_strides);
  d.out_dtype = o.out_dtype;
  d.decay = o.decay;
  d.to_slots = o.to_slots;
  d.inverse_scale = o.inverse_scale;
  d.norm_weight = o.norm_weight;
  d.norm_eps = o.norm_eps;
  d.copies = !o.in_place || d.norm_weight != nullptr;
  d.rotated_heads = static_cast<int32_t>(o.rotated_heads);
  d.heads = static_cast<int32_t>(d.copies ? o.heads : o.rotated_heads);
  return d;
}

// `log_decay`: in device memory, null where angles are computed on the fly.
void SetDeviceParams(const RotateParams& from, const double* log_decay, RotateDeviceParams& p) {
  for (int i = 0; i < from.num_operands; ++i) {
    const DeviceOperand d = OperandOf(from.operands[i]);
    if (d.heads > 0) p.operands[p.num_operands++] = d;
  }
  p.tokens = from.tokens;
  p.pairs = from.pairs;
  p.head_dim = from.head_dim;
  p.inverse_head_dim = 1 / static_cast<float>(from.head_dim);
  p.first_dim = from.first_dim;
  p.positions = ForDevice(from.positions, from.tokens);
  p.table = from.rows;
  p.first_position = from.first_position;
  p.scale = from.scale;
  p.negate_sin = from.negate_sin;
  p.decays = from.log_decay != nullptr;
  p.log_decay = log_decay;
  p.decay_centre = from.decay_centre;
  p.decay_sign = from.decay_sign;
  p.slots = from.slots;
  p.block_slots = from.block_slots;
  p.axes = from.axes;
  if (from.axis != nullptr) std::copy(from.axis, from.axis + from.pairs, p.axis);
}

void SetAngles(const Frequencies& f, TurnAngles& angles) {
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) angles.turns[i] = ToTurns(f.inv_freq[i]);
  angles.amplitude = f.amplitude;
  std::copy(f.log_decay.begin(), f.log_decay.end(), angles.log_decay);
}

// The grid: rows of as many heads as leave enough threads.
void SetGrid(int64_t tokens, int multiprocessors, RotateLaunch& launch) {
  RotateDeviceParams& p = launch.params;
  const int units = p.units;
  int lanes = static_cast<int>(std::min<int64_t>(units, kThreadsOfBlock));
  if (!launch.plain) {  // a power of two within a warp
    lanes = 1;
    while (lanes < units && lanes < kWarp) lanes *= 2;
  }
  launch.lanes = lanes;
  const auto rows_with = [&](int32_t heads) {
    int64_t rows = 0;
    for (int k = 0; k < p.num_operands; ++k) {
      p.operands[k].rows = (p.operands[k].heads + heads - 1) / heads;
      rows += p.operands[k].rows;
    }
    return rows;
  };
  const int64_t enough = kThreadsToFill * multiprocessors;
  p.heads_per_row = kMostHeadsOfRow;
  while (p.heads_per_row > 1 && rows_with(p.heads_per_row) * lanes * tokens < enough) {
    p.heads_per_row /= 2;
  }
  p.rows_of_token = static_cast<int32_t>(rows_with(p.heads_per_row));
  p.by_rows = Divisor(static_cast<uint32_t>(p.rows_of_token));
  if (__builtin_mul_overflow(tokens, int64_t{p.rows_of_token}, &p.rows)) {
    BadRotate("q: too many tokens");
  }
  const int64_t threads = p.rows * lanes < enough / 4 && lanes <= kThreadsOfSmallBlock
                              ? kThreadsOfSmallBlock
                              : kThreadsOfBlock;
  launch.rows_of_block = static_cast<int>(threads / lanes);
  launch.blocks = (p.rows + launch.rows_of_block - 1) / launch.rows_of_block;
  if (launch.blocks > INT32_MAX) BadRotate("q: too many tokens for one launch");
}

}  // namespace

RotateLaunch PlanRotateLaunch(const RotateArgs& args, const double* log_decay, int multiprocessors,
                              CudaFaults* faults) {
  const CheckedCall call = CheckRotate(args);
  CheckDevice(args, call);
  RotateLaunch launch;
  if (call.tokens == 0) return launch;
  RotateParams params;
  SetParams(args, call, params);
  RotateDeviceParams& p = launch.params;
  SetDeviceParams(params, args.table == nullptr ? nullptr : log_decay, p);
  if (p.num_operands == 0) return launch;
  p.faults = faults;
  p.cache_slots = call.cache_slots;
  launch.on_the_fly = args.table == nullptr;
  if (launch.on_the_fly) {
    SetAngles(*call.frequencies, launch.angles);
  } else {
    p.num_positions = args.table->count();
  }

  const bool rest = HasRest(p);
  launch.dtype = params.dtype;
  launch.layout = params.layout;
  const bool plain = !launch.on_the_fly && !p.decays && KeepsValues(params);
  launch.width = WidthFor(args, call, rest, plain);
  const bool full = launch.width * SizeOf(params.dtype) == 16;
  launch.plain = plain && full;
  launch.several_axes = p.axes > 1;
  launch.as_input =
      full && !plain && !launch.on_the_fly && !p.decays &&
      std::all_of(p.operands, p.operands + p.num_operands, [&](const auto& o) {
        return o.out_dtype == params.dtype && reinterpret_cast<uintptr_t>(o.norm_weight) % 16 == 0;
      });
  p.rotated_units = RotatedUnits(args, call, launch.width);
  p.units = Units(args, call, launch.width, rest);
  SetGrid(call.tokens, multiprocessors, launch);
  return launch;
}

void RotateOnDevice(const RotateArgs& args) {
  const double* log_decay = args.table == nullptr ? nullptr : DeviceLogDecay(*args.table);
  const RotateLaunch launch =
      PlanRotateLaunch(args, log_decay, DeviceMultiprocessors(), DeviceFaults());
  if (launch.blocks > 0) LaunchRotate(launch, args.stream);
}

}  // namespace ropewalk::internal
