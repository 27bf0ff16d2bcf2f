// Rows of positions through a learned matrix, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk::internal {

// A torch.nn.Linear from `dim` numbers to heads * head_dim: weight [heads, head_dim, dim], bias
// [heads, head_dim] or empty.
struct Projection {
  int64_t heads, head_dim, dim;
  std::span<const float> weight, bias;
};

// rows [n, dim] -> [heads, n, head_dim], sums in double.
std::vector<float> Project(const Projection& projection, std::span<const double> rows);

struct ProjectionGradient {
  std::vector<double> weight, bias, rows;  // of the shapes above; bias empty where there is none
};
// d_out [heads, n, head_dim].
ProjectionGradient ProjectBackward(const Projection& projection, std::span<const double> rows,
                                   std::span<const double> d_out);

}  // namespace ropewalk::internal
