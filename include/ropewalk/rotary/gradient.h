// Gradients of the rotation y = a R x, for training with learned frequencies or a learned base.
//
// With respect to x: Rotate with Direction::kAdjoint, dx = a R^T dy.
// With respect to the frequencies and the amplitude, with J the quarter turn (x1, x2) -> (-x2, x1):
//   dL / d inv_freq[i] = sum over tokens and heads of position * <dy, J y>   (pair i)
//   dL / d a           = sum over everything of <dy, y> / a
// J commutes with R, so <dy, J y> = <dx, J x>: the sums need no cosine, and either side of the
// rotation will do, whichever the caller still has.
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

// Of one tensor; that of q and k is the sum of both. Sums in double; for equal thread counts the
// bits are equal. Throws Error as Rotate does.
RotaryGradient FrequencyGradient(const RotaryGradientArgs& args);

// The same of tensors on a GPU (Device::kCuda), whose lists of positions lie there as well; put on
// `stream` (a cudaStream_t). It allocates nothing and waits for nothing, so that a graph can
// capture it. All in device memory:
//   workspace  FrequencyGradientWorkspace(args) bytes, aligned for double; the same for all calls
//              of one shape
//   out        [pairs] dL / d inv_freq, then dL / d amplitude, then dL / d base if there is a
//              base_derivative (BaseDerivative's; memory of the CPU, copied by the call);
//              overwritten
// Sums in double, added in an order that follows from shapes and alignment alone: their bits do not
// depend on the GPU. At most 256 pairs with a base_derivative or on several axes. Throws Error as
// FrequencyGradient does, but does not read positions, and kUnsupported without CUDA.
int64_t FrequencyGradientWorkspace(const RotaryGradientArgs& args);
void FrequencyGradientOnDevice(const RotaryGradientArgs& args, void* workspace, double* out,
                               std::span<const double> base_derivative = {},
                               void* stream = nullptr);

// d inv_freq[i] / d base, [pairs]. Each method's frequency is base^(-2i/d) times something; where
// that is a constant the derivative is -(2i/d) inv_freq[i] / base. Llama3 and ByParts blend by the
// frequency itself and add the derivative of the blend. Between the steps of floor and ceil the
// ramp of YaRN is constant too. For BaseScaling it is the base given there. Throws Error
// (kUnsupported) for YaRN with truncate off, whose ramp moves with the base, and for axes with
// ladders of their own, which have several bases.
std::vector<double> BaseDerivative(const RotarySpec& spec, int64_t length);

// dL / d base = sum of inv_freq_gradient[i] * d inv_freq[i] / d base.
double BaseGradient(std::span<const double> inv_freq_gradient, const RotarySpec& spec,
                    int64_t length);

}  // namespace ropewalk
