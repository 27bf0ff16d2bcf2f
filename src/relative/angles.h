// Exact angles of one position after the other.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk::internal {

// cos and sin of position base^(-2 i / dim), i below dim / 2; angles are reduced exactly.
class Angles {
 public:
  Angles(double base, int64_t dim) {
    RotarySpec spec(PairLayout::kHalf);
    spec.head_dim = spec.rotary_dim = dim;
    spec.base = base;
    frequencies_ = Resolve(spec, 1).inv_freq;
    cosine.resize(frequencies_.size());
    sine.resize(frequencies_.size());
  }

  double Frequency(std::size_t i) const { return frequencies_[i].hi; }

  void MoveTo(int64_t position) {
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = ExactAngle(frequencies_[i], position);
      cosine[i] = std::cos(angle);
      sine[i] = std::sin(angle);
    }
  }

  std::vector<double> cosine, sine;  // [dim / 2]

 private:
  std::vector<DoubleDouble> frequencies_;
};

}  // namespace ropewalk::internal
