// Q8_0, written from its definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ropewalk/base/dtype.h"

namespace ropewalk::q8 {

struct Block {
  uint16_t scale;
  int8_t q[32];
};
static_assert(sizeof(Block) == 34);

inline std::vector<Block> Quantised(const std::vector<double>& x) {
  std::vector<Block> blocks(x.size() / 32);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    double largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[32 * b + i]));
    const Float16 scale = ToFloat16(static_cast<float>(largest / 127));
    blocks[b].scale = scale.bits;
    for (int i = 0; i < 32; ++i) {
      const double q = scale.bits == 0 ? 0 : std::round(x[32 * b + i] / ToFloat(scale));
      blocks[b].q[i] = static_cast<int8_t>(std::max(-127.0, std::min(127.0, q)));
    }
  }
  return blocks;
}
inline std::vector<double> Values(const std::vector<Block>& blocks) {
  std::vector<double> x;
  for (const Block& b : blocks) {
    for (const int8_t q : b.q) x.push_back(static_cast<double>(ToFloat(Float16{b.scale})) * q);
  }
  return x;
}

}  // namespace ropewalk::q8
