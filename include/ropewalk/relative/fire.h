// FIRE: a learned function of the distance relative to the query's position, so that every length
// maps to the same interval (Li et al. 2023, arXiv 2310.04418, section 3).
//
//   bias = f(psi(|i - j|) / psi(max(L, i))),   psi(x) = ln(c x + 1)
//   f(x) = b2 + sum over k of W2[k] relu(W1[k] x + b1[k])
//
// f is piecewise linear. It is evaluated exactly, as the linear function of the segment that x is
// in, and not as a network.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct FireBias {
  std::vector<float> w1 = {}, b1 = {};  // [width]
  std::vector<float> w2 = {};           // [heads, width]
  std::vector<float> b2 = {};           // [heads]
  double c = 0.1;                       // above 0; learned
  double threshold = 512;               // L, above 0; learned

  // Logarithms are tabulated up to max_distance and computed on the fly beyond.
  PairForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> w1, b1, w2, b2;
    double c = 0, threshold = 0;
  };
  // From the sum that PairFunction::Backward accumulated.
  Gradient Backward(std::span<const double> gradient) const;
};

}  // namespace ropewalk
