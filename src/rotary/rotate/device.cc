// Plans the launch of a rotation on a GPU.
#include "src/rotary/rotate/device.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/rotary/positions/check.h"
#include "src/rotary/rotate/operands.h"
#include "src/rotary/rotate/views.h"
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
  const Frequencies& f = FrequenciesOf(args);
  if (args.table == nullptr && args.precision != AnglePrecision::kExact) {
    BadRotate("precision: angles on the fly are exact on a GPU; build a table of float32 ones");
  }
  if ((args.table == nullptr || f.axes > 1) && call.pairs > kMostDevicePairs) {
    BadRotate("frequencies: on a GPU angles on the fly and several axes take at most " +
              std::to_string(kMostDevicePairs) + " pairs, got " + std::to_string(call.pairs));
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

// Elements that do not rotate but are written or squared.
bool HasRest(const CheckedCall& call, const std::vector<DeviceOperand>& operands) {
  if (2 * call.pairs == call.operands[0].in.shape[3]) return false;
  return std::any_of(operands.begin(), operands.end(),
                     [](const DeviceOperand& o) { return o.copies; });
}

// Do vectors of `width` elements of the input's type fit everywhere?
bool Fits(const RotateArgs& args, const CheckedCall& call, int64_t width, bool rest) {
  const int64_t head_dim = call.operands[0].in.shape[3];
  const int64_t size = SizeOf(call.operands[0].in.dtype);
  const int64_t unit = args.layout == PairLayout::kInterleaved ? width / 2 : width;
  if (width > 1 && call.pairs % unit != 0) return false;
  if (args.first_dim % width != 0 || (rest && head_dim % width != 0)) return false;
  return std::all_of(call.operands.begin(), call.operands.end(), [&](const Operand& o) {
    return o.empty() ||
           (Aligned(o.in.data, o.in.strides, o.in.shape, size, width) &&
            Aligned(o.out.data, o.out.strides, o.out.shape, SizeOf(o.out.dtype), width));
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

DeviceOperand MakeOperand(const Operand& o) {
  DeviceOperand d{};
  d.in = o.in.data;
  d.out = o.out.data;
  for (int i = 0; i < 3; ++i) {
    d.in_strides[i] = o.in.strides[i];
    d.out_strides[i] = o.out.strides[i];
  }
  d.out_dtype = o.out.dtype;
  d.decay = o.decay;
  d.to_slots = o.to_slots;
  d.inverse_scale = o.inverse_scale;
  if (o.norm != nullptr && !o.norm->weight.empty()) {
    d.norm_weight = o.norm->weight.data();
    d.norm_eps = o.norm->eps;
  }
  d.copies = !o.in_place() || d.norm_weight != nullptr;
  d.rotated_heads = static_cast<int32_t>(o.rotated_heads);
  d.heads = static_cast<int32_t>(d.copies ? o.in.shape[2] : o.rotated_heads);
  return d;
}

void SetAngles(const RotateArgs& args, const CheckedCall& call, const double* log_decay,
               RotateLaunch& launch) {
  const Frequencies& f = FrequenciesOf(args);
  RotateDeviceParams& p = launch.params;
  p.pairs = call.pairs;
  p.negate_sin = args.direction != Direction::kForward;
  if (args.direction == Direction::kInverse) {
    p.scale = 1 / (f.amplitude * f.amplitude);
    p.decay_sign = -1;
  }
  p.decays = !f.log_decay.empty();
  p.decay_centre = f.decay_centre;
  if (f.axes > 1 && args.positions.axes() > 1 && !f.axis.empty()) {
    p.axes = f.axes;
    std::copy(f.axis.begin(), f.axis.end(), p.axis);
  }
  if (args.table != nullptr) {
    p.table = args.table->Row(args.table->first());
    p.first_position = args.table->first();
    p.num_positions = args.table->count();
    p.log_decay = log_decay;
    return;
  }
  launch.on_the_fly = true;
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    launch.angles.turns[i] = ToTurns(f.inv_freq[i]);
  }
  launch.angles.amplitude = f.amplitude;
  std::copy(f.log_decay.begin(), f.log_decay.end(), launch.angles.log_decay);
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
  if (__builtin_mul_overflow(tokens, int64_t{p.rows_of_token}, &p.rows)) {
    BadRotate("q: too many tokens");
  }
  launch.wide = !launch.plain || p.rows >= int64_t{1} << 31;
  const int64_t threads = p.rows * lanes < enough / 4 && lanes <= kThreadsOfSmallBlock
                              ? kThreadsOfSmallBlock
                              : kThreadsOfBlock;
  launch.rows_of_block = static_cast<int>(threads / lanes);
  launch.blocks = (p.rows + launch.rows_of_block - 1) / launch.rows_of_block;
  if (launch.blocks > INT32_MAX) BadRotate("q: too many tokens for one launch");
}

}  // namespace

RotateLaunch PlanRotate(const RotateArgs& args, const double* log_decay, int multiprocessors,
                        CudaFaults* faults) {
  const CheckedCall call = CheckCall(args);
  CheckDevice(args, call);
  RotateLaunch launch;
  if (call.tokens == 0) return launch;
  const TensorView& q = call.operands[0].in;
  const Frequencies& f = FrequenciesOf(args);
  CheckPositions(args.positions, f.axes, q.shape[0], q.shape[1], args.table, Device::kCuda);
  CheckMemory(call.operands);

  RotateDeviceParams& p = launch.params;
  std::vector<DeviceOperand> operands;
  for (const Operand& o : call.operands) {
    if (o.empty()) continue;
    if (o.in.shape[2] > INT32_MAX / 2) BadRotate(std::string(o.name) + ": too many heads");
    const DeviceOperand d = MakeOperand(o);
    if (o.to_slots) {
      p.block_slots = std::max<int64_t>(1, o.out.shape[1]);
      p.cache_slots = call.cache_slots;
    }
    if (d.heads > 0) operands.push_back(d);
  }
  if (operands.empty()) return launch;
  std::copy(operands.begin(), operands.end(), p.operands);
  p.num_operands = static_cast<int32_t>(operands.size());
  p.tokens = q.shape[1];
  p.head_dim = q.shape[3];
  p.first_dim = args.first_dim;
  p.positions = ForDevice(args.positions, q.shape[1]);
  p.slots = args.slots.empty() ? nullptr : args.slots.data();
  p.faults = faults;
  SetAngles(args, call, log_decay, launch);

  const bool rest = HasRest(call, operands);
  launch.dtype = q.dtype;
  launch.layout = args.layout;
  const bool plain = args.table != nullptr && !p.decays &&
                     std::all_of(operands.begin(), operands.end(), [&](const DeviceOperand& o) {
                       return o.norm_weight == nullptr && o.out_dtype == q.dtype;
                     });
  launch.width = WidthFor(args, call, rest, plain);
  launch.plain = plain && launch.width * SizeOf(q.dtype) == 16;
  p.rotated_units = RotatedUnits(args, call, launch.width);
  p.units = Units(args, call, launch.width, rest);
  SetGrid(call.tokens, multiprocessors, launch);
  return launch;
}

void RotateOnDevice(const RotateArgs& args) {
  const double* log_decay = args.table == nullptr ? nullptr : DeviceLogDecay(*args.table);
  const RotateLaunch launch = PlanRotate(args, log_decay, DeviceMultiprocessors(), DeviceFaults());
  if (launch.blocks > 0) LaunchRotate(launch, args.stream);
}

}  // namespace ropewalk::internal
