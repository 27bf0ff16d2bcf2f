// Swin V2's continuous bias: a small network of the log-spaced 2-D offset, which transfers to
// windows of other sizes (Liu et al. 2021, arXiv 2111.09883, section 3.3, eq. 4).
//
//   bias = 16 sigmoid(W2 relu(W1 (y, x) + b1)),   y = s(row of i - row of j), x likewise,
//   s(n) = sign(n) log2(1 + 8 |n| / (size - 1)) / log2(8)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

// Position p of a window is row p / width, column p % width.
struct SwinBias {
  int64_t height = 0, width = 0;  // of the window, in patches
  // `size` above: height and width of the window of pretraining; 0: those of this window.
  int64_t pretrained_height = 0, pretrained_width = 0;
  std::vector<float> w1 = {};  // [hidden, 2]: columns for y and x
  std::vector<float> b1 = {};  // [hidden]
  std::vector<float> w2 = {};  // [heads, hidden]

  // max_distance has no effect: there is one value per head and offset, of which there are
  // (2 height - 1) (2 width - 1).
  PairForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> w1, b1, w2;  // of the shapes above
  };
  // From the sum that PairFunction::Backward accumulated.
  Gradient Backward(std::span<const double> gradient) const;
};

}  // namespace ropewalk
