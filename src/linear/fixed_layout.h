// How x lies in memory for fixed_dots.cc, and the instructions by which both are done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/linear/fixed_dots.h"

#if defined(__x86_64__) && defined(__GNUC__)
// Intrinsics of g++ 12 begin with vectors that are undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
// The instruction by its intrinsic: no target of the Highway that distributions have (1.0) offers it.
#define ROPEWALK_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#define ROPEWALK_VNNI_INLINE inline __attribute__((always_inline)) ROPEWALK_VNNI
#endif

namespace ropewalk::internal::fixed {

// x lies in chunks of 64 elements, in the order in which the type's codes come. A chunk is five
// vectors: the planes for 2^16, 2^8 and 1, in bytes with a sign; what 1 stands for in each four
// elements; and what takes the middle of the codes out of the sums of each four, since codes are
// multiplied as they are in the file, without a sign. Behind the chunks: the sums of x in each 32, in
// the order of the row.
inline constexpr int64_t kChunk = 64, kChunkBytes = 5 * 64;
inline constexpr int64_t kScales = 3 * 64, kMiddles = 4 * 64;
// The pieces that stay together in every order, and how many are put in order at a time; at the end of
// a row those of single chunks.
inline constexpr int64_t kPiece = 16, kPieces = 8, kStep = kPiece * kPieces, kQuarters = 4;

inline int64_t Chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }

// Four products with codes of 8 bits are below 2^31 if what they are multiplied with is, added up,
// below 2^24; with fewer bits they always are. There is room for rounding.
inline constexpr float kMostOfFour = 16777000.0f, kAny = 1e30f;

struct Order {
  int middle;          // of the codes: a power of two
  float most_of_four;  // the largest sum of |x| in four
  int slots[kPieces];  // where each piece goes
  int last[kQuarters];
};
inline constexpr Order kOrder8 = {7, kMostOfFour, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}};
inline constexpr Order kOrder2 = {1, kAny, {0, 1, 2, 3, 4, 5, 6, 7}, {}};
inline constexpr Order kOrder3 = {2, kAny, {0, 1, 2, 3, 4, 5, 6, 7}, {}};
inline constexpr Order kOrder6 = {5, kAny, {0, 1, 2, 3, 4, 5, 6, 7}, {}};
// First the lower halves of bytes, then the upper ones: in blocks of 32 elements, and of 64.
inline constexpr Order kHalvesOf32 = {3, kAny, {0, 4, 1, 5, 2, 6, 3, 7}, {0, 2, 1, 3}};
inline constexpr Order kHalvesOf64 = {3, kAny, {0, 1, 4, 5, 2, 3, 6, 7}, {}};
// The same where codes stand for 8 bits, or 5.
inline constexpr Order kHalvesOf32By8 = {7, kMostOfFour, {0, 4, 1, 5, 2, 6, 3, 7}, {0, 2, 1, 3}};
inline constexpr Order kHalvesOf32By5 = {4, kAny, {0, 4, 1, 5, 2, 6, 3, 7}, {0, 2, 1, 3}};
inline constexpr Order kHalvesOf64By5 = {4, kAny, {0, 1, 4, 5, 2, 3, 6, 7}, {}};

#if defined(ROPEWALK_VNNI)

// first, as often as `each` says, first + step, ..., and again after `period` of them.
template <class T, int kCount>
struct Indices {
  constexpr Indices(int first, int step, int each, int period = kCount) {
    for (int i = 0; i < kCount; ++i) at[i] = static_cast<T>(first + i / each % period * step);
  }
  alignas(64) T at[kCount] = {};
};
using Words = Indices<uint16_t, 32>;
using Lanes = Indices<int32_t, 16>;
// of[i] with indices that are known when this is compiled.
ROPEWALK_VNNI_INLINE __m512 Spread(__m512 of, const Lanes& indices) {
  return _mm512_permutexvar_ps(_mm512_load_si512(indices.at), of);
}
// WriteFixed, in this order.
bool WriteInOrder(const Order& order, const float* x, int64_t n, std::byte* out);

#endif

}  // namespace ropewalk::internal::fixed
