// Products of pairs of bf16 with float32 sums: by vdpbf16ps, or in AMX's tiles. What
// computes needs HasBf16Attention(), and HasPairTiles() where it says tiles.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// c [rows, width] = factor a [rows, 2 depth] times b, or += where the factor is kAccumulatePairs.
// a is bf16; b is words [depth, width] of two bf16 of its depth, the even one below. rows: 1 to 6;
// width: a multiple of 16; strides in elements of a and c, and words of b. Each element sums over
// depth in order, so its bits do not depend on rows or width, and is added to c as one.
inline constexpr float kAccumulatePairs = 0;
void MultiplyPairs(int64_t rows, int64_t width, const uint16_t* a, int64_t a_stride,
                   const uint32_t* b, int64_t b_stride, int64_t depth, float factor, float* c,
                   int64_t c_stride);

// Words [rows / 2, width] of rows [rows, width], to the nearest, ties to even, and after an odd row
// a row of zeros; NaN stays NaN and a denormal becomes 0, as in products. width: a multiple of 16.
void RoundPairs(const float* x, int64_t rows, int64_t width, uint32_t* to);
// factor x in bf16, and zeros up to a multiple of 16.
void RoundScaled(const float* x, int64_t count, float factor, uint16_t* to);

// Weights 2^(factor score - max) of `count` scores, a multiple of 16, in bf16, and 16 sums of them as
// rounded.
void WeighRounded(const float* scores, int64_t count, float factor, float max, uint16_t* to,
                  float* sums);

// Whether this CPU has amx_bf16 and its system lends the process the tiles.
bool FindPairTiles();
// Whether attention uses them. AllowPairTiles(false) makes it false, for tests and benchmarks; not
// while attention runs.
bool HasPairTiles();
void AllowPairTiles(bool allowed);

// The most rows of one call, and what is read and written in whole.
inline constexpr int64_t kPairTileGroup = 32;
inline constexpr int64_t kPairTileRows = 16;
// Words of depth at once of MultiplyPairTiles: the most of 8 to 16 that divide depth; 0: none do.
inline constexpr int64_t kLeastPairWords = 8;
int64_t WordsOfPairTiles(int64_t depth);
// Tiles of `words` for the calling thread, until they are released.
void ConfigurePairTiles(int64_t words);
void ReleasePairTiles();
// As MultiplyPairs, of up to 32 rows and with depth a multiple of the configured words; each element
// sums the even and the odd of `words` pairs and adds them to what it has. a has whole tiles of 16
// rows, and so has c where the factor is 1 or kAccumulatePairs: rows beyond `rows` are written there.
void MultiplyPairTiles(int64_t rows, int64_t width, const uint16_t* a, int64_t a_stride,
                       const uint32_t* b, int64_t b_stride, int64_t words, int64_t depth,
                       float factor, float* c, int64_t c_stride);

}  // namespace ropewalk::internal
