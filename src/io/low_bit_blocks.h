// Blocks of 256 elements in 1.6 to 3.4 bits each, as ggml-common.h lays them out: points of a grid
// (IQ1, IQ2, IQ3) and digits of three values (TQ).
#pragma once

#include <cstdint>

#include "ropewalk/base/dtype.h"

namespace ropewalk::internal {

// In IQ2 and IQ3 the grid has magnitudes and a byte has the signs of 8 elements. Where only 7 signs
// are stored ("signs7"), the eighth makes the number of negative elements even.
struct BlockIQ2_XXS {
  Float16 d;
  uint8_t q[64];  // for 32 elements each: four points, then four signs7 and a scale of 4 bits
};
struct BlockIQ2_XS {
  Float16 d;
  uint16_t q[32];     // 9 bits of point, signs7
  uint8_t scales[8];  // of 16 elements each, 4 bits
};
struct BlockIQ2_S {
  Float16 d;
  uint8_t q[32];  // the low 8 bits of a point
  uint8_t signs[32];
  uint8_t high[8];  // its upper 2 bits
  uint8_t scales[8];
};
struct BlockIQ3_XXS {
  Float16 d;
  uint8_t q[64];      // a point is 4 elements
  uint8_t signs[32];  // for 32 elements each: four signs7 and a scale of 4 bits
};
struct BlockIQ3_S {
  Float16 d;
  uint8_t q[64];
  uint8_t high[8];  // bit i of a point's number above the low 8
  uint8_t signs[32];
  uint8_t scales[4];  // of 32 elements each, 4 bits
};
// In IQ1 the grid has -1, 0 and 1, and a bit says whether 1/8 is added or taken away.
struct BlockIQ1_S {
  Float16 d;
  uint8_t q[32];
  uint16_t high[8];  // for 32 elements: four times 3 bits of point, a scale of 3 bits, the 1/8
};
struct BlockIQ1_M {
  uint8_t q[32];
  uint8_t high[16];    // for 8 elements: 3 bits of point, the 1/8
  uint16_t scales[4];  // four of 16 elements each, 3 bits; a quarter of the half-precision d on top
};
struct BlockTQ1_0 {
  uint8_t q[48];    // five elements in base 3, as a fraction of 256
  uint8_t last[4];  // four elements
  Float16 d;
};
struct BlockTQ2_0 {
  uint8_t q[64];
  Float16 d;
};

// Element i is codes[i] * scales[i / 16], which no type rounds: a scale has at most 11 + 5 bits, a code
// 6.
struct LowBitCodes {
  alignas(64) int8_t codes[256];
  float scales[16];
};
void Unpack(const BlockIQ2_XXS& b, LowBitCodes& to);
void Unpack(const BlockIQ2_XS& b, LowBitCodes& to);
void Unpack(const BlockIQ2_S& b, LowBitCodes& to);
void Unpack(const BlockIQ3_XXS& b, LowBitCodes& to);
void Unpack(const BlockIQ3_S& b, LowBitCodes& to);
void Unpack(const BlockIQ1_S& b, LowBitCodes& to);
void Unpack(const BlockIQ1_M& b, LowBitCodes& to);
void Unpack(const BlockTQ1_0& b, LowBitCodes& to);
void Unpack(const BlockTQ2_0& b, LowBitCodes& to);

}  // namespace ropewalk::internal
