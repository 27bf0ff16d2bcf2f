// FoPE (Hua et al. 2024, arXiv 2412.17739): RoPE whose cos and sin are learned sums over several
// frequencies, a Fourier series per pair. Pairs d that make less than one rotation within the
// trained length get frequency 0.
//
//   cos'_d(n) = sum over w of cosines[w, d] cos(n base^(-2 w / head_dim)),   sin' likewise
//   (x_d, x_(d + head_dim / 2)) -> (x1 cos' - x2 sin', x2 cos' + x1 sin')
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

struct FopeEncoding {
  int64_t heads = 0, head_dim = 0;  // of x; head_dim even
  double base = 10000;
  int64_t trained_length = 0;
  int64_t frequencies = 0;  // how many are kept; 0: those above 2 pi / trained_length
  int64_t table_heads = 1;  // divides heads; heads / table_heads neighbours share a table (GQA)
  // [table_heads, kept, kept]: weight of frequency w (row) in pair d (column).
  std::vector<float> cosines = {}, sines = {};

  int64_t Kept() const;
  // x [tokens, heads, head_dim] -> the same shape, half layout. positions [tokens], 0 to 2^31 - 1.
  std::vector<float> Encode(std::span<const float> x, std::span<const int64_t> positions) const;
  struct Gradient {
    std::vector<double> x, cosines, sines;  // of the shapes above
  };
  Gradient Backward(std::span<const float> x, std::span<const int64_t> positions,
                    std::span<const float> d_out) const;
};

}  // namespace ropewalk
