// SplitMix64 (Steele, Lea, Flood 2014, doi 10.1145/2660193.2660195): the same numbers on every
// platform, which the distributions of <random> do not promise.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [0, n), n > 0.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Uniform() * static_cast<double>(n)); }

 private:
  uint64_t state_;
};

}  // namespace ropewalk::internal
