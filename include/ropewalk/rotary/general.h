// Rotation by any generators: what rotary embeddings are a special case of. Slow and exact; for
// research, and to check the fast ones.
//
// A token at `position` (one number an axis) is multiplied by
//   R = exp(sum over axes a of position[a] G_a),   G_a skew-symmetric, so R is a rotation.
// RoPE is G = blocks ((0, -f_i), (f_i, 0)) (kexue.fm/archives/8265, eq. 11 to 13); its 2-D form has
// one such generator an axis (kexue.fm/archives/8397); LieRE learns dense blocks (Ostmeier et al.
// 2024, arXiv 2406.10322, section 3).
//
// If the G_a commute, R(m)^T R(n) = R(n - m) and a score depends on the difference of positions
// alone. If they do not, it depends on both positions: exp(A) exp(B) is not exp(A + B). One axis
// always commutes with itself. Tests show both.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

struct RotationGenerators {
  int64_t axes = 1;
  int64_t blocks = 1;               // along the diagonal; the head has blocks * block elements
  int64_t block = 2;                // a block is block x block
  std::vector<double> values = {};  // [axes, blocks, block, block], skew-symmetric
};

// The generators of the rotary embedding of these frequencies, on all its axes. Interleaved pairs
// are blocks of 2; the half layout is one block.
RotationGenerators RotaryGenerators(const Frequencies& frequencies, PairLayout layout);

// The largest element of |G_a G_b - G_b G_a| over all axes: 0 where scores depend on differences of
// position alone.
double LargestCommutator(const RotationGenerators& generators);

// R at one position, [blocks, block, block]. By scaling and squaring of the Taylor series, in
// double: error about 2^-50 times the sum of |position| times the largest row sum of |G| (the
// rounding of the angle itself), or 2^-50 where that is below 1. Throws Error for values that are
// not skew-symmetric or not finite.
std::vector<double> RotationMatrix(const RotationGenerators& generators,
                                   std::span<const double> position);

struct RotateGeneralArgs {
  const RotationGenerators* generators = nullptr;
  std::span<const double> positions;  // [axes, tokens]
  TensorView x;  // [tokens, heads, blocks * block], any float dtype, in place, last stride 1
  bool transpose = false;  // R^T: undoes it, and takes gradients back
};
void RotateGeneral(const RotateGeneralArgs& args);

}  // namespace ropewalk
