// vdpbf16ps by its intrinsic: no target of the Highway that distributions have (1.0) knows it.
#include "src/attention/kernel/pairs.h"

#include <algorithm>
#include <cstring>

#include "ropewalk/attention/attention.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define ROPEWALK_AVX512_BF16 __attribute__((target("avx512f,avx512bf16")))
#endif

namespace ropewalk {

#if defined(ROPEWALK_AVX512_BF16)

bool HasBf16Attention() {
  static const bool has =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
  return has;
}

namespace internal {
namespace {

constexpr int64_t kLanes = 16, kVecs = 4;

// rows x vecs sums in registers: 24 of 32.
template <int rows, int vecs>
ROPEWALK_AVX512_BF16 void Panel(const uint16_t* a, int64_t a_stride, const uint32_t* b,
                                int64_t b_stride, int64_t depth, float factor, float* c,
                                int64_t c_stride) {
  __m512 sums[rows][vecs];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vecs; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < depth; ++k) {
    __m512bh rhs[vecs];
#pragma GCC unroll 8
    for (int v = 0; v < vecs; ++v) {
      rhs[v] = (__m512bh)_mm512_loadu_si512(b + k * b_stride + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      int pair;
      std::memcpy(&pair, a + r * a_stride + 2 * k, sizeof(pair));
      const __m512bh lhs = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < vecs; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], lhs, rhs[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vecs; ++v) {
      float* to = c + r * c_stride + v * kLanes;
      _mm512_storeu_ps(to, factor == kAccumulatePairs
                               ? _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v])
                               : _mm512_mul_ps(sums[r][v], _mm512_set1_ps(factor)));
    }
  }
}

using PanelFunction = void (*)(const uint16_t*, int64_t, const uint32_t*, int64_t, int64_t, float,
                               float*, int64_t);
// By vecs, then rows.
constexpr PanelFunction kPanels[4][6] = {
    {Panel<1, 1>, Panel<2, 1>, Panel<3, 1>, Panel<4, 1>, Panel<5, 1>, Panel<6, 1>},
    {Panel<1, 2>, Panel<2, 2>, Panel<3, 2>, Panel<4, 2>, Panel<5, 2>, Panel<6, 2>},
    {Panel<1, 3>, Panel<2, 3>, Panel<3, 3>, Panel<4, 3>, Panel<5, 3>, Panel<6, 3>},
    {Panel<1, 4>, Panel<2, 4>, Panel<3, 4>, Panel<4, 4>, Panel<5, 4>, Panel<6, 4>}};

}  // namespace

void MultiplyPairs(int64_t rows, int64_t width, const uint16_t* a, int64_t a_stride,
                   const uint32_t* b, int64_t b_stride, int64_t depth, float factor, float* c,
                   int64_t c_stride) {
  for (int64_t x = 0; x < width; x += kVecs * kLanes) {
    const int64_t vecs = std::min(kVecs, (width - x) / kLanes);
    kPanels[vecs - 1][rows - 1](a, a_stride, b + x, b_stride, depth, factor, c + x, c_stride);
  }
}

}  // namespace internal

#else

bool HasBf16Attention() { return false; }

// Never called.
void internal::MultiplyPairs(int64_t, int64_t, const uint16_t*, int64_t, const uint32_t*, int64_t,
                             int64_t, float, float*, int64_t) {}

#endif

}  // namespace ropewalk
