// Rotation by arbitrary generators, of which rotary embeddings are a special case. Slow and exact:
// for research, and as a reference for the fast kernels.
//
// A token at `position` (one number per axis) is multiplied by
//   R = exp(sum over axes a of position[a] G_a),   G_a skew-symmetric, so R is a rotation.
// RoPE is G = blocks ((0, -f_i), (f_i, 0)) (kexue.fm/archives/8265, eq. 11 to 13); its 2-D form has
// one such generator per axis (kexue.fm/archives/8397); LieRE learns dense blocks (Ostmeier et al.
// 2024, arXiv 2406.10322, section 3).
//
// If the G_a commute, R(m)^T R(n) = R(n - m) and a score depends on the difference of positions
// alone. If they do not, exp(A) exp(B) is not exp(A + B) and it depends on both positions. A single
// generator always commutes with itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

struct RotationGenerators {
  int64_t axes = 1;
  int64_t blocks = 1;               // diagonal blocks; a head has blocks * block elements
  int64_t block = 2;                // each block is block x block
  std::vector<double> values = {};  // [axes, blocks, block, block], skew-symmetric
};

// The generators of the rotary embedding with these frequencies. The interleaved layout gives
// blocks of 2, the half layout one block.
RotationGenerators RotaryGenerators(const Frequencies& frequencies, PairLayout layout);

// The largest element of |G_a G_b - G_b G_a| over all axes a, b: 0 where scores depend on
// differences of positions alone.
double LargestCommutator(const RotationGenerators& generators);

// R at one position, [blocks, block, block], by scaling and squaring of the Taylor series in
// double. The error is about 2^-50 max(1, a), where a is the sum over axes of |position| times the
// largest row sum of |G|. Throws Error for values that are not skew-symmetric or not finite.
std::vector<double> RotationMatrix(const RotationGenerators& generators,
                                   std::span<const double> position);

struct RotateGeneralArgs {
  const RotationGenerators* generators = nullptr;
  std::span<const double> positions;  // [axes, tokens]
  TensorView x;  // [tokens, heads, blocks * block], any float dtype, in place, last stride 1
  bool transpose = false;  // multiplies by R^T: the inverse, and the gradient
};
void RotateGeneral(const RotateGeneralArgs& args);

}  // namespace ropewalk
