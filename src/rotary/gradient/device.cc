// Plans the sums of FrequencyGradient on a GPU.
#include "src/rotary/gradient/device.h"

#include <algorithm>
#include <string>

#include "ropewalk/base/error.h"
#include "src/rotary/gradient/check.h"
#include "src/rotary/positions/check.h"

namespace ropewalk {
namespace internal {
namespace {

// Of which a part's share can be counted in 64 bits.
constexpr int64_t kMostGradientItems = INT64_MAX / (kMostGradientParts + 1);

struct Shape {
  int64_t batch, tokens, heads;
};
Shape ShapeOf(const TensorView& view) {
  const int64_t* s = view.shape + view.rank - 3;
  return {view.rank == 4 ? view.shape[0] : 1, s[0], s[1]};
}

void SetStrides(const TensorView& view, int64_t* strides) {
  const int64_t* s = view.strides + view.rank - 3;
  strides[0] = view.rank == 4 ? view.strides[0] : 0;
  strides[1] = s[0];
  strides[2] = s[1];
}

int WidthFor(const RotaryGradientArgs& args) {
  const auto pairs = static_cast<int64_t>(args.frequencies->inv_freq.size());
  const bool fits = FullVectorsFit(args.value, args.layout, pairs, args.first_dim) &&
                    FullVectorsFit(args.gradient, args.layout, pairs, args.first_dim);
  return fits ? static_cast<int>(16 / SizeOf(args.value.dtype)) : 1;
}

// How the items are cut, with vectors of `width`: by the shape alone.
void Cut(int width, GradientLaunch& launch) {
  GradientParams& p = launch.params;
  launch.width = width;
  p.unit_pairs = launch.layout == PairLayout::kInterleaved && width > 1 ? width / 2 : width;
  p.units = static_cast<int32_t>(p.pairs / p.unit_pairs);
  p.lanes = std::min(p.units, kGradientThreads);
  p.rows = kGradientThreads / p.lanes;
  if (p.items > 0) {
    p.row_tokens = p.rows / p.groups;
    p.row_groups = p.rows % p.groups;
  }
  launch.chunks = (p.units + p.lanes - 1) / p.lanes;
  p.parts = std::min((p.items + p.rows - 1) / p.rows, kMostGradientParts);
  launch.workspace_bytes = p.parts * p.units * (p.unit_pairs + 2) * int64_t{sizeof(double)};
}

void SetAxes(const RotaryGradientArgs& args, GradientParams& p) {
  const Frequencies& f = *args.frequencies;
  p.axes = f.axis.empty() ? 1 : args.positions.axes();
  if (p.axes == 1) return;
  if (p.pairs > kMostGradientPairs) {
    BadGradient("frequencies: on a GPU several axes take at most " +
                std::to_string(kMostGradientPairs) + " pairs, got " + std::to_string(p.pairs));
  }
  std::copy(f.axis.begin(), f.axis.end(), p.axis);
}

void SetBase(std::span<const double> derivative, GradientParams& p) {
  p.with_base = !derivative.empty();
  if (!p.with_base) return;
  if (static_cast<int64_t>(derivative.size()) != p.pairs || p.pairs > kMostGradientPairs) {
    BadGradient("base_derivative: expected one per pair, " + std::to_string(p.pairs) +
                ", and on a GPU at most " + std::to_string(kMostGradientPairs) + ", got " +
                std::to_string(derivative.size()));
  }
  std::copy(derivative.begin(), derivative.end(), p.base_derivative);
}

}  // namespace

GradientLaunch PlanGradient(const RotaryGradientArgs& args,
                            std::span<const double> base_derivative) {
  CheckGradient(args, Device::kCuda);
  if (args.layout != PairLayout::kHalf && args.layout != PairLayout::kInterleaved) {
    BadGradient("layout: not a value of PairLayout");
  }
  if (args.value.dtype == DType::kF8E4M3) BadGradient("nothing computes in f8_e4m3");
  const Shape shape = ShapeOf(args.value);
  GradientLaunch launch;
  launch.dtype = args.value.dtype;
  launch.layout = args.layout;
  GradientParams& p = launch.params;
  p.value = args.value.data;
  p.gradient = args.gradient.data;
  SetStrides(args.value, p.value_strides);
  SetStrides(args.gradient, p.gradient_strides);
  p.first_dim = args.first_dim;
  p.pairs = static_cast<int64_t>(args.frequencies->inv_freq.size());
  p.amplitude = args.frequencies->amplitude;
  p.heads = shape.heads;
  p.groups = (shape.heads + kGradientHeads - 1) / kGradientHeads;
  p.items = shape.batch * shape.tokens * p.groups;  // at most one per element
  if (p.items > kMostGradientItems) BadGradient("too many tokens, " + args.value.ShapeString());
  if (p.items > 0) {
    CheckPositions(args.positions, args.frequencies->axes, shape.batch, shape.tokens, nullptr,
                   Device::kCuda);
    p.positions = ForDevice(args.positions, shape.tokens);
  }
  SetAxes(args, p);
  SetBase(base_derivative, p);
  launch.outputs = p.pairs + (p.with_base ? 2 : 1);
  Cut(WidthFor(args), launch);
  return launch;
}

}  // namespace internal

int64_t FrequencyGradientWorkspace(const RotaryGradientArgs& args) {
  internal::GradientLaunch launch = internal::PlanGradient(args, {});
  const int64_t bytes = launch.workspace_bytes;
  // Enough for memory that is aligned otherwise as well.
  const auto full = static_cast<int>(16 / SizeOf(launch.dtype));
  const int64_t unit = launch.layout == PairLayout::kInterleaved ? full / 2 : full;
  if (launch.params.pairs % unit != 0) return bytes;
  internal::Cut(launch.width == 1 ? full : 1, launch);
  return std::max(bytes, launch.workspace_bytes);
}

void FrequencyGradientOnDevice(const RotaryGradientArgs& args, void* workspace, double* out,
                               std::span<const double> base_derivative, void* stream) {
  internal::GradientLaunch launch = internal::PlanGradient(args, base_derivative);
  if (out == nullptr) internal::BadGradient("out is null");
  if (launch.workspace_bytes > 0 &&
      (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % alignof(double) != 0)) {
    internal::BadGradient("workspace: expected " + std::to_string(launch.workspace_bytes) +
                          " bytes of device memory, aligned for double");
  }
  launch.params.workspace = static_cast<double*>(workspace);
  launch.params.out = out;
  internal::LaunchGradient(launch, stream);
}

}  // namespace ropewalk
