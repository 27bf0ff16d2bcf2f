// PoPE (Gopalakrishnan et al. 2025, arXiv 2509.10534): each element of a head becomes a vector in
// the plane whose length depends on content alone and whose angle on position alone. In RoPE the
// angle depends on both.
//
//   score = scale sum over e of softplus(q_e) softplus(k_e) cos((j - i) f_e + phase_e),
//   f_e = base^(-e / head_dim),  phase learned, clipped to [-2 pi, 0]
//
// That is the product of two encoded vectors of 2 head_dim elements, which attention takes as q and
// k:
//   query: softplus(q_e) (cos(i f_e), sin(i f_e)),
//   key:   softplus(k_e) (cos(j f_e + phase_e), sin(j f_e + phase_e))
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

struct PopeEncoding {
  int64_t heads = 0, head_dim = 0;
  double base = 10000;
  std::vector<float> phase = {};  // [heads, head_dim] for keys; empty for queries

  // x [tokens, heads, head_dim] -> [tokens, heads, 2 head_dim], all cosines before all sines.
  // positions [tokens], 0 to 2^31 - 1.
  std::vector<float> Encode(std::span<const float> x, std::span<const int64_t> positions) const;
  struct Gradient {
    std::vector<double> x, phase;  // of the shapes above
  };
  Gradient Backward(std::span<const float> x, std::span<const int64_t> positions,
                    std::span<const float> d_out) const;
};

}  // namespace ropewalk
