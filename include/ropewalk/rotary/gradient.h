// Gradients of the rotation y = a R x, for training with learned frequencies or a learned base.
//
// With respect to x: Rotate with Direction::kAdjoint, dx = a R^T dy.
// With respect to the frequencies and the amplitude (YaRN's attention factor a), where J is the
// rotation by pi / 2, (x1, x2) -> (-x2, x1):
//   dL / d inv_freq[i] = sum over tokens and heads of position * <dy, J y>   (pair i)
//   dL / d a           = sum over tokens, heads and pairs of <dy, y> / a
// J commutes with R, so <dy, J y> = <dx, J x>: the sums need no cosines and can be computed from
// either side of the rotation, y and dy or x and dx.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {

struct RotaryGradientArgs {
  const Frequencies* frequencies = nullptr;  // those of the rotation
  PairLayout layout;                         // required
  Positions positions;                       // required; as in Rotate
  TensorView value;     // y, or x: [tokens, heads, head_dim] or [batch, ...], any float dtype
  TensorView gradient;  // dL/dy, or dL/dx: of the same side, shape and dtype
  int64_t first_dim = 0;
};

struct RotaryGradient {
  std::vector<double> inv_freq;  // [pairs], dL / d inv_freq
  double amplitude = 0;          // dL / d amplitude
};

// The gradient of one tensor; add those of q and k. Sums are in double; equal thread counts give
// equal bits. Throws Error as Rotate does.
RotaryGradient FrequencyGradient(const RotaryGradientArgs& args);

// The same for tensors on a GPU (Device::kCuda); lists of positions are in its memory too. The work
// is queued on `stream` (a cudaStream_t). It neither allocates nor waits, so a CUDA graph can
// capture it. In device memory:
//   workspace  FrequencyGradientWorkspace(args) bytes, aligned for double; the same for all calls
//              of one shape
//   out        [pairs] dL / d inv_freq, then dL / d amplitude, then dL / d base if there is a
//              base_derivative (from BaseDerivative; CPU memory, copied by the call);
//              overwritten
// Sums are in double, in an order that depends on shapes and alignment alone, so the bits do not
// depend on the GPU. At most 256 pairs with a base_derivative or on several axes. Throws Error as
// FrequencyGradient does, except for positions, which it does not read, and kUnsupported without
// CUDA.
int64_t FrequencyGradientWorkspace(const RotaryGradientArgs& args);
void FrequencyGradientOnDevice(const RotaryGradientArgs& args, void* workspace, double* out,
                               std::span<const double> base_derivative = {},
                               void* stream = nullptr);

// d inv_freq[i] / d base, [pairs]. A frequency is base^(-2i/d) times a method's factor. Where the
// factor does not depend on the base, the derivative is -(2i/d) inv_freq[i] / base. Llama3 and
// ByParts blend by frequency and add the derivative of the blend. YaRN's ramp with truncate counts
// as constant: it changes only where floor or ceil steps. For BaseScaling the base is
// BaseScaling's. Throws Error(kUnsupported) for YaRN without truncate, whose ramp depends on the
// base, and for RotaryAxes::own_ladders, which has several bases.
std::vector<double> BaseDerivative(const RotarySpec& spec, int64_t length);

// dL / d base = sum of inv_freq_gradient[i] * d inv_freq[i] / d base.
double BaseGradient(std::span<const double> inv_freq_gradient, const RotarySpec& spec,
                    int64_t length);

}  // namespace ropewalk
