// vdpbf16ps and vcvtne2ps2bf16 by their intrinsics: no target of the Highway that distributions have
// (1.0) knows them.
#include "src/attention/kernel/pairs.h"

#include <algorithm>
#include <cstring>

#include "src/attention/kernel/tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
#ifndef __clang__  // GCC 12 takes undefined operands of its own intrinsics for a mistake (its bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#define ROPEWALK_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16")))
#endif

namespace ropewalk {

#if defined(ROPEWALK_AVX512_BF16)

bool HasBf16Attention() {
  // On Intel this has some 0.6 of float32's rate: there it is AMX's tiles or float32.
  static const bool has = __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512bf16") != 0 &&
                          (__builtin_cpu_is("amd") != 0 || internal::FindPairTiles());
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

// 2^f on [0, 1): least maximum relative error with a constant term of 1, 2.9e-6, a thousandth of
// what rounding to bf16 makes.
constexpr float kExp2ToRound[] = {1.0f, 0.693044841f, 0.241280213f, 0.0522424467f, 0.0134267015f};

// 2^x to be rounded to bf16; 0 and NaN as in Exp2 of gemm-inl.h.
ROPEWALK_AVX512_BF16 inline __m512 Exp2ToRound(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // x less the whole number below
  __m512 p = _mm512_set1_ps(kExp2ToRound[4]);
#pragma GCC unroll 4
  for (int k = 3; k >= 0; --k) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2ToRound[k]));
  const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExp2Least), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(kept, p, x);
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

ROPEWALK_AVX512_BF16 void RoundPairs(const float* x, int64_t rows, int64_t width, uint32_t* to) {
  // The converted odd row lies above the even one: words of one of each.
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; ++i) {
    order[2 * i] = static_cast<uint16_t>(i), order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  }
  const __m512i words = _mm512_load_si512(order);
  for (int64_t r = 0; r < rows; r += 2, to += width) {
    const float* even = x + r * width;
    for (int64_t i = 0; i < width; i += kLanes) {
      const __m512 odd = r + 1 < rows ? _mm512_loadu_ps(even + width + i) : _mm512_setzero_ps();
      const __m512bh both = _mm512_cvtne2ps_pbh(odd, _mm512_loadu_ps(even + i));
      _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(words, (__m512i)both));
    }
  }
}

ROPEWALK_AVX512_BF16 void RoundScaled(const float* x, int64_t count, float factor, uint16_t* to) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t left = std::min(kLanes, count - i);
    const auto mask = static_cast<__mmask16>((1u << left) - 1);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), by);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), (__m256i)_mm512_cvtneps_pbh(scaled));
  }
}

ROPEWALK_AVX512_BF16 void WeighRounded(const float* scores, int64_t count, float factor, float max,
                                       uint16_t* to, float* sums) {
  const __m512 by = _mm512_set1_ps(factor), top = _mm512_set1_ps(max), none = _mm512_setzero_ps();
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512 even = none, odd = none;
  int64_t k = 0;
  for (; k + 4 * kLanes <= count; k += 4 * kLanes) {
    __m512 w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 score = _mm512_loadu_ps(scores + k + i * kLanes);
      w[i] = Exp2ToRound(_mm512_fmsub_ps(score, by, top));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(w[2 * i + 1], w[2 * i]);
      _mm512_storeu_si512(to + k + 2 * i * kLanes, both);
      even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)));
      odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(both, upper)));
    }
  }
  for (; k < count; k += kLanes) {
    const __m512 w = Exp2ToRound(_mm512_fmsub_ps(_mm512_loadu_ps(scores + k), by, top));
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(none, w);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k), _mm512_castsi512_si256(both));
    even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)));
    odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(both, upper)));
  }
  _mm512_storeu_ps(sums, _mm512_add_ps(even, odd));
}

}  // namespace internal

#else

bool HasBf16Attention() { return false; }

// Never called.
void internal::MultiplyPairs(int64_t, int64_t, const uint16_t*, int64_t, const uint32_t*, int64_t,
                             int64_t, float, float*, int64_t) {}
void internal::RoundPairs(const float*, int64_t, int64_t, uint32_t*) {}
void internal::RoundScaled(const float*, int64_t, float, uint16_t*) {}
void internal::WeighRounded(const float*, int64_t, float, float, uint16_t*, float*) {}

#endif

}  // namespace ropewalk
